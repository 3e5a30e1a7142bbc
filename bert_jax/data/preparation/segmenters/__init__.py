"""Words and sentences of scripts that do not separate them, by packages that are imported when they are used.

table.py        SEGMENTERS, a row per package: to add one, add a row and the function that imports it
word_starts.py  the words of a text -> the tokens that begin a word
"""
