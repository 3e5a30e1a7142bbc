"""BPE over characters: words as in BERT, cut by merging pairs in the order they were learnt.

After Sennrich, Haddow and Birch 2016; a piece inside a word is marked '##' as in WordPiece, so that a token alone says
whether it goes on with a word.
"""

from collections.abc import Sequence

from bert_jax.data.tokenizer import tokenizer_json, wordpiece
from bert_jax.data.tokenizer.tokenizer_json import Definition
from bert_jax.data.tokenizer.wordpiece import Normalizer


def define(tokens: Sequence[str], merges: Sequence[Sequence[str]], normalizer: Normalizer) -> Definition:
    """The definition of a vocabulary in the order of its ids and its merges, first to last."""
    vocabulary = {token: number for number, token in enumerate(tokens)}
    return tokenizer_json.assemble(
        wordpiece.SPECIAL,
        vocabulary,
        wordpiece.SEPARATORS,
        mask_takes_space=False,
        **wordpiece.splitting(normalizer),
        decoder=wordpiece.DECODER,
        model={
            "type": "BPE",
            "dropout": None,
            "unk_token": wordpiece.SPECIAL.unk,
            "continuing_subword_prefix": wordpiece.PREFIX,
            "end_of_word_suffix": None,
            "fuse_unk": True,  # unknown characters that follow each other in a word are one token
            "byte_fallback": False,
            "vocab": vocabulary,
            "merges": [list(pair) for pair in merges],
        },
    )
