"""The pairs of texts that train sentence vectors: which pairs are used, and whether the data suits the loss."""

import dataclasses

from bert_jax.config import EncoderConfig, TaskConfig
from bert_jax.console import Console
from bert_jax.errors import UserError
from bert_jax.finetuning.task_data import TaskSplit
from bert_jax.interop.sentence_modules import SentenceModules
from bert_jax.objectives.vector_losses import VECTOR_LOSSES
from bert_jax.search.text_vectors import DOCUMENTS, QUERIES, prompt_of_role
from bert_jax.tasks.late_interaction import token_rules
from bert_jax.tasks.vector_heads import VECTOR_HEADS

# Key of a batch -> name of the field in a record of the training file.
FIELDS = {"scores": "scores", "grades": "label"}


def select_training_pairs(settings: TaskConfig, train: TaskSplit, console: Console) -> TaskSplit:
    """Return the examples to train on: the positive pairs, or all pairs if the loss reads grades.

    For a kind of task without pairs, all examples are returned. A printed line counts the pairs that are left out.

    Raises:
        UserError: no pair is left, the pairs have no negatives, or examples lack a field that the loss reads.
    """
    first, where = train.features[0], "" if train.name == "train" else f"{train.name}: "
    loss = f"{where}config.task.vector_loss={settings.vector_loss}"
    if "positives" not in first.targets:
        return train
    row, num_texts = VECTOR_LOSSES[settings.vector_loss], len(first.sequences)
    if missing := [FIELDS[key] for key in row.needs if key not in first.targets]:
        raise UserError(
            f"{loss} reads `{missing[0]}`, which the training examples lack; add it, or choose another loss"
        )
    if not row.min_texts <= num_texts <= row.max_texts:
        wanted = "needs a `negative` in each example" if num_texts < row.min_texts else "reads no `negative`"
        raise UserError(f"{loss} {wanted}; change the file or the loss")
    if row.is_graded:
        if len({features.targets["grades"].item() for features in train.features}) == 1:
            raise UserError(f"{loss} compares labels, but all labels of the training examples are equal")
        return train
    positives = [features for features in train.features if features.targets["positives"]]
    pairs, left_out = len(train.features), len(train.features) - len(positives)
    why = f"their label is below config.task.positive_from={settings.positive_from:g}"
    if not positives:
        raise UserError(f"{where}all {pairs:,} training pairs are left out: {why}; for labels of 0 and 1, set it to 1")
    if left_out:
        console.say(f"{where}{left_out:,} of {pairs:,} training pairs are left out: {why}")
    texts = {tuple(ids.tobytes() for ids, _ in features.sequences[:2]) for features in positives}
    firsts, seconds = map(set, zip(*texts, strict=True))
    if len(texts) == len(firsts) * len(seconds) and num_texts < 3:
        raise UserError(
            f"{where}task.train has no negatives: each second text is right for each first text ({len(texts):,} "
            "distinct pairs belong together); give more pairs, or a `negative` text with each pair"
        )
    examples = [train.examples[features.example] for features in positives]
    return TaskSplit(train.name, examples, [features._replace(example=n) for n, features in enumerate(positives)])


def with_prompts_of_weights(settings: TaskConfig, weights: SentenceModules, console: Console) -> TaskConfig:
    """Return the settings, with the prompts of the weights where the settings have None; a line names the prompts."""
    if not weights.prompts:
        return settings
    query, document = (
        prompt_of_role(weights.prompts, weights.prompt, role) if given is None else given
        for role, given in ((QUERIES, settings.query_prompt), (DOCUMENTS, settings.document_prompt))
    )
    console.say(
        f"prompts: '{query}' before each text, '{document}' before each text_pair and negative; "
        "config.task.query_prompt and config.task.document_prompt replace the prompts of the weights"
    )
    return dataclasses.replace(settings, query_prompt=query, document_prompt=document)


def changed_token_rules_warning(settings: TaskConfig, weights: SentenceModules) -> str:
    """Return a warning if late interaction compares other tokens than the weights compare; otherwise an empty text."""
    heads = (VECTOR_HEADS[settings.vector_head], VECTOR_HEADS[weights.vector_head])
    if not all(head.has_token_vectors for head in heads):
        return ""
    before, now = (
        {
            "query_length": rules.query_length or settings.max_seq_len,
            "mask tokens in queries": rules.expands,
            "attention to mask tokens": rules.attends,
            "tokens without a vector in documents": " ".join(sorted(rules.skipped_words)) or None,
        }
        for rules in (weights.token_rules, token_rules(settings))
    )
    changed = [f"{name} {now[name]} instead of {value}" for name, value in before.items() if now[name] != value]
    if not changed:
        return ""
    return (
        f"warning: late interaction has other rules than the weights: {', '.join(changed)}; config.task.query_length, "
        "config.task.attend_to_expansion and config.task.skip_punctuation set the rules"
    )


def check_equal_texts_have_dropout(train: TaskSplit, architecture: EncoderConfig) -> None:
    """Raise UserError if each pair is one text twice and the encoder has no dropout, so that both vectors are equal."""
    if architecture.dropout or architecture.attention_dropout:
        return
    pairs = [[ids.tobytes() for ids, _ in features.sequences[:2]] for features in train.features]
    if all(first == second for first, second in pairs):
        raise UserError(
            "each training pair is one text twice, and the encoder has no dropout, so both vectors of a pair are "
            "equal; set config.task.dropout=0.1"
        )


def check_matryoshka_sizes(sizes: tuple[int, ...] | None, width: int) -> None:
    """Raise UserError unless the sizes are distinct numbers of at least 1 and below the width of the vectors."""
    if sizes is not None and (not sizes or len(set(sizes)) < len(sizes) or min(sizes) < 1 or max(sizes) >= width):
        raise UserError(
            f"config.task.matryoshka_sizes={sizes}: give different sizes from 1 to below {width}, the width of the "
            "vectors"
        )
