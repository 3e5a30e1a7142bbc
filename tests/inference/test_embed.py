"""Vectors and token features against `transformers` under torch, for all families, and refusals."""

import dataclasses
import json

import numpy as np
import pytest
import safetensors.numpy
import torch

from bert_jax.errors import UserError
from bert_jax.inference import embed as module
from bert_jax.inference.embed import EmbedOptions, embed_file
from bert_jax.tasks.batching import doubling_buckets
from tests.helpers import tiny_models

LINES = [
    {"text": "a bc d."},
    {"text": "abc", "text_pair": "j i h"},
    {"text": "a " * 12},
    {"text": "", "label": 1},
    {"text": "[MASK] ab <mask> é"},
    {"text": "cd e", "text_pair": "a b c d e f g h i j a b"},
    {"text": "hij"},
]


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    return path


@pytest.fixture
def bert(tmp_path):
    return tiny_models.save(tmp_path / "bert", "bert")


def states_of(model, tokenizer, **settings):
    """Ids and hidden states [layers + 1, tokens, hidden] of each text alone, without padding."""
    found = []
    settings["return_tensors"] = "pt"
    for line in LINES:
        inputs = tokenizer(line["text"], line.get("text_pair"), **settings)
        with torch.no_grad():
            states = model(**inputs, output_hidden_states=True).hidden_states
        found.append((inputs["input_ids"][0].numpy(), torch.stack(states)[:, 0].numpy()))
    return found


@pytest.mark.parametrize("family", tiny_models.CLASSES)
def test_means_equal_the_means_of_transformers(tmp_path, source, family, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 4)  # several chunks, the last not full
    model, tokenizer = tiny_models.save(tmp_path / "model", family)
    progress = []
    summary = embed_file(
        tmp_path / "model", source, tmp_path / "out.npy", EmbedOptions(batch_size=2), lambda *now: progress.append(now)
    )
    states = states_of(model, tokenizer)
    wanted = np.stack([x[-1].mean(0) for _, x in states])
    found = np.load(tmp_path / "out.npy")
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)
    special = {tokenizer.pad_token_id, tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.mask_token_id}
    spelled = sum(
        not special.isdisjoint(tokenizer(text, add_special_tokens=False)["input_ids"])
        for text in (line["text"] for line in LINES)
    )
    encoded = [tokenizer(line["text"], add_special_tokens=False)["input_ids"] for line in LINES]
    known = [[token for token in ids if token not in special] for ids in encoded]
    unknown = sum(sum(token == tokenizer.unk_token_id for token in ids) > len(ids) / 2 for ids in known)
    assert dataclasses.asdict(summary) == {
        "texts": len(LINES),
        "tokens": sum(len(ids) for ids, _ in states),
        "truncated": 0,
        "spelled": spelled,
        "unknown": unknown,
        "empty": 1,
        "titles": 0,
        "unused_prompts": (),
        "width": 16,
    }
    assert progress == [*(("counting", n, None) for n in range(1, 8)), *(("embedding", n, 7) for n in range(1, 8))]


@pytest.mark.parametrize(
    ("layers", "of"),
    [
        ("last", lambda x: x[-1]),
        ("sum4", lambda x: x[1] + x[2] + x[3] + x[4]),
        ("concat4", lambda x: np.concatenate([x[1], x[2], x[3], x[4]], axis=1)),
        ("0", lambda x: x[0]),
        ("-2", lambda x: x[3]),
    ],
)
def test_token_features_of_any_layers(tmp_path, source, bert, layers, of):
    embed_file(
        tmp_path / "bert",
        source,
        tmp_path / "out.safetensors",
        EmbedOptions(pooling="tokens", layers=layers, batch_size=3),
    )
    found = safetensors.numpy.load_file(tmp_path / "out.safetensors")
    states = states_of(*bert)
    np.testing.assert_array_equal(found["offsets"], np.cumsum([0, *(len(ids) for ids, _ in states)]))
    np.testing.assert_array_equal(found["input_ids"], np.concatenate([ids for ids, _ in states]))
    np.testing.assert_allclose(found["features"], np.concatenate([of(x) for _, x in states]), rtol=0, atol=2e-5)


def test_first_tokens_of_plain_lines_and_of_cut_texts(tmp_path, source, bert):
    model, tokenizer = bert
    with pytest.raises(UserError, match=r"2 of 7 texts are longer than 10 tokens; .*; a higher max_seq_len"):
        embed_file(tmp_path / "bert", source, tmp_path / "out.npy", EmbedOptions(pooling="cls", max_seq_len=10))
    summary = embed_file(
        tmp_path / "bert", source, tmp_path / "out.npy", EmbedOptions(pooling="cls", max_seq_len=10, truncate=True)
    )
    wanted = [x[-1, 0] for _, x in states_of(model, tokenizer, truncation=True, max_length=10)]
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), wanted, rtol=0, atol=1e-5)
    assert (summary.truncated, summary.empty) == (2, 1)
    lines = [line["text"] for line in LINES if "text_pair" not in line]
    (tmp_path / "plain.txt").write_bytes("\r\n".join(lines).encode())
    embed_file(
        tmp_path / "bert",
        tmp_path / "plain.txt",
        tmp_path / "plain.npy",
        EmbedOptions(pooling="cls", max_seq_len=10, truncate=True),
    )
    alone = [x for x, line in zip(wanted, LINES, strict=True) if "text_pair" not in line]
    np.testing.assert_allclose(np.load(tmp_path / "plain.npy"), alone, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"pooling": "most"}, "pooling most: choose from mean, cls, max, tokens"),
        ({"layers": "first"}, "layers first: choose from last, sum4, concat4, or give"),
        ({"layers": "5"}, "this model has 4 layers: give 0 to 4"),
        ({"batch_size": 0}, "batch_size 0"),
        ({"max_seq_len": 33}, "this model reads up to 32"),
        ({"pooling": "tokens"}, r"end the file name with \.safetensors"),
        ({"output": "bert/config.json"}, r"end the file name with \.npy"),
        ({"output": "there.npy"}, r"there\.npy exists"),
        ({"output": "nowhere/out.npy"}, "cannot be written"),
        ({"source": "nothing.txt"}, "nothing.txt: cannot be read"),
        ({"source": "empty.txt"}, "holds no text"),
        ({"source": "bad.jsonl"}, r"bad\.jsonl:2: 'text' is 1; give a text"),
        ({"source": "latin.txt"}, r"latin\.txt:1: not UTF-8"),
    ],
    ids=lambda value: next(iter(value.values())) if isinstance(value, dict) else None,
)
def test_mistakes_are_refused_and_leave_nothing(tmp_path, source, bert, settings, says):
    (tmp_path / "there.npy").touch()
    (tmp_path / "empty.txt").touch()
    (tmp_path / "bad.jsonl").write_text('{"text": "a"}\n{"text": 1}\n')
    (tmp_path / "latin.txt").write_bytes(b"\xe9\n")
    places = {name: tmp_path / settings.get(name, other) for name, other in (("source", source), ("output", "o.npy"))}
    settings = {name: value for name, value in settings.items() if name not in places}
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UserError, match=says):
        embed_file(tmp_path / "bert", **places, options=EmbedOptions(**settings))
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("longest", [1, 15, 16, 17, 512, 8_190, 8_192, np.int64(100)])
def test_fixed_lengths_at_most_double_an_input(longest):
    """A model of 8,192 positions once padded every short text to 1,370 tokens."""
    buckets = doubling_buckets(longest)
    assert buckets[-1] == longest
    assert len(set(buckets)) == len(buckets) <= 10
    lengths = np.arange(16, longest + 1)
    padded = np.array(buckets)[np.searchsorted(buckets, lengths)]
    assert np.all(padded < 2 * lengths)
