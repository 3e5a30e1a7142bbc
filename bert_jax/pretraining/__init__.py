"""The spine of `bert-jax pretrain` (pretrain.py), and its parts.

budget/                    `pretrain --budget`
background_preparation.py  a process that prepares the rest of a text while a run reads the beginning
data.py                    training and held-out batches of a corpus
describe_run.py            lines about corpus, model and phases at the start of a run, for its console
evaluate.py                the spine of `bert-jax evaluate`, and the metrics of evaluations
initial_weights.py         the weights of `config.init_from`: read, checked, described
pretrain.py                the spine: corpus and config in, a work directory out
requirements.py            the package versions that a run began with
snapshots.py               the snapshot of its corpus that a step reads
teacher.py                 the frozen model that a distillation reads
text.py                    text in place of a corpus, for a first trial
"""
