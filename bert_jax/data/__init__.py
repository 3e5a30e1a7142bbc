"""Text -> documents -> corpus -> sequences -> batches, in numpy. Nothing in this room imports jax.

sources/       files and data sets of all formats -> documents: add a format there
tokenizer/     text -> token ids; vocabularies are trained and read here
preparation/   documents -> a corpus on disk, on one machine or with Apache Beam
manifest.py    what a corpus holds, and its snapshots: digests of all files
corpus.py      the corpus store: shards, index, manifest; `Split` reads records at random
staging.py     a corpus on object storage -> a checked copy on this machine
mixture.py     several corpora as one
sequences/     sequence number -> batch: order, sentence pairs, masking, packing
statistics.py  figures of a corpus and of its sequences
leaks.py       held-out documents that are near copies of training documents
json_lines.py  JSON lines for tasks and inference, where a broken line is an error (sources/ counts and skips it)

The number of a host and the number of hosts are arguments, so that a batch is the same function on every host. Imports
run in this order: sources, tokenizer -> corpus -> preparation, sequences, staging -> mixture, statistics -> leaks.
"""
