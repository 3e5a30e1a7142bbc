"""Similarity: the loss and its gradients beside torch, and a training from the command line."""

import dataclasses
import itertools
import math
import random
from contextlib import nullcontext

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sentence_transformers
import transformers

from bert_jax.cli.main import main
from bert_jax.config import ComputeConfig, TaskConfig
from bert_jax.console import Console
from bert_jax.errors import UserError
from bert_jax.finetuning.task_data import read_split
from bert_jax.interop.huggingface import load_model
from bert_jax.interop.tensors import to_tensors
from bert_jax.models import PRESETS, Head, make_model
from bert_jax.objectives.tasks import make_task_objective
from bert_jax.tasks.batching import collate
from bert_jax.tasks.features import SPELLED, UNKNOWN
from bert_jax.tasks.kinds import KINDS
from bert_jax.tasks.kinds.kind import make_features
from bert_jax.tasks.late_interaction import TokenRules, check_unread_tokens
from bert_jax.tasks.table import resolve_task
from bert_jax.tokenizer import load_tokenizer
from tests.helpers.finetuning_runs import RECIPE, read_lines, stop_after, write_lines
from tests.helpers.synthetic import NO_DROPOUT
from tests.helpers.tiny_models import LETTERS, save
from tests.helpers.torch_training import contrastive_loss
from tests.training.test_resume import newest_whole, outcome

HEADS = (Head("sentence_embedding"),)


def examples(count, seed=0):
    rng = random.Random(seed)
    made = []
    for number in range(count):
        text, label = "".join(rng.choices(LETTERS, k=rng.randint(2, 12))), float(rng.randint(0, 5))
        made.append(
            {"id": str(number), "text": text, "text_pair": text[::-1] + "a" * rng.randint(0, 3), "label": label}
        )
    return made


@pytest.mark.parametrize("negatives", [False, True])
def test_loss_and_gradients_equal_torch(tmp_path, negatives):
    save(tmp_path, "bert", "Model", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    loaded, settings = load_model(tmp_path, HEADS), TaskConfig(temperature=0.1, positive_from=2.0)
    tokenizer = load_tokenizer(tmp_path)
    given = [one | ({"negative": [one["text"][::2] + "b"]} if negatives else {}) for one in examples(7)]
    made, _ = make_features(KINDS["similarity"], given, tokenizer, settings)
    batch = collate(made, 24, loaded.config.num_token_types, tokenizer.pad_id, 10)
    positive = batch["positives"] > 0
    assert 2 < positive.sum() < 7
    objective = make_task_objective(make_model(loaded.config, ComputeConfig(), HEADS), "similarity", False, settings)
    params = jax.tree.map(jnp.asarray, loaded.params)
    (loss, metrics), gradients = jax.jit(
        lambda params: jax.value_and_grad(objective.loss, has_aux=True)(
            params, (), batch, NO_DROPOUT, objective.normalizers(batch)
        )
    )(params)

    model = transformers.BertModel.from_pretrained(tmp_path).eval()
    model.get_input_embeddings().padding_idx = None
    expected = contrastive_loss(model, batch, 0.1)
    expected.backward()
    assert float(loss) == pytest.approx(expected.item(), abs=1e-5)
    assert metrics["task_loss"].value() == pytest.approx(expected.item(), abs=1e-5)
    theirs = dict(model.named_parameters())
    for name, x in to_tensors(gradients, loaded.config, HEADS).items():
        np.testing.assert_allclose(x, theirs[name].grad.numpy(), rtol=0, atol=1e-5, err_msg=name)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    place = tmp_path_factory.mktemp("similar")
    save(place / "start", "bert", "ForMaskedLM")
    (place / "recipe.py").write_text(RECIPE)
    write_lines(place / "train.jsonl", examples(60))
    write_lines(place / "dev.jsonl", examples(12, 1))
    return place


def command(world, workdir, *more):
    task = f"task.name=custom task.kind=similarity task.train={world / 'train.jsonl'} task.dev={world / 'dev.jsonl'}"
    values = (*task.split(), f"init_from={world / 'start'}", *more)
    return ["finetune", f"--config={world / 'recipe.py'}", f"--workdir={workdir}", *(f"--config.{v}" for v in values)]


def test_a_training_from_the_command_line(world, tmp_path, capsys):
    assert main(command(world, tmp_path / "run")) == 0
    assert "spearman" in capsys.readouterr().out
    write_lines(tmp_path / "pairs.jsonl", [{"text": "abc", "text_pair": "abc"}, {"text": "abc", "text_pair": "jjj"}])
    answers = tmp_path / "answers.jsonl"
    pairs = ["--input", str(tmp_path / "pairs.jsonl"), "--output", str(answers)]
    assert main(["predict", "--model", str(tmp_path / "run"), *pairs]) == 0
    same, other = (line["label"] for line in read_lines(answers))
    assert same == pytest.approx(1.0, abs=1e-5)
    assert -1 <= other < same
    model, report = transformers.AutoModel.from_pretrained(tmp_path / "run" / "model", output_loading_info=True)
    assert isinstance(model, transformers.BertModel)
    assert not report["unexpected_keys"]


@pytest.mark.slow
def test_a_stopped_training_ends_with_the_same_bits(world, tmp_path, monkeypatch):
    """Stopped within the first epoch, then crashed within the second, two steps after the checkpoint between them."""

    def training(name):
        return main(command(world, tmp_path / name)), tmp_path / name / "runs" / "lr0.003_seed0"

    status, place = training("whole")
    assert status == 0
    whole = outcome(place, 6)
    with monkeypatch.context() as patch:
        stop_after(patch, 1)
        place = training("stopped")[1]
    assert newest_whole(place) == 2
    with monkeypatch.context() as patch:
        stop_after(patch, 3, RuntimeError("crash"))  # of steps 3 to 5
        with pytest.raises(RuntimeError, match="crash"):
            training("stopped")
    assert newest_whole(place) == 3
    assert training("stopped")[0] == 0
    assert outcome(place, 6) == whole
    model, resumed = (tmp_path / name / "model" / "model.safetensors" for name in ("whole", "stopped"))
    assert resumed.read_bytes() == model.read_bytes()


@pytest.mark.parametrize("value", ["train.batch_size=1"])
def test_a_batch_without_negatives_is_refused(world, tmp_path, capsys, value):
    assert main(command(world, tmp_path / "run", value)) == 2
    assert "learns from the other pairs of a batch" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_training_that_would_learn_nothing_is_refused(world, tmp_path, capsys):
    assert main(command(world, tmp_path / "run", "optimizer.freeze_encoder=True")) == 2
    assert "freeze_encoder leaves nothing to train" in capsys.readouterr().err
    write_lines(tmp_path / "one.jsonl", [one | {"label": 4 * (number == 7)} for number, one in enumerate(examples(60))])
    argv = [one for one in command(world, tmp_path / "run") if not one.startswith("--config.task.train=")]
    assert main([*argv, f"--config.task.train={tmp_path / 'one.jsonl'}"]) == 2
    assert "task.train has no negatives" in capsys.readouterr().err
    write_lines(tmp_path / "one.jsonl", [{"text": "ab", "text_pair": "cd"}] * 20)
    assert main([*argv, f"--config.task.train={tmp_path / 'one.jsonl'}"]) == 2
    assert "each second text is right for each first text (1 distinct pairs" in capsys.readouterr().err
    for more in ((), ("optimizer.freeze_encoder=True",)):
        assert main(command(world, tmp_path / "run", "task.bilstm=True", *more)) == 2
        assert "config.task.bilstm has no effect with similarity" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_pairs_that_are_left_out_are_counted(world, tmp_path, capsys):
    assert main(command(world, tmp_path / "run", "task.epochs=1")) == 0
    left_out = sum(one["label"] < 4 for one in examples(60))
    err = capsys.readouterr().err
    assert f"{left_out} of 60 training pairs are left out" in err
    assert f"{math.ceil((60 - left_out) / 8)} steps of 8 sequences" in err  # none for what is left out


@pytest.mark.parametrize(
    ("name", "label", "says"),
    [
        (
            "train",
            1,
            "all 60 training pairs are left out: their label is below config.task.positive_from=4; for",
        ),
        ("dev", 5, "all labels of the dev set are 5, so that no correlation is defined"),
    ],
)
def test_labels_that_teach_or_measure_nothing_are_refused(world, tmp_path, capsys, name, label, says):
    write_lines(tmp_path / "pairs.jsonl", [one | {"label": label} for one in examples(60)])
    argv = [one for one in command(world, tmp_path / "run") if not one.startswith(f"--config.task.{name}=")]
    assert main([*argv, f"--config.task.{name}={tmp_path / 'pairs.jsonl'}"]) == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def with_texts(examples, **fields):
    return [example | {name: make(example) for name, make in fields.items()} for example in examples]


@pytest.mark.parametrize(
    ("settings", "fields"),
    [
        pytest.param(
            "vector_loss=margin_mse temperature=1.0", {"negative": True, "scores": True}, marks=pytest.mark.slow
        ),
        pytest.param("vector_loss=cosent matryoshka_sizes=(4,8)", {}, marks=pytest.mark.slow),
        ("learned_temperature=True symmetric=True false_negative_margin=0.1", {"negative": True}),
    ],
)
def test_other_losses_train_in_micro_batches_and_keep_the_prompts(world, tmp_path, settings, fields):
    makers = {
        "negative": lambda example: [example["text"] + "j", example["text"] + "ij"],
        "scores": lambda example: [3.0, 1, len(example["text"]) / 10],
    }
    write_lines(tmp_path / "train.jsonl", with_texts(examples(60), **{name: makers[name] for name in fields}))
    more = [f"task.{setting}" for setting in (*settings.split(), "query_prompt=aa ", "document_prompt=b ", "epochs=1")]
    argv = [word for word in command(world, tmp_path / "run", *more, "train.grad_accum_steps=2", "train.batch_size=8")
            if "config.task.train=" not in word]  # fmt: skip
    assert main([*argv, f"--config.task.train={tmp_path / 'train.jsonl'}"]) == 0
    encoder = sentence_transformers.SentenceTransformer(str(tmp_path / "run" / "model"))
    assert encoder.prompts["query"] == "aa "
    assert encoder.prompts["document"] == "b "
    # `predict` puts the prompts before the texts, as training does.
    write_lines(tmp_path / "pairs.jsonl", [{"text": "abc", "text_pair": "jjj"}])
    answers = tmp_path / "answers.jsonl"
    pairs = ["--input", str(tmp_path / "pairs.jsonl"), "--output", str(answers)]
    assert main(["predict", "--model", str(tmp_path / "run"), *pairs]) == 0
    query, document = encoder.encode_query("abc"), encoder.encode_document("jjj")
    assert read_lines(answers)[0]["label"] == pytest.approx(query @ document, abs=1e-5)


@pytest.mark.parametrize(
    ("fields", "settings", "says"),
    [
        ({"negative": lambda one: one["text_pair"]}, "", "negative equals text_pair"),
        ({"scores": lambda one: [1, 2]}, "", "give a list of 1 numbers"),
        ({"negative": lambda one: ["a"] * (1 + int(one["id"] == "7"))}, "", "example '7' and the first example differ"),
        ({}, "vector_loss=margin_mse", "reads `scores`, which the training examples lack"),
        ({}, "vector_loss=triplet", "needs a `negative` in each example"),
        ({"negative": lambda one: "a"}, "vector_loss=cosent", "reads no `negative`"),
        ({"label": lambda one: 4.5}, "vector_loss=cosent", "all labels of the training examples are equal"),
        ({}, "matryoshka_sizes=(4,99)", "give different sizes from 1 to below"),
        ({}, "vector_head=late_interaction vector_width=8 query_length=12 matryoshka_sizes=(4,8)", "from 1 to below 8"),
        ({}, "triplet_margin=0.4", "config.task.triplet_margin has no effect with config.task.vector_loss=info_nce"),
        ({}, "vector_loss=infonce", "did you mean 'info_nce'"),
    ],
)
def test_a_loss_that_does_not_suit_the_data_is_refused(world, tmp_path, capsys, fields, settings, says):
    write_lines(tmp_path / "train.jsonl", with_texts(examples(20), **fields))
    argv = [word for word in command(world, tmp_path / "run", *(f"task.{setting}" for setting in settings.split()))
            if "config.task.train=" not in word]  # fmt: skip
    assert main([*argv, f"--config.task.train={tmp_path / 'train.jsonl'}"]) == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("prompts", [("", ""), ("a", "a"), ("aa ", "b "), ("", "b ")])
@pytest.mark.parametrize("lengths", [{}, {"vector_head": "late_interaction", "query_length": 6}])
def test_equal_texts_have_equal_ids_in_each_place(tmp_path, prompts, lengths):
    """In information noise contrastive estimation, an equal text of another pair is no negative."""
    save(tmp_path, "bert", "Model")
    settings = TaskConfig(query_prompt=prompts[0], document_prompt=prompts[1], max_seq_len=24, **lengths)
    texts = ["abcdefgh", "jjj", "cde", "cdf"]
    given = [
        {"id": str(n), "text": text, "text_pair": texts[n - 1], "negative": [texts[n - 2]]}
        for n, text in enumerate(texts)
    ]
    features, _ = make_features(KINDS["similarity"], given, load_tokenizer(tmp_path), settings)
    ids = [made.targets["text_ids"][0].tolist() for made in features]
    assert len({of_texts[0] for of_texts in ids}) == len(texts)
    for n, of_texts in enumerate(ids):
        assert of_texts == [ids[n][0], ids[n - 1][0], ids[n - 2][0]]


@pytest.mark.parametrize("odd", [*itertools.product([False, True], repeat=3)])
def test_texts_of_unknown_tokens_are_counted_wherever_they_are(tmp_path, odd):
    save(tmp_path, "bert", "Model")
    text, text_pair, negative = ("\N{PILE OF POO}" if is_odd else "abc" for is_odd in odd)
    given = [{"id": "0", "text": text, "text_pair": text_pair, "negative": [negative]}]
    _, counts = make_features(KINDS["similarity"], given, load_tokenizer(tmp_path), TaskConfig(max_seq_len=24))
    assert counts == {"truncated_texts": 0, SPELLED: 0} | ({UNKNOWN: sum(odd)} if any(odd) else {})


def test_a_warning_has_the_number_of_all_texts(tmp_path, capsys):
    save(tmp_path, "bert", "Model")
    write_lines(tmp_path / "train.jsonl", [{"text": "\N{PILE OF POO}", "text_pair": "\N{PILE OF POO}"}] * 2)
    settings = TaskConfig(name="custom", kind="similarity", data=str(tmp_path), train="train.jsonl", max_seq_len=24)
    read_split(resolve_task(settings), settings, "train", load_tokenizer(tmp_path), Console())
    assert "warning: 4 of 4 texts have mostly unknown tokens" in capsys.readouterr().err


HEAD_SETTINGS = {
    "sparse": "query_flops_weight=0.01 document_flops_weight=0.01",
    "late_interaction": "vector_width=8 query_length=12 matryoshka_sizes=(4,)",
}
HEAD_CLASSES = {
    "sparse": sentence_transformers.SparseEncoder,
    "late_interaction": sentence_transformers.MultiVectorEncoder,
}


def of_head(vector_head):
    settings = f"vector_head={vector_head} {HEAD_SETTINGS[vector_head]} epochs=1".split()
    return [f"task.{setting}" for setting in (*settings, "query_prompt=aa ", "document_prompt=b ")]


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.parametrize("vector_head", [pytest.param("sparse", marks=pytest.mark.slow), "late_interaction"])
def test_a_head_trains_in_micro_batches_and_is_exported(world, tmp_path, vector_head):
    more = of_head(vector_head)
    assert main(command(world, tmp_path / "run", *more, "train.grad_accum_steps=2")) == 0
    model = HEAD_CLASSES[vector_head](str(tmp_path / "run" / "model"), device="cpu")
    write_lines(tmp_path / "pairs.jsonl", [{"text": "abc", "text_pair": "jjj"}])
    answers = tmp_path / "answers.jsonl"
    pairs = ["--input", str(tmp_path / "pairs.jsonl"), "--output", str(answers)]
    assert main(["predict", "--model", str(tmp_path / "run"), *pairs]) == 0
    expected = model.similarity(model.encode_query(["abc"]), model.encode_document(["jjj"])).item()
    assert expected > 0
    assert read_lines(answers)[0]["label"] == pytest.approx(expected, abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("vector_head", HEAD_SETTINGS)
def test_an_exported_head_is_trained_further(world, tmp_path, vector_head):
    more = of_head(vector_head)
    assert main(command(world, tmp_path / "run", *more)) == 0
    argv = command(world, tmp_path / "again", *more)
    argv = [f"--config.init_from={tmp_path / 'run'}" if "config.init_from=" in word else word for word in argv]
    assert main(argv) == 0


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ("vector_head=sparse matryoshka_sizes=(4,8)", "config.task.matryoshka_sizes has no effect with"),
        ("query_flops_weight=1", "config.task.query_flops_weight has no effect with config.task.vector_head=dense"),
        ("vector_head=spares", "did you mean 'sparse'"),
        ("query_length=16", "config.task.query_length has no effect with config.task.vector_head=dense"),
        ("vector_head=late_interaction query_length=32", "exceeds config.task.max_seq_len=24"),
        ("vector_head=late_interaction query_length=None attend_to_expansion=True", "has no effect with"),
    ],
)
def test_settings_of_other_heads_are_refused(world, tmp_path, capsys, settings, says):
    assert main(command(world, tmp_path / "run", *(f"task.{setting}" for setting in settings.split()))) == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_sparse_vectors_need_a_masked_token_head(world, tmp_path, capsys):
    save(tmp_path / "bare", "bert", "Model")
    capsys.readouterr()  # transformers may print progress
    argv = command(world, tmp_path / "run", "task.vector_head=sparse")
    argv = [f"--config.init_from={tmp_path / 'bare'}" if "config.init_from=" in word else word for word in argv]
    assert main(argv) == 2
    error = capsys.readouterr().err
    assert "without masked_token" in error
    assert len(error.splitlines()) <= 2


def test_truncated_queries_and_documents_are_counted_apart(world):
    task = TaskConfig(
        name="custom",
        kind="similarity",
        vector_head="late_interaction",
        query_length=6,
        max_seq_len=9,
        train="x.jsonl",
        dev="y.jsonl",
    )
    pairs = [("a b c d", "a"), ("a b c d e", "a b c d e f g"), ("a b c d e f g h i", "a b c d e f g h")]
    made = [{"id": str(n), "text": query, "text_pair": document} for n, (query, document) in enumerate(pairs)]
    counts = make_features(KINDS["similarity"], made, load_tokenizer(world / "start"), task).counts
    assert (counts["queries_truncated_to_6_tokens"], counts["truncated_texts"]) == (2, 1)  # with [CLS] and [SEP]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"positions": "disentangled"}, "disentangled attention"),
        ({"separator_id": 2}, "global tokens"),
        ({"local_window": 60, "global_every": 3}, "windows of 60 tokens"),
        ({"local_window": 60, "local_windows": (60, 200)}, "windows of 60 tokens"),
        ({"local_window": 62, "global_every": 3}, "windows of 62 tokens"),
        ({"local_window": 64, "global_every": 3}, ""),
        ({}, ""),
    ],
)
def test_mask_tokens_that_no_token_reads_are_refused_where_transformers_has_other_vectors(changes, reason):
    config = dataclasses.replace(PRESETS["mini"], num_layers=2, **changes)
    rules = TokenRules(query_length=34, expands=True)
    with pytest.raises(UserError, match=f"m: with {reason}, .*attend_to_expansion=True") if reason else nullcontext():
        check_unread_tokens(rules, config, "m")
    check_unread_tokens(rules._replace(attends=True), config, "m")
    check_unread_tokens(rules._replace(expands=False), config, "m")
