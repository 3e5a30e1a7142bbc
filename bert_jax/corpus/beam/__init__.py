"""The preparation of a corpus as an Apache Beam pipeline.

cleaning.py  partitions of inputs -> partitions of cleaned texts
copies.py    partitions -> decisions about copies, and the signatures that the corpus keeps
pipeline.py  functions for Apache Beam: make a pipeline, read chunks, check versions, convert errors of workers
prepare.py   `prepare_with_beam`, the function behind `prepare --runner beam`
records.py   partitions -> shards, indexes and manifest
"""
