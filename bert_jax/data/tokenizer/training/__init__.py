"""Training a vocabulary: which text is read, how much of each source, and the report on the result.

train.py  `train_tokenizer`, which the verb `tokenizer` calls: read, train, save, report
report.py tokens per word and unknown tokens of each source, and warnings
sample.py the fraction of each source: exponential smoothing, weights, and a sample chosen by a hash

The training of each kind is in `kinds/`.
"""
