"""A first run on a GPU or TPU: check its results against the CPU, then measure the speed of bert_jax and of torch.

    make bench-device        # or, from the checkout: python -m benchmarks.device --minutes 9

__main__.py         options, and the environment variables that JAX reads
supervise.py        starts the process that runs the parts, and restarts it after a crash, until the deadline
child.py            the process that runs the parts
packages.py         which packages are installed
parts.py            the list of all parts, the most important first
report.py           results: the table and the JSON file
model_check.py      logits, and 20 steps of training
dropout_check.py    which elements dropout drops, and which fraction
resume_check.py     whether a resumed training ends with the bits of an uninterrupted training
attention_check.py  errors of each attention kernel
steps.py            speed of a step of pretraining or fine-tuning
torch_steps.py      a step of transformers under torch
texts.py            speed of the input pipeline and of `embed`
"""
