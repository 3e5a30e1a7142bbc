"""Bias as likelihoods: the published benchmarks, and templates that anyone can write.

crows_pairs.py  CrowS-Pairs
stereoset.py    StereoSet, both halves
winobias.py     WinoBias: sentences, and the pronoun alone
winogender.py   Winogender: the pronoun of a person with an occupation
templates.py    templates with a mask, what fills them, and groups of words; add a file to PACKAGED

occupations_en.jsonl holds templates of this project in English. `reports/bias_page/` says what each figure means.
"""
