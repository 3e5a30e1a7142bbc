"""Mined negatives beside brute force; a killed command that continues; bad files."""

import json
import math
import pathlib
import re
import shutil

import numpy as np
import pytest

import bert_jax
from bert_jax.cli.main import main
from bert_jax.errors import UserError
from bert_jax.finetuning import mine
from bert_jax.finetuning.mine import mine_negatives
from bert_jax.finetuning.negatives import (
    Candidates,
    NegativeRule,
    QueryAndPositive,
    choose_negatives,
)
from bert_jax.search import text_vectors, top_documents
from bert_jax.tasks.kinds.similarity import SIMILARITY
from bert_jax.tasks.task import Record, Task
from tests.helpers import tiny_models

NUM_DOCUMENTS, NUM_PAIRS = 60, 20


def write_lines(path: pathlib.Path, rows: list[dict]) -> pathlib.Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def lines_of(path: pathlib.Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory):
    """A model, documents of letters with titles, and pairs; some queries have several positives."""
    directory = tmp_path_factory.mktemp("mine")
    tiny_models.save(directory / "model", "bert")
    random = np.random.default_rng(0)
    words = [" ".join("".join(random.choice(list("abcdefghij"), 2)) for _ in range(6)) for _ in range(NUM_DOCUMENTS)]
    documents = [{"_id": f"d{n}", "title": text[:5], "text": text[6:]} for n, text in enumerate(words)]
    write_lines(directory / "corpus.jsonl", [*documents, {"text": ""}, documents[3]])
    queries = [words[n % 8][:8] for n in range(NUM_PAIRS)]
    pairs = [{"id": str(n), "text": text, "text_pair": words[n]} for n, text in enumerate(queries)]
    pairs[5]["text_pair"] = "ab cd"  # is no document
    write_lines(directory / "pairs.jsonl", pairs)
    return directory, words, pairs


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, size in (
        (mine, "PAIR_BLOCK", 8),
        (mine, "DOCUMENT_BLOCK", 16),
        (top_documents, "QUERY_BLOCK", 4),
        (text_vectors, "CHUNK", 16),
    ):
        monkeypatch.setattr(module, name, size)


def scores_by_vectors(directory, words, pairs) -> tuple[np.ndarray, np.ndarray]:
    """The cosines of each query with all documents, and with its positive."""
    model = bert_jax.load(directory / "model")
    texts = ([pair["text"] for pair in pairs], words, [pair["text_pair"] for pair in pairs])
    queries, documents, positives = (model.encode(of_role, normalize=True).astype(np.float64) for of_role in texts)
    return queries @ documents.T, (queries * positives).sum(axis=1)


def wanted_negatives(words, pairs, scores, positive_scores, first: int, end: int, margin: float) -> list[set[str]]:
    """The rule as a plain loop: right documents out, a range of ranks, then the margin."""
    wanted = []
    for row, pair in enumerate(pairs):
        right = {other["text_pair"] for other in pairs if other["text"] == pair["text"]} | {pair["text"]}
        ranked = [
            int(n)
            for n in np.argsort(-scores[row], kind="stable")
            if words[n] not in right and pair["text_pair"] not in words[n] and scores[row, n]
        ]
        passing = [n for n in ranked[first:end] if scores[row, n] <= positive_scores[row] - margin]
        wanted.append({words[n] for n in passing})
    return wanted


def test_negatives_by_vectors_equal_brute_force(world, tmp_path) -> None:
    directory, words, pairs = world
    scores, positive_scores = scores_by_vectors(directory, words, pairs)
    wanted = wanted_negatives(words, pairs, scores, positive_scores, 2, 12, -0.05)
    counts = mine_negatives(
        directory / "pairs.jsonl",
        directory / "corpus.jsonl",
        tmp_path / "mined.jsonl",
        model=directory / "model",
        ranks=(2, 12),
        margin=-0.05,
        num_negatives=3,
    )
    enough = [n for n, texts in enumerate(wanted) if len(texts) >= 3]
    assert counts == (len(enough), NUM_PAIRS - len(enough), 1, 1)
    assert 0 < len(enough) < NUM_PAIRS
    found = lines_of(tmp_path / "mined.jsonl")
    for line, number in zip(found, enough, strict=True):
        assert {key: line[key] for key in pairs[number]} == pairs[number]
        assert len(set(line["negative"])) == 3
        assert set(line["negative"]) <= wanted[number]
        task = Task(name="custom", kind="similarity", sets={}, metrics=(), best="", labels=())
        example = SIMILARITY.make_example(Record("line", line), task, {})
        assert example["negative"] == line["negative"]


def test_all_of_a_range_are_drawn_where_all_are_needed(world, tmp_path) -> None:
    directory, words, pairs = world
    scores, positive_scores = scores_by_vectors(directory, words, pairs)
    wanted = wanted_negatives(words, pairs, scores, positive_scores, 0, 4, -np.inf)
    command = ["mine", "--model", directory / "model", "--pairs", directory / "pairs.jsonl", "--ranks", "0:4"]
    command += ["--corpus", directory / "corpus.jsonl", "--number", "4", "--output", tmp_path / "mined.jsonl"]
    assert main([str(word) for word in command]) == 0
    assert [set(line["negative"]) for line in lines_of(tmp_path / "mined.jsonl")] == wanted


def test_negatives_by_bm25_equal_brute_force(world, tmp_path) -> None:
    directory, words, pairs = world
    split = [re.findall(r"\w\w+", text) for text in words]
    mean_length = sum(map(len, split)) / len(split)
    scores = np.zeros((NUM_PAIRS, NUM_DOCUMENTS))
    for row, pair in enumerate(pairs):
        for word in re.findall(r"\w\w+", pair["text"]):
            containing = sum(word in document for document in split)
            weight = np.log(1 + (len(split) - containing + 0.5) / (containing + 0.5))
            for column, document in enumerate(split):
                count = document.count(word)
                scores[row, column] += weight * count / (count + 0.9 * (0.6 + 0.4 * len(document) / mean_length))
    wanted = wanted_negatives(words, pairs, scores.astype(np.float32), np.zeros(NUM_PAIRS), 0, 3, -np.inf)
    counts = mine_negatives(
        directory / "pairs.jsonl", directory / "corpus.jsonl", tmp_path / "mined.jsonl", ranks=(0, 3), num_negatives=1
    )
    enough = [texts for texts in wanted if texts]
    assert counts.written == len(enough)
    for line, texts in zip(lines_of(tmp_path / "mined.jsonl"), enough, strict=True):
        assert set(line["negative"]) <= texts


@pytest.mark.parametrize("spell", [str, str.strip, lambda text: f" {text.replace(' ', '  ')} "])
@pytest.mark.parametrize("title", [None, "Cats"])
def test_a_positive_is_not_its_own_negative(tmp_path, spell, title) -> None:
    texts = [f"cats like milk, word{n} " for n in range(12)]
    documents = [{"text": text} | ({"title": title} if title else {}) for text in texts]
    pairs = [{"text": f"cats and word{n}", "text_pair": spell(text)} for n, text in enumerate(texts)]
    files = write_lines(tmp_path / "pairs.jsonl", pairs), write_lines(tmp_path / "corpus.jsonl", documents)
    mine_negatives(*files, tmp_path / "mined.jsonl", ranks=(0, 1))
    mined = lines_of(tmp_path / "mined.jsonl")
    assert len(mined) == 12
    for number, line in enumerate(mined):
        assert f"word{number} " not in f"{line['negative'][0]} "


def test_pairs_of_a_query_with_other_spaces_exclude_the_positives_of_each_other(tmp_path) -> None:
    corpus = write_lines(tmp_path / "corpus.jsonl", [{"text": f"cats word{n}"} for n in range(3)])
    rows = [{"text": query, "text_pair": f"cats word{n}"} for n, query in enumerate(["some cats", " some  cats "])]
    mine_negatives(write_lines(tmp_path / "pairs.jsonl", rows), corpus, tmp_path / "mined.jsonl", ranks=(0, 1))
    assert [line["negative"] for line in lines_of(tmp_path / "mined.jsonl")] == [["cats word2"]] * 2


@pytest.mark.parametrize("stop_at", [("embedding documents", 32), ("mining", 8), ("mining", 16)])
def test_a_killed_call_continues_to_equal_bytes(world, tmp_path, stop_at) -> None:
    directory, _, _ = world
    arguments = (directory / "pairs.jsonl", directory / "corpus.jsonl")
    settings = {"model": directory / "model", "ranks": (1, 9), "num_negatives": 2}
    mine_negatives(*arguments, tmp_path / "whole.jsonl", **settings)

    def stop(task: str, num_done: int, total: int) -> None:
        if (task, num_done) == stop_at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mine_negatives(*arguments, tmp_path / "killed.jsonl", **settings, progress=stop)
    assert not (tmp_path / "killed.jsonl").exists()
    said = []
    mine_negatives(*arguments, tmp_path / "killed.jsonl", **settings, say=said.append)
    assert [line.partition(": ")[2].split(" finished")[0] for line in said] == [
        f"resumes after {2 if stop_at[0] != 'mining' else 4 + stop_at[1] // 8}"
    ]
    assert (tmp_path / "killed.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert [path.name for path in tmp_path.glob(".*")] == []


def test_changed_settings_start_over(world, tmp_path) -> None:
    directory, _, _ = world
    arguments = (directory / "pairs.jsonl", directory / "corpus.jsonl", tmp_path / "mined.jsonl")

    def stop(task: str, num_done: int, total: int) -> None:
        if num_done == 16:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mine_negatives(*arguments, ranks=(0, 3), progress=stop)
    said = []
    mine_negatives(*arguments, ranks=(0, 4), say=said.append)
    assert said == [f"{tmp_path / 'mined.jsonl'}: starts over, as the settings changed since it was interrupted"]


@pytest.mark.parametrize("change", ["tokenizer", "config"])
def test_another_tokenizer_or_config_of_equal_weights_starts_over(world, tmp_path, change) -> None:
    directory, _, _ = world
    model = shutil.copytree(directory / "model", tmp_path / "model")
    arguments = (directory / "pairs.jsonl", directory / "corpus.jsonl", tmp_path / "mined.jsonl")

    def stop(task: str, num_done: int, total: int) -> None:
        if (task, num_done) == ("mining", 8):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mine_negatives(*arguments, model=model, ranks=(0, 3), progress=stop)
    if change == "config":
        config = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps(config | {"layer_norm_eps": 0.5}))
    else:
        tokenizer = json.loads((model / "tokenizer.json").read_text())
        vocab = tokenizer["model"]["vocab"]
        *_, first, second = vocab
        vocab[first], vocab[second] = vocab[second], vocab[first]
        (model / "tokenizer.json").write_text(json.dumps(tokenizer))
    said = []
    mine_negatives(*arguments, model=model, ranks=(0, 3), say=said.append)
    assert "starts over, as the model changed" in said[0]


def test_half_a_character_is_written_as_it_was_read(tmp_path) -> None:
    """JSON can express half of a surrogate pair, and UTF-8 cannot."""
    corpus = write_lines(tmp_path / "corpus.jsonl", [{"text": f"cats word{n} \ud83d"} for n in range(4)])
    rows = [{"id": "\ud83d", "text": "cats", "text_pair": "cats word1 \ud83d"}]
    with pytest.raises(UserError, match="'text_pair' has half of a surrogate pair"):
        mine_negatives(write_lines(tmp_path / "pairs.jsonl", rows), corpus, tmp_path / "mined.jsonl", ranks=(0, 1))
    rows[0]["text_pair"] = "cats word1"
    mine_negatives(write_lines(tmp_path / "pairs.jsonl", rows), corpus, tmp_path / "mined.jsonl", ranks=(0, 1))
    (line,) = lines_of(tmp_path / "mined.jsonl")
    assert (line["id"], line["negative"][0][-1]) == ("\ud83d", "\ud83d")


def test_another_head_of_the_cross_encoder_starts_over(world, tmp_path) -> None:
    directory, _, _ = world
    arguments = (directory / "pairs.jsonl", directory / "corpus.jsonl", tmp_path / "mined.jsonl")
    model, _ = tiny_models.save(tmp_path / "judge", "bert", "ForSequenceClassification", num_labels=1)

    def stop(task: str, num_done: int, total: int) -> None:
        if num_done == 16:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mine_negatives(*arguments, ranks=(0, 3), cross_encoder=tmp_path / "judge", progress=stop)
    model.classifier.weight.data += 1
    model.save_pretrained(tmp_path / "judge")
    said = []
    mine_negatives(*arguments, ranks=(0, 3), cross_encoder=tmp_path / "judge", say=said.append)
    assert "starts over, as the cross-encoder changed" in said[0]


def test_a_cross_encoder_decides_about_the_margin() -> None:
    documents = ["right", "hard", "also right", "easy"]
    teacher = {"right": 5.0, "hard": 2.0, "also right": 4.5, "easy": -3.0}
    candidates = Candidates(np.array([[4, 3, 2, 1]], np.float32), np.array([[0, 1, 2, 3]]), np.array([0], np.float32))
    chosen = choose_negatives(
        NegativeRule(0, 3, 1.0, 2, 0),
        [0],
        [QueryAndPositive("query", "right")],
        candidates,
        [{0}],
        documents,
        lambda pairs: np.array([teacher[document] for _, document in pairs], np.float32),
    )
    assert list(chosen) == [([1, 3], [5.0, 2.0, -3.0])]


def test_the_document_of_a_crop_is_no_negative_of_the_crop() -> None:
    documents = ["Title the  right crop, and more", "other text", "the right\ncrop", "the right"]
    candidates = Candidates(np.array([[4, 3, 2, 1]], np.float32), np.arange(4)[None], np.zeros(1, np.float32))
    pair = QueryAndPositive("query", "the right crop")
    chosen = choose_negatives(NegativeRule(0, 2, None, 2, 0), [0], [pair], candidates, [set()], documents)
    assert list(chosen) == [([1, 3], [])]


@pytest.mark.parametrize("model", [None, "model"])
def test_many_documents_that_contain_the_positive_take_no_rank(world, tmp_path, model) -> None:
    documents = [f"ab cd ef {'gh' * (number % 4)} {number}" for number in range(40)]
    others = [f"ab cd {'ij' * (number % 3)} {number}" for number in range(60)]
    corpus = write_lines(tmp_path / "corpus.jsonl", [{"text": text} for text in (*documents, *others)])
    pairs = write_lines(tmp_path / "pairs.jsonl", [{"text": "ab cd ef gh", "text_pair": "ef"}])
    model = model and world[0] / model
    mine_negatives(pairs, corpus, tmp_path / "out.jsonl", ranks=(0, 55), num_negatives=55, model=model)
    (line,) = lines_of(tmp_path / "out.jsonl")
    assert len({*line["negative"]} & {*others}) == 55


@pytest.mark.parametrize("model", [None, "model"])
def test_a_corpus_without_a_text_is_named(world, tmp_path, model) -> None:
    pairs = write_lines(tmp_path / "pairs.jsonl", [{"text": "ab", "text_pair": "cd"}])
    corpus = write_lines(tmp_path / "corpus.jsonl", [{"text": " "}])
    with pytest.raises(UserError, match=r"corpus\.jsonl: no document has a text"):
        mine_negatives(pairs, corpus, tmp_path / "out.jsonl", ranks=(0, 1), model=model and world[0] / model)


@pytest.mark.parametrize("option", ["pairs", "corpus", "corpus directory"])
def test_an_output_that_is_an_input_is_refused_and_kept(tmp_path, option) -> None:
    pairs = write_lines(tmp_path / "pairs.jsonl", [{"text": "ab", "text_pair": "cd"}])
    corpus = write_lines(tmp_path / "corpus.jsonl", [{"text": "cd"}, {"text": "ab ef"}])
    before = pairs.read_bytes(), corpus.read_bytes()
    output = pairs if option == "pairs" else corpus
    with pytest.raises(UserError, match=f"--output is also --{option.split()[0]}; choose another --output"):
        mine_negatives(pairs, tmp_path if "directory" in option else corpus, output, ranks=(0, 1))
    assert before == (pairs.read_bytes(), corpus.read_bytes())


def test_scores_of_a_cross_encoder_equal_transformers(world, tmp_path) -> None:
    import torch

    directory, _, _ = world
    model, tokenizer = tiny_models.save(tmp_path / "judge", "bert", "ForSequenceClassification", num_labels=1)
    mine_negatives(
        directory / "pairs.jsonl",
        directory / "corpus.jsonl",
        tmp_path / "mined.jsonl",
        ranks=(0, 5),
        cross_encoder=tmp_path / "judge",
    )
    for line in lines_of(tmp_path / "mined.jsonl")[:3]:
        texts = [line["text_pair"], *line["negative"]]
        inputs = tokenizer([line["text"]] * len(texts), texts, return_tensors="pt", padding=True)
        with torch.no_grad():
            expected = model(**inputs).logits[:, 0].numpy()
        np.testing.assert_allclose(line["scores"], expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("row", "settings", "message"),
    [
        ({"text": "ab"}, {}, "pairs.jsonl:1: needs text and text_pair"),
        ({"text": "ab", "text_pair": " "}, {}, "pairs.jsonl:1: needs text and text_pair, neither of them empty"),
        ({"text": "ab", "text_pair": "cd", "label": 0}, {}, "pairs.jsonl:1: has label"),
        ({"text": "ab", "text_pair": "cd", "negative": "ef"}, {}, "pairs.jsonl:1: has negative"),
        ({"text": "ab", "text_pair": "cd"}, {"margin": 0.5}, "text_pair is no document of"),
        ({"text": "ab", "text_pair": "cd"}, {"margin": math.nan}, "--margin nan: give a finite number"),
        ({"text": "ab", "text_pair": "cd"}, {"ranks": (50, 10)}, "--ranks 50:10 and --number 1: give a range"),
        ({"text": "ab", "text_pair": "cd"}, {"num_negatives": 41}, "--ranks 10:50 and --number 41"),
        ({"text": "zz", "text_pair": "cd"}, {}, "no pair has 1 negative;"),
        ({"text": "ab", "text_pair": "cd"}, {"output": "mined.csv"}, "mined.csv: give the name of a .jsonl file"),
    ],
)
def test_bad_pairs_and_options_are_one_line(world, tmp_path, row, settings, message) -> None:
    pairs = write_lines(tmp_path / "pairs.jsonl", [row])
    with pytest.raises(UserError) as refused:
        mine_negatives(pairs, world[0] / "corpus.jsonl", **({"output": tmp_path / "mined.jsonl"} | settings))
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    assert [path.name for path in tmp_path.iterdir()] == ["pairs.jsonl"]
