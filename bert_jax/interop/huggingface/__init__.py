"""Hugging Face model directories: config.json and weights, in and out.

model.py         load_model and export_model: architecture, weights, labels and tokenizer of a directory
model_config.py  config.json, from and to EncoderConfig
peft.py          adapters of `peft`, in and out
weight_files.py  model.safetensors, its shards, pytorch_model.bin: add a reader to READERS
torch_file.py    pytorch_model.bin, read as untrusted data
"""

from bert_jax.interop.huggingface.model import CARD, TASK_FILE, Loaded, export_model, load_model

__all__ = ["CARD", "TASK_FILE", "Loaded", "export_model", "load_model"]
