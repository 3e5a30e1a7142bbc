"""Commands for the use of the model of a finished run, which the console and the report show."""

import itertools
import os
import shlex
import unicodedata
from collections.abc import Iterable, Iterator

import numpy as np

from bert_jax.corpus.mixture import Mixture
from bert_jax.corpus.store import Split, running_total
from bert_jax.models import Head
from bert_jax.tasks.kinds import KINDS
from bert_jax.tasks.vector_heads import VECTOR_HEADS
from bert_jax.tokenizer import Tokenizer

MAX_RECORDS = 200  # of a split that are searched for an example sentence
MIN_WORDS, MAX_WORDS, MAX_CHARACTERS = 4, 14, 90  # limits of an example sentence


def commands_for_pretrained_model(
    workdir: str, heads: Iterable[Head], text: str, has_heldout: bool, recipe: str | None
) -> list[str]:
    """Return commands for the use of a pretrained model.

    Args:
        workdir: work directory of the run.
        heads: heads of the exported model.
        text: text with a mask token, such as `masked_sentence` returns.
        has_heldout: whether the run evaluated on held-out documents.
        recipe: file of the user's recipe, as `config.recipe`; it may add rows to tables.
    """
    path, stem, option = shlex.quote(workdir), workdir.rstrip("/"), _recipe_option(recipe)
    fills_masks = any(head.name == "masked_token" for head in heads)
    return [
        *([f"bert-jax evaluate  --workdir {path}{option}"] if has_heldout else []),
        *([f"bert-jax fill-mask --model {path} {shlex.quote(text)}{option}"] if fills_masks else []),
        f"bert-jax export    --workdir {path} --output {shlex.quote(stem + '-export')}{option}",
        f"bert-jax finetune  --data FILE.csv --text COLUMN --label COLUMN --init_from {path} "
        f"--workdir {shlex.quote(stem + '-labels')}",
    ]


def commands_for_finetuned_model(workdir: str, kind: str, vector_head: str) -> list[str]:
    """Return commands for the use of a fine-tuned model, by its kind of task (KINDS) and its head of vectors."""
    model, export = shlex.quote(workdir), shlex.quote(workdir.rstrip("/") + "-export")
    suffix = VECTOR_HEADS[vector_head].suffix
    return [command.format(model=model, export=export, suffix=suffix) for command in KINDS[kind].commands]


def report_command(workdir: str, recipe: str | None) -> str:
    """Return the command that writes the page of a run to the current directory; `recipe` is `config.recipe`."""
    name = workdir.rstrip("/").rpartition("/")[2]
    return f"bert-jax report {shlex.quote(workdir)} --output {shlex.quote(f'{name}.html')}{_recipe_option(recipe)}"


def _recipe_option(recipe: str | None) -> str:
    """Return the option with which a command runs the user's recipe first, since the recipe may add rows to tables.

    If the recipe file was moved, there is no option, because most recipes add no rows. The path is relative if the
    recipe is below the working directory.
    """
    if not recipe or not any(map(os.path.isfile, (recipe, recipe.rpartition(":")[0]))):  # an argument follows a colon
        return ""
    return f" --recipe {shlex.quote(recipe.removeprefix(os.path.join(os.getcwd(), '')))}"


def masked_sentence(corpus: Mixture | None, tokenizer: Tokenizer) -> str:
    """Return a sentence of a corpus in which the mask token replaces a word, if possible a word of one token.

    The sentence is the first held-out sentence of 4 to 14 words, else the first training sentence of this length.
    Without a corpus, or without a sentence of 4 to 14 words, an English sentence is returned.

    Args:
        corpus: the corpus of the run; None if the corpus cannot be read.
        tokenizer: tokenizer of the corpus.
    """
    mask = tokenizer.tokens[tokenizer.mask_id]
    splits = (corpus.split("heldout"), corpus.split("train")) if corpus else ()
    texts = (text for split in splits for text in _masked_sentences(split, tokenizer, mask))
    return next(texts, f"The capital of {mask} is Paris.")


def _masked_sentences(split: Split, tokenizer: Tokenizer, mask: str) -> Iterator[str]:
    """Yield sentences of fitting length from the first records, each with a masked word."""
    records = np.arange(min(MAX_RECORDS, split.num_records))
    read = split.read_words(records, tokenizer.continues)
    for start, end in itertools.pairwise(running_total(read.sentence_lengths).tolist()):
        words = [*(np.flatnonzero(read.begins_word[start:end]) + start).tolist(), end]
        if not MIN_WORDS <= len(words) - 1 <= MAX_WORDS:
            continue
        # A word of one token first, then a word near the middle.
        inner = sorted(
            range(1, len(words) - 2),
            key=lambda index: (words[index + 1] - words[index] > 1, abs(2 * index - len(words) + 2)),
        )
        for index in inner:
            first, after = words[index], words[index + 1]
            left, word, right = (
                tokenizer.decode(read.tokens[begin:stop].tolist()).strip()
                for begin, stop in ((start, first), (first, after), (after, end))
            )
            text = f"{left} {mask} {right}"
            if has_only_letters(word) and len(text) <= MAX_CHARACTERS and text.isprintable() and text.count(mask) == 1:
                yield text
                break


def has_only_letters(word: str) -> bool:
    """Return whether a word has only letters and combining marks, such as the vowel signs of Hindi."""
    return bool(word) and all(unicodedata.category(character)[0] in "LM" for character in word)
