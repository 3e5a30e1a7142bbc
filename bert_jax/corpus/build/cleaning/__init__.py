"""Cleaning, a stage between reading and encoding: the rules of a recipe change texts or remove documents, in order.

recipe.py          a TOML file -> rules with their parameters
stage.py           the passes over all documents, on all cores; the next stage reads the cleaned documents
chunk.py           a chunk of documents -> JSON lines and counts
rules.py           RULES, the rules that a recipe can name: a new rule is a row here and a function in a file below
texts.py           `Removed`, and functions of the words and lines of a text, which the rules share
gopher.py          quality and repetition, as in Gopher (Rae et al., "Scaling Language Models", 2021)
c4.py              lines and pages, as in C4 (Raffel et al., "Exploring the Limits of Transfer Learning", 2020)
fineweb.py         the filters that FineWeb adds (Penedo et al., "The FineWeb Datasets", 2024)
language.py        the language of a text
changes.py         encoding errors repaired, personal data masked
repeated_lines.py  lines of many documents, which an earlier pass counts
contamination.py   n-grams of evaluation files

A rule is a pure function of a text and of parameters -> the text, changed or not, or `Removed`.
"""
