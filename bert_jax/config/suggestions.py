"""The key that a user probably meant: the key that has the given name in other trainers, or the most similar key."""

import re
from collections.abc import Iterable

from bert_jax.errors import nearest


def _plain_spelling(name: str) -> str:
    """Return a name in lowercase, without separators and without `config.`, to compare spellings."""
    return re.sub(r"[^a-z0-9]", "", name.lower().lstrip("-").removeprefix("config."))


# Keys, or options of a verb -> their names in other trainers and papers. If several keys are given, the first key that
# the verb has is suggested.
SPELLINGS = {
    "optimizer.peak_learning_rate": "lr learning_rate max_lr peak_lr init_lr base_lr lr_max max_learning_rate",
    "task.learning_rates optimizer.peak_learning_rate": "learning_rates lrs",
    "optimizer.schedule": "lr_schedule lr_scheduler lr_scheduler_type learning_rate_schedule scheduler decay",
    "optimizer.decay_power": "power poly_power lr_power",
    "optimizer.layer_decay": "lr_decay layerwise_lr_decay layer_wise_decay llrd",
    "optimizer.name": "optimizer optim optimizer_name optimizer_type",
    "optimizer.warmup_fraction": "warmup warmup_ratio warmup_proportion",
    "optimizer.warmup_steps optimizer.warmup_fraction": "warmup_steps num_warmup_steps warmup_iters",
    "optimizer.weight_decay": "wd weight_decay weight_decay_rate l2",
    "optimizer.beta1": "adam_beta1 b1",
    "optimizer.beta2": "adam_beta2 b2",
    "optimizer.epsilon": "adam_epsilon adam_eps eps",
    "optimizer.clip_norm": "clip grad_clip gradient_clip gradient_clipping max_grad_norm clip_grad_norm max_norm",
    "optimizer.muon_learning_rate": "muon_lr matrix_learning_rate matrix_lr",
    "optimizer.ema_decay": "ema ema_rate weight_ema polyak_decay",
    "optimizer.decay_fraction": "cooldown_fraction cooldown decay_ratio",
    "train.z_loss": "z_loss_weight z_loss_coefficient",
    "optimizer.freeze_encoder": "freeze freeze_backbone linear_probe",
    "train.batch_size": "batch bs batch_size train_batch_size global_batch_size per_device_train_batch_size "
    "micro_batch_size",
    "evaluate.batch_size --batch_size": "eval_batch_size per_device_eval_batch_size eval_bs",
    "train.grad_accum_steps": "grad_accum grad_accumulation grad_accumulation_steps gradient_accumulation "
    "gradient_accumulation_steps accumulate accumulation accumulation_steps accum_steps accumulate_grad_batches",
    "train.steps task.epochs": "steps max_steps num_steps train_steps num_train_steps num_training_steps total_steps "
    "training_steps iters iterations max_iters",
    "task.epochs train.steps": "epochs num_epochs num_train_epochs max_epochs",
    "train.log_every": "logging_steps log_steps log_interval logging_every log_every_n_steps print_every",
    "checkpoint.every": "save_steps save_every save_interval save_checkpoints_steps checkpoint_steps checkpoint_every "
    "checkpoint_interval save",
    "checkpoint.keep": "save_total_limit keep_checkpoints keep_checkpoint_max max_to_keep",
    "evaluate.every": "eval_steps eval_every eval_interval evaluate_every evaluation_steps val_interval validate_every",
    "evaluate.num_sequences": "max_eval_steps eval_samples max_eval_samples",
    "train.phases[0].seq_len task.max_seq_len --max_seq_len": "max_length max_len length seq_length seq_len "
    "max_seq_length max_seq_len sequence_length max_sequence_length context_length block_size",
    "model.max_positions": "max_position_embeddings n_positions max_position",
    "model.hidden_size": "hidden hidden_size hidden_dim dim d_model width embed_dim",
    "model.num_layers": "layers num_layers num_hidden_layers n_layers depth",
    "model.num_heads": "heads num_heads num_attention_heads attention_heads n_heads",
    "model.mlp_size": "mlp_size intermediate_size intermediate mlp mlp_dim ffn ffn_dim d_ff feed_forward_size",
    "model.vocab_size --vocab_size": "vocab vocab_size vocabulary_size",
    "model.num_token_types": "type_vocab_size token_types",
    "model.activation": "hidden_act act activation_function",
    "model.layer_norm_epsilon": "layer_norm_eps norm_eps",
    "model.initializer_range": "init_std initializer_std",
    "model.family": "model_type arch architecture",
    "model.dropout task.dropout": "dropout dropout_rate hidden_dropout hidden_dropout_prob",
    "model.attention_dropout task.dropout": "attention_probs_dropout_prob attn_dropout",
    "data.mask_probability": "mlm_probability mlm_prob masked_lm_prob mask_prob masking_rate mask_ratio mask_rate",
    "data.masking": "mask masking whole_word_mask do_whole_word_mask wwm masking_strategy",
    "data.short_seq_probability": "short_seq_prob",
    "data.sentence_pairs": "pairing pairs nsp sop",
    "data.dupe_factor": "duplicates dupes",
    "data.packing": "packed pack pack_sequences",
    "data.weights": "mixture mixture_weights sampling_weights dataset_weights",
    "data.smoothing": "alpha sampling_alpha temperature",
    "--workers data.num_threads": "num_workers dataloader_num_workers threads preprocessing_num_workers",
    "--corpus --data data.corpus task.data": "corpus dataset dataset_name data_dir data_path",
    "--input --corpus --data data.corpus task.data --text": "data input train_data input_file input_files file",
    "--data --corpus task.train data.corpus": "train train_file training_file",
    "task.dev": "validation_file dev_file eval_file",
    "task.test": "test_file predict_file",
    "task.name": "task task_name",
    "task.num_seeds": "seeds n_seeds",
    "task.n_best": "n_best_size",
    "task.patience": "early_stopping early_stopping_patience",
    "task.metric": "metric_for_best_model best_metric",
    "task.labels": "label_list label_names",
    "--label": "labels label_column target",
    "--text --input": "text texts text_column sentence sentence_column",
    "--init_from init_from --model --workdir": "pretrained pretrained_model init_checkpoint model_name_or_path "
    "model_name model_path load_from base_model checkpoint_path",
    "--workdir --output": "output_dir out out_dir output save_dir model_dir run_dir logging_dir resume "
    "resume_from_checkpoint",
    "compute.dtype": "fp16 bf16 fp32 precision mixed_precision amp",
    "compute.remat": "gradient_checkpointing activation_checkpointing rematerialize",
    "compute.attention": "flash_attention attn_implementation",
    "--topology mesh.data": "tpu gpu accelerator accelerator_type tpu_type chip chips slice mesh devices",
    "mesh.data": "gpus num_gpus num_devices n_gpu tpu_cores dp data_parallel",
    "mesh.tensor": "tp tensor_parallel model_parallel",
    "--num_processes": "nodes num_nodes world_size num_hosts",
    "--process_id": "rank node_rank",
    "seed": "random_seed rng_seed",
    "watchdog.step_seconds": "timeout step_timeout",
    "--segmenter": "words word_segmenter word_tokenizer",
    "--config": "recipe config_file config_name cfg",
    "--kind task.kind --format": "type task_type",
    "--language": "lang locale",
    "--platform": "device backend jax_platforms",
    "--heldout_fraction": "split test_split validation_split dev_split test_size validation_size val_split heldout",
}
ALIASES = {_plain_spelling(alias): keys.split() for keys, aliases in SPELLINGS.items() for alias in aliases.split()}

# Section that only pretraining or only fine-tuning has -> advice for a run of the other kind.
ONE_KIND = {
    "task": "only `finetune` reads config.task",
    "model": "fine-tuning takes the architecture of config.init_from",
    "data": "fine-tuning reads config.task",
    "objective": "fine-tuning takes its objective from the task",
    "train.phases": "fine-tuning takes config.task.max_seq_len",
    "evaluate.num_sequences": "fine-tuning evaluates whole dev sets",
}


def suggest_keys(written: str, known: Iterable[str]) -> tuple[str, ...]:
    """Return the known names closest to a written name, first by meaning, then by spelling; () if no name is close.

    Args:
        written: a key or an option in the user's spelling, without its value.
        known: keys, such as `train.phases[0].seq_len`, and options, such as `--workdir`.
    """
    known = tuple(known)
    plain, plain_end = _plain_spelling(written), _plain_spelling(written.rpartition(".")[2])
    if same := [name for name in known if _plain_spelling(name) == plain]:
        return tuple(same)
    if siblings := [name for name in known if _without_phase_index(name) == _without_phase_index(written)]:
        return (nearest(written, siblings, cutoff=0.0),)  # the key has the index of a phase that does not exist
    for alias in (plain, plain_end):
        if by_meaning := [name for name in ALIASES.get(alias, ()) if name in known]:
            return (by_meaning[0],)
    if plain in ALIASES:
        return ()  # the name is known, but the verb lacks its key
    candidates: dict[str, tuple[str, ...]] = {}  # plain spelling -> known names
    for name in known:
        end = _plain_spelling(name.rpartition(".")[2])
        if not any(_without_phase_index(name) == _without_phase_index(seen) for seen in candidates.get(end, ())):
            candidates[end] = (*candidates.get(end, ()), name)
    for alias, names in ALIASES.items():
        if by_meaning := [name for name in names if name in known]:
            candidates[alias] = (by_meaning[0],)
    candidates |= {_plain_spelling(name): (name,) for name in known if "." in name}
    by_spelling = candidates.get(nearest(plain, candidates, cutoff=0.7), ())
    return by_spelling or candidates.get(nearest(plain_end, candidates, cutoff=0.8), ())


def suggestion_text(written: str, known: Iterable[str]) -> str:
    """Return a clause for the message about an unknown key: advice, the closest key, or ''."""
    known, key = tuple(name.removeprefix("config.") for name in known), written.removeprefix("config.")
    meanings = [key, *ALIASES.get(_plain_spelling(key), ())]
    advice = next(filter(None, (_advice_if_key_of_other_kind(meaning, known) for meaning in meanings)), "")
    if advice and not any(meaning in known for meaning in meanings):
        return f"; {advice}"
    suggested = suggest_keys(key, known)
    return f"; did you mean {' or '.join(repr(name) for name in suggested)}?" if suggested else ""


def _advice_if_key_of_other_kind(key: str, known: Iterable[str]) -> str:
    """Return the advice of ONE_KIND if only the other kind of run has this key, otherwise ''."""
    for section, advice in ONE_KIND.items():
        if f"{key}.".startswith((f"{section}.", f"{section}[")) and not any(name.startswith(section) for name in known):
            return advice
    return ""


def _without_phase_index(name: str) -> str:
    """Return a key without the index of a phase: `train.phases.seq_len`."""
    return re.sub(r"\[\d+\]|\.\d+(?=\.|$)", "", name)
