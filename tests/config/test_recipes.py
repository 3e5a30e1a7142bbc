"""Recipes: each loads by name, documents itself, and has the published values."""

import pathlib
import sys

import jax.numpy as jnp
import pytest

from bert_jax import config as c
from bert_jax.config.load import find_recipe, recipes
from bert_jax.config.presets import PRESETS
from bert_jax.errors import UserError
from bert_jax.training.schedules import learning_rate, plan_phases

CONFIGS = pathlib.Path(__file__).parents[2] / "configs"


def load(recipe: str) -> c.Config:
    return c.read_config(c.FinetuneConfig if recipe.startswith("finetune/") else c.PretrainConfig, recipe, [])


def test_every_file_is_found_by_name() -> None:
    assert sorted(recipes().values()) == sorted(CONFIGS.rglob("*.py"))


@pytest.mark.parametrize("name", recipes())
def test_recipe_loads_and_documents_itself(name: str) -> None:
    load(name)
    docstring = pathlib.Path(find_recipe(name).path).read_text(encoding="utf-8").split('"""')[1]
    verb = "finetune" if name.startswith("finetune/") else "pretrain"
    assert f"bert-jax {verb} --config={name.rpartition('/')[2]}" in docstring
    assert "\nHardware and time: " in docstring
    assert "\nScore: " in docstring


def test_base_is_the_papers() -> None:
    """Devlin et al. 2019, appendix A.2."""
    config = load("bert_base")
    assert (config.model.num_layers, config.model.hidden_size, config.model.num_heads) == (12, 768, 12)
    assert (config.train.steps, config.train.batch_size) == (1_000_000, 256)
    assert [(phase.seq_len, phase.fraction) for phase in config.train.phases] == [(128, 0.9), (512, 0.1)]
    optimizer = config.optimizer
    assert (optimizer.peak_learning_rate, optimizer.warmup_steps, optimizer.weight_decay) == (1e-4, 10_000, 0.01)


def test_lamb_large_is_the_published_recipe() -> None:
    """NVIDIA's BERT-large with LAMB: two phases, each with a schedule of its own."""
    config = load("bert_large_lamb")
    assert isinstance(config, c.PretrainConfig)
    phases = plan_phases(config.train)
    assert [(p.begin, p.end, p.seq_len, p.batch_size, p.peak_learning_rate, p.warmup_steps) for p in phases] == [
        (0, 7038, 128, 65_536, 6e-3, round(0.2843 * 7038)),
        (7038, 8601, 512, 32_768, 4e-3, round(0.128 * 1563)),
    ]


def test_roberta_and_albert_are_the_papers() -> None:
    """Liu et al. 2019, table 9; Lan et al. 2020, section 4.1 and table 14."""
    roberta, albert = load("roberta_base"), load("albert_base")
    assert (roberta.optimizer.peak_learning_rate, roberta.optimizer.warmup_steps) == (6e-4, 24_000)
    assert (roberta.optimizer.beta2, roberta.optimizer.clip_norm) == (0.98, None)
    assert (roberta.train.steps, roberta.train.batch_size) == (500_000, 8_192)
    assert (albert.optimizer.peak_learning_rate, albert.optimizer.warmup_steps) == (1.76e-3, 3_125)
    assert (albert.train.steps, albert.train.batch_size) == (125_000, 4_096)


def test_electra_is_the_paper_s() -> None:
    """Clark et al. 2020, table 6: steps, batch, rate, masks and generator of the small and the base model."""
    for name, steps, batch, rate, seq_len, size in (
        ("electra_small", 1_000_000, 128, 5e-4, 128, 0.25),
        ("electra_base", 766_000, 256, 2e-4, 512, 1 / 3),
    ):
        config = load(name)
        assert isinstance(config, c.PretrainConfig)
        assert (config.train.steps, config.train.batch_size, config.train.phases[0].seq_len) == (steps, batch, seq_len)
        assert (config.optimizer.peak_learning_rate, config.optimizer.warmup_steps) == (rate, 10_000)
        assert (config.data.mask_token_fraction, config.data.random_token_fraction) == (0.85, 0.0)
        assert (config.replaced_tokens.generator_size, config.replaced_tokens.weight) == (size, 50.0)


@pytest.mark.parametrize(
    ("name", "tokens", "batches", "rates", "decays"),
    [
        ("modern_base", (50, 1_669, 250, 50), (768, 4_608, 576), (8e-4, 8e-4, 3e-4, 3e-4), (1e-5,) * 4),
        (
            "modern_large",
            (10, 890, 819, 250, 50),
            (448, 4_928, 4_928, 616, 624),
            (5e-4, 5e-4, 5e-5, 5e-5, 5e-5),
            (1e-5, 1e-5, 1e-6, 1e-6, 1e-6),
        ),
    ],
)
def test_modernbert_is_the_paper_s(
    name: str,
    tokens: tuple[int, ...],
    batches: tuple[int, ...],
    rates: tuple[float, ...],
    decays: tuple[float, ...],
) -> None:
    """Warner et al. 2024, table 3: of each phase, billions of tokens, first batch, first rate and weight decay."""
    config = load(name)
    assert isinstance(config, c.PretrainConfig)
    phases, indices = plan_phases(config.train), range(len(tokens))
    stages = [[phase for phase in phases if phase.index == index] for index in indices]
    read = [sum((one.end - one.begin) * one.batch_size * one.seq_len for one in stage) / 1e9 for stage in stages]
    assert read == pytest.approx(tokens, rel=1e-3)
    assert list(dict.fromkeys(stage[0].batch_size for stage in stages)) == list(dict.fromkeys(batches))
    sizes, steps = [one.batch_size for one in stages[0]], [one.end - one.begin for one in stages[0]]
    assert sizes == list(range(batches[0], batches[1] + 1, batches[0]))
    assert len(set(steps)) == 1
    assert [stage[0].weight_decay or config.optimizer.weight_decay for stage in stages] == list(decays)
    models = [c.section_of_phase(config.model, phase) for phase in config.train.phases]
    assert [model.rotary_base for model in models] == [10_000.0] * (len(tokens) - 2) + [160_000.0] * 2
    assert {model.local_rotary_base for model in models} == {10_000.0}
    assert models[-1] == config.model

    def rate(step: int) -> float:
        return float(learning_rate(config.optimizer, phases, jnp.int32(step)))

    warmup = config.optimizer.warmup_steps
    assert warmup
    warmed_up = sum(max(0, min(warmup, one.end) - one.begin) * one.batch_size * one.seq_len for one in phases)
    assert warmed_up / 1e9 == pytest.approx(3 if name == "modern_base" else 2, rel=1e-3)
    assert rate(warmup // 2) == pytest.approx(rates[0] / 2, rel=1e-3)
    assert [rate(max(stage[0].begin, warmup)) for stage in stages] == pytest.approx(rates)
    assert [rate(stage[-1].end - 1) for stage in stages[:-1]] == pytest.approx(rates[:-1])
    begin, end = stages[-1][0].begin, stages[-1][-1].end
    assert rate((3 * begin + end) // 4) == pytest.approx(rates[-1] / 2, rel=1e-3)  # 1 - sqrt(1 / 4)
    assert rate(end - 1) < 1e-2 * rates[-1]


def test_distilbert_is_the_paper_s() -> None:
    """Sanh et al. 2019 and their code: temperature 2, weights 5 : 2 : 1, six layers."""
    config = load("distilbert")
    assert isinstance(config, c.PretrainConfig)
    soft, cosine = config.distillation.soft_weight, config.distillation.cosine_weight
    assert (5 / soft, 2 / 1, 1 / cosine, config.distillation.temperature) == (2, 2, 2, 2)
    assert (config.model.num_layers, config.model.hidden_size, config.train.batch_size) == (6, 768, 4_000)
    assert (config.optimizer.peak_learning_rate, config.optimizer.warmup_fraction) == (5e-4, 0.05)


@pytest.mark.parametrize(
    ("size", "layers", "width"), [("tiny", 2, 128), ("mini", 4, 256), ("medium", 8, 512), ("L6_H768", 6, 768)]
)
def test_the_size_is_an_argument(size: str, layers: int, width: int) -> None:
    config = load(f"bert:{size}")
    assert (config.model.num_layers, config.model.hidden_size) == (layers, width)
    assert config == load(f"configs/bert.py:{size}")
    assert config.model.vocab_size is None
    assert PRESETS[size].vocab_size == 30_522


def test_an_unknown_size_is_refused_with_the_sizes() -> None:
    with pytest.raises(UserError, match=r"no size 'tini'; did you mean 'tiny'\? \(sizes: tiny, mini,.*L12_H768"):
        load("bert:tini")
    with pytest.raises(UserError, match="no size 'albert_base'"):
        load("bert:albert_base")


def test_an_unknown_recipe_is_refused_with_the_nearest() -> None:
    with pytest.raises(UserError, match=r"no such file or recipe; did you mean 'bert_base'\? `bert-jax config`"):
        load("bert_bse")


def test_an_argument_of_a_recipe_that_takes_none_is_refused() -> None:
    with pytest.raises(UserError, match=r"demo\.py:tiny: get_config\(\) does not run \(TypeError: "):
        load("demo:tiny")


RECIPE = "import bert_jax\ndef get_config(*size):\n    config = bert_jax.pretrain_config()\n"


def test_a_recipe_imports_a_module_of_its_directory(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sizes_of_my_runs.py").write_text("STEPS = 12\n")
    recipe = tmp_path / "recipe.py"
    recipe.write_text(
        f"import sizes_of_my_runs\n{RECIPE}    config.train.steps = sizes_of_my_runs.STEPS\n    return config"
    )
    before = list(sys.path)
    assert c.read_config(c.PretrainConfig, recipe, ["--config.optimizer.warmup_fraction=0"]).train.steps == 12
    assert sys.path == before
    # Another recipe of this process has a module of the same name.
    other = tmp_path / "other" / "recipe.py"
    (other.parent / "sizes_of_my_runs").mkdir(parents=True)
    (other.parent / "sizes_of_my_runs" / "__init__.py").write_text("from sizes_of_my_runs.steps import STEPS\n")
    (other.parent / "sizes_of_my_runs" / "steps.py").write_text("STEPS = 34\n")
    other.write_text(recipe.read_text())
    assert load(str(other)).train.steps == 34
    assert load(str(recipe)).train.steps == 12
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)  # so that the recipe imports it
    (tmp_path / "colorsys.py").write_text("raise ImportError")  # the directory replaces no installed module
    recipe.write_text(f"import colorsys\n{RECIPE}    return config")
    load(str(recipe))


@pytest.mark.parametrize("argument", ["", ":tiny", ":data/of:mine"])
def test_a_directory_of_a_recipe_may_have_a_colon(tmp_path: pathlib.Path, argument: str) -> None:
    directory = tmp_path / "2026-11-27T04:00"
    directory.mkdir()
    (directory / "recipe.py").write_text(f"{RECIPE}    config.data.corpus = 'of ' + ''.join(size)\n    return config\n")
    config = load(f"{directory}/recipe.py{argument}")
    assert isinstance(config, c.PretrainConfig)
    assert config.data.corpus == f"of {argument[1:]}"
    assert config.recipe == f"{directory}/recipe.py{argument}"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("get_recipe = 1\n", r"mine\.py: has no function get_config\(\)"),
        (
            f"{RECIPE}\n    config.train.stepz += 1\n    return config\n",
            r"does not run \(line 5, AttributeError: .*stepz",
        ),
        (f"{RECIPE}\n    config.stepz = 1\n    return config\n", r"does not run \(line 5, AttributeError: .*stepz"),
        ("def get_config(:\n", r"does not run \(SyntaxError: .* line 1\)"),
    ],
)
def test_a_mistake_in_a_recipe_is_named_with_its_line(tmp_path: pathlib.Path, text: str, says: str) -> None:
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(UserError, match=says) as caught:
        load(str(tmp_path / "mine.py"))
    assert len(str(caught.value)) < 500  # without the fields of a locked ConfigDict


def test_a_required_placeholder_is_refused(tmp_path: pathlib.Path) -> None:
    """The parser of ml_collections cannot give it a value; a placeholder gets the value of the command line."""
    recipe = tmp_path / "recipe.py"
    text = (
        f"from ml_collections import config_dict\n{RECIPE}"
        "    config.train.steps = config_dict.KIND(int)\n    return config\n"
    )
    recipe.write_text(text.replace("KIND", "required_placeholder"))
    with pytest.raises(UserError, match="a field is a required_placeholder; set it, or use"):
        load(str(recipe))
    recipe.write_text(text.replace("KIND", "placeholder"))
    assert c.read_config(c.PretrainConfig, recipe, ["--config.train.steps=9"]).train.steps == 9
