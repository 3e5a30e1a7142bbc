"""Cleaning of web text by recipes of published rules: add a function and its row in RULES (rules.py).

blocks.py          files of finished blocks, which survive a kill
c4.py              Lines and pages as in C4 (Raffel et al
changes.py         Rules that change texts
chunk.py           a chunk of documents -> JSON lines and counts
contamination.py   N-grams of words that a text has in common with evaluation files (Brown et al
fineweb.py         The filters that FineWeb adds to those of Gopher and C4 (Penedo et al
gopher.py          Quality and repetition as in Gopher (Rae et al
language.py        The language of a text, by py3langid (a naive Bayes classifier over byte n-grams, after Lui and
recipe.py          a TOML file -> steps: rules with their parameters
repeated_lines.py  the rule about lines that many documents have, and how they are counted
rules.py           The rules that a recipe can name
stage.py           the passes over all documents, on all cores; what they leave is read instead of the input
texts.py           What the rules share
"""
