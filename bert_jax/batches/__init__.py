"""Sequence numbers -> batches of arrays: pure functions of (corpus, tokenizer, config, seed, sequence number).

A *sequence* is one row of `input_ids`: the tokens that a model reads together. A run numbers its sequences 0, 1, 2, ...
through all epochs and phases; its cursor is the number of sequences consumed. An *example* is one text, or one pair of
texts, with its special tokens. A sequence holds one example, or up to `config.data.packing` examples.

An example is made from a *slot*. The slots of a document partition its tokens, anew in every epoch. The *budget* is the
number of text tokens in a full slot: the length of the sequence without its special tokens.

    a document of 340 tokens, budget 125 (seq_len 128, three special tokens), so 3 slots:

                0                                  tokens                                  340
    epoch 0     |---------- slot ----------|---------- slot ----------|------ short ------|
    epoch 1     |------ short ------|---------- slot ----------|---------- slot ----------|

    sentence_pairs     text read from a slot            sequence
    next_sentence      whole sentences, cut in two      [CLS] first text [SEP] second text [SEP] padding
    none               the slot itself                  [CLS] text [SEP]

Files, in the order in which a sequence number passes through them:

    order.py         sequence number -> epoch and slot: a permutation of each epoch, mixtures of corpora
    packing.py       the examples that share a sequence, where config.data.packing is above 1
    layout.py        slot -> its tokens in a document
    windows.py       stretches of text read around a slot, in whole sentences
    sentence_pairs.py  slot -> the text of an example: the rules and their table SENTENCE_PAIRS
    words.py         words of a segmenter, as a bit of each token
    masking.py       tokens -> the tokens to predict: the table MASKINGS
    pipeline.py      all of the above: `make_sequences` returns the function from sequence numbers to a batch
    iteration.py     batches in order, built ahead by threads, for one of several hosts
    hashing.py       random bits as a function of counters, for all other files

    statistics.py    figures of sequences: padding, masks, pairs, the covered fraction of the corpus

Shapes in docstrings, such as int64 [examples]: sequences of a batch are [batch], their tokens [batch, seq_len], and
their predictions, as many as a sequence has at most, [batch, predictions]. All examples of a batch end to end are
[examples], with a flat array of their [tokens]. A corpus has [sources], a source [documents], a document [records] and
[sentences]; an array of bounds or running totals has one entry more, as [documents + 1].

To add a way of masking, add a row to MASKINGS. To add a way of building examples from sentences, add a row to
SENTENCE_PAIRS and the function that it names. Both tables are keyed by the value of the config field. A change that
gives other sequences for the same seed changes the results of resumed runs: only append to `hashing.Stream`.
"""
