"""A corpus that documents are added to: `prepare --append`.

existing.py    the corpus that is there: its options, which are taken, and its counts, which are added to
signatures.py  the signatures that a corpus keeps, by which copies of its documents are found
comparison.py  documents that two corpora have in common
parts.py       a text in parts, each of which makes a snapshot, so that training can begin after the first
publish.py     the new files and the manifest move into the corpus; what is there stays as it is
"""
