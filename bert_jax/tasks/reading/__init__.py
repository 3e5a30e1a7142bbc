"""Reading tasks: files and data sets -> records -> examples.

readers.py    examples of a set of a task: finds its files, checks ids and labels
formats.py    formats of files: add a row to FORMATS
files.py      finding a file, and its text
columns.py    the error for a column that is not there
delimited.py  TSV and CSV
json_files.py JSON lines, JSON lists, SQuAD's JSON
conll.py      one token per line
data_sets.py  data sets prepared by TensorFlow Datasets
"""
