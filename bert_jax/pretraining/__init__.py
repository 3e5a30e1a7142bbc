"""The spine of `bert-jax pretrain` (pretrain.py), and what only it needs.

budget/                    `pretrain --budget`
background_preparation.py  A process that prepares the rest of a text while a run reads the beginning; it ends with
data.py                    A corpus as the training loop wants it
evaluate.py                Held-out metrics of a pretraining run
initial_weights.py         the weights of `config.init_from`: read, checked, described
pretrain.py                Pretraining put together
requirements.py            The package versions that a run began with
run_lines.py               Lines on what a pretraining run is about to do, for its console
snapshots.py               which snapshot of its corpus a step reads
teacher.py                 the frozen model that a distillation reads
text.py                    text in place of a corpus, for a first trial
"""
