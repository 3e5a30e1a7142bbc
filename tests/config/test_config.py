"""Configs: strict, overridable, reversible; a value that is not set is None."""

import dataclasses
import pathlib
import re

import numpy as np
import pytest

from bert_jax import config as c
from bert_jax.config.checks import phase_warnings
from bert_jax.errors import UserError
from bert_jax.training.schedules import plan_phases

ROOT = pathlib.Path(__file__).parents[2]
BASE = str(ROOT / "configs" / "bert_base.py")


def read(*overrides: str, recipe: str | None = BASE) -> c.PretrainConfig:
    return c.read_config(c.PretrainConfig, recipe, overrides)


def test_overrides_reach_every_level() -> None:
    config = read(
        "--config.train.phases[1].seq_len=256",
        "--config.optimizer.peak_learning_rate=1",
        "--config.compute.scan_layers=false",
        "--config.data.corpus=a=b c",
        "--config.seed=7",
    )
    assert config.train.phases[1].seq_len == 256
    assert config.optimizer.peak_learning_rate == 1.0
    assert config.compute.scan_layers is False
    assert config.data.corpus == "a=b c"
    assert config.seed == 7


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("--config.optimizer.peak_lr=1", ["peak_lr", "did you mean 'optimizer.peak_learning_rate'"]),
        ("--config.optimiser.epsilon=1", ["optimiser.epsilon", "did you mean 'optimizer.epsilon'"]),
        ("config.train.steps=1", ["not an option", "--config.train.steps=1"]),
        ("--confg.train.steps=1", ["not an option"]),
        ("--config.train.steps", ["VALUE"]),
        ("--config.train.steps=abc", ["config.train.steps=abc: give a whole number"]),
        ("--config.train.steps=0", ["config.train.steps=0 must lie from 1 to 2147483647"]),
        ("--config.train.phases[0].seq_len=513", ["seq_len=513", "max_positions"]),
        ("--config.train.phases[7].seq_len=64", ["phases[7].seq_len", "did you mean 'train.phases[1].seq_len'"]),
        ("--config.train.phases.1.seq_len=64", ["did you mean 'train.phases[1].seq_len'"]),
        ("--config.model.dropout=1.0", ["config.model.dropout=1.0 must lie from 0 to below 1"]),
        ("--config.optimizer.epsilon=2%", ["config.optimizer.epsilon=2%: give a number"]),
        ("--config.optimizer.epsilon=inf", ["config.optimizer.epsilon=inf: give a finite number"]),
        ("--config.optimizer.peak_learning_rate=1e999", ["peak_learning_rate=inf: give a finite number"]),
        ("--config.model.layer_norm_epsilon=nan", ["layer_norm_epsilon=nan: give a finite number"]),
        ("--config.train.phases[0].seq_len=9.5", ["--config.train.phases[0].seq_len=9.5: give a whole number"]),
        ("--config.compute.remat=perhaps", ["--config.compute.remat=perhaps: give True or False"]),
        ("--config.data.weights=(3,1", ["--config.data.weights=(3,1: give a tuple"]),
        ("--config.data.weights=(a,)", ["config.data.weights[0]", "give a number"]),
        ("--config.data.mask_probability=0.0", ["config.data.mask_probability"]),
        ("--config.train.phases[0].fraction=0.5", ["add up to 0.6"]),
        ("--config.train.steps=9000", ["warmup_steps=10000", "the run has 9000 steps"]),
        ("--config.optimizer.epsilon=0.0", ["config.optimizer.epsilon=0.0 must be above 0"]),
        ("--config.optimizer.layer_decay=0.0", ["config.optimizer.layer_decay=0.0 must be above 0 and at most 1"]),
        ("--config.optimizer.ema_decay=1.0", ["config.optimizer.ema_decay=1.0 must be above 0 and below 1, or None"]),
        ("--config.seed=9223372036854775808", ["config.seed=9223372036854775808: give a whole number up to"]),
        ("--config.seed=4294967296", ["config.seed=4294967296 must lie from 0 to 4294967295"]),
        ("--config.optimizer.warmup_fraction=1.0", ["config.optimizer.warmup_fraction=1.0 must", "below 1"]),
        ("--config.train.steps=2147483648", ["config.train.steps=2147483648 must lie from 1 to 2147483647"]),
        ("--config.model.num_heads=7", ["num_heads=7", "hidden_size=768"]),
        ("--config.model=3", ["no key 'model'"]),
        ("--config.data.mask_token_fraction=0.95", ["more than 1"]),
        ("--config.optimizer.peak_learning_rate=nan", ["config.optimizer.peak_learning_rate=nan: give a finite"]),
        ("--config.model.layer_norm_epsilon=1e39", ["config.model.layer_norm_epsilon=1e+39: give a finite number"]),
        ("--config.data.weights=(1,1e999)", ["config.data.weights[1]=inf: give a finite number"]),
        ("--config.data.packing=0", ["packing=0 must be at least 1"]),
        ("--config.data.weights=(1.0, -1.0)", ["from 0 on"]),
        ("--config.data.weights=(0.0, 0.0)", ["at least one of them above 0"]),
    ],
)
def test_bad_override_is_refused_by_name(override: str, words: list[str]) -> None:
    with pytest.raises(UserError) as error:
        read(override)
    assert all(word in str(error.value) for word in words), str(error.value)


@pytest.mark.parametrize("kind", [c.PretrainConfig, c.FinetuneConfig])
def test_a_range_begins_with_a_whole_number_or_with_the_smallest_positive_number(kind: type) -> None:
    """So 1e-8, the usual epsilon of Adam, is above 0."""
    ranges = [field.metadata["allowed"] for _, field, _ in c.fields_of(kind)]
    lowest = {allowed[0] for allowed in ranges if allowed and not isinstance(allowed[0], str)}
    fractions = [value for value in lowest if value % 1]
    assert fractions == [pytest.approx(np.finfo(np.float32).tiny, rel=0.03)]
    assert read("--config.optimizer.epsilon=1e-8").optimizer.epsilon == 1e-8


def test_a_phase_of_no_steps_is_not_read() -> None:
    """Its sequences may be longer than the model allows, and its own values replace nothing."""
    whole = ["--config.train.phases[0].fraction=1", "--config.train.phases[1].fraction=0"]
    config = read(*whole, "--config.model.max_positions=128", "--config.train.phases[1].warmup_steps=None")
    (phase,) = plan_phases(config.train)
    assert (phase.begin, phase.end, phase.seq_len, phase.index) == (0, config.train.steps, 128, 0)
    with pytest.raises(UserError, match=r"phases\[1\].seq_len=512: sequences have 8 to 128 tokens"):
        read("--config.model.max_positions=128")
    last = ["--config.train.phases[0].fraction=0", "--config.train.phases[1].fraction=1"]
    with pytest.raises(UserError, match=r"every phase has its own batch_size; set config.train.phases\[1\].batch_size"):
        read(*last, "--config.train.phases[1].batch_size=8", "--config.train.batch_size=16")
    (phase,) = plan_phases(read(*last, "--config.train.phases[1].batch_size=8").train)
    assert (phase.begin, phase.end, phase.index, phase.batch_size) == (0, config.train.steps, 1, 8)


def test_bad_recipe_files(tmp_path: pathlib.Path) -> None:
    with pytest.raises(UserError, match="no such file or recipe"):
        read(recipe=str(tmp_path / "absent.py"))
    with pytest.raises(UserError, match=r"did you mean 'bert_base'\? `bert-jax config` lists all"):
        read(recipe="bert_bse")
    (tmp_path / "empty.py").write_text("")
    with pytest.raises(UserError, match="get_config"):
        read(recipe=str(tmp_path / "empty.py"))
    (tmp_path / "typo.py").write_text(
        "from bert_jax.config import pretrain_config\n"
        "def get_config():\n    config = pretrain_config()\n    config.train.unlock()\n"
        "    config.train.stepz = 3\n    return config\n"
    )
    with pytest.raises(UserError, match=r"no key 'train\.stepz'; did you mean 'train\.steps'"):
        read(recipe=str(tmp_path / "typo.py"))


def test_a_recipe_is_found_by_name_from_anywhere(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert read(recipe="bert_base") == read(recipe=BASE) == read(recipe="configs/bert_base.py")
    assert read(recipe="bert:tiny").model.hidden_size == 128
    assert c.read_config(c.FinetuneConfig, "glue", []) == c.read_config(c.FinetuneConfig, "finetune/glue", [])


def test_a_warmup_longer_than_its_phase_is_refused() -> None:
    with pytest.raises(UserError, match=r"phases\[1\].warmup_steps=100000, but the phase has 100000 steps; lower it"):
        read("--config.train.phases[1].peak_learning_rate=1e-3", "--config.train.phases[1].warmup_steps=100000")


@pytest.mark.parametrize(
    ("recipe", "override", "words"),
    [
        (
            "small_cpu",
            "data.mask_probability=0.2",
            "every phase has its own mask_probability; set config.train.phases[0]",
        ),
        ("bert_large_lamb", "optimizer.peak_learning_rate=1e-4", "set config.train.phases[0].peak_learning_rate"),
        ("bert_large_lamb", "optimizer.warmup_steps=9", "every phase has its own peak_learning_rate; set"),
        ("bert_large_lamb", "train.grad_accum_steps=1", "set config.train.phases[0].grad_accum_steps"),
        (
            "bert_base",
            "optimizer.warmup_fraction=0.01",
            "with warmup_steps=10000; add --config.optimizer.warmup_steps",
        ),
    ],
)
def test_an_option_without_effect_is_refused(recipe: str, override: str, words: str) -> None:
    with pytest.raises(UserError, match=re.escape(words)):
        read(f"--config.{override}", recipe=recipe)


def test_a_warmup_of_a_phase_has_one_option() -> None:
    phase = "--config.train.phases[1]"
    own = [f"{phase}.peak_learning_rate=1e-3", f"{phase}.warmup_steps=5"]
    with pytest.raises(UserError, match=r"phases\[1\]\.warmup_fraction has no effect with warmup_steps=5; add"):
        read(*own, f"{phase}.warmup_fraction=0.1")


def test_one_rate_beside_several_is_refused() -> None:
    rates = ["--config.task.learning_rates=(5e-5,3e-5)", "--config.optimizer.peak_learning_rate=1e-4"]
    assert c.read_config(c.FinetuneConfig, "finetune/glue", rates[1:]).optimizer.peak_learning_rate == 1e-4
    with pytest.raises(UserError, match=r"peak_learning_rate has no effect with task\.learning_rates"):
        c.read_config(c.FinetuneConfig, "finetune/glue", rates)


def test_an_option_with_an_effect_is_not_refused() -> None:
    """Though the recipe sets another field, or one phase has its own."""
    assert read("--config.optimizer.warmup_steps=9", recipe="small_cpu").optimizer.warmup_steps == 9
    assert read("--config.train.batch_size=9", recipe="bert_large_lamb").train.batch_size == 9
    both = read("--config.optimizer.warmup_fraction=0.1", "--config.optimizer.warmup_steps=None", recipe="bert_base")
    assert (both.optimizer.warmup_fraction, both.optimizer.warmup_steps) == (0.1, None)
    own = [f"--config.train.phases[{phase}].peak_learning_rate=1e-3" for phase in range(2)]
    muon = read("--config.optimizer.peak_learning_rate=3e-3", *own, recipe="small_cpu")
    assert muon.optimizer.peak_learning_rate == 3e-3
    longer = ["--config.model.positions=rotary", "--config.model.rotary_base=1e4"]
    longer += [f"--config.train.phases[{phase}].rotary_base=160000.0" for phase in range(2)]
    with pytest.raises(UserError, match=r"model\.rotary_base has no effect: every phase has its own rotary_base"):
        read(*longer)
    assert read(*longer, "--config.init_from=DIR").model.rotary_base == 1e4  # the architecture of the weights


def test_a_recipe_of_the_other_kind_is_refused() -> None:
    with pytest.raises(UserError, match="fine-tuning recipe; run it with `bert-jax finetune`"):
        read(recipe="finetune/glue")
    with pytest.raises(UserError, match="pretraining recipe; run it with `bert-jax pretrain`"):
        c.read_config(c.FinetuneConfig, BASE, [])


@pytest.mark.parametrize("kind", [c.PretrainConfig, c.FinetuneConfig])
def test_every_field_that_may_be_none_can_be_set_and_unset(kind: type) -> None:
    """From the command line, whatever the recipe left in it."""
    needs = {
        "train.phases[0].warmup_steps": ["--config.train.phases[0].peak_learning_rate=1e-3"],
        "train.phases[0].decay_fraction": [
            "--config.train.phases[0].peak_learning_rate=1e-3",
            "--config.optimizer.schedule=warmup_stable_decay",
        ],
        "train.phases[0].local_window": ["--config.model.global_every=3", "--config.model.local_window=8"],
        "train.phases[0].random_token_fraction": ["--config.data.mask_token_fraction=0.5"],
        "task.verbalizers": ["--config.task.template={text} [MASK]"],
        "task.retrieval_split": ["--config.task.retrieval=collection"],
        "data.tokenizer": ["--config.data.text=text.txt"],
        "adapter.targets": ["--config.adapter.rank=4"],
        "data.max_epochs": ["--config.data.smoothing=0.5"],
        "replaced_tokens.generator_from": ["--config.objective=replaced_tokens"],
        "replaced_tokens.generator_layers": ["--config.objective=replaced_tokens"],
        "distillation.teacher": ["--config.objective=distillation"],
        "data.max_span_length": ["--config.data.masking=span"],
        "model.local_window": ["--config.model.global_every=3"],
        "model.local_rotary_base": ["--config.model.global_every=3", "--config.model.local_window=8"],
    }
    values = {int: "8", float: "0.5", str: "text", tuple: "(1,)"}
    optional = [key for key, field, inner in c.fields_of(kind) if "None" in str(inner) or field.default is None]
    assert len(optional) > 10
    for key in optional:
        inner = next(str(inner) for name, _, inner in c.fields_of(kind) if name == key)
        value = next(text for scalar, text in values.items() if scalar.__name__ in inner)
        base = c.pretrain_config() if kind is c.PretrainConfig else c.finetune_config()
        assert c.resolve(kind, base)
        for given in (value, "None"):
            others = needs.get(key, []) if given == value else []
            found = c.flatten(c.to_json(c.read_config(kind, None, [f"--config.{key}={given}", *others])))
            assert (found[key.replace("[0]", ".0")] is None) == (given == "None"), key


@pytest.mark.parametrize("kind", [c.PretrainConfig, c.FinetuneConfig])
def test_no_optional_path_is_the_empty_text(kind: type) -> None:
    """An empty path would mean the current directory in one place, and no path in another."""
    paths = [key for key, field, _ in c.fields_of(kind) if field.metadata["is_path"] and field.default is None]
    assert "init_from" in paths
    for key in paths:
        with pytest.raises(UserError, match=rf"config\.{re.escape(key)} is empty; give a path, or None"):
            c.read_config(kind, None, [f"--config.{key}="])


def test_unset_after_a_recipe_sets_it() -> None:
    assert read("--config.optimizer.clip_norm=None").optimizer.clip_norm is None
    assert read("--config.optimizer.clip_norm=2", recipe="roberta_base").optimizer.clip_norm == 2.0


def test_json_round_trip() -> None:
    config = read("--config.seed=3")
    assert c.from_json(c.to_json(config)) == config
    assert hash(config) == hash(c.from_json(c.to_json(config)))


def test_only_keys_that_move_no_number_may_change() -> None:
    config = c.resolve(c.PretrainConfig, c.pretrain_config())
    free = dataclasses.replace(
        config,
        evaluate=c.EvaluateConfig(every=1),
        checkpoint=c.CheckpointConfig(keep=9),
        mesh=c.MeshConfig(data=2),
        data=dataclasses.replace(config.data, corpus="elsewhere", num_threads=7),
    )
    assert c.config_differences(c.to_json(config), c.to_json(free)) == []
    other = dataclasses.replace(config, data=dataclasses.replace(config.data, mask_probability=0.3), seed=1)
    assert c.config_differences(c.to_json(config), c.to_json(other)) == [
        "data.mask_probability: 0.15 -> 0.3",
        "seed: 0 -> 1",
    ]
    weighted = dataclasses.replace(config, data=dataclasses.replace(config.data, weights=(3.0, 1.0)))
    assert c.config_differences(c.to_json(weighted), c.to_json(config)) == ["data.weights: (3.0, 1.0) -> None"]


@pytest.mark.parametrize(
    ("section", "values", "unread"),
    [
        ("task", {"dev_seed": 3}, "dev_seed"),
        ("task", {"vector_loss": "cosent", "positive_from": 2.0}, "positive_from"),  # a property of the row cosent
    ],
)
def test_a_recorded_field_without_effect_may_take_its_default(section: str, values: dict, unread: str) -> None:
    """The message of a refusal asks for the default, and a run of an earlier version then resumes."""
    default = c.FinetuneConfig()
    recorded = dataclasses.replace(default, **{section: dataclasses.replace(getattr(default, section), **values)})
    with pytest.raises(UserError, match=f"{unread} has no effect .*; set it to "):
        c.refuse_fields_without_effect(recorded)
    values = values | {unread: getattr(getattr(default, section), unread)}
    wanted = dataclasses.replace(default, **{section: dataclasses.replace(getattr(default, section), **values)})
    c.refuse_fields_without_effect(wanted)
    assert c.config_differences(c.to_json(recorded), c.to_json(wanted)) == []
    seeded = dataclasses.replace(wanted, seed=3)
    assert c.config_differences(c.to_json(recorded), c.to_json(seeded)) == ["seed: 0 -> 3"]


@pytest.mark.parametrize("kind", [c.PretrainConfig, c.FinetuneConfig])
def test_every_field_has_a_meaning_and_every_table_exists(kind: type) -> None:
    for key, field, _ in c.fields_of(kind):
        assert field.metadata["meaning"], key
        if field.metadata["table"]:
            table = c.table_of_field(field)
            assert len(table), key
            assert field.default is None or field.default in table, key


def test_a_name_that_its_table_lacks_is_refused_when_a_run_starts() -> None:
    for override, words in (
        ("--config.model.activation=relux", "config.model.activation='relux': choose from gelu, .*did you mean 'relu'"),
        ("--config.data.sentence_pairs=pairs", "choose from next_sentence"),
        ("--config.data.masking=words", "choose from token"),
        ("--config.optimizer.name=adam", "choose from adamw, lamb.*did you mean 'adamw'"),
        ("--config.objective=mlm", "choose from masked_tokens"),
    ):
        with pytest.raises(UserError, match=words):
            c.check_choices(read(override))


def test_smoothing_beside_weights_is_refused() -> None:
    message = r"config.data.smoothing has no effect with config.data.weights=\(1.0, 2.0\); set it to 1.0, or"
    with pytest.raises(UserError, match=message):
        read("--config.data.weights=(1.0, 2.0)", "--config.data.smoothing=0.5")


def test_options_that_do_not_reach_a_phase_are_named() -> None:
    """The options that the warning names give every phase the values of the command line."""
    overrides = ["train.batch_size=8", "optimizer.peak_learning_rate=5e-05", "optimizer.warmup_steps=7"]
    given, words = [word.partition("=")[0] for word in overrides], [f"--config.{word}" for word in overrides]
    lines = list(phase_warnings(c.read_config(c.PretrainConfig, "modern_base", words), given))
    assert [re.findall(r"in phase (\d), which sets", line) for line in lines] == [["3"], ["4"]]
    fixes = re.findall(r"--config\.\S+", " ".join(lines))
    fixed = c.read_config(c.PretrainConfig, "modern_base", [*words, *fixes])
    for phase in fixed.train.phases[2:]:
        assert (phase.batch_size, phase.peak_learning_rate, phase.warmup_steps) == (8, 5e-5, 7)
    assert not list(
        phase_warnings(fixed, [*given, *(fix.partition("=")[0].removeprefix("--config.") for fix in fixes)])
    )
    alone = [f"--config.train.phases[{phase}].fraction={int(phase == 1)}" for phase in range(4)]
    assert not list(phase_warnings(c.read_config(c.PretrainConfig, "modern_base", [*words, *alone]), given))
    (line,) = phase_warnings(
        c.read_config(c.PretrainConfig, "modern_base", [*words, *alone, "--config.init_from=DIR"]), given
    )
    assert "phase 2 trains the weights of config.init_from with rotary_base=10000.0, and they have 160000.0" in line
    alone += ["--config.init_from=DIR", *re.findall(r"--config\.train\S+", line)]
    assert not list(phase_warnings(c.read_config(c.PretrainConfig, "modern_base", [*words, *alone]), given))


def test_hosts_share_all_values_except_the_path_of_a_recipe() -> None:
    values = c.to_json(c.resolve(c.PretrainConfig, c.pretrain_config()))
    shared = c.values_that_hosts_share(values | {"recipe": "/home/a/recipe.py"})
    assert shared == c.values_that_hosts_share(values | {"recipe": "/home/b/recipe.py"})
    assert shared.keys() == {f"config.{key}" for key in c.flatten(values)} - {"config.recipe"}
