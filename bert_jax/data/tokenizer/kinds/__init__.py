"""Kinds of tokenizers, one file each: its definition, its vocabulary file, and how its vocabulary is trained.

table.py         TOKENIZERS, a row for each kind: to add a kind, add a file here and its row there
wordpiece.py     WordPiece: BERT, DistilBERT, ELECTRA
bpe.py           BPE over the characters of words
byte_level.py    byte-level BPE: RoBERTa
sentencepiece.py unigram (ALBERT) and BPE models of the library SentencePiece
bert_words.py    how BERT cleans text and splits it into words, which `wordpiece` and `bpe` share
"""
