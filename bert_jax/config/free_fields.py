"""Fields of a config that a resumed run may change."""

# Fields that a resumed run may change: the learned weights stay the same up to rounding, and with
# train.grad_accum_steps also up to the masks of dropout. data.corpus, task.data and
# teacher are locations; the run's fingerprint holds their content. A run with checkpoints keeps its first init_from
# and generator_from and says so. A recipe may move, as the other fields hold its values. evaluate changes only the
# measurements.
FREE_TO_CHANGE = (
    "compute.scan_layers",
    "compute.attention",
    "compute.remat",
    "data.corpus",
    "data.num_threads",
    "data.prefetch",
    "train.grad_accum_steps",
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
    "recipe",
    "replaced_tokens.generator_from",
    "distillation.teacher",
    "task.data",
    "task.test",
    "task.num_seeds",
    "task.teacher",
    "task.learning_rates",
)
# Fields that a resumed pretraining may change if all steps up to now stay the same, such as the begin of a later decay
# (training/resuming.py).
MUTABLE_AFTER_CURRENT_STEP = (
    "train.steps",
    "train.phases",
    "optimizer.warmup_steps",
    "optimizer.warmup_fraction",
    "optimizer.decay_fraction",
    "optimizer.decay_power",
)
