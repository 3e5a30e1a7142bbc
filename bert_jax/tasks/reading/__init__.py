"""Files of tasks, published or of a user -> examples.

data_sets.py  data sets prepared by TensorFlow Datasets -> records
dev_split.py  a dev set that is held out of a training file
examples.py   the sets of a task -> examples: finds the files, checks ids and labels
files.py      paths and texts of the files of a task
formats.py    a file -> records: add a format to FORMATS
"""
