"""Scores of a model without training: minimal pairs, pseudo-perplexity, bias, retrieval.

benchmark.py          the form of a benchmark, and readers that benchmarks share
crows_pairs.py        CrowS-Pairs: sentences with and without a stereotype
log_probabilities.py  log-probabilities of masked inputs, in batches of few shapes
minimal_pairs.py      BLiMP, Zorro and pairs of the user: add a file format to FORMATS
queries.py            masked inputs of texts: add a way of masking to MASKINGS
ranking.py            rankings by vectors or BM25, and measures of rankings: nDCG, recall, MRR, MAP
retrieval.py          scores of a model on a test collection, beside BM25
retrieval_files.py    test collections in the layout of BEIR
score.py              scores of a model on a benchmark: add a benchmark to BENCHMARKS
stereoset.py          StereoSet: words and next sentences
templates.py          words of groups beside fillers
texts.py              pseudo-perplexity of running text
winobias.py           WinoBias: sentences and pronouns with and against a stereotype
winogender.py         Winogender: pronouns of occupations
"""
