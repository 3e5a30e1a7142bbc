"""Tasks for a model: examples, features, batches, predictions and scores. This package does not import jax.

kinds/            kinds of tasks, such as sequence classification, a file for each kind
reading/          published files or a user's own files -> examples
batching.py       features -> batches: the length, the features and the arrays of each batch
benchmark_scores.py  exact match and F1 of benchmarks where every question has an answer
class_weights.py  weights of rare labels in the loss, and repetition of training examples with rare labels
custom.py         a task that a configuration describes
features.py       inputs of a model
label_report.py   scores of each label, confusion, calibration and the worst errors of a classifier
labels.py         names of labels: order, similar names, and the row of a trained head for each label
prediction_batches.py  inputs of predictions and vectors -> batches packed in rows, with a maximum number of tokens
rows.py           packing of the sequences of a batch end to end in rows
scoring.py        metrics of predictions; add a row to METRICS for a metric
submission.py     prediction files in the formats of benchmarks; add a row to FORMATS for a format
table.py          known tasks; add a row to TASKS for a task of a known kind
task.py           the types of tasks, sources and records
late_interaction.py  choice of the tokens of queries and documents that get a vector
vector_heads.py   heads that make vectors of texts; add a row to VECTOR_HEADS for a head
"""
