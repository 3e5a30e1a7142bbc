"""Readers of examples from published files of tasks or a user's own files.

data_sets.py  data sets prepared by TensorFlow Datasets -> records
dev_split.py  a dev set that is held out of a training file
examples.py   the sets of a task -> examples: finds the files, checks ids and labels
files.py      paths and texts of the files of a task
formats.py    records of a file; add a format to FORMATS
"""
