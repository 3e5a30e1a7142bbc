"""The prepared corpus on disk, in numpy: the format, several corpora as one, local copies of remote ones, figures.

store.py       the files of a corpus, and `Split`, which reads records at random
manifest.py    counts, settings and digests of all files of a corpus, and its snapshots
cache.py       a corpus on object storage -> a copy on this machine, checked against the digests of its manifest
mixture.py     several corpora as one
statistics.py  lengths, tokens, words, the unigram entropy: figures that need no sequences
copies.py      documents that repeat others, also across the split, by their token ids
build/         documents -> store
beam/          the same as an Apache Beam pipeline
"""
