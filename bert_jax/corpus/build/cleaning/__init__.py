"""Cleaning, a stage between reading and encoding: the rules of a recipe change texts or remove documents, in order.

recipe.py             a TOML file -> rules with their parameters
stage.py              the passes over all documents, on all cores; the next stage reads the cleaned documents
chunk.py              a chunk of documents -> JSON lines and counts
rules.py              RULES, the rules that a recipe can name; a new rule needs a row in RULES and a function
verdict.py            `Removed`, the verdict that a document is removed
datatrove_filters.py  filters of datatrove: Gopher (quality, repetition), C4 (lines, pages) and FineWeb
spacy_words.py        the words and sentences of datatrove's spaCy tokenizers, with a cache of words
language.py           removes texts that are in an unwanted language
changes.py            repairs encoding errors, and masks personal data
repeated_lines.py     removes lines that many documents share; an earlier pass counts the lines
contamination.py      removes texts that share an n-gram with evaluation files

A rule is a pure function (text, parameters) -> the text, changed or not, or `Removed`.
"""
