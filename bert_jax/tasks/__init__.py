"""Tasks and what they need around a model: examples, features, batches, predictions, scores. No jax.

kinds/         Kinds of tasks, one file each
reading/       Files of tasks, published or own -> examples
batching.py    lengths of batches, and which examples make a batch
custom.py      the task that a configuration describes
features.py    inputs of a model and their batches
scoring.py     metrics: add a row to METRICS
submission.py  files in the formats of benchmarks: add a row to FORMATS
table.py       known tasks: add a row to TASKS for a task of a known kind
task.py        the types of tasks, sources and records
"""
