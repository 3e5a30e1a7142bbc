"""Several corpora as one: how they are named, errors, and sequences in the proportions that were asked for."""

import dataclasses

import numpy as np
import pytest

from bert_jax.batches.pipeline import make_sequences, special_ids_and_vocabulary
from bert_jax.config import DataConfig, EvaluateConfig, PretrainConfig, phases, pretrain_config, read_config, resolve
from bert_jax.corpus.build.prepare import prepare
from bert_jax.corpus.mixture import find_corpora, open_mixture
from bert_jax.corpus.statistics import token_counts, unigram_loss
from bert_jax.corpus.store import open_corpus
from bert_jax.errors import UserError
from bert_jax.objectives.losses import original_tokens
from bert_jax.pretraining.data import passes_per_source, sequence_rules
from bert_jax.pretraining.describe_run import describe_run, evaluation_line
from bert_jax.readers import ReadOptions
from bert_jax.tokenizer import Normalizer, load_tokenizer, save_tokenizer, wordpiece_tokenizer
from bert_jax.training.schedules import plan_phases
from tests.helpers.run_data import batches_of

READING = ReadOptions(documents="line")
WORDS = ["ein", "zwei", "one", "two", "hana", "dul"]


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    """Three languages of two words each, of 400, 100 and 25 documents."""
    directory = tmp_path_factory.mktemp("corpora")
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *WORDS]
    save_tokenizer(wordpiece_tokenizer(tokens, Normalizer()), directory / "tok")
    rng = np.random.default_rng(0)
    for number, (code, documents) in enumerate((("de", 400), ("en", 100), ("ko", 25))):
        lines = [
            ". ".join(" ".join(rng.choice(WORDS[2 * number : 2 * number + 2], 12)) for _ in range(6)) + "."
            for _ in range(documents)
        ]
        (directory / f"{code}.txt").write_text("\n".join(lines))
        prepare(
            [str(directory / f"{code}.txt")],
            directory / "tok",
            directory / "c" / code,
            READING,
            workers=1,
            heldout_fraction=0.1,
        )
    return directory / "c"


def sequences_of(corpus: str, config: DataConfig):
    mixture = open_mixture(corpus)
    symbols = special_ids_and_vocabulary(load_tokenizer(mixture.tokenizer_directory))
    return mixture, make_sequences(mixture.split("train"), symbols, 32, 0, config)


def languages(batch) -> np.ndarray:
    """Return the language of each sequence, which must have one."""
    ids = batch["input_ids"].copy()
    row, prediction = np.nonzero(batch["masked_weights"])
    ids[row, batch["masked_positions"][row, prediction]] = batch["masked_labels"][row, prediction]
    found = np.where(ids >= 6, (ids - 6) // 2, -1)
    found = np.where(batch["attention_mask"] == 1, found, -1)
    highest, lowest = found.max(axis=1), np.where(found < 0, 9, found).min(axis=1)
    assert np.array_equal(highest, lowest)
    return highest


@pytest.mark.parametrize("weights", [None, (1.0, 1.0, 2.0), (0.0, 1.0, 0.0)])
def test_the_unigram_loss_has_the_frequencies_of_the_sequences_of_an_epoch(corpora, weights):
    """Of the original tokens of all sequences, without special tokens; a language of weight 0 is unknown."""
    made = pretrain_config()
    made.data.update(weights=weights, sentence_pairs="full_sentences")
    made.train.phases = phases({"seq_len": 32})
    config, mixture = resolve(PretrainConfig, made), open_mixture(f"{corpora}/*")
    rules, split = sequence_rules(config, mixture.tokenizer()), mixture.split("train")
    sequences = make_sequences(split, rules.symbols, 32, 0, config.data)
    ids = np.asarray(original_tokens(sequences.batch(np.arange(sequences.num_per_epoch))))
    wanted = np.bincount(ids[ids >= 5], minlength=mixture.vocab_size)
    found = token_counts(split, mixture.vocab_size, passes_per_source(split, rules, plan_phases(config.train)))
    np.testing.assert_allclose(found / found.sum(), wanted / wanted.sum(), rtol=0.02)
    passes = np.array([1.0, 1.0, 50.0])  # of a sample, each source still has the share of its passes
    whole = token_counts(split, mixture.vocab_size, passes)
    sample = token_counts(split, mixture.vocab_size, passes, limit=split.num_tokens // 4)
    assert sample.sum() == pytest.approx(split.num_tokens // 4)
    np.testing.assert_allclose(sample / sample.sum(), whole / whole.sum(), atol=0.01)
    english = open_mixture(str(corpora / "en")).split("train")
    loss = unigram_loss(found, token_counts(english, mixture.vocab_size))
    known = {None: 100 / 525, (1.0, 1.0, 2.0): 1 / 4, (0.0, 1.0, 0.0): 1.0}[weights]
    dots = 6 / 78  # of 12 words and a full stop in a sentence
    assert loss == pytest.approx(-(1 - dots) * np.log((1 - dots) / 2 * known) - dots * np.log(dots), abs=0.05)


@pytest.mark.parametrize("config", [DataConfig(), DataConfig(smoothing=0.3), DataConfig(weights=(1.0, 1.0, 2.0))])
def test_languages_are_sampled_in_the_proportions_asked_for(corpora, config):
    mixture, sequences = sequences_of(f"{corpora}/*", config)
    assert [split.num_documents for _, split in mixture.sources()] == [
        open_corpus(corpora / code).split("train").num_documents for code in ("de", "en", "ko")
    ]
    alone = (sequences_of(str(corpora / code), DataConfig())[1] for code in ("de", "en", "ko"))
    sizes = np.array([each.num_per_epoch for each in alone])
    wanted = np.array(config.weights) if config.weights else sizes**config.smoothing
    expected = np.rint(wanted / wanted.sum() * sizes.sum())
    numbers = np.arange(sequences.num_per_epoch)
    found = languages(sequences.batch(numbers))
    assert np.array_equal(found, sequences.source_of(numbers))
    counts = np.bincount(found, minlength=3)
    assert counts.tolist() == expected.tolist() == sequences.num_per_source.tolist()


def test_a_phase_has_its_own_mixture(corpora):
    """Of four epochs, the third has weights of its own; the other epochs are those of a run without these weights."""
    data = DataConfig(sentence_pairs="full_sentences", weights=(3.0, 1.0, 0.0))
    mixture, plain = sequences_of(f"{corpora}/*", data)
    epoch = plain.num_per_epoch
    made = pretrain_config()
    made.data.update(corpus=f"{corpora}/*", sentence_pairs="full_sentences", weights=(3.0, 1.0, 0.0), num_threads=1)
    made.train.update(steps=4, batch_size=epoch)
    made.train.phases = phases(
        {"seq_len": 32, "fraction": 0.5},
        {"seq_len": 32, "fraction": 0.25, "weights": (0.0, 1.0, 3.0)},
        {"seq_len": 32, "fraction": 0.25},
    )
    config = resolve(PretrainConfig, made)
    planned, read = plan_phases(config.train), []
    for phase in planned:
        reading = batches_of(config, mixture)(phase, phase.begin)
        read += [next(reading) for _ in range(phase.begin, phase.end)]
        reading.close()
        again = batches_of(config, mixture)(phase, phase.end - 1)
        np.testing.assert_array_equal(next(again)["input_ids"], read[-1]["input_ids"])
        again.close()
    sizes = [
        sequences_of(str(corpora / code), DataConfig(sentence_pairs="full_sentences"))[1].num_per_epoch
        for code in ("de", "en", "ko")
    ]
    counts = np.array([np.bincount(languages(batch), minlength=3) for batch in read])
    weights = np.array([(3, 1, 0), (3, 1, 0), (0, 1, 3), (3, 1, 0)])
    np.testing.assert_array_equal(counts, np.rint(weights * sum(sizes) / 4))
    for number in (0, 1, 3):
        numbers = np.arange(number * epoch, (number + 1) * epoch)
        np.testing.assert_array_equal(read[number]["input_ids"], plain.batch(numbers)["input_ids"])
    # Full sequences differ, also in the language that both mixtures have; short ones may be equal by chance.
    rows = [{row.tobytes() for row in batch["input_ids"][batch["attention_mask"].all(axis=1)]} for batch in read]
    assert not rows[2] & (rows[0] | rows[1] | rows[3])
    rules = sequence_rules(config, mixture.tokenizer())
    lines = [line for line in describe_run(mixture, rules, planned, config.model, config.compute) if " epochs" in line]
    for line, of_language, size in zip(lines, counts.T, sizes, strict=True):
        first, third = (f"{of_language[number] / epoch:.2%}" for number in (0, 2))
        shares = ", then ".join((first, third, first) if first != third else (first,))
        assert line.endswith(f" {shares} of the sequences, {of_language.sum() / size:,.2f} epochs")
    assert [line.strip().partition(": ")[0] for line in lines] == [name for name, _ in mixture.sources()]
    found = token_counts(
        mixture.split("train"), mixture.vocab_size, passes_per_source(mixture.split("train"), rules, planned)
    )
    ids = np.concatenate([np.asarray(original_tokens(batch)) for batch in read])
    wanted = np.bincount(ids[ids >= 5], minlength=mixture.vocab_size)
    np.testing.assert_allclose(found / found.sum(), wanted / wanted.sum(), rtol=0.02)


def test_one_corpus_alone_is_itself(corpora):
    mixture, sequences = sequences_of(str(corpora / "de"), DataConfig())
    alone = open_corpus(corpora / "de")
    assert mixture.fingerprint == alone.fingerprint
    symbols = special_ids_and_vocabulary(load_tokenizer(alone.tokenizer_directory))
    expected = make_sequences(alone.split("train"), symbols, 32, 0, DataConfig()).batch(np.arange(50))
    assert all(np.array_equal(expected[key], array) for key, array in sequences.batch(np.arange(50)).items())


def test_the_order_of_corpora_is_part_of_the_fingerprint(corpora):
    one, other = (
        open_mixture(",".join(str(corpora / code) for code in codes)) for codes in (("de", "en"), ("en", "de"))
    )
    assert one.fingerprint != other.fingerprint


def test_heldout_leaves_out_sources_with_too_few_documents(corpora):
    mixture = open_mixture(f"{corpora}/*")
    each = [open_corpus(corpora / code).split("heldout").num_documents for code in ("de", "en", "ko")]
    for min_documents in (0, 2, 5, 10**6):
        enough = [number for number in each if number >= min_documents] or each[:1]
        assert mixture.split("heldout", min_documents).num_documents == sum(enough)


def test_names_that_are_refused(corpora, tmp_path, monkeypatch):
    (tmp_path / "a,b").mkdir()
    with pytest.raises(UserError, match="no directory matches"):
        find_corpora(f"{corpora}/x*")
    for nothing in ("", ",", " , "):
        with pytest.raises(UserError, match="is not a corpus"):
            find_corpora(nothing)
    monkeypatch.chdir(tmp_path / "a,b")
    with pytest.raises(UserError, match="a path must not contain a comma"):
        find_corpora("de")
    with pytest.raises(UserError, match="named twice"):
        find_corpora(f"{corpora}/*,{corpora}/de")
    save_tokenizer(
        wordpiece_tokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS], Normalizer()), tmp_path / "tok"
    )
    (tmp_path / "a.txt").write_text("one two. two one.\n" * 9)
    prepare([str(tmp_path / "a.txt")], tmp_path / "tok", tmp_path / "c", READING, workers=1)
    with pytest.raises(UserError, match="different tokenizers"):
        open_mixture(f"{corpora}/de, {tmp_path}/c")


def test_corpora_without_heldout_documents_are_named(corpora):
    mixture = open_mixture(f"{corpora}/*")
    each = {
        str(corpora / code): open_corpus(corpora / code).split("heldout").num_documents for code in ("de", "en", "ko")
    }
    for needed in (1, 5, 30):
        few = [name for name, number in each.items() if number < needed]
        assert mixture.directories_left_out("heldout", needed) == few


def test_a_run_says_how_often_it_reads_each_corpus(corpora):
    options = [f"--config.data.corpus={corpora}/*", "--config.data.weights=(1,1,2)", "--config.train.steps=50"]
    config = read_config(PretrainConfig, None, [*options, "--config.train.phases[0].seq_len=32"])
    mixture, sequences = sequences_of(config.data.corpus, config.data)
    rules, phases = sequence_rules(config, mixture.tokenizer()), plan_phases(config.train)
    lines = [line for line in describe_run(mixture, rules, phases, config.model, config.compute) if " epochs" in line]
    alone = [sequences_of(str(corpora / code), DataConfig())[1].num_per_epoch for code in ("de", "en", "ko")]
    for line, part, size in zip(lines, sequences.num_per_source / sequences.num_per_epoch, alone, strict=True):
        assert line.endswith(f"{part:.2%} of the sequences, {50 * config.train.batch_size * part / size:,.2f} epochs")


@pytest.mark.parametrize(
    ("num_tokens", "num_sequences", "corpus", "fix"),
    [
        (40_000, 16, None, "raise config.evaluate.num_sequences"),
        (40_000, 16, "dev", "raise config.evaluate.num_sequences"),
        (2_048, 400, None, "prepare the text again with a higher --heldout_fraction, or prepare more text"),
        (2_048, 400, "dev", "prepare more text for config.evaluate.corpus"),
    ],
)
def test_the_advice_for_few_predictions_can_raise_their_number(num_tokens, num_sequences, corpus, fix) -> None:
    """15 % of 2,048 tokens are predicted."""
    evaluate = EvaluateConfig(num_sequences=num_sequences, corpus=corpus)
    line = evaluation_line(num_tokens, evaluate, 128, predicts_all=False)
    assert line == f"an evaluation has about 307 predictions; below 2,000 its loss says little; {fix}"
    enough = evaluation_line(40_000, dataclasses.replace(evaluate, num_sequences=400), 128, predicts_all=False)
    assert enough == "an evaluation has about 6,000 predictions"
