"""Tokenizers of a few letters, of every kind that the families have: of transformers, and as vocabulary files."""

import json
import pathlib
import random
from typing import Any

import tokenizers
import transformers

LETTERS = "abcdefghij"
BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ROBERTA = ["<s>", "<pad>", "</s>", "<unk>"]
KIND_OF_FAMILY = {
    "bert": "bert",
    "distilbert": "distilbert",
    "electra": "bert",
    "mobilebert": "bert",
    "nomic_bert": "bert",
    "mpnet": "mpnet",
    "roberta": "roberta",
    "longformer": "roberta",
    "modernbert": "modernbert",
    "xlm-roberta": "xlm-roberta",
    "camembert": "camembert",
    "albert": "albert",
    "big_bird": "big_bird",
    "deberta-v2": "deberta-v2",
}


def make_tokenizer(kind: str, rng: random.Random, **settings: Any) -> Any:
    """Return a tokenizer of transformers."""
    if kind in ("bert", "distilbert", "mpnet"):
        name = {"bert": "BertTokenizer", "distilbert": "DistilBertTokenizer", "mpnet": "MPNetTokenizer"}[kind]
        settings = {"do_lower_case": rng.random() < 0.6, **settings}
        special = ["<s>", "<pad>", "</s>", "[UNK]", "<mask>"] if kind == "mpnet" else BERT
        return getattr(transformers, name)(vocab=_numbered([*special, *_wordpieces()]), **settings)
    if kind == "roberta":
        return transformers.RobertaTokenizer(
            vocab=_numbered([*ROBERTA, *_byte_tokens(), "<mask>"]), merges=_merges(), **settings
        )
    if kind == "modernbert":
        return _modernbert_tokenizer()
    if kind == "xlm-roberta":
        return transformers.XLMRobertaTokenizer(vocab=[*_pieces(ROBERTA), ("<mask>", 0.0)], **settings)
    if kind == "camembert":
        special = ["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED", "<s>", "</s>"]
        return transformers.CamembertTokenizer(vocab=[*_pieces(special), ("<mask>", 0.0)], **settings)
    if kind == "albert":
        return transformers.AlbertTokenizer(vocab=_pieces(["<pad>", "<unk>", *BERT[2:]]), **settings)
    if kind == "big_bird":
        return transformers.BigBirdTokenizer(
            vocab=_pieces(["<pad>", "</s>", "<s>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]), **settings
        )
    assert kind == "deberta-v2"
    vocabulary = [*_pieces(["[PAD]", "[CLS]", "[SEP]", "[UNK]"]), ("[MASK]", 0.0)]
    return transformers.DebertaV2Tokenizer(vocab=vocabulary, unk_id=3, **settings)


def write_vocabulary_files(definition: dict[str, Any], directory: pathlib.Path) -> None:
    """Write the vocabulary files that transformers 4 wrote beside tokenizer.json; of SentencePiece it copied one."""
    model = definition["model"]
    if model["type"] == "WordPiece":
        tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
        (directory / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
    elif model["type"] == "BPE":
        (directory / "vocab.json").write_text(json.dumps(model["vocab"], ensure_ascii=False), encoding="utf-8")
        merges = "".join(f"{' '.join(merge)}\n" for merge in model["merges"])
        (directory / "merges.txt").write_text(f"#version: 0.2\n{merges}", encoding="utf-8")


def random_text(rng: random.Random, further_words: list[str], max_words: int = 7) -> str:
    """Return a text of up to `max_words` words, some with letters that no vocabulary has; never empty."""
    words = []
    for _ in range(rng.randint(1, max_words)):
        kind = rng.random()
        if further_words and kind < 0.15:
            words.append(rng.choice(further_words))
        elif kind < 0.25:
            words.append(rng.choice(("É", "中文", "Bäd", "z", "a-b", "ﬁ", "a.b", "I'd", "ÀJ", "A")))
        else:
            word = "".join(rng.choices(LETTERS, k=rng.randint(1, 2)))
            words.append(word.upper() if rng.random() < 0.1 else word)
    return " ".join(words) + rng.choice(("", ".", " ."))


def _numbered(tokens: list[str]) -> dict[str, int]:
    return {token: number for number, token in enumerate(tokens)}


def _wordpieces() -> list[str]:
    upper = LETTERS.upper()
    return [".", "-", "'", "中", *LETTERS, *upper, *(f"##{letter}" for letter in LETTERS + upper)]


def _byte_tokens() -> list[str]:
    """Return tokens of letters, and a token for each of the 256 bytes, as every published vocabulary has."""
    letters = [*LETTERS, *LETTERS.upper()]
    tokens = ["Ġ", ".", "-", "'", *letters, *(f"Ġ{letter}" for letter in letters)]
    return [*tokens, *sorted({*tokenizers.pre_tokenizers.ByteLevel.alphabet()} - {*tokens})]


def _merges() -> Any:
    return [("Ġ", letter) for letter in LETTERS + LETTERS.upper()]


def _pieces(special: list[str]) -> list[tuple[str, float]]:
    """Return pieces of SentencePiece with log-probabilities."""
    letters = [*LETTERS, *LETTERS.upper()]
    pieces = [("▁", -3.0), (".", -2.0), ("-", -4.0)]
    pieces += [(letter, -2.5 - 0.1 * i) for i, letter in enumerate(letters)]
    pieces += [(f"▁{letter}", -2.0 - 0.1 * i) for i, letter in enumerate(letters)]
    return [*((token, 0.0) for token in special), *pieces]


def _modernbert_tokenizer() -> Any:
    """Return a byte-level tokenizer with BERT's special tokens, as ModernBERT's."""
    vocabulary = _numbered([*_byte_tokens(), "[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"])
    library = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, _merges()))
    library.normalizer = tokenizers.normalizers.NFC()
    library.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = tokenizers.decoders.ByteLevel()
    library.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")],
    )
    names = {f"{role}_token": f"[{role.upper()}]" for role in ("unk", "cls", "sep", "pad")}
    mask = tokenizers.AddedToken("[MASK]", lstrip=True, special=True, normalized=False)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=library,
        **names,
        mask_token=mask,
        model_max_length=64,
        model_input_names=["input_ids", "attention_mask"],
    )
