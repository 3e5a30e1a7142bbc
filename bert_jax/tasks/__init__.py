"""Tasks for a model: examples, features, batches, predictions and scores. This package does not import jax.

kinds/            kinds of tasks, a file each
reading/          files of tasks, published or of a user -> examples
batching.py       features -> batches: their lengths, their features, and the arrays
class_weights.py  weights of rare labels in the loss, and repeated training examples
custom.py         a task that a configuration describes
features.py       inputs of a model
label_report.py   scores of each label, confusion, calibration and the worst errors of a classifier
labels.py         names of labels: their order, names that look alike, the rows of a trained head
scoring.py        metrics: add a row to METRICS
submission.py     files in the formats of benchmarks: add a row to FORMATS
table.py          known tasks: add a row to TASKS for a task of a known kind
task.py           the types of tasks, sources and records
"""
