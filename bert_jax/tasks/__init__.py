"""Tasks to fine-tune on: examples, features, predictions, scores and files to hand in. Never imports jax.

table.py      known tasks: add a row to TASKS for a task of a known kind
task.py       the types of tasks, sources and records
custom.py     the task that a configuration describes
kinds/        kinds of tasks: a new kind is one file and one row of KINDS
answers/      windows, answer search and SQuAD's scores, for question answering
reading/      files and data sets -> examples: add a row to reading/formats.py FORMATS for a format
features.py   inputs of a model and their batches
batching.py   lengths of batches, and which examples make a batch
scoring.py    metrics: add a row to METRICS
submission.py files in the formats of benchmarks: add a row to FORMATS
"""
