"""Files of tasks, published or own -> examples.

data_sets.py  data sets prepared by TensorFlow Datasets -> records
examples.py   the sets of a task -> examples: finds the files, checks ids and labels
files.py      finding a file, and its text
formats.py    a file -> records: add a format to FORMATS
"""
