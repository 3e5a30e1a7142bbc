"""The prepared corpus on disk, in numpy: file format, mixtures of corpora, local copies of remote corpora, statistics.

store.py         the files of a corpus, and `Split`, which reads any records by their index
manifest.py      counts, settings and digests of all files of a corpus, and its snapshots
cache.py         a corpus on object storage -> a copy on this machine, checked against the digests of its manifest
mixture.py       several corpora as one
statistics.py    lengths, tokens, words and the unigram loss: figures that need no training sequences
cooccurrence.py  vectors of tokens from their neighbors in a text, without training
copies.py        finds documents that repeat other documents, within a split and across splits, by their token ids
languages.py     checks codes of languages, and suggests the code that a user may have meant
build/           documents -> store
beam/            documents -> store, as an Apache Beam pipeline
"""
