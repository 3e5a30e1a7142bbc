"""Hugging Face model directories: config.json and weights, in and out.

model.py         load_model and export_model: architecture, weights, labels and tokenizer of a directory
model_config.py  config.json, from and to EncoderConfig
torch_file.py    the last of these
weight_files.py  model.safetensors, its shards, pytorch_model.bin: add a reader to READERS
"""

from bert_jax.interop.huggingface.model import Loaded, export_model, load_model

__all__ = ["Loaded", "export_model", "load_model"]
