"""Copies among the documents: found in a pass of its own before the preparation, when `--deduplicate` asks for it.

normal_form.py a text without what copies differ in: width, case, white space, punctuation
signatures.py  a chunk of documents -> hashes, by which equal and similar documents meet
first_pass.py  the signatures of all documents, on disk; finished blocks survive a kill
search.py      runs the first pass and decides
decisions.py   signatures -> which documents repeat which, and which stay in one split
removed.py     the removed documents as JSON lines

Equal: the same normal form. Near: Jaccard similarity of at least `decisions.THRESHOLD` of the sets of shingles, which
are five words in a row, or five characters where words have no spaces between them. Candidates come from MinHash with
locality-sensitive hashing (Broder 1997; Leskovec, Rajaraman and Ullman, "Mining of Massive Datasets", chapter 3); each
is checked with the shingles themselves, or the lowest `signatures.SKETCH` hashes of longer documents.
"""
