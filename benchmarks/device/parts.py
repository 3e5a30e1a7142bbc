"""Parts of the run, the most important first: checks, then speeds. If the time is up, the last parts are left out.

A part imports the packages that only it needs when it runs, so that other parts run without these packages.
"""

import functools
import pathlib
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from benchmarks.device.attention_check import CASES, check_attention
from benchmarks.device.dropout_check import check_dropout
from benchmarks.device.model_check import CheckSize, check_logits, check_training
from benchmarks.device.report import Part, Result
from benchmarks.device.steps import Repeats, Step, time_step
from bert_jax.config.presets import PRESETS


def _of_attention(case: str) -> Callable[[CheckSize], Iterable[Result]]:
    """Return the check of the attention kernels in one case; the check ignores its argument, the size of checks."""
    return lambda size: check_attention(case)


def _resume(size: CheckSize) -> Iterable[Result]:
    from benchmarks.device.resume_check import check_resume

    return check_resume(size)


def _embed(*arguments: Any) -> Iterable[Result]:
    from benchmarks.device.texts import time_embed

    return time_embed(*arguments)


def _input(*arguments: Any) -> Iterable[Result]:
    from benchmarks.device.texts import time_input

    return time_input(*arguments)


CHECKS: dict[str, Callable[[CheckSize], Iterable[Result]]] = {
    "logits": check_logits,
    "training": check_training,
    "dropout": lambda size: check_dropout(),
    "resume": _resume,
    **{f"attention, {case}": _of_attention(case) for case in CASES},
}

# torch compiles attention with dropout to slow kernels, so ours and torch are also timed without attention dropout.
# cuDNN's kernel has no dropout. At 8,192 tokens, XLA's attention and torch are not timed: token pairs would fill the
# memory. Unrolled layers compile in 15 to 33 s on an H100. The steps of BERT-base that are compared with torch have
# unrolled layers. Most other rows scan their layers, as `pretrain` does by default, so that a first run of 9 minutes
# reaches them. On GPUs, `auto` is Triton for all layers of a scanned ModernBERT, whose windows are then traced values,
# and cuDNN for the global layers of an unrolled ModernBERT.
BASE_STEPS = (
    Step("base", 256, 128),
    Step("base", 256, 128, attention_dropout=False),
    Step("base", 256, 128, "torch compiled", attention_dropout=False),
    Step("base", 64, 512, attention_dropout=False),
    Step("base", 64, 512, "torch compiled", attention_dropout=False),
)
OTHER_STEPS = (
    Step("large", 32, 512, scanned=True),
    Step("base", 64, 512, packed=True, scanned=True),
    Step("modern_base", 32, 1024, scanned=True),
    Step("base", 32, 128, task=True, scanned=True),
)
LAST_STEPS = (
    Step("modern_base", 4, 8192, scanned=True),  # 105 steps take 24 s
    Step("base", 64, 512),
    Step("modern_base", 32, 1024),
    Step("modern_base", 32, 1024, "torch compiled"),
    Step("large", 32, 512, attention_dropout=False),
    Step("large", 32, 512, "torch compiled", attention_dropout=False),
    Step("modern_base", 32, 1024, "cudnn", scanned=True),
    Step("modern_base", 4, 8192),
    Step("modern_base", 4, 8192, "cudnn", scanned=True),
    Step("base", 64, 512, "cudnn", attention_dropout=False, scanned=True),
    Step("base", 64, 512, "triton", scanned=True),
    Step("base", 64, 512, "xla", scanned=True),
    Step("base", 256, 128, "cudnn", attention_dropout=False, scanned=True),
    Step("base", 256, 128, "triton", scanned=True),
    Step("base", 256, 128, "xla", scanned=True),
    Step("modern_base", 32, 1024, "xla", scanned=True),
    Step("modern_base", 32, 1024, packed=True, scanned=True),
    Step("base", 256, 128, packed=True, scanned=True),
    Step("large", 32, 512, packed=True, scanned=True),
    Step("modern_base", 4, 8192, packed=True, scanned=True),
    Step("base", 256, 128, "torch"),
)


class Scale(NamedTuple):
    """Sizes of all parts: full, or tiny for a CPU."""

    checks: CheckSize
    repeats: Repeats
    steps: Callable[[Step], Step]
    embed: str  # a row of PRESETS
    num_texts: int
    batch_size: int
    documents: int
    num_batches: int  # number of batches that the input pipeline makes


def tiny(step: Step) -> Step:
    """Return a step of equal kind that is so small that a CPU needs about a second for it."""
    modern = step.size.startswith("modern")
    size, layers = ("modern_tiny", 2) if modern else ("tiny", 1)
    return step._replace(size=size, sequences=2, seq_len=step.seq_len // (16 if modern else 4), layers=layers)


SCALES = {
    "full": Scale(CheckSize(), Repeats(), lambda step: step, "base", 8_192, 256, 400, 200),
    "tiny": Scale(CheckSize("tiny", "modern_tiny", 32), Repeats(1, 2, 1), tiny, "tiny", 16, 8, 20, 5),
}


def parts(scale: Scale, directory: pathlib.Path) -> list[Part]:
    """Return all parts; `directory` holds the corpus that `embed` and the input pipeline read."""

    def timed(steps: Iterable[Step]) -> list[Part]:
        return [Part(step.name, functools.partial(time_step, step, scale.repeats)) for step in map(scale.steps, steps)]

    corpus = (directory, scale.documents)
    size, config = scale.embed, PRESETS[scale.embed]
    embed = Part("embed", functools.partial(_embed, *corpus, size, config, scale.num_texts, scale.batch_size))
    inputs = [
        Part(
            f"input, {seq_len} tokens, packing {packing}",
            functools.partial(_input, *corpus, seq_len, packing, scale.num_batches),
        )
        for seq_len, packing in ((128, 1), (512, 1), (512, 8))
    ]
    checks = [Part(name, functools.partial(check, scale.checks)) for name, check in CHECKS.items()]
    # The parts of the input pipeline take seconds, because they compile nothing.
    ordered = [*checks, *inputs, *timed(BASE_STEPS), *timed(OTHER_STEPS), embed, *timed(LAST_STEPS)]
    return list({part.name: part for part in ordered}.values())  # tiny steps of several sizes are equal
