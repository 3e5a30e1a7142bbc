"""One training: step, loop, optimizers, schedules, checkpoints, metrics, the work directory.

checkpoint.py         Orbax checkpoints with a digest per leaf
checkpoint_policy.py  When a run saves, and which checkpoints it keeps
evaluation.py         the objective's loss over a held-out set
loop.py               the loop around the step: resume, evaluate, save, stop
metrics.py            metrics.jsonl, and copies of it for trackers
optimizers.py         What an optimizer may ask of each parameter, from its name, its section and its logical axes
plateau.py            The plateau
remote_workdir.py     A run or model on object storage
resuming.py           what a resumed run may change
schedules.py          phases and learning-rate schedules: add a function and its row to SCHEDULES
step.py               the state, and one update from one batch
tensorboard.py        TensorBoard
trackers.py           A tracker that gets a copy of a run's metrics
workdir.py            a work directory: lock, config, tokenizer
"""
