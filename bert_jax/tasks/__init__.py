"""Tasks for a model: examples, features, batches, predictions and scores. This package does not import jax.

kinds/         kinds of tasks, a file each
reading/       files of tasks, published or of a user -> examples
batching.py    batches of features: lengths, features of each batch, and arrays
custom.py      a task that the configuration describes
features.py    inputs of a model
labels.py      names of labels: order, similar names, rows of a trained head
scoring.py     metrics: add a row to METRICS
submission.py  files in the formats of benchmarks: add a row to FORMATS
table.py       known tasks: add a row to TASKS for a task of a known kind
task.py        the types of tasks, sources and records
"""
