"""`bert-jax inspect`: a corpus before training, as text, JSON or a page.

checks.py        likely problems of a corpus, of its sequences, and of a single sequence; add a row to a table of checks
examples.py      the text of each example of a sequence
figures.py       all figures of a corpus
inspect.py       the command
inspect_text.py  figures, warnings and sequences as text
page.py          the HTML page with figures, warnings, filters and sequences
sequences.py     a sequence as HTML: tokens, masks, pairs, packed examples
terminal.py      styles and lines of a terminal
"""
