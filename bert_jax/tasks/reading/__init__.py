"""Readers of examples from published files of tasks or a user's own files.

data_sets.py      records of data sets that TensorFlow Datasets has prepared
dev_split.py      choice of a dev set that is held out of a training file
examples.py       examples of the sets of a task: the search for the files, and checks of ids and labels
files.py          paths and texts of the files of a task
formats.py        records of a file; add a row to FORMATS for a file format
label_columns.py  sets of labels in files with a column for each label
"""
