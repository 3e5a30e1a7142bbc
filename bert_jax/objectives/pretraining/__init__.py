"""Objectives of pretraining, one file each.

masked_tokens.py   BERT: masked tokens, with next sentence, sentence order or neither
replaced_tokens.py ELECTRA: a generator replaces tokens, the encoder finds them
left_to_right.py   each token from those before it
distillation.py    DistilBERT: masked tokens, and what a teacher makes of them
"""
