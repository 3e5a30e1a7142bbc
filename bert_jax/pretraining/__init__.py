"""The steps of `bert-jax pretrain`; pretrain.py calls them in order.

budget/                    the choice of model size and steps for `pretrain --budget`
background_preparation.py  a process that prepares the rest of a text while a run reads the first part
corpus_weights.py          weights of a new model from counts of its corpus, for `config.corpus_vectors`
data.py                    training batches and held-out batches of a corpus
describe_run.py            console lines about corpus, model and phases at the start of a run
evaluate.py                the steps of `bert-jax evaluate`, and the metrics of evaluations
initial_weights.py         the weights of `config.init_from`, which are read, checked and described
pretrain.py                the main function: a config and a corpus -> a work directory
requirements.py            the package versions at the start of a run
snapshots.py               the choice of the snapshot of a growing corpus that a step reads
teacher.py                 the teacher of a distillation
text.py                    a corpus made of the text that `config.data.text` names, for a first trial
"""
