"""The known tasks, such as the tasks of GLUE; each task is a row of `TASKS`.

The files of GLUE are the files of its published download. Tabs separate the columns of GLUE's files, and quotes are
part of the text (Wang et al., 2019).
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bert_jax.config import TaskConfig
from bert_jax.errors import UserError, did_you_mean
from bert_jax.tasks.custom import FORMAT, NAME, custom_task, parse_columns_setting, resolve_custom_columns
from bert_jax.tasks.kinds import KINDS
from bert_jax.tasks.kinds.kind import TaskKind
from bert_jax.tasks.reading.formats import FORMATS_OF_A_SUFFIX, format_of_suffix
from bert_jax.tasks.reading.label_columns import label_column_fields
from bert_jax.tasks.task import Columns, SetSource, Task

NLI = ("entailment", "neutral", "contradiction")
YES_NO = ("0", "1")


def _iob2_labels(*types: str) -> tuple[str, ...]:
    return ("O", *(f"{prefix}-{name}" for name in types for prefix in "BI"))


_SENTENCE = {"text": "sentence"}
_SENTENCES = {"text": "sentence1", "text_pair": "sentence2"}
_QUESTIONS = {"text": "question1", "text_pair": "question2"}
_STRINGS = {"text": "#1 String", "text_pair": "#2 String"}
_QNLI = {"text": "question", "text_pair": "sentence"}
_PREMISE = {"text": "premise", "text_pair": "hypothesis"}
_MNLI = _SENTENCES | {"label": "gold_label"}
_INDEXED = _SENTENCES | {"id": "index"}
_ENTAILED = ("entailment", "not_entailment")


def _tsv_source(name: str, columns: Columns, tfds: str = "", submission: str = "") -> SetSource:
    return SetSource(files=((name,),), format="tsv_plain", columns=columns, tfds=tfds, submission=submission)


def _glue_task(
    name: str,
    folder: str,
    texts: Columns,
    *,
    label: str = "label",
    labels: tuple[str, ...],
    codes: tuple[str, ...] = (),
    metrics: tuple[str, ...] = ("accuracy",),
    test_id: str = "index",
    tfds_texts: Columns | None = None,
    labeled: SetSource | None = None,
) -> Task:
    """Return a task of GLUE with train.tsv, dev.tsv and test.tsv, whose test set has ids and no labels.

    Args:
        name: name of the task and of its data set in TFDS.
        folder: directory of the files, and name of the file to submit.
        texts: for each field with a text, its column in the files.
        label: column of the label.
        labels: names of the labels in the published order; () if the label is a number.
        codes: spellings of the labels in the files, if they differ from `labels`.
        metrics: names of metrics; the first metric selects the best checkpoint.
        test_id: column of the ids in test.tsv.
        tfds_texts: for each field with a text, its feature in TFDS; None: the names in `texts`.
        labeled: format and columns of train.tsv and dev.tsv, if they differ from `texts` and `label`.
    """
    labeled = labeled or SetSource(format="tsv_plain", columns={**texts, "label": label})
    return Task(
        name=name,
        kind="sequence_classification" if labels else "regression",
        sets={
            "train": dataclasses.replace(labeled, files=(("train.tsv",),), tfds="train"),
            "dev": dataclasses.replace(labeled, files=(("dev.tsv",),), tfds="validation"),
            "test": _tsv_source("test.tsv", {"id": test_id, **texts}, "test", f"{folder}.tsv"),
        },
        metrics=metrics,
        best=metrics[0],
        labels=labels,
        codes=codes,
        folder=folder,
        tfds=f"glue/{name}",
        tfds_columns={"id": "idx", "label": "label", **(tfds_texts or texts)},
        submission="glue",
    )


_GLUE = (
    _glue_task(
        "cola",
        "CoLA",
        _SENTENCE,
        labels=("unacceptable", "acceptable"),
        codes=YES_NO,
        metrics=("matthews", "accuracy"),
        # Without a header: source, label, the author's mark, sentence.
        labeled=SetSource(format="tsv_headless", columns={"text": "3", "label": "1"}),
    ),
    _glue_task("sst2", "SST-2", _SENTENCE, labels=("negative", "positive"), codes=YES_NO),
    _glue_task(
        # Microsoft's msr_paraphrase_*.txt have the same columns; config.task.train and dev may name these files.
        "mrpc",
        "MRPC",
        _STRINGS,
        label="Quality",
        labels=("not_equivalent", "equivalent"),
        codes=YES_NO,
        metrics=("f1", "accuracy"),
        tfds_texts=_SENTENCES,
    ),
    _glue_task(
        "qqp",
        "QQP",
        _QUESTIONS,
        labels=("not_duplicate", "duplicate"),
        codes=YES_NO,
        metrics=("f1", "accuracy"),
        test_id="id",
        # Some questions contain line breaks, which no reader can repair.
        labeled=SetSource(format="tsv_plain", columns={**_QUESTIONS, "label": "is_duplicate"}, broken_rows=True),
    ),
    _glue_task("stsb", "STS-B", _SENTENCES, label="score", labels=(), metrics=("spearman", "pearson")),
    _glue_task("qnli", "QNLI", _QNLI, labels=_ENTAILED),
    _glue_task("rte", "RTE", _SENTENCES, labels=_ENTAILED),
    _glue_task("wnli", "WNLI", _SENTENCES, labels=("not_entailment", "entailment"), codes=YES_NO),
    Task(
        name="mnli",
        kind="sequence_classification",
        sets={
            "train": _tsv_source("train.tsv", _MNLI, "train"),
            "dev": _tsv_source("dev_matched.tsv", _MNLI, "validation_matched"),
            "dev_mismatched": _tsv_source("dev_mismatched.tsv", _MNLI, "validation_mismatched"),
            "test": _tsv_source("test_matched.tsv", _INDEXED, "test_matched", "MNLI-m.tsv"),
            "test_mismatched": _tsv_source("test_mismatched.tsv", _INDEXED, "test_mismatched", "MNLI-mm.tsv"),
            # GLUE's diagnostic set has no training set. A model of MNLI predicts the diagnostic set if the file of the
            # set is in the directory of MNLI.
            "test_ax": _tsv_source("diagnostic/diagnostic.tsv", _INDEXED, submission="AX.tsv"),
        },
        metrics=("accuracy",),
        best="accuracy",
        labels=NLI,
        folder="MNLI",
        tfds="glue/mnli",
        tfds_columns=_PREMISE | {"id": "idx", "label": "label"},
        submission="glue",
    ),
    Task(
        # GLUE's diagnostic set as a task, so that it can be read and scored. `finetune` predicts this set as a test set
        # of MNLI.
        name="ax",
        kind="sequence_classification",
        sets={
            "test": SetSource(
                files=(("diagnostic.tsv",), ("AX.tsv",)),
                format="tsv_plain",
                columns=_INDEXED,
                tfds="test",
                submission="AX.tsv",
            )
        },
        metrics=("matthews", "accuracy"),
        best="matthews",
        labels=NLI,
        folder="diagnostic",
        tfds="glue/ax",
        tfds_columns=_PREMISE | {"id": "idx", "label": "label"},
        submission="glue",
    ),
)


def _squad_task(name: str, version: str, impossible: bool) -> Task:
    """Return a task of SQuAD; its test set is not public, but config.task.test may name a file without answers."""
    fields = ("id", "question", "context", "answers", *(("is_impossible",) if impossible else ()))
    task = _extractive_answer_task(
        name,
        "squad" if impossible else "squad1",
        train=(f"train-{version}.json",),
        dev={"dev": (f"dev-{version}.json",)},
    )
    splits = {"train": "train", "dev": "validation", "test": ""}
    return dataclasses.replace(
        task,
        sets={key: dataclasses.replace(source, tfds=splits[key]) for key, source in task.sets.items()},
        tfds="squad/v1.1" if version == "v1.1" else "squad/v2.0",
        tfds_columns={field: field for field in fields},
        submission="squad",
        impossible=impossible,
    )


def _extractive_answer_task(name: str, metric: str, train: tuple[str, ...], dev: Mapping[str, tuple[str, ...]]) -> Task:
    """Return a question-answering task; each of its sets is one or several files in the layout of SQuAD.

    Every question has an answer.
    """
    sets = {key: SetSource(files=(names,), format="squad") for key, names in {"train": train, **dev}.items()}
    sets["test"] = SetSource(format="squad", submission="predictions.json")
    return Task(name=name, kind="question_answering", sets=sets, metrics=(metric,), best="f1", submission="squad")


_XQUAD = ("ar", "de", "el", "en", "es", "hi", "ro", "ru", "th", "tr", "vi", "zh")

_OTHER_LANGUAGES = (
    _extractive_answer_task("korquad", "korquad", ("KorQuAD_v1.0_train.json",), {"dev": ("KorQuAD_v1.0_dev.json",)}),
    # The files are in the folder squad-style-data of the published repository.
    _extractive_answer_task("cmrc2018", "cmrc", ("cmrc2018_train.json",), {"dev": ("cmrc2018_dev.json",)}),
    _extractive_answer_task(
        "jaquad",
        "jaquad",
        tuple(f"data/train/jaquad_train_{number:04}.json" for number in range(30)),
        {"dev": tuple(f"data/dev/jaquad_dev_{number:04}.json" for number in range(4))},
    ),
    # SQuAD 1.1 has the training set and the dev set; each language whose file exists is scored by the rule of SQuAD
    # 1.1.
    _extractive_answer_task(
        "xquad",
        "squad1",
        ("train-v1.1.json",),
        {"dev": ("dev-v1.1.json",)} | {f"dev_{code}": (f"xquad.{code}.json",) for code in _XQUAD},
    ),
)


_WORDS = {"tokens": "0", "labels": "-1"}


def _entity_task(
    name: str,
    labels: tuple[str, ...],
    format: str,
    *,
    train: tuple[str, ...] = (),
    dev: tuple[str, ...] = (),
    test: tuple[str, ...] = (),
    tfds: str = "",
    submission: str = "conll",
) -> Task:
    """Return a task of named-entity recognition.

    `train`, `dev` and `test` are alternative names of a file; the first file that exists is read.
    """
    return Task(
        name=name,
        kind="token_classification",
        sets={
            split: SetSource(
                files=tuple((file,) for file in names), format=format, columns=_WORDS, tfds=split if tfds else ""
            )
            for split, names in (("train", train), ("dev", dev), ("test", test))
        },
        metrics=("entities",),
        best="entity_f1",
        labels=labels,
        tfds=tfds,
        tfds_columns={"tokens": "tokens", "labels": "ner"} if tfds else {},
        submission=submission,
    )


_CONLL = _iob2_labels("PER", "ORG", "LOC", "MISC")
_WNUT = _iob2_labels("corporation", "creative-work", "group", "location", "person", "product")
_KLUE = _iob2_labels("DT", "LC", "OG", "PS", "QT", "TI")

_ENTITIES = (
    # Columns: token, part of speech, chunk, entity. The published files are in IOB1, the copies named *.txt in IOB2.
    _entity_task(
        "conll2003",
        _CONLL,
        "conll_space",
        train=("eng.train", "train.txt"),
        dev=("eng.testa", "valid.txt"),
        test=("eng.testb", "test.txt"),
        tfds="conll2003",
    ),
    _entity_task(
        "wnut17",
        _WNUT,
        "conll_tab",
        train=("wnut17train.conll",),
        dev=("emerging.dev.conll",),
        test=("emerging.test.annotated", "emerging.test.conll"),
        submission="conll_tab",
    ),
    # The data set is one file, which its authors use as a test set. To train on a part of the file, split it into files
    # of your own and name them in config.task.
    _entity_task("wikigold", _CONLL, "conll_space", test=("wikigold.conll.txt",)),
    # Each character is a token, including white space.
    _entity_task(
        "klue-ner",
        _KLUE,
        "conll_klue",
        train=("klue-ner-v1.1_train.tsv",),
        dev=("klue-ner-v1.1_dev.tsv",),
        submission="conll_tab",
    ),
)


def _ending_choice_task(
    name: str, format: str, columns: Columns, *, train: str, dev: str, test: str, test_columns: Columns
) -> Task:
    """Return a multiple-choice task, in which the model chooses the right ending of a text among several endings."""
    return Task(
        name=name,
        kind="multiple_choice",
        sets={
            "train": SetSource(files=((train,),), format=format, columns=columns),
            "dev": SetSource(files=((dev,),), format=format, columns=columns),
            "test": SetSource(files=((test,),), format=format, columns=test_columns, submission=f"{name}.csv"),
        },
        metrics=("accuracy",),
        best="accuracy",
        submission="csv",
    )


# The text is sent1; each choice is sent2 followed by an ending (Devlin et al., 2019, section 4.4).
_SWAG = {"text": "sent1", "start": "sent2"} | {f"choice{n}": f"ending{n}" for n in range(4)}
# Columns: category of the question, the question, four endings, the number of the right ending.
_CODAH = {"text": "1", "label": "6"} | {f"choice{n}": str(n + 2) for n in range(4)}

_ENDINGS = (
    _ending_choice_task(
        "swag",
        "csv",
        _SWAG | {"label": "label"},
        train="train.csv",
        dev="val.csv",
        test="test.csv",
        test_columns=_SWAG,
    ),
    # The files are one fold of the authors' cross-validation; config.task.train may name full_data.tsv instead.
    _ending_choice_task(
        "codah", "tsv_headless", _CODAH, train="train.tsv", dev="dev.tsv", test="test.tsv", test_columns=_CODAH
    ),
)


def _sentence_pair_task(
    name: str,
    format: str,
    columns: Columns,
    files: dict[str, tuple[str, ...]],
    *,
    labels: tuple[str, ...] = (),
    metrics: tuple[str, ...],
) -> Task:
    """Return a classification or regression task of sentence pairs; the files of a set are read in order."""
    return Task(
        name=name,
        kind="sequence_classification" if labels else "regression",
        sets={split: SetSource(files=(names,), format=format, columns=columns) for split, names in files.items()},
        metrics=metrics,
        best=metrics[0],
        labels=labels,
    )


_KOREAN = (
    _sentence_pair_task(
        "klue-nli",
        "json",
        _PREMISE | {"id": "guid", "label": "gold_label"},
        {"train": ("klue-nli-v1.1_train.json",), "dev": ("klue-nli-v1.1_dev.json",)},
        labels=NLI,
        metrics=("accuracy",),
    ),
    _sentence_pair_task(
        "klue-sts",
        "json",
        _SENTENCES | {"id": "guid", "label": "labels.label"},
        {"train": ("klue-sts-v1.1_train.json",), "dev": ("klue-sts-v1.1_dev.json",)},
        metrics=("pearson", "spearman"),
    ),
    _sentence_pair_task(
        "kornli",
        "tsv_plain",
        _MNLI,
        {
            "train": ("multinli.train.ko.tsv", "snli_1.0_train.ko.tsv"),
            "dev": ("xnli.dev.ko.tsv",),
            "test": ("xnli.test.ko.tsv",),
        },
        labels=NLI,
        metrics=("accuracy",),
    ),
    _sentence_pair_task(
        "korsts",
        "tsv_plain",
        _SENTENCES | {"label": "score"},
        {"train": ("sts-train.tsv",), "dev": ("sts-dev.tsv",), "test": ("sts-test.tsv",)},
        metrics=("spearman", "pearson"),
    ),
)

TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        *_GLUE,
        _squad_task("squad1", "v1.1", impossible=False),
        _squad_task("squad2", "v2.0", impossible=True),
        *_OTHER_LANGUAGES,
        *_ENTITIES,
        *_ENDINGS,
        *_KOREAN,
    )
}


def source_of_prediction_file(config: TaskConfig, kind: TaskKind, file: str) -> SetSource:
    """Return the format and the columns with which a file to predict is read.

    The suffix of the file decides on the format. If the suffix has no format, or if the format of the task's files has
    this suffix as well, such as the TSV of GLUE, the file is read like the task's dev set.

    Args:
        config: configuration of the task on which the model was trained.
        kind: kind of the task on which the model was trained.
        file: name of the file to predict.
    """
    of_suffix = format_of_suffix(file, kind.suffixes)

    def is_of_suffix(format: str) -> bool:
        return of_suffix in (None, format) or any({of_suffix, format} <= {*formats} for formats in FORMATS_OF_A_SUFFIX)

    if config.name in TASKS and "dev" in TASKS[config.name].sets:
        source = TASKS[config.name].sets["dev"]
        # Without columns, a record has the columns of its row; `predict` reads the columns that `fields_of_training`
        # names.
        return source if is_of_suffix(source.format) else SetSource(format=of_suffix or "")
    columns = resolve_custom_columns(dataclasses.replace(config, data=None, train=file), kind)
    format = columns.pop(FORMAT, "")
    return SetSource(format=format if is_of_suffix(format) else of_suffix or "", columns=columns)


class FieldsOfTraining(NamedTuple):
    """The fields of texts that the training of a task reads."""

    columns: Columns  # field -> column
    optional: Sequence[str]  # fields that an example may lack


def fields_of_training(config: TaskConfig, kind: TaskKind) -> FieldsOfTraining:
    """Return the fields of texts that the training of a published or custom task reads; predictions read them, too."""
    if config.name in TASKS and "dev" in TASKS[config.name].sets:
        columns, named = TASKS[config.name].sets["dev"].columns, {*kind.optional_fields}
    else:
        columns, named = resolve_custom_columns(config, kind), {*parse_columns_setting(config, kind)}
    columns = columns or {field: field for field in kind.fields}  # the layout of SQuAD names no columns
    without = (FORMAT, *kind.label_fields, *label_column_fields(kind, columns), *kind.training_fields)
    return FieldsOfTraining(
        {field: name for field, name in columns.items() if field not in without},
        ["id", *(field for field in kind.optional_fields if field not in named)],
    )


# Word that users give as a task, but that is a kind of task -> name of the kind.
KINDS_OF_WORDS = {
    **dict.fromkeys(("ner", "pos", "tagging"), "token_classification"),
    **dict.fromkeys(("qa", "squad"), "question_answering"),
    **dict.fromkeys(
        ("sentiment", "classification", "text_classification", "multiclass", "single_label"), "sequence_classification"
    ),
    **dict.fromkeys(("multi_label", "multilabel", "multi_label_classification"), "multilabel_classification"),
    **dict.fromkeys(("sts", "pairs"), "similarity"),
    **dict.fromkeys(("cross_encoder", "reranker", "listwise"), "reranking"),
}


def kind_of_task(name: str | None, kind: str | None) -> str:
    """Return the kind of the known task `name`, or else `kind`, which a custom task gives."""
    return TASKS[name].kind if name in TASKS else kind or ""


def resolve_task(config: TaskConfig, trained_labels: Sequence[str] = ()) -> Task:
    """Return the known task that a configuration names, or the custom task that the configuration describes.

    The score `config.metric`, if it is given, selects the best checkpoint. A custom task has the labels of a trained
    model, `trained_labels`, if they are given.

    Raises:
        UserError: the name is missing or unknown, settings of custom tasks are given for a known task, or the custom
            task is wrong.
    """
    if config.name == NAME:
        task = custom_task(config, trained_labels)
    elif config.name in TASKS:
        task = TASKS[config.name]
        for key in ("kind", "columns", "labels"):
            if getattr(config, key):
                raise UserError(
                    f"config.task.{key} is for custom tasks (name=custom); leave it out, because task '{task.name}' "
                    "sets it itself"
                )
    else:
        names = (*TASKS, NAME)
        same_end = [name for name in names if config.name and name.endswith(f"-{config.name}")]
        wanted_kind = KINDS_OF_WORDS.get((config.name or "").lower().replace("-", "_"), "")
        of_kind = [name for name in TASKS if TASKS[name].kind == wanted_kind][:4]
        if not config.name:
            reason = "no task; give --config.task.name, such as sst2, squad1 or conll2003"
        elif of_kind:
            raise UserError(
                f"config.task.name: '{config.name}' is a kind of task; give a benchmark ({', '.join(of_kind)}), or "
                f"your own file as --data FILE --kind {wanted_kind}"
            )
        elif same_end:
            reason = f"no task '{config.name}'; did you mean one of {', '.join(same_end)}?"
        else:
            reason = f"no task '{config.name}'{did_you_mean(config.name, names)}"
        raise UserError(f"config.task.name: {reason} (docs/finetune.md lists all; {NAME} is for your own files)")
    kind = KINDS[task.kind].prompt_kind if config.template is not None else ""
    return dataclasses.replace(task, kind=kind or task.kind, best=config.metric or task.best)
