"""The first minutes on a GPU or TPU: its numbers against the CPU, then its speed, beside torch.

    make bench-device        # or, from the checkout: python -m benchmarks.device --minutes 9

__main__.py         options, the environment that JAX reads
supervise.py        a process for the parts, another after a crash, the deadline
child.py            that process
packages.py         which packages are there
parts.py            all parts, a row each, in the order of their value
report.py           results, the table, the JSON file
model_check.py      logits, and 20 steps of training
dropout_check.py    the fraction that dropout drops, and which elements
resume_check.py     a resumed training against an uninterrupted training, bit for bit
attention_check.py  each attention kernel
steps.py            speed of a step, of pretraining and of fine-tuning
torch_steps.py      speed of a step of transformers
texts.py            speed of the input pipeline and of `embed`
"""
