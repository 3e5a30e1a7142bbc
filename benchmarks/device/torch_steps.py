"""Step of transformers: autocast to bfloat16, SDPA, fused AdamW on float32 parameters, with or without torch.compile.

The models are `BertForPreTraining` and `ModernBertForMaskedLM` with the fields that our export writes to config.json;
their heads read every position.
"""

import gc
from collections.abc import Callable

from benchmarks.device.report import LeftOutError
from benchmarks.random_batch import Batch
from bert_jax.config import EncoderConfig
from bert_jax.interop.huggingface.model_config import model_config_fields

MODELS = {"bert": ("BertConfig", "BertForPreTraining"), "modernbert": ("ModernBertConfig", "ModernBertForMaskedLM")}
DEVICES = {"gpu": "cuda", "cpu": "cpu"}


def torch_step(config: EncoderConfig, batch: Batch, platform: str, compiled: bool) -> Callable[[int], None]:
    """Return a function that runs a number of steps and waits for the last."""
    import torch
    import transformers

    device = DEVICES.get(platform, "")
    if not device or (device == "cuda" and not torch.cuda.is_available()):
        raise LeftOutError(f"torch has no device of a {platform}")
    gc.collect()  # frees the memory of the previous model
    if device == "cuda":
        torch.cuda.empty_cache()
    torch._dynamo.reset()
    settings, model_class = (getattr(transformers, name) for name in MODELS[config.family])
    fields = model_config_fields(config, 0, "torch") | {"attn_implementation": "sdpa"}
    model = model_class(settings(**fields)).train().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    tensors = {name: torch.tensor(x).long().to(device) for name, x in batch.items()}
    inputs = {name: tensors[name] for name in ("input_ids", "attention_mask")}
    inputs["labels"] = torch.full_like(tensors["input_ids"], -100)
    inputs["labels"][torch.arange(len(batch["input_ids"]))[:, None], tensors["masked_positions"]] = tensors[
        "masked_labels"
    ]
    if "next_sentence_labels" in tensors:
        inputs["token_type_ids"] = tensors["token_type_ids"]
        inputs["next_sentence_label"] = tensors["next_sentence_labels"]
    forward = torch.compile(model) if compiled else model

    def run(steps: int) -> None:
        for _ in range(steps):
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(device, torch.bfloat16):
                loss = forward(**inputs).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        if device == "cuda":
            torch.cuda.synchronize()

    return run
