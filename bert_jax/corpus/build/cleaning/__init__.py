"""Cleaning, a stage between reading and encoding: the rules of a recipe change texts or remove documents, in order.

recipe.py             a TOML file -> rules with their parameters
stage.py              the passes over all documents, on all cores; the next stage reads the cleaned documents
chunk.py              a chunk of documents -> JSON lines and counts
rules.py              RULES, the rules that a recipe can name: a new rule is a row here and a function in a file below
verdict.py            `Removed`, the verdict that a document is removed
datatrove_filters.py  quality and repetition as in Gopher, lines and pages as in C4, FineWeb's filters
spacy_words.py        words and sentences as datatrove's, from spaCy, with a cache of words
language.py           the language of a text
changes.py            encoding errors repaired, personal data masked
repeated_lines.py     lines that many documents share; an earlier pass counts them
contamination.py      n-grams of evaluation files

A rule is a pure function (text, parameters) -> the text, changed or not, or `Removed`.
"""
