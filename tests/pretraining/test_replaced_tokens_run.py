"""A run of replaced tokens from the command line: both models exported, continued from both, and resumed."""

import pathlib
import shutil
import typing

import jax
import numpy as np
import pytest
import torch
import transformers

from bert_jax import config as c
from bert_jax.checkpoints.load_model import read_weights, restore_run
from bert_jax.cli.main import main
from bert_jax.console import Console
from bert_jax.errors import UserError
from bert_jax.models import Head, Params, make_model
from bert_jax.objectives import OBJECTIVES, AuxiliaryModel
from bert_jax.pretraining.initial_weights import read_initial_weights
from bert_jax.tokenizer import load_tokenizer
from bert_jax.training.metrics import read_metrics
from tests.helpers.generated_corpus import generated_corpus

RECIPE = """
from bert_jax.config import phases, pretrain_config


def get_config():
    config = pretrain_config()
    config.objective = "replaced_tokens"
    config.replaced_tokens.generator_size = 0.5
    config.model.update(family="electra", hidden_size=16, num_layers=2, num_heads=2, mlp_size=32, max_positions=32)
    config.model.update(masked_activation="gelu", pooler_activation="gelu", pooler_dropout=True)
    config.data.sentence_pairs = "full_sentences"
    config.train.update(steps=4, batch_size=8, log_every=1)
    config.train.phases = phases({"seq_len": 32})
    config.optimizer.update(peak_learning_rate=1e-2, warmup_fraction=0.0)
    config.evaluate.update(every=2, num_sequences=16, batch_size=8)
    config.checkpoint.every = 2
    return config
"""
# Of ModernBERT, which has no such head in transformers.
MODERN = (
    RECIPE.replace(
        """family="electra", hidden""",
        """**architecture("modern_mini"))
    config.model.update(local_window=8, hidden""",
    )
    .replace('    config.model.update(masked_activation="gelu", pooler_activation="gelu", pooler_dropout=True)\n', "")
    .replace(
        "import phases, pretrain_config\n",
        "import phases, pretrain_config\nfrom bert_jax.config.presets import architecture\n",
    )
)
QUIET = Console(silent=True)
TIMES = ("tokens_per_second", "model_flops_utilization", "input_wait_fraction", "energy_joules", "memory_bytes")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A corpus, a run on it in `run`, and the exports of its models."""
    place = tmp_path_factory.mktemp("electra")
    generated_corpus(place / "text", documents=60, vocab_size=150)
    (place / "recipe.py").write_text(RECIPE)
    assert main(command(place, place / "run")) == 0
    for name, part in (("discriminator", []), ("generator", ["--part", "generator"])):
        assert main(["export", "--workdir", str(place / "run"), "--output", str(place / name), *part]) == 0
    return place


def command(world: pathlib.Path, workdir: pathlib.Path, *more: str) -> list[str]:
    corpus = f"--config.data.corpus={world / 'text' / 'corpus'}"
    return ["pretrain", f"--config={world / 'recipe.py'}", f"--workdir={workdir}", corpus, *more]


def params_of(workdir: pathlib.Path) -> typing.Any:
    return restore_run(workdir, None, QUIET)[2]


def test_both_models_open_in_transformers_with_equal_logits(world: pathlib.Path) -> None:
    rng = np.random.default_rng(0)
    ids = rng.integers(5, 150, (3, 20)).astype(np.int32)
    mask = (np.arange(20) < np.array([[20], [13], [5]])).astype(np.int32)
    positions = np.broadcast_to(np.arange(20, dtype=np.int32), (3, 20))
    batch = {"input_ids": ids, "token_type_ids": 0 * ids, "attention_mask": mask, "masked_positions": positions}
    for name, kind, output in (
        ("discriminator", transformers.ElectraForPreTraining, "replaced_logits"),
        ("generator", transformers.ElectraForMaskedLM, "mlm_logits"),
    ):
        reference, report = kind.from_pretrained(world / name, output_loading_info=True)
        assert not report["missing_keys"]
        assert not report["unexpected_keys"]
        with torch.no_grad():
            expected = reference.eval()(torch.tensor(ids), torch.tensor(mask)).logits.numpy()
        found = read_weights(world / "run", console=QUIET, part=None if name == "discriminator" else name)
        ours = make_model(found.config, c.ComputeConfig(), found.heads).apply(found.params, batch, None)[output]
        np.testing.assert_allclose(np.asarray(ours)[..., : expected.shape[-1]][mask > 0], expected[mask > 0], atol=2e-5)


def test_fill_mask_reads_the_exported_generator(world: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fill-mask", "--model", str(world / "generator"), "ban [MASK] fon"]) == 0
    assert capsys.readouterr().out.count("%") >= 5


def initial_weights(world: pathlib.Path, exported: bool, **sizes: int) -> tuple[dict[str, AuxiliaryModel], Params]:
    """The generator and the weights of a run that begins with those of `world`; `sizes` let them grow."""
    values = c.to_json(c.read_config(c.PretrainConfig, str(world / "recipe.py"), []))
    values["model"] |= {"vocab_size": 150, **sizes}
    values["init_from"] = str(world / ("discriminator" if exported else "run"))
    values["replaced_tokens"]["generator_from"] = str(world / "generator") if exported else None
    config = c.from_json(values)
    auxiliary = OBJECTIVES["replaced_tokens"].auxiliary(config.model, config.replaced_tokens)
    start = read_initial_weights(
        config.init_from,
        config.model,
        OBJECTIVES["replaced_tokens"].heads(config.data.sentence_pairs),
        auxiliary,
        grow=bool(sizes),
        seed=config.seed,
        tokenizer=load_tokenizer(world / "text" / "tokenizer"),
        corpus="text",
        console=QUIET,
    )
    return auxiliary, start


@pytest.mark.parametrize("exported", [False, True])
def test_training_continues_from_both_models(world: pathlib.Path, exported: bool) -> None:
    _, start = initial_weights(world, exported)
    jax.tree.map(np.testing.assert_array_equal, start, params_of(world / "run"))


def test_a_wider_generator_is_the_same_function(world: pathlib.Path) -> None:
    """It reads the wider embeddings of the discriminator."""
    ids = np.arange(5, 37, dtype=np.int32)[None]
    batch = dict.fromkeys(("input_ids", "masked_positions"), ids % 32) | {"token_type_ids": 0 * ids}
    logits = []
    for sizes in ({}, {"hidden_size": 48, "num_heads": 6}):
        auxiliary, params = initial_weights(world, False, **sizes)
        generator = auxiliary["generator"]
        model = make_model(generator.config, c.ComputeConfig(), generator.heads)
        logits.append(
            model.apply(generator.sharing.split(params).auxiliary, batch | {"attention_mask": 0 * ids + 1}, None)
        )
    assert generator.config.hidden_size == 24
    np.testing.assert_allclose(logits[1]["mlm_logits"], logits[0]["mlm_logits"], atol=1e-5)


@pytest.mark.slow
def test_disentangled_tables_are_exported_as_sums_and_resumed_as_parts(
    world: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The tables of the discriminator are the generator's tables plus the stored differences.

    A tied run cannot keep the generator's tables, and says so.
    """
    run, exported = tmp_path / "run", tmp_path / "discriminator"
    argv = command(world, run, "--config.replaced_tokens.embedding_sharing=disentangled")
    assert main(argv) == 0
    params = params_of(run)
    shutil.rmtree(run / "checkpoints" / "4")
    assert main(argv) == 0
    jax.tree.map(np.testing.assert_array_equal, params_of(run), params)

    assert main(["export", "--workdir", str(run), "--output", str(exported)]) == 0
    differences, tables = (part["encoder"]["embeddings"] for part in (params, params["generator"]))
    written = transformers.ElectraForPreTraining.from_pretrained(exported).electra.embeddings
    for name, table in (("token", written.word_embeddings), ("position", written.position_embeddings)):
        assert np.abs(differences[name]).max() > 1e-3
        rows = len(table.weight)
        np.testing.assert_array_equal(table.weight.detach(), (differences[name] + tables[name])[:rows])

    values = c.to_json(c.read_config(c.PretrainConfig, str(world / "recipe.py"), []))
    values["model"]["vocab_size"] = 150
    for init_from, has_generator, embedding_sharing in (
        (run, True, "disentangled"),
        (exported, False, "disentangled"),
        (run, True, "tied"),
    ):
        values["replaced_tokens"]["embedding_sharing"] = embedding_sharing
        config = c.from_json(values)
        (generator,) = OBJECTIVES["replaced_tokens"].auxiliary(config.model, config.replaced_tokens).values()
        start = read_initial_weights(
            str(init_from),
            config.model,
            OBJECTIVES["replaced_tokens"].heads(config.data.sentence_pairs),
            {"generator": generator},
            grow=False,
            seed=config.seed,
            tokenizer=load_tokenizer(world / "text" / "tokenizer"),
            corpus="text",
            console=Console(),
        )
        dropped = f"not used: the embeddings of the generator in {init_from}, which differ"
        assert (dropped in capsys.readouterr().err) == (embedding_sharing == "tied")
        if embedding_sharing == "tied":
            continue
        if has_generator:
            jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-7), start, params)
        else:  # a random generator begins with the tables of the discriminator
            assert not start["encoder"]["embeddings"]["token"].any()
            found, expected = (generator.sharing.split(tree).model["encoder"]["embeddings"] for tree in (start, params))
            jax.tree.map(lambda x, y: np.testing.assert_allclose(x[:150], y[:150]), found, expected)


@pytest.mark.slow
def test_other_embeddings_of_a_generator_are_named(world: pathlib.Path, tmp_path: pathlib.Path, capsys) -> None:
    """The generator reads the model's; its own are left out, and with equal ones nothing is said."""
    assert main(command(world, tmp_path / "run", "--config.seed=1")) == 0
    exported = tmp_path / "generator"
    assert main(["export", "--workdir", str(tmp_path / "run"), "--output", str(exported), "--part", "generator"]) == 0
    capsys.readouterr()
    start = f"--config.init_from={world / 'discriminator'}"
    for place, said in ((exported, 1), (world / "generator", 0)):
        generator = f"--config.replaced_tokens.generator_from={place}"
        assert main(command(world, tmp_path / f"from{said}", start, generator)) == 0
        assert capsys.readouterr().err.count("not used: the embeddings of") == said


def test_a_discriminator_alone_gets_a_random_generator(world: pathlib.Path, tmp_path: pathlib.Path, capsys) -> None:
    assert main(command(world, tmp_path / "run", f"--config.init_from={world / 'discriminator'}")) == 0
    assert "randomly initialized: the generator" in capsys.readouterr().err


def test_a_stopped_run_ends_with_the_same_bits(world: pathlib.Path, tmp_path: pathlib.Path) -> None:
    shutil.copytree(world / "run", tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "4")
    assert main(command(world, tmp_path / "run")) == 0
    jax.tree.map(np.testing.assert_array_equal, params_of(tmp_path / "run"), params_of(world / "run"))
    before, after = (
        [{k: x for k, x in line.items() if k not in TIMES} for line in read_metrics(place / "run" / "metrics.jsonl")]
        for place in (world, tmp_path)
    )
    assert before == after
    assert {"replaced_loss", "replaced_accuracy", "replaced_recall", "replaced_fraction"} <= before[0].keys()


def test_a_missing_or_different_generator_is_refused(world: pathlib.Path, tmp_path: pathlib.Path, capsys) -> None:
    """One line each, before anything is written."""
    place = f"--config.replaced_tokens.generator_from={world / 'generator'}"
    narrower = f"--config.init_from={world / 'run'}", "--config.replaced_tokens.generator_size=1.0"
    for more, words in (
        ((place,), "generator_from needs config.init_from"),
        (narrower, f"the generator in {world / 'run'} has another architecture: generator.hidden_size=16 (weights: 8)"),
        (narrower, "; config.model and config.replaced_tokens decide the architecture of the generator"),
    ):
        assert main(command(world, tmp_path / "other", *more)) == 2
        assert words in capsys.readouterr().err
        assert not (tmp_path / "other").exists()
    with pytest.raises(UserError, match="no teacher here; it trains generator"):
        read_weights(world / "run", console=QUIET, part="teacher")
    with pytest.raises(UserError, match="not a work directory of `pretrain`"):
        read_weights(world / "generator", console=QUIET, part="generator")


def test_a_generator_with_another_vocabulary_is_refused(world: pathlib.Path, tmp_path: pathlib.Path, capsys) -> None:
    generator = tmp_path / "generator"
    shutil.copytree(world / "generator", generator)
    tokens = (generator / "vocab.txt").read_text().splitlines()
    (generator / "vocab.txt").write_text("\n".join([*tokens[:-2], tokens[-1], tokens[-2]]) + "\n")
    (generator / "tokenizer.json").unlink(missing_ok=True)
    (generator / "SHA256SUMS").unlink(missing_ok=True)
    start = f"--config.init_from={world / 'discriminator'}"
    assert main(command(world, tmp_path / "other", start, f"--config.replaced_tokens.generator_from={generator}")) == 2
    assert f"prepared with another vocabulary than {generator}" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


@pytest.mark.slow
def test_a_family_without_the_head_is_exported_without_it(
    world: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "recipe.py").write_text(MODERN)
    run, export = tmp_path / "run", ["export", "--workdir", str(tmp_path / "run"), "--output"]
    argv = [word.replace(str(world / "recipe.py"), str(tmp_path / "recipe.py")) for word in command(world, run)]
    assert main(argv) == 0
    assert "fill-mask" not in capsys.readouterr().out
    assert main([*export, str(tmp_path / "encoder")]) == 0
    assert "left out: the head replaced_token\n" in capsys.readouterr().err
    rng = np.random.default_rng(0)
    ids = rng.integers(5, 150, (3, 20)).astype(np.int32)
    mask = (np.arange(20) < np.array([[20], [13], [5]])).astype(np.int32)
    theirs = transformers.AutoModel.from_pretrained(tmp_path / "encoder")
    with torch.no_grad():
        wanted = theirs(torch.tensor(ids), torch.tensor(mask)).last_hidden_state.numpy()
    found = read_weights(run, (Head("last_hidden_state"),), console=QUIET)
    batch = {"input_ids": ids, "token_type_ids": 0 * ids, "attention_mask": mask}
    ours = make_model(found.config, c.ComputeConfig(), found.heads).apply(found.params, batch, None)
    np.testing.assert_allclose(ours["last_hidden_state"] * mask[..., None], wanted * mask[..., None], atol=2e-5)
    # It cannot fill masks, and its head alone is nothing that transformers opens.
    assert main(["fill-mask", "--model", str(run), "[MASK]"]) == 2
    assert main([*export, str(tmp_path / "head"), "--head", "replaced_token"]) == 2
    assert "the generator of an ELECTRA run can (bert-jax export --part generator)" in capsys.readouterr().err
