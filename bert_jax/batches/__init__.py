"""Sequence numbers -> batches of arrays: pure functions of (corpus, tokenizer, config, seed, sequence number).

A *sequence* is a row of `input_ids`: the tokens that a model reads together. A run numbers its sequences 0, 1, 2, ...
through all epochs and phases. An *example* is a text, or a pair of texts, with its special tokens. A sequence holds one
example, or up to `config.data.packing` examples.

An example is made from a *slot*, which is a range of tokens of a document. Together, the slots of a document cover each
token of the document once; the borders between slots differ from epoch to epoch. The *budget* is the number of text
tokens in a full slot, which is the sequence length minus the number of special tokens.

    a document of 340 tokens, budget 125 (seq_len 128, three special tokens), so 3 slots:

                0                                  tokens                                  340
    epoch 0     |---------- slot ----------|---------- slot ----------|------ short ------|
    epoch 1     |------ short ------|---------- slot ----------|---------- slot ----------|

With `sentence_pairs` "next_sentence", a slot gives whole sentences, which are cut into two texts; the sequence is
[CLS] first text [SEP] second text [SEP] padding. With "none", the text is the slot itself, and the sequence is
[CLS] text [SEP].

Files, in the order in which a sequence number passes through them:

    order.py         sequence number -> epoch and slot: a permutation of each epoch, mixtures of corpora
    packing.py       the examples that share a sequence, if config.data.packing is above 1
    layout.py        slot -> the range of document tokens that the slot covers
    windows.py       the window of an example: the text that it takes from a slot, in whole sentences
    sentence_pairs.py  slot -> the text of an example: the rules in the table SENTENCE_PAIRS
    words.py         the words that a segmenter found: a bit of each token id marks the start of a word
    ramp.py          the batch sizes of a phase whose batch grows
    masking.py       the choice of the tokens to predict; the table MASKINGS has the rules
    pipeline.py      all steps together: `make_sequences` returns the function from sequence numbers to a batch
    iteration.py     the batches of a host in order; threads build each batch before it is needed
    hashing.py       random bits for all other files, as a function of counters

    text_pairs.py    sequence number -> two texts that belong together, for sentence vectors: the table PAIR_RULES
    statistics.py    statistics of sequences: padding, masks, pairs, the fraction of the corpus that sequences cover

Docstrings give shapes, such as int64 [examples]. In a batch, the shape [batch] means a value for each sequence, [batch,
seq_len] a value for each token, and [batch, predictions] a value for each predicted token, up to the maximum number of
predictions per sequence. The shape [examples] means a value for each example of a batch, and [tokens] means the tokens
of all examples, one example after the other. The shapes [sources], [documents], [records] and [sentences] mean a value
for each source, document, record or sentence of a corpus. An array of bounds or running totals has one more entry, such
as [documents + 1].

To add a masking unit, add a row to MASKINGS. To add a rule that builds examples from sentences, add a row to
SENTENCE_PAIRS and the function that the row names. The keys of both tables are the values of config fields. A resumed
run must get the same sequences for its seed, so add new members only at the end of `hashing.Stream`.
"""
