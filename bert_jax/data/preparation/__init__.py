"""Documents -> a corpus on disk: on this machine, or as an Apache Beam pipeline that writes the same bytes.

prepare.py       `prepare`, which the verb calls: runs on all cores, and resumes after a kill
beam/            the same as a Beam pipeline
chunks.py        files -> partitions -> chunks: how the work is divided
encoding.py      a chunk of documents -> sentences -> records of token ids
workers.py       encodes chunks in several processes, in order
corpus_writer.py records -> shards -> index and manifest
cleaning/        rules that change texts or remove documents, before they are encoded
duplicates/      copies among the documents, and the hash that decides the split
languages.py     codes of languages
segmenters/      words of scripts without spaces between them, by packages of others
growing/         documents that are added to a corpus
unfinished.py    the directory of a corpus that is being written
summary.py       counts of documents, sentences and tokens, and warnings

A change of anything that decides the bytes of a corpus needs a new `manifest.FORMAT_VERSION`.
"""
