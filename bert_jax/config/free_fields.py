"""What a resumed run may change."""

# Fields that a resumed run may change: what is learned stays the same up to rounding. data.corpus, task.data and
# teacher say where something is, not what it is; a run with checkpoints keeps the init_from and generator_from that it
# began with, and says so; evaluate changes what is measured alone.
FREE_TO_CHANGE = (
    "compute.scan_layers",
    "compute.attention",
    "compute.remat",
    "data.corpus",
    "data.num_threads",
    "data.prefetch",
    "train.log_every",
    "train.tracker",
    "train.max_skipped_steps",
    "train.plateau_steps",
    "mesh",
    "evaluate",
    "checkpoint",
    "watchdog",
    "profile",
    "init_from",
    "replaced_tokens.generator_from",
    "distillation.teacher",
    "task.data",
    "task.test",
    "task.num_seeds",
    "task.teacher",
    "task.learning_rates",
)
# Fields that a resumed pretraining may change as long as every step that it took stays as it was, such as a decay that
# begins later (training/resuming.py).
MUTABLE_AFTER_CURRENT_STEP = (
    "train.steps",
    "train.phases",
    "optimizer.warmup_steps",
    "optimizer.warmup_fraction",
    "optimizer.decay_fraction",
    "optimizer.decay_power",
)
