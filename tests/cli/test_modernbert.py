"""A ModernBERT with next-sentence pairs from the corpus to `transformers`, and a research architecture, by commands."""

import json

import pytest
import transformers

from tests.helpers.commands import RECIPE, pretrain_command

MODERN = RECIPE.replace(
    "    config.model.update(hidden_size=16,",
    """    from bert_jax.config.presets import architecture
    config.model.update(architecture("modern_tiny"), local_window=8)
    config.data.sentence_pairs = "next_sentence"
    config.model.update(hidden_size=16,""",
)


@pytest.mark.slow
def test_pairs_are_trained_and_their_classifier_exported_by_itself(world, tmp_path, run) -> None:
    recipe = tmp_path / "modern.py"
    recipe.write_text(MODERN)
    status, _, err = run(*pretrain_command(world._replace(recipe=recipe), tmp_path / "run"))
    assert status == 0, err
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert all("nsp_loss" in line for line in lines if line["split"] == "train")

    status, out, err = run("export", "--workdir", tmp_path / "run", "--output", tmp_path / "masked")
    assert status == 0, err
    assert "left out: the head next_sentence; export it by itself with --head next_sentence" in out + err
    status, out, err = run(
        "export", "--workdir", tmp_path / "run", "--output", tmp_path / "pairs", "--head", "next_sentence"
    )
    assert status == 0, err
    assert "left out: the head masked_token" in out + err
    for name, kind in (("masked", "MaskedLM"), ("pairs", "SequenceClassification")):
        auto = getattr(transformers, f"AutoModelFor{kind}")
        theirs, report = auto.from_pretrained(tmp_path / name, output_loading_info=True)
        assert not any(report.values()), report
        tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / name)
        assert set(tokenizer("a pair", "of texts")) == {"input_ids", "attention_mask"}
        assert theirs(**tokenizer("a pair", "of texts", return_tensors="pt")).logits.shape[-1] in (2, len(tokenizer))
    text = "a [MASK]"
    of_run = run("fill-mask", "--model", tmp_path / "run", "--json", text)
    assert of_run[1] == run("fill-mask", "--model", tmp_path / "masked", "--json", text)[1] != ""


def test_a_research_architecture_is_trained_used_and_exported(world, tmp_path, run, refused) -> None:
    research = [f"--config.model.{x}" for x in ("query_key_norm=True", "norm=rms_norm", "norm_bias=False")]
    argv = pretrain_command(world, tmp_path / "run", *research)
    refused(*argv, says=("no bert of transformers has model.norm='rms_norm'", "model.family=research allows"))
    status, _, err = run(*argv, "--config.model.family=research")
    assert status == 0, err
    assert run("fill-mask", "--model", tmp_path / "run", "a [MASK]")[0] == 0
    made = ["export", "--workdir", tmp_path / "run", "--output", tmp_path / "made"]
    refused(*made, "--format", "onnx", says=("no model.family=research", "--format stablehlo"), after=1)
    assert run(*made[:-1], tmp_path / "program", "--format", "stablehlo")[0] == 0
    status, _, err = run(*made)
    assert (status, "bert_jax reads this directory, transformers does not" in err) == (0, True)
    of_run = run("fill-mask", "--model", tmp_path / "run", "--json", "a [MASK]")[1]
    assert run("fill-mask", "--model", tmp_path / "made", "--json", "a [MASK]")[1] == of_run != ""
