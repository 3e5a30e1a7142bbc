"""Scores of a model without training: minimal pairs, pseudo-perplexity, bias, retrieval.

benchmark.py          the interface of a benchmark, and functions that benchmarks share
crows_pairs.py        CrowS-Pairs: sentences with and without a stereotype
labeled.py            scores of a fine-tuned model on a file with labels
log_probabilities.py  log-probabilities of masked inputs, in batches of few shapes
minimal_pairs.py      BLiMP, Zorro and the user's pairs; add a row to FORMATS for a file format
queries.py            queries, which are masked inputs of texts; add a row to MASKINGS for a rule of masking
ranking.py            rankings by vectors or BM25, and measures of rankings: nDCG, recall, MRR, MAP
retrieval.py          scores of a model on a test collection, compared with BM25
retrieval_files.py    test collections in the layout of BEIR
score.py              scores of a model on a benchmark; add a row to BENCHMARKS for a benchmark
score_model.py        scores of a model on several benchmarks, files and collections, for the commands
stereoset.py          StereoSet: stereotypes in words and in next sentences
templates.py          templates: probabilities of groups of words in sentences with a filler
texts.py              pseudo-perplexity of running text
winobias.py           WinoBias: sentences and pronouns that agree with a stereotype or contradict it
winogender.py         Winogender: pronouns in sentences about occupations
"""
