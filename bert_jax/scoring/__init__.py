"""Scores of a model without training: minimal pairs, pseudo-perplexity, bias. Add a row to BENCHMARKS (score.py).

benchmark.py          what benchmarks share: items, scores, the fields of a row
crows_pairs.py        CrowS-Pairs (Nangia et al
log_probabilities.py  masked inputs -> log-probabilities, in batches of few shapes
minimal_pairs.py      BLiMP, Zorro and one's own pairs; add a file format to FORMATS.
queries.py            text -> masked inputs; add a way of masking to MASKINGS
score.py              a model on a benchmark; add a benchmark to BENCHMARKS
stereoset.py          StereoSet (Nadeem et al
templates.py          Templates
texts.py              pseudo-perplexity of running text
winobias.py           WinoBias (Zhao et al
winogender.py         Winogender (Rudinger et al
"""
