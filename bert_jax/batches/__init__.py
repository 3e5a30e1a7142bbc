"""Sequence numbers -> batches of arrays: pure functions of (corpus, tokenizer, config, seed, sequence number).

A *sequence* is a row of `input_ids`: the tokens that a model reads together. A run numbers its sequences 0, 1, 2, ...
through all epochs and phases. An *example* is a text, or a pair of texts, with its special tokens. A sequence holds one
example, or up to `config.data.packing` examples.

An example is made from a *slot*, which is a range of tokens of a document. The slots of a document cover each of its
tokens once, and lie at different places in every epoch. The *budget* is the number of text tokens in a full slot, which
is the sequence length minus the number of special tokens.

    a document of 340 tokens, budget 125 (seq_len 128, three special tokens), so 3 slots:

                0                                  tokens                                  340
    epoch 0     |---------- slot ----------|---------- slot ----------|------ short ------|
    epoch 1     |------ short ------|---------- slot ----------|---------- slot ----------|

    sentence_pairs     text read from a slot            sequence
    next_sentence      whole sentences, cut in two      [CLS] first text [SEP] second text [SEP] padding
    none               the slot itself                  [CLS] text [SEP]

Files, in the order in which a sequence number passes through them:

    order.py         sequence number -> epoch and slot: a permutation of each epoch, mixtures of corpora
    packing.py       the examples that share a sequence, if config.data.packing is above 1
    layout.py        slot -> its tokens in a document
    windows.py       the window of an example: the text that it takes from a slot, in whole sentences
    sentence_pairs.py  slot -> the text of an example: the rules in the table SENTENCE_PAIRS
    words.py         the word starts that a segmenter found, as a bit of each token
    masking.py       tokens -> the tokens to predict: the table MASKINGS
    pipeline.py      all steps together: `make_sequences` returns the function from sequence numbers to a batch
    iteration.py     the batches of a host in order, built by threads before they are needed
    hashing.py       random bits as a function of counters, which all other files use

    text_pairs.py    sequence number -> two texts that belong together, for sentence vectors: the table PAIR_RULES
    statistics.py    figures of sequences: padding, masks, pairs, the covered fraction of the corpus

Docstrings give shapes, such as int64 [examples]. The sequences of a batch are [batch], their tokens [batch, seq_len],
and their predictions (the maximum number per sequence) [batch, predictions]. The examples of a batch, one after the
other, are [examples], with a flat array of their [tokens]. A corpus has [sources], a source [documents], a document
[records] and [sentences]. An array of bounds or running totals has one more entry, such as [documents + 1].

To add a masking unit, add a row to MASKINGS. To add a rule that builds examples from sentences, add a row to
SENTENCE_PAIRS and the function that it names. The keys of both tables are the values of config fields. A change that
gives other sequences for the same seed would change the results of resumed runs, so only append to `hashing.Stream`.
"""
