"""Small tokenizers of the families, as directories."""

import json

import tokenizers


def wordpiece(directory, words):
    """A directory with vocab.txt, tokenizer.json and tokenizer_config.json."""
    library = tokenizers.BertWordPieceTokenizer({word: i for i, word in enumerate(words)})
    library.save(str(directory / "tokenizer.json"))
    (directory / "vocab.txt").write_text("\n".join(words) + "\n")
    settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "model_max_length": 20}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    return directory


def bert(directory, size=100):
    """WordPiece; the padding is 0."""
    return wordpiece(directory, ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(size - 5))])


def roberta(directory):
    """Byte-level pairs, as published: vocab.json and merges.txt alone; the padding is 1."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *letters, "ab", "<mask>"]
    (directory / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(tokens)}))
    (directory / "merges.txt").write_text("#version: 0.2\na b\n")
    return directory


MAKERS = dict.fromkeys(("roberta", "xlm-roberta", "camembert", "mpnet", "longformer"), roberta)  # the padding is 1


def of_family(family, directory):
    """A tokenizer whose padding lies where the family's models expect it."""
    directory.mkdir(exist_ok=True)
    return MAKERS.get(family, bert)(directory)
