"""Hugging Face model directories: load and export config.json, weights and tokenizer files.

model.py         load_model and export_model: architecture, weights, labels and tokenizer of a directory
model_config.py  conversion of config.json to EncoderConfig, and back
peft.py          adapters of `peft`: read and write
weight_files.py  model.safetensors, its shards, pytorch_model.bin; a new format is a row of READERS
torch_file.py    pytorch_model.bin, read as untrusted data
"""

from bert_jax.interop.huggingface.model import CARD, TASK_FILE, Loaded, export_model, load_model

__all__ = ["CARD", "TASK_FILE", "Loaded", "export_model", "load_model"]
