"""Run by test_sharding.py on several CPU devices: trains each objective a few steps on a mesh and on one device.

Prints losses and gradient norms of both, how far the parameters are apart after the last step, and how far they moved.
"""

import functools
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from bert_jax import config as c
from bert_jax.config import ComputeConfig, EncoderConfig, MeshConfig, OptimizerConfig, PretrainConfig, TaskConfig
from bert_jax.interop.huggingface.peft import find_adapter_targets
from bert_jax.models import Adapter, make_model
from bert_jax.models.adapters import with_adapter
from bert_jax.objectives import Objective, make_objective
from bert_jax.objectives.frozen_encoder import with_frozen_encoder
from bert_jax.objectives.tasks import make_task_objective, task_head
from bert_jax.parallel.sharding import check_mesh_divides_batch, check_mesh_divides_heads, make_mesh, place_batch
from bert_jax.training.optimizers import make_optimizer
from bert_jax.training.schedules import Phase, learning_rate
from bert_jax.training.step import init_state, jit_train_step, state_layout
from tests.helpers.synthetic import VOCAB, random_batch

STEPS, SEQUENCES, LENGTH, NUM_LABELS = 3, 16, 16, 3
SIZES = {"vocab_size": VOCAB, "hidden_size": 32, "num_heads": 4, "mlp_size": 64, "max_positions": LENGTH}
SIZES |= {"initializer_range": 0.1}
RUN = PretrainConfig(optimizer=OptimizerConfig(peak_learning_rate=1e-3, warmup_fraction=0.0))
WEIGHTS = {"positives": 5, "example_weights": 10}  # every n-th example has the weight 0
STUDENT, TEACHER = (EncoderConfig(**SIZES, num_layers=layers) for layers in (2, 4))  # both with dropout


def pretraining(objective: str, **values: dict[str, object]) -> Objective:
    made = c.pretrain_config()
    made.objective = objective
    made.data.sentence_pairs = "full_sentences"
    made.model.update(SIZES, num_layers=2)
    made.train.phases = c.phases({"seq_len": LENGTH})
    made.update(values)
    return make_objective(c.resolve(c.PretrainConfig, made), TEACHER)


def hybrid() -> Objective:
    phase = {"seq_len": LENGTH, "objective": "hybrid", "left_to_right_fraction": 0.5}
    return pretraining("masked_tokens", train={"phases": c.phases(phase)}).of_phase(0)


def task(kind: str, settings: TaskConfig, teacher: EncoderConfig | None = None) -> Objective:
    student, taught = (
        one and make_model(one, ComputeConfig(), (task_head(kind, NUM_LABELS, settings),)) for one in (STUDENT, teacher)
    )
    return make_task_objective(student, kind, False, settings, taught, STEPS)


def adapter() -> Objective:
    """An adapter with dropout beside all linear maps of the encoder, and a head."""
    model = make_model(STUDENT, ComputeConfig(), (task_head("token_classification", NUM_LABELS),))
    model = with_adapter(model, Adapter(find_adapter_targets(STUDENT, ("all-linear",)), rank=4, alpha=8.0, dropout=0.1))
    return with_frozen_encoder(make_task_objective(model, "token_classification", False), STUDENT.num_layers)


def tags(step: int) -> dict[str, np.ndarray]:
    """Labels of some of the tokens, on each device of a different number."""
    rng = np.random.default_rng(step)
    labels = rng.integers(0, NUM_LABELS, (SEQUENCES, LENGTH), np.int32)
    counted = rng.random((SEQUENCES, LENGTH)) < rng.random((SEQUENCES, 1))
    return random_batch(step * SEQUENCES, SEQUENCES, LENGTH) | {
        "token_labels": labels,
        "token_weights": counted.astype(np.float32),
    }


def weighted_tags(step: int) -> dict[str, np.ndarray]:
    """Tags whose labels have weights."""
    batch = tags(step)
    of_label = np.array([0.5, 1.0, 2.5], np.float32)
    return batch | {"token_weights": batch["token_weights"] * of_label[batch["token_labels"]]}


def label_sets(step: int) -> dict[str, np.ndarray]:
    """Any number of labels for a text, with weights of the true labels."""
    label_set = (np.random.default_rng(step).random((SEQUENCES, NUM_LABELS)) < 0.4).astype(np.float32)
    weights = np.where(label_set > 0, np.array([0.5, 1.0, 2.5], np.float32), np.float32(1))
    return random_batch(step * SEQUENCES, SEQUENCES, LENGTH) | {"label_set": label_set, "label_weights": weights}


def prompts(step: int) -> dict[str, np.ndarray]:
    """A mask in each text, and one or two words for each label."""
    batch = random_batch(step * SEQUENCES, SEQUENCES, LENGTH, predictions=1)
    labels = np.random.default_rng(step).integers(0, NUM_LABELS, SEQUENCES, np.int32)
    words = np.array([[7, 8], [9, -1], [70, 98]], np.int32)
    return batch | {"labels": labels, "verbalizers": np.tile(words, (SEQUENCES, 1, 1))}


def pairs(step: int) -> dict[str, np.ndarray]:
    """Two texts of each example; some examples are no positives or absent, and some texts are on two devices."""
    both = [random_batch(2 * SEQUENCES * step + first, SEQUENCES, LENGTH) for first in (0, SEQUENCES)]
    texts = {
        name: np.stack([one[name] for one in both], 1) for name in ("input_ids", "token_type_ids", "attention_mask")
    }
    for x in texts.values():
        x[9, 0], x[12, 1] = x[1, 0], x[2, 1]
    text_ids = np.arange(2 * SEQUENCES, dtype=np.int32).reshape(SEQUENCES, 2)
    text_ids[9, 0], text_ids[12, 1] = text_ids[1, 0], text_ids[2, 1]
    labels = {name: (np.arange(SEQUENCES) % n > 0).astype(np.float32) for name, n in WEIGHTS.items()}
    return texts | {"text_ids": text_ids} | labels


def marked_pairs(step: int) -> dict[str, np.ndarray]:
    """Pairs whose first texts end in unread mask tokens, and whose second texts have tokens without a vector."""
    batch = pairs(step)
    padding = 1 - batch["attention_mask"]
    unread = padding * np.array([[1], [0]], np.int32)
    scored = batch["attention_mask"] * (batch["input_ids"] % 7 > 0)
    scored[:, 0] = 1
    return batch | {
        "attention_mask": batch["attention_mask"] | unread,
        "scored_tokens": scored.astype(np.int32),
        "unread_tokens": unread,
    }


class Case(NamedTuple):
    """What is trained, on which mesh; a run with micro-batches is compared with one of as many."""

    objective: Objective
    mesh: tuple[int, int, int]
    grad_accum_steps: int = 1
    batch: Callable[[int], dict[str, np.ndarray]] = lambda step: random_batch(step * SEQUENCES, SEQUENCES, LENGTH)


def cases() -> dict[str, Case]:
    """The objectives that test_meshes.py does not train."""
    more = {"teacher": "the teacher", "hidden_weight": 0.5}
    focal = TaskConfig(focal_gamma=2.0)
    sparse = TaskConfig(vector_head="sparse", query_flops_weight=0.3, document_flops_weight=0.2)
    late_interaction = TaskConfig(vector_head="late_interaction", vector_width=8)
    from_teacher = TaskConfig(teacher="the teacher", soft_fraction=0.4, soft_temperature=2.0)
    return {
        "hybrid": Case(hybrid(), (2, 2, 2), 2),
        "left to right": Case(pretraining("left_to_right", model={"causal": True}), (2, 2, 2), 2),
        "distillation": Case(pretraining("distillation", distillation=more), (2, 2, 2)),
        "similarity": Case(task("similarity", TaskConfig()), (8, 1, 1), batch=pairs),
        "cached similarity": Case(task("similarity", TaskConfig()), (8, 1, 1), 2, pairs),
        "cached similarity with sharded parameters": Case(task("similarity", TaskConfig()), (2, 2, 2), 4, pairs),
        "cached sparse": Case(task("similarity", sparse), (2, 2, 2), 2, pairs),
        "cached late interaction": Case(task("similarity", late_interaction), (2, 2, 2), 2, marked_pairs),
        "adapter": Case(adapter(), (2, 2, 2), 2, tags),
        "task distillation": Case(task("token_classification", from_teacher, TEACHER), (2, 2, 2), 2, tags),
        "weighted and focal": Case(task("token_classification", focal), (8, 1, 1), 2, weighted_tags),
        "label sets": Case(task("multilabel_classification", focal), (2, 2, 2), batch=label_sets),
        "prompts": Case(task("prompt_classification", TaskConfig()), (2, 2, 2), batch=prompts),
        "prompts in micro-batches": Case(task("prompt_classification", TaskConfig()), (2, 2, 2), 2, prompts),
    }


def trained(case: Case, sizes: tuple[int, int, int], params: Any, frozen: Any) -> tuple[dict[str, list[float]], Any]:
    """Losses and gradient norms of all steps, and the parameters after them; the optimizer hides a wrong scale."""
    optimizer = make_optimizer(RUN.optimizer, case.objective.logical_axes, case.objective.sections)
    mesh = make_mesh(MeshConfig(*sizes), jax.devices()[: int(np.prod(sizes))])
    check_mesh_divides_batch(mesh, SEQUENCES, case.grad_accum_steps)
    check_mesh_divides_heads(mesh, case.objective.num_heads)
    phase = Phase(end=STEPS, seq_len=LENGTH, batch_size=SEQUENCES, grad_accum_steps=case.grad_accum_steps)
    with jax.set_mesh(mesh):
        _, placement = state_layout(case.objective, optimizer, mesh)
        state = init_state(RUN.seed, case.objective, optimizer, params)._replace(frozen=frozen)
        state, losses, norms = jax.device_put(jax.device_get(state), placement), [], []
        schedule = functools.partial(learning_rate, RUN.optimizer, (phase,))
        step = jit_train_step(
            case.objective, optimizer, schedule, phase.grad_accum_steps, mesh=mesh, shardings=placement
        )
        for number in range(STEPS):
            state, metrics = step(state, place_batch(case.batch(number), mesh))
            losses.append(sum(x.value() for name, x in metrics["means"].items() if name.endswith("_loss")))
            norms.append(metrics["report"]["grad_norm"].item())
    return {"losses": losses, "norms": norms}, jax.device_get(state.params)


def farthest(ours: Any, theirs: Any) -> float:
    """The largest difference of two trees."""
    return max(float(np.abs(a - b).max()) for a, b in zip(*map(jax.tree.leaves, (ours, theirs)), strict=True))


def main() -> None:
    """Train each case on its mesh and on one device."""
    for name, case in cases().items():
        start = jax.device_get((case.objective.init(jax.random.key(0)), case.objective.init_frozen(jax.random.key(1))))
        (one, ours), (eight, theirs) = (trained(case, sizes, *start) for sizes in ((1, 1, 1), case.mesh))
        apart, moved = farthest(ours, theirs), farthest(ours, start[0])
        print(json.dumps({"name": name, "eight": eight, "one": one, "apart": apart, "moved": moved}))


if __name__ == "__main__":
    main()
