"""The command `bert-jax inspect`, which shows a corpus before training as text, JSON or an HTML page.

checks.py        likely problems of a corpus and of its sequences; add a row to a table of checks for a problem
examples.py      the text of each example of a training sequence
figures.py       all figures of a corpus
inspect.py       the functions of the command `bert-jax inspect`
inspect_text.py  figures, warnings and sequences as text
page.py          the HTML page with figures, warnings, filters and sequences
sequences.py     a training sequence as HTML: tokens, masks, pairs, packed examples
terminal.py      styled text and lines of limited width for a terminal
"""
