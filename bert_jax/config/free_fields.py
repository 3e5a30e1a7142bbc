"""Fields of a config that a resumed run may change."""

# Fields that a resumed run may change, because the learned weights stay equal except for rounding. A change of
# train.grad_accum_steps also changes the dropout masks. data.corpus, task.data and teacher are locations; the run's
# fingerprint identifies their content. A run with checkpoints keeps its first init_from, grow and generator_from, and
# prints a line about a changed value. A recipe file may move, because the other fields hold its values. The section
# evaluate changes only measurements.
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
    "grow",
    "recipe",
    "replaced_tokens.generator_from",
    "distillation.teacher",
    "task.data",
    "task.test",
    "task.num_seeds",
    "task.teacher",
    "task.learning_rates",
)
# Fields that a resumed pretraining may change if all finished steps stay the same, such as the start of a decay that
# has not begun yet (training/resuming.py).
MUTABLE_AFTER_CURRENT_STEP = (
    "train.steps",
    "train.phases",
    "optimizer.warmup_steps",
    "optimizer.warmup_fraction",
    "optimizer.decay_fraction",
    "optimizer.decay_power",
)
