"""BPE over characters: words as in BERT, split by merging pairs in the order they were learned.

After Sennrich, Haddow and Birch 2016. A piece that continues a word begins with '##' as in WordPiece, so a token alone
shows whether it continues a word.
"""

import json
from collections.abc import Sequence

import tokenizers

from bert_jax.tokenizer import bert_words, pair_merging, tokenizer_json
from bert_jax.tokenizer.bert_words import DECODER, PREFIX, SEPARATORS, SPECIAL, Normalizer
from bert_jax.tokenizer.pair_merging import TrainedVocabulary, TrainingText
from bert_jax.tokenizer.tokenizer_json import Definition


def define(tokens: Sequence[str], merges: Sequence[Sequence[str]], normalizer: Normalizer) -> Definition:
    """Return the definition of a vocabulary in the order of ids and its merges, first to last."""
    vocabulary = {token: number for number, token in enumerate(tokens)}
    return tokenizer_json.assemble(
        SPECIAL,
        vocabulary,
        SEPARATORS,
        mask_takes_space=False,
        **bert_words.splitting(normalizer),
        decoder=DECODER,
        model={
            "type": "BPE",
            "dropout": None,
            "unk_token": SPECIAL.unk,
            "continuing_subword_prefix": PREFIX,
            "end_of_word_suffix": None,
            "fuse_unk": True,  # consecutive unknown characters of a word become one token
            "byte_fallback": False,
            "vocab": vocabulary,
            "merges": [list(pair) for pair in merges],
        },
    )


def train_bpe(text: TrainingText, vocab_size: int, lowercase: bool) -> TrainedVocabulary:
    """Train as `wordpiece.train_wordpiece`, but words are split by the order of merges, not into the longest pieces."""
    normalizer = Normalizer(do_lower_case=lowercase)
    return TrainedVocabulary(define(*merge_within_words(text, vocab_size, normalizer), normalizer))


def merge_within_words(
    text: TrainingText, vocab_size: int, normalizer: Normalizer
) -> tuple[list[str], list[list[str]]]:
    """Return tokens in the order of ids, and merges in the order they were learned."""
    untrained = define(SPECIAL, (), normalizer)
    library = tokenizers.Tokenizer.from_str(json.dumps(untrained))
    pair_merging.check_characters(text)
    characters = pair_merging.alphabet(text.characters, library.normalizer.normalize_str)
    after = {character: library.normalizer.normalize_str("x" + character) for character in characters}
    inside = [one for one, joined in after.items() if len(library.pre_tokenizer.pre_tokenize_str(joined)) == 1]
    # The library numbers inner characters in the order of a hash map, and breaks ties between pieces by number.
    # Listed among the special tokens they have a fixed order, so two runs agree.
    first = [*SPECIAL, *(PREFIX + character for character in inside)]
    return pair_merging.merge_pairs(text.pieces(), vocab_size, untrained, SPECIAL, first, characters, PREFIX)
