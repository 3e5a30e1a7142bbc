"""Configs: strict, overridable, reversible; every shipped recipe loads and says what it needs."""

import dataclasses
import pathlib

import pytest

from bert_jax import config as c
from bert_jax.errors import UserError
from bert_jax.training.schedules import plan

RECIPES = sorted((pathlib.Path(__file__).parents[2] / "configs").rglob("*.py"))
BASE = str(pathlib.Path(__file__).parents[2] / "configs" / "bert_base.py")


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_recipe_loads_and_documents_itself(recipe: pathlib.Path) -> None:
    config = c.read_config(str(recipe), [])
    assert plan(config)[-1].end == config.train.steps
    docstring = recipe.read_text().split('"""')[1]
    verb = "finetune" if recipe.parent.name == "finetune" else "pretrain"
    for word in (f"{verb} --config", "hardware", "time", "score"):
        assert word in docstring.lower(), f"the docstring of {recipe.name} does not say its {word}"


def test_base_is_the_papers() -> None:
    config = c.read_config(BASE, [])
    phases = plan(config)
    assert [(p.begin, p.end, p.length, p.batch_size) for p in phases] == [
        (0, 900_000, 128, 256),
        (900_000, 1_000_000, 512, 256),
    ]
    assert config.model.hidden_size == 768
    assert config.optimizer.peak_learning_rate == 1e-4
    assert config.optimizer.warmup_fraction * config.train.steps == 10_000


def test_lamb_large_is_the_published_recipe() -> None:
    config = c.read_config(BASE.replace("bert_base", "bert_large_lamb"), [])
    assert [(p.begin, p.end, p.length, p.batch_size, p.peak_learning_rate, p.warmup_steps) for p in plan(config)] == [
        (0, 7038, 128, 65_536, 6e-3, round(0.2843 * 7038)),
        (7038, 8601, 512, 32_768, 4e-3, round(0.128 * 1563)),
    ]


def test_overrides_reach_every_level() -> None:
    config = c.read_config(
        BASE,
        [
            "--config.train.phases[1].seq_len=256",
            "--config.optimizer.peak_learning_rate=1",
            "--config.compute.scan_layers=false",
            "--config.data.corpus=a=b c",
            "--config.seed=7",
        ],
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
        ("config.train.steps=1", ["no option", "--config.train.steps=1"]),
        ("--confg.train.steps=1", ["no option"]),
        ("--config.train.steps", ["VALUE"]),
        ("--config.train.steps=abc", ["config.train.steps=abc: give a whole number"]),
        ("--config.train.steps=0", ["config.train.steps=0 must be at least 1"]),
        ("--config.train.phases[0].seq_len=513", ["length=513", "max_positions"]),
        ("--config.train.phases[7].seq_len=64", ["phases[7].seq_len", "did you mean 'train.phases[1].seq_len'"]),
        ("--config.train.phases.1.seq_len=64", ["did you mean 'train.phases[1].seq_len'"]),
        ("--config.model.dropout=1.0", ["config.model.dropout=1.0 must lie from 0 to below 1"]),
        ("--config.optimizer.epsilon=2%", ["config.optimizer.epsilon=2%: give a number"]),
        ("--config.train.phases[0].seq_len=9.5", ["--config.train.phases[0].seq_len=9.5: give a whole number"]),
        ("--config.compute.remat=perhaps", ["--config.compute.remat=perhaps: give True or False"]),
        ("--config.data.weights=(3,1", ["--config.data.weights=(3,1: give a tuple"]),
        ("--config.data.weights=(a,)", ["config.data.weights[0]", "give a number"]),
        ("--config.data.mask_probability=0.0", ["config.data.mask_probability"]),
        ("--config.train.phases[0].fraction=0.5", ["add up to 0.6"]),
        ("--config.model.activation=relu", ["gelu, gelu_tanh"]),
        ("--config.model.num_heads=7", ["num_heads=7", "hidden_size=768"]),
        ("--config.model=3", ["no key 'model'"]),
        ("--config.data.mask_token_fraction=0.95", ["more than 1"]),
        ("--config.data.max_span_length=4", ["max_span_length", "masking=ngram or span"]),
        ("--config.data.span_end_probability=0.5", ["span_end_probability", "masking=span"]),
        ("--config.data.sentence_pairs=pairs", ["choose from next_sentence"]),
        ("--config.data.masking=words", ["choose from token"]),
        ("--config.data.packing=0", ["packing=0 must be at least 1"]),
        ("--config.data.weights=(1.0, -1.0)", ["from 0 on"]),
        ("--config.data.weights=(0.0, 0.0)", ["one above 0"]),
    ],
)
def test_bad_override_is_refused_by_name(override: str, words: list[str]) -> None:
    with pytest.raises(UserError) as error:
        c.read_config(BASE, [override])
    assert all(word in str(error.value) for word in words), str(error.value)


def test_bad_recipe_files(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(RECIPES[0].parents[1])
    with pytest.raises(UserError, match="no such file"):
        c.read_config(str(tmp_path / "absent.py"), [])
    for near in ("demo", "configs/finetune/demo.py"):
        with pytest.raises(UserError, match=r"no such file; did you mean configs/demo\.py\?"):
            c.read_config(near, [])
    with pytest.raises(UserError, match=r"did you mean .*/configs/bert_base\.py\?"):
        c.read_config(BASE.replace("bert_base", "bert_bse"), [])
    (tmp_path / "empty.py").write_text("")
    with pytest.raises(UserError, match="get_config"):
        c.read_config(str(tmp_path / "empty.py"), [])
    (tmp_path / "typo.py").write_text(
        "from bert_jax.config import default_config\n"
        "def get_config():\n    config = default_config()\n    config.train.unlock()\n"
        "    config.train.stepz = 3\n    return config\n"
    )
    with pytest.raises(UserError, match="no key 'stepz'; did you mean 'steps'"):
        c.read_config(str(tmp_path / "typo.py"), [])


def test_json_round_trip() -> None:
    config = c.read_config(BASE, ["--config.seed=3"])
    assert c.from_json(c.to_json(config)) == config
    assert hash(config) == hash(c.from_json(c.to_json(config)))


def test_only_keys_that_move_no_number_may_change() -> None:
    config = c.resolve(c.default_config())
    free = dataclasses.replace(
        config,
        evaluate=c.EvaluateConfig(every=1),
        checkpoint=c.CheckpointConfig(keep=9),
        mesh=c.MeshConfig(data=2),
        data=dataclasses.replace(config.data, corpus="elsewhere", threads=7),
    )
    assert c.differences(config, free) == []
    other = dataclasses.replace(config, data=dataclasses.replace(config.data, mask_probability=0.3), seed=1)
    assert c.differences(config, other) == ["data.mask_probability: 0.15 -> 0.3", "seed: 0 -> 1"]
    weighted = dataclasses.replace(config, data=dataclasses.replace(config.data, weights=(3.0, 1.0)))
    assert c.differences(weighted, config) == ["data.weights: (3.0, 1.0) -> ()"]


def test_every_knob_says_what_it_means() -> None:
    def walk(kind: type) -> None:
        for field in dataclasses.fields(kind):
            assert field.metadata["meaning"], f"{kind.__name__}.{field.name}"
            if dataclasses.is_dataclass(field.default):
                walk(type(field.default))

    walk(c.Config)
    walk(c.PhaseConfig)


def test_smoothing_beside_weights_is_refused() -> None:
    message = "config.data.smoothing has no effect beside config.data.weights; leave one out"
    with pytest.raises(UserError, match=message):
        c.read_config(BASE, ["--config.data.weights=(1.0, 2.0)", "--config.data.smoothing=0.5"])
