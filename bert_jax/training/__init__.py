"""The training of a model: plan, step, loop, optimizers, schedules, checkpoints, metrics and work directory.

checkpoint.py      Orbax checkpoints with a digest of each array; the rules by which a run saves and keeps checkpoints
evaluation.py      the loss of the objective over a held-out set
loop.py            the training loop: step, evaluate, save, profile, stop
metrics.py         metrics.jsonl, and copies of its lines for trackers
optimizers.py      optimizers over optax; to add an optimizer, add a function and a row of OPTIMIZERS
plan.py            the inputs of the loop: the plan of a run, its data, and the session of a process
plateau.py         console messages about the plateau, the time in which the loss stays at the unigram loss
profile.py         the trace of some steps
remote_workdir.py  a run or model on object storage
resuming.py        the settings that a resumed run may change
schedules.py       phases and learning-rate schedules; to add a schedule, add a function and a row of SCHEDULES
start.py           the initial state of a run: the newest checkpoint, or a new state
step.py            the state, and its update from a batch
tensorboard.py     event files, and the starts of a run that these files record
trackers.py        Weights & Biases, MLflow; to add a tracker, add a function and a row of TRACKERS
workdir.py         lock, config and tokenizer of a work directory
"""
