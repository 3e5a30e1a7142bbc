"""The preparation as an Apache Beam pipeline.

cleaning.py  partitions -> partitions of cleaned texts
copies.py    partitions -> decisions about copies, and the signatures that the corpus keeps
pipeline.py  Apache Beam itself: the pipeline that its options ask for, and the errors of its workers
prepare.py   `prepare_with_beam`, which the verb calls
records.py   partitions -> shards, indexes and manifest
"""
