"""The prepared corpus on disk: store, manifest, mixtures of corpora, local copies of remote corpora.

beam/        The preparation as an Apache Beam pipeline
build/       Documents -> store
cache.py     A corpus on object storage -> a copy on this machine, checked against the digests of its manifest
manifest.py  what a corpus holds, and its snapshots: digests of all files
mixture.py   several corpora as one
store.py     The corpus store
"""
