"""`bert-jax inspect`: a corpus before training, as text, JSON or a page.

checks.py        likely problems of a corpus, of its sequences, of one sequence: add a row to a table of checks
examples.py      the examples of a sequence as texts
figures.py       all figures of a corpus
inspect.py       the command
inspect_text.py  figures, warnings and sequences as text
page.py          the page: figures, warnings, filters, sequences page by page
sequences.py     one sequence as HTML: tokens, masks, pairs, packed examples
terminal.py      styles and lines of a terminal
"""
