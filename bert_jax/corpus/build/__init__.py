"""Documents -> store: clean, deduplicate, segment, encode, append.

cleaning/            Cleaning of web text by recipes of published rules
append.py            The new files of a corpus move into it, the manifest last; what is there stays as it is
chunks.py            files -> partitions -> chunks: how the work is divided
clean.py             Cleaning alone
corpus_writer.py     records -> shards -> index and manifest
dedup_decisions.py   Signatures of all documents -> which documents repeat which, and by which hash each is put in
dedup_pass.py        The removed documents as JSON lines, for a look at them
dedup_signatures.py  A chunk of documents -> signatures
encoding.py          a chunk of documents -> sentences -> records of token ids
languages.py         codes of languages
normal_form.py       The normal form of a text
prepare.py           `prepare`, which the verb calls: runs on all cores, and resumes after a kill
prepare_parts.py     A text in parts, each of which makes a snapshot of its corpus, so that training can begin
segmenters.py        The words of a text -> which of its tokens begin a word
staging.py           The directory of a corpus that is being written, beside the final one; finished blocks survive
summary.py           counts of documents, sentences and tokens, and warnings
workers.py           encodes chunks in several processes, in order
"""
