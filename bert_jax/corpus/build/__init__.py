"""Documents -> corpus store: clean, deduplicate, split into sentences, encode, append.

Files, in the order in which a preparation uses them:

prepare.py           `prepare`, behind the verb `prepare`: all steps on this machine; corpus/beam has the steps for Beam
plan.py              checks options, settings and inputs before the work; the identity of a preparation that resumes
append.py            opens the corpus that documents are added to; stores and reads the signatures of its documents
staging.py           the directory of a corpus that is being written; its finished blocks survive a kill
passes.py            a pass over all documents: all cores process chunks, and results come in order, in blocks
chunks.py            files -> partitions -> chunks: how the work is divided
cleaning/            the rules of a recipe change texts or remove documents, before all other steps
dedup_pass.py        searches for copies: computes all signatures, decides, and writes removed documents as JSON lines
signatures.py        a text -> its normal form, and hashes that find equal and similar texts
dedup_decisions.py   signatures -> the documents that repeat earlier documents, and the groups that stay in one split
encoding.py          a chunk of documents -> sentences -> records of token ids
sentences.py         a text -> its sentences, by the rules of a language
segmenters.py        finds words in scripts without spaces, by other packages; a new segmenter is a row of SEGMENTERS
corpus_writer.py     records -> shards -> indexes, signatures and manifest
summary.py           counts of documents, sentences and tokens, and warnings, for the manifest and the terminal
clean.py             `clean_texts`, which the verb `clean` calls: cleaning without a preparation, to JSON lines
prepare_parts.py     prepares a text in parts, each of which adds a snapshot; training can begin after the first part

If a change of the code gives other corpus bytes for equal inputs, increase `manifest.FORMAT_VERSION`.
"""
