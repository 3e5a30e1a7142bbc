"""Examples from published files of tasks or a user's own files.

data_sets.py  records of data sets that TensorFlow Datasets has prepared
examples.py   examples of the sets of a task: finds the files, checks ids and labels
files.py      paths and texts of the files of a task
formats.py    records of a file; add a format to FORMATS
"""
