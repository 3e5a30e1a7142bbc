"""Templates and words of labels: beside the tokenizers of transformers, and the truncation beside a loop."""

import numpy as np
import pytest
import tokenizers
import transformers

from bert_jax.config import TaskConfig
from bert_jax.errors import UserError
from bert_jax.tasks.batching import collate
from bert_jax.tasks.features import SPELLED
from bert_jax.tasks.kinds import KINDS
from bert_jax.tasks.kinds.kind import make_features
from bert_jax.tasks.kinds.prompt_classification import fill_verbalizers, verbalizer_ids
from bert_jax.tasks.table import resolve_task
from bert_jax.tokenizer import load_tokenizer

KIND = KINDS["prompt_classification"]
TEMPLATE, PAIR_TEMPLATE = "{text} It was [MASK].", "{text}? [MASK], {text_pair}"
TEXTS = ["A fine film", "Don't!", " spaces  around ", "naïve déjà-vu, and [MASK] spelled", "x" * 40, "one two " * 30]
SPECIAL = {"bert-base-uncased": ("[MASK]", "[PAD]"), "roberta-base": ("<mask>", "<pad>")}


@pytest.fixture(scope="module", params=SPECIAL)
def both(request, samples):
    """Our tokenizer and the tokenizer of transformers over a published vocabulary."""
    place = samples / "vocab" / request.param
    theirs = {
        "bert-base-uncased": lambda: transformers.BertTokenizer(vocab=str(place / "vocab.txt"), do_lower_case=True),
        "roberta-base": lambda: transformers.RobertaTokenizer(
            vocab=str(place / "vocab.json"),
            merges=str(place / "merges.txt"),
            mask_token=tokenizers.AddedToken("<mask>", lstrip=True, special=True),
        ),
    }[request.param]()
    return load_tokenizer(place), theirs


def settings_of(tokenizer, labels=("good", "bad"), **values):
    return fill_verbalizers(TaskConfig(**{"template": TEMPLATE} | values), labels, tokenizer)


def examples_of(texts, **more):
    return [{"id": str(number), "text": text, "label": number % 2} | more for number, text in enumerate(texts)]


@pytest.mark.parametrize("template", [TEMPLATE, PAIR_TEMPLATE, "[MASK]: {text}"])
def test_a_filled_template_is_encoded_as_by_transformers(both, template):
    ours, theirs = both
    pair = {"text_pair": "the second"} if "text_pair" in template else {}
    features, counts = make_features(
        KIND, examples_of(TEXTS, **pair), ours, settings_of(ours, template=template, verbalizers="good=fine")
    )
    assert counts == {"truncated_texts": 0, SPELLED: int(theirs.mask_token == "[MASK]")}
    for text, feature in zip(TEXTS, features, strict=True):
        filled = template.replace("[MASK]", theirs.mask_token).replace("{text}", text)
        ids = theirs(filled.replace("{text_pair}", "the second"))["input_ids"]
        assert feature.input_ids.tolist() == ids
        assert feature.type_1_start == feature.length
        position = int(feature.targets["masked_positions"].item())
        of_text = text.count(theirs.mask_token) if template.index("[MASK]") > template.index("{text}") else 0
        assert [n for n, token in enumerate(ids) if token == theirs.mask_token_id][of_text] == position


def test_the_words_are_the_tokens_that_replace_the_mask(both):
    ours, theirs = both
    settings = settings_of(ours, ("yes", "no"), verbalizers="no=never|not")
    assert settings.verbalizers == "yes=yes,no=never|not"
    ids = verbalizer_ids(settings, ours)
    for label, words in {"yes": ["yes"], "no": ["never", "not"]}.items():
        for word, token in zip(words, ids[label], strict=True):
            assert token in theirs(f"It was {word}.")["input_ids"]
    (at_start,) = verbalizer_ids(settings_of(ours, ("yes", "no"), template="[MASK] {text}"), ours)["yes"]
    assert theirs("yes")["input_ids"][1] == at_start


@pytest.mark.parametrize("limit", [12, 13, 20])
@pytest.mark.parametrize("template", [TEMPLATE, PAIR_TEMPLATE])
def test_long_texts_lose_tokens_and_the_template_loses_none(both, template, limit):
    ours, _ = both
    pair = {"text_pair": "a b c d e f g h i j k l"} if "text_pair" in template else {}
    settings = settings_of(ours, template=template, max_seq_len=limit)
    texts = ["one two three four five six seven eight nine ten eleven twelve thirteen"[:n] for n in (3, 23, 70)]
    long, _ = make_features(KIND, examples_of(texts, **pair), ours, settings_of(ours, template=template))
    features, counts = make_features(KIND, examples_of(texts, **pair), ours, settings)
    assert counts["truncated_texts"] == sum(feature.length > limit for feature in long) > 0
    for whole, feature in zip(long, features, strict=True):
        assert feature.length == min(whole.length, limit)
        assert feature.input_ids[feature.targets["masked_positions"].item()] == ours.mask_id
        mask, position = (int(x.targets["masked_positions"].item()) for x in (whole, feature))
        tail = whole.input_ids[mask:] if not pair else whole.input_ids[mask : mask + 2]
        np.testing.assert_array_equal(feature.input_ids[position:][: len(tail)], tail)
        np.testing.assert_array_equal(feature.input_ids[:2], whole.input_ids[:2])


def test_a_batch_has_the_words_of_the_labels_and_the_masks(both):
    ours, _ = both
    unlabeled = [{"id": "1", "text": "a"}, {"id": "2", "text": "a b c"}]
    settings = settings_of(ours, ("yes", "no"), verbalizers="no=never|not")
    features, _ = make_features(KIND, unlabeled, ours, settings)
    batch = collate(features, 16, 2, 0, 3)
    assert batch["verbalizers"].shape == (3, 2, 2)
    assert batch["verbalizers"][0, 0, 1] == -1
    assert (batch["input_ids"][np.arange(2), batch["masked_positions"][:2, 0]] == ours.mask_id).all()
    assert "labels" not in batch


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"template": None}, "needs config.task.template, such as '{text} It was [MASK].'"),
        ({"template": "{text}"}, "has [MASK] 0 times"),
        ({"template": "[MASK] {text} [MASK]"}, "has [MASK] 2 times"),
        ({"template": "[MASK]"}, "has {text} 0 times"),
        ({"template": "{texts} [MASK]"}, "no field {texts}; did you mean '{text}'?"),
        ({"verbalizers": "god=fine"}, "; did you mean 'good'?"),
        ({"verbalizers": "good"}, "is not 'label=word'"),
        ({"verbalizers": "good=a,good=b"}, "repeats a label"),
        ({"verbalizers": "good=qwertzuiop"}, "the word 'qwertzuiop' of label 'good' is not one token"),
        ({"verbalizers": "good=fine|bad"}, "is of 'good' and of 'bad'"),
        ({"labels": ("a,b", "bad")}, "the label 'a,b' has a comma"),
        ({"labels": ("not_entailment", "bad")}, "config.task.verbalizers='not_entailment=WORD,...'"),
    ],
)
def test_templates_and_words_that_are_refused(both, values, says):
    with pytest.raises(UserError) as error:
        settings_of(both[0], **values)
    assert says in str(error.value)


def test_texts_that_do_not_fit_the_template_are_refused(both):
    ours, _ = both
    for texts, template, says in (
        (examples_of(["a"], text_pair="b"), TEMPLATE, "the example has a text_pair and the template has none"),
        (examples_of(["a"]), PAIR_TEMPLATE, "the template has a text_pair and the example has none"),
    ):
        with pytest.raises(UserError, match=says):
            make_features(KIND, texts, ours, settings_of(ours, template=template))
    with pytest.raises(UserError, match="leaves no room for a text"):
        make_features(KIND, examples_of(["a"]), ours, settings_of(ours, max_seq_len=7))


def test_a_template_selects_the_kind_of_a_published_classification_alone():
    assert resolve_task(TaskConfig(name="sst2", template=TEMPLATE)).kind == "prompt_classification"
    assert resolve_task(TaskConfig(name="sst2")).kind == "sequence_classification"
    assert resolve_task(TaskConfig(name="squad1", template=TEMPLATE)).kind == "question_answering"
