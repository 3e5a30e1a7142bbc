"""The preparation of a corpus as an Apache Beam pipeline.

cleaning.py  partitions of inputs -> partitions of cleaned texts
copies.py    partitions -> decisions about copies, and the signatures that the corpus keeps
pipeline.py  Apache Beam itself: a pipeline from options, chunks for all steps, versions and errors of workers
prepare.py   `prepare_with_beam`, which the verb calls
records.py   partitions -> shards, indexes and manifest
"""
