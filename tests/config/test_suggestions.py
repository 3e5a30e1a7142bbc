"""Suggestions for keys: the names of other trainers, keys of the other kind of run, typing mistakes."""

import pathlib

import pytest

from bert_jax.config import (
    FinetuneConfig,
    PretrainConfig,
    TaskConfig,
    fields_of,
    from_json,
    read_config,
    section_from_values,
    to_json,
)
from bert_jax.config.suggestions import ALIASES, ONE_KIND, SPELLINGS, suggest_keys, suggestion_text
from bert_jax.errors import UserError

PRETRAIN = [key for key, _, _ in fields_of(PretrainConfig)]
FINETUNE = [key for key, _, _ in fields_of(FinetuneConfig)]
OPTIONS = ["--workdir", "--config", "--num_processes", "--process_id"]

# (names, key of pretraining, key of fine-tuning); None: no key.
MEANINGS = [
    (
        "lr learning_rate learning-rate max_lr peak_lr learningRate optimizer.lr train.learning_rate LR",
        "optimizer.peak_learning_rate",
        "optimizer.peak_learning_rate",
    ),
    ("batch bs batch_size train_batch_size per_device_train_batch_size", "train.batch_size", "train.batch_size"),
    ("epochs num_epochs num_train_epochs steps max_steps num_train_steps", "train.steps", "task.epochs"),
    (
        "max_length seq_length max_seq_length seq_len sequence_length length",
        "train.phases[0].seq_len",
        "task.max_seq_len",
    ),
    ("warmup warmup_ratio warmup_proportion", "optimizer.warmup_fraction", "optimizer.warmup_fraction"),
    ("warmup_steps num_warmup_steps", "optimizer.warmup_steps", "optimizer.warmup_steps"),
    ("hidden hidden_size d_model", "model.hidden_size", None),
    ("num_layers num_hidden_layers", "model.num_layers", None),
    ("layers", "model.num_layers", None),
    ("heads num_attention_heads", "model.num_heads", None),
    ("intermediate_size ffn_dim", "model.mlp_size", None),
    ("vocab vocab_size", "model.vocab_size", None),
    ("mlm_probability masked_lm_prob", "data.mask_probability", None),
    ("gradient_accumulation_steps grad_accum accumulate", "train.grad_accum_steps", "train.grad_accum_steps"),
    ("wd weight_decay weight-decay", "optimizer.weight_decay", "optimizer.weight_decay"),
    ("clip max_grad_norm", "optimizer.clip_norm", "optimizer.clip_norm"),
    ("dropout hidden_dropout_prob", "model.dropout", "task.dropout"),
    ("fp16 bf16 precision mixed_precision", "compute.dtype", "compute.dtype"),
    ("seed random_seed", "seed", "seed"),
    ("save_steps save_every", "checkpoint.every", "checkpoint.every"),
    ("eval_steps eval_every", "evaluate.every", "evaluate.every"),
    ("logging_steps log_every", "train.log_every", "train.log_every"),
    ("corpus dataset data_dir", "data.corpus", "task.data"),
    ("task task_name", None, "task.name"),
    ("pretrained init_checkpoint model_name_or_path", "init_from", "init_from"),
    ("gpus devices num_gpus", "mesh.data", "mesh.data"),
    ("output_dir out", "--workdir", "--workdir"),
    ("train.step", "train.steps", "task.epochs"),
    ("optimiser.epsilon", "optimizer.epsilon", "optimizer.epsilon"),
    ("learnign_rate", "optimizer.peak_learning_rate", "optimizer.peak_learning_rate"),
    ("workdri", "--workdir", "--workdir"),
    ("qwertyuiop cells x", None, None),
]


@pytest.mark.parametrize(("names", "pretraining", "finetuning"), MEANINGS)
def test_names_of_other_trainers(names: str, pretraining: str | None, finetuning: str | None) -> None:
    for name in names.split():
        for known, key in ((PRETRAIN, pretraining), (FINETUNE, finetuning)):
            assert suggest_keys(name, [*known, *OPTIONS]) == ((key,) if key else ()), name


def test_every_alias_names_keys_or_options_that_exist() -> None:
    from bert_jax.cli.main import VERBS
    from bert_jax.cli.parser import make_parser

    actions = [action.choices for action in make_parser(VERBS)._actions if isinstance(action.choices, dict)]
    options = {option for choices in actions for verb in choices.values() for option in verb.option_names()}
    for keys in ALIASES.values():
        assert {*keys} <= {*PRETRAIN, *FINETUNE, *options}
    assert sum(len(aliases.split()) for aliases in SPELLINGS.values()) == len(ALIASES), "an alias has two meanings"


def test_a_saved_config_with_an_old_key() -> None:
    """As in the run.json of an earlier version, and in the task.json of an earlier export."""
    saved = to_json(PretrainConfig())
    saved["train"]["phases"][0]["length"] = saved["train"]["phases"][0].pop("seq_len")
    with pytest.raises(UserError, match=r"config has no key 'train\.phases\[0\]\.length'; did you mean '.*\.seq_len'"):
        from_json(saved)
    with pytest.raises(UserError, match=r"/x/task\.json has no key 'max_length'"):
        section_from_values(TaskConfig, {"max_length": 128}, "/x/task.json")


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("--config.train.accumulation=2", "did you mean 'train.grad_accum_steps'?"),
        ("--config.train.phases[0].length=64", "did you mean 'train.phases[0].seq_len'?"),
        ("--config.task.name=mrpc", "only `finetune` reads config.task"),
        ("--config.train.learning_rate=1", "did you mean 'optimizer.peak_learning_rate'?"),
    ],
)
def test_an_override_names_the_key_of_today(override: str, says: str) -> None:
    with pytest.raises(UserError) as error:
        read_config(PretrainConfig, None, [override])
    assert says in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (
            "config.train.accumulation = 2",
            "config has no key 'train.accumulation'; did you mean 'train.grad_accum_steps'?",
        ),
        ("config.data.update(pairing='none')", "did you mean 'data.sentence_pairs'?"),
        ("config.train.learning_rate = 1e-3", "did you mean 'optimizer.peak_learning_rate'?"),
        ("config.train.stepz = 3", "did you mean 'train.steps'?"),
        ("config.lr = 3", "did you mean 'optimizer.peak_learning_rate'?"),
        ("config.train = 3", "Could not override field 'train'"),
    ],
)
def test_a_recipe_with_an_unknown_key(tmp_path: pathlib.Path, line: str, says: str) -> None:
    (tmp_path / "recipe.py").write_text(
        "from bert_jax.config import pretrain_config\n"
        "def get_config():\n"
        f"    config = pretrain_config()\n    config.unlock()\n    {line}\n    return config\n"
    )
    with pytest.raises(UserError) as error:
        read_config(PretrainConfig, str(tmp_path / "recipe.py"), [])
    assert says in str(error.value)


@pytest.mark.parametrize("key", ["model.hidden_size", "data.masking", "train.phases[0].seq_len", "objective"])
def test_keys_of_pretraining_in_a_fine_tuning(key: str) -> None:
    section = next(section for section in ONE_KIND if key.startswith(section))
    assert suggestion_text(key, FINETUNE) in (f"; {ONE_KIND[section]}", "; did you mean 'task.max_seq_len'?")
    assert suggestion_text(key, PRETRAIN).startswith("; did you mean")
