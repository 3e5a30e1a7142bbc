"""Model directories of all families as `transformers` saves them: a few letters for a vocabulary, random weights."""

import torch
import transformers

LETTERS = "abcdefghij"
MAX_POSITIONS = 32
CLASSES = {
    "bert": "Bert",
    "roberta": "Roberta",
    "albert": "Albert",
    "distilbert": "DistilBert",
    "electra": "Electra",
    "modernbert": "ModernBert",
}
SPECIAL = {
    "bert": ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
    "roberta": ["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
    "albert": ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"],
}


def tokenizer_of(family):
    special = SPECIAL.get(family, SPECIAL["bert"])
    if family == "roberta":
        tokens = [*special[:4], *LETTERS, "Ġ", ".", *("Ġ" + letter for letter in LETTERS), special[4]]
        vocabulary = {token: number for number, token in enumerate(tokens)}
        merges = [("Ġ", letter) for letter in LETTERS]
        return transformers.RobertaTokenizer(vocab=vocabulary, merges=merges)
    if family == "albert":
        pieces = [*special, "▁", ".", *LETTERS, *("▁" + letter for letter in LETTERS)]
        return transformers.AlbertTokenizer(vocab=[(piece, -float(i)) for i, piece in enumerate(pieces)])
    tokens = [*special, ".", *LETTERS, *("##" + letter for letter in LETTERS)]
    return transformers.BertTokenizer(vocab={token: number for number, token in enumerate(tokens)})


def special_ids(tokenizer):
    begin, end = tokenizer.cls_token_id, tokenizer.sep_token_id
    return {"bos_token_id": begin, "eos_token_id": end, "cls_token_id": begin, "sep_token_id": end}


def config_of(family, tokenizer, **more):
    size = len(tokenizer)
    if family == "distilbert":
        sizes = {"dim": 16, "n_layers": 4, "n_heads": 2, "hidden_dim": 24}
        return transformers.DistilBertConfig(vocab_size=size, max_position_embeddings=MAX_POSITIONS, **sizes, **more)
    sizes = {"hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 24}
    positions = MAX_POSITIONS + (tokenizer.pad_token_id + 1 if family == "roberta" else 0)
    own = {
        "roberta": {"type_vocab_size": 1, "pad_token_id": tokenizer.pad_token_id},
        "albert": {"embedding_size": 8},
        "electra": {"embedding_size": 8},
        "modernbert": {"pad_token_id": tokenizer.pad_token_id, "local_attention": 6} | special_ids(tokenizer),
    }.get(family, {})
    kind = getattr(transformers, f"{CLASSES[family]}Config")
    return kind(vocab_size=size, max_position_embeddings=positions, **sizes, **own, **more)


def save_big_bird(directory):
    """A BigBird for masked tokens, whose attention is dense up to 14 tokens, and its tokenizer, saved in `directory`.

    The reference of transformers would stay dense after a short text, so each call chooses the attention again.
    """
    tokenizer = tokenizer_of("bert")
    config = transformers.BigBirdConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=MAX_POSITIONS,
        block_size=2,
        num_random_blocks=1,
        initializer_range=0.3,  # attention differs visibly from its mean
        pad_token_id=tokenizer.pad_token_id,
        **special_ids(tokenizer),
    )
    torch.manual_seed(0)
    model = transformers.BigBirdForMaskedLM(config).eval()
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    model.bert.register_forward_pre_hook(lambda bert, _: bert.set_attention_type("block_sparse"))
    return model, tokenizer


def save(directory, family, task="ForMaskedLM", **more):
    """The model (in eval mode) and the tokenizer that are saved in `directory`."""
    torch.manual_seed(0)
    tokenizer = tokenizer_of(family)
    model = getattr(transformers, f"{CLASSES[family]}{task}")(config_of(family, tokenizer, **more)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return model, tokenizer
