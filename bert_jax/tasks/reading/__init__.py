"""Files of tasks, published or own -> examples.

columns.py     the error for a column that is not there
conll.py       one token per line
data_sets.py   data sets prepared by TensorFlow Datasets
delimited.py   TSV and CSV
files.py       finding a file, and its text
formats.py     formats of files: add a row to FORMATS
json_files.py  JSON lines, JSON lists, SQuAD's JSON
readers.py     examples of a set of a task: finds its files, checks ids and labels
"""
