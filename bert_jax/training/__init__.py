"""One training: plan, step, loop, optimizers, schedules, checkpoints, metrics, the work directory.

checkpoint.py      Orbax checkpoints with a digest per leaf: when a run saves, which checkpoints stay
evaluation.py      the objective's loss over a held-out set
loop.py            the loop around the step: evaluate, save, profile, stop
metrics.py         metrics.jsonl, and copies of it for trackers
optimizers.py      optimizers over optax: add a function and its row to OPTIMIZERS
plan.py            the inputs of the loop: the plan of a run, its data, the session of a process
plateau.py         the masked-token loss at the unigram entropy, and remarks on it for the console
profile.py         a trace of some steps
remote_workdir.py  a run or model on object storage
resuming.py        the settings that a resumed run may change
schedules.py       phases and learning-rate schedules: add a function and its row to SCHEDULES
start.py           the state that a run starts from: the newest checkpoint, or a first state
step.py            the state, and one update from one batch
tensorboard.py     event files, and the starts of a run that they record
trackers.py        Weights & Biases, MLflow: add a function and its row to TRACKERS
workdir.py         a work directory: lock, config, tokenizer
"""
