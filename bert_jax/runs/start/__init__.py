"""What a pretraining run starts from.

initial_weights.py     the weights of `config.init_from`: read, checked, described
longer_positions.py    weights of a model of short sequences, for longer ones
teacher.py             the frozen model that a distillation reads
text.py                text in place of a corpus, for a first trial
rest.py                a process that prepares the rest of a long text meanwhile
fields.py              fields that this objective or these sentence pairs do not read
snapshots.py           which snapshot of its corpus a step reads
"""
