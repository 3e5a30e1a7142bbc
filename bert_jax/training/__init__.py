"""Training: the same loop and step for every objective.

loop.py       the loop around the step: resume, evaluate, save, stop
step.py       the state, and one update from one batch
optimizers/   optimizers over optax: add a function and its row to OPTIMIZERS
schedules.py  phases and learning-rate schedules: add a function and its row to SCHEDULES
evaluation.py the objective's loss over a held-out set
checkpoint.py Orbax checkpoints with a digest per leaf
saving/       when a run saves, and a run on object storage
resuming.py   what a resumed run may change
workdir.py    a work directory: lock, config, tokenizer
metrics.py    metrics.jsonl, and copies of it for trackers
trackers/     TensorBoard, and services that a config names: add a function and its row to TRACKERS
"""
