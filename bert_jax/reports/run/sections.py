"""Corpus, end values, settings, cost, and how to train it again, as tables."""

import os
import shlex
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.config import Config, FinetuneConfig, PretrainConfig, fields_of, flatten, to_json
from bert_jax.config.write_recipe import changed, default_of, defaults_of, recipe_text
from bert_jax.console import format_metric, format_seconds
from bert_jax.corpus.copies import find_duplicates
from bert_jax.corpus.mixture import Mixture, open_mixture
from bert_jax.corpus.statistics import QUANTILES, distribution, document_sizes
from bert_jax.corpus.store import Corpus
from bert_jax.errors import UserError
from bert_jax.parallel.chips import CHIPS
from bert_jax.reports.html.markup import Html, element, folded, joined, section, table
from bert_jax.reports.next_commands import finetuned_commands, pretrained_commands
from bert_jax.reports.run.curves import FRACTIONS, NOT_CURVES, SPLITS, titles
from bert_jax.reports.run.record import Run, Training
from bert_jax.reports.run.warnings import tokens_read
from bert_jax.tokenizer import load_tokenizer
from bert_jax.training.tensorboard import Session

WATTS_PER_CORE = 12.0  # of a CPU, where nothing better is known; Lannelongue et al. 2021, "Green Algorithms"
MAX_EVALUATIONS = 200  # in a table
SHOWN_TOKENS = 40  # of a document
COMPARED_TOKENS = 10_000_000  # of documents that may be copies; of more, a random part
MEASURED_ALL = 0.01  # of the time, up to which nothing is estimated beside what was measured
OWN_POWER = "bert-jax report --watts takes the power of all devices."
DURATIONS = {"days": 86_400, "hours": 3600, "minutes": 60, "seconds": 1}
MACHINE = ("devices", "device_kind", "processes", "cores")
NOT_VERSIONS = (*MACHINE, "energy")  # what run.json says of a machine beside versions
SHOWN_QUANTILES = {0.0: "shortest", 0.05: "5 %", 0.5: "median", 0.95: "95 %", 1.0: "longest"}


class Assumed(NamedTuple):
    """What a run does not record: the power of all its devices, and the CO2 of electricity."""

    watts: float | None = None  # above 0; None: as the table of chips says
    grams_per_kwh: float | None = None  # above 0; None: no CO2 is shown


def find_corpus(run: Run) -> Mixture | str:
    """Return the corpus of a pretraining run, or why it cannot be shown."""
    config = run.config
    if not isinstance(config, PretrainConfig):
        return "a fine-tuning run has a task instead of a corpus"
    corpus = config.data.corpus or ""
    if "://" in corpus:
        return f"{corpus} is a URL, and a report loads nothing"
    try:
        found = open_mixture(corpus)
    except (UserError, OSError) as error:
        return f"not found: {error}"
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return f"{corpus} cannot be read ({type(error).__name__}: {error})"
    if found.fingerprint != run.fingerprint.get("corpus"):
        return f"{corpus} is not the corpus that this run was trained on: its fingerprint differs"
    return found


def corpus_section(run: Run, corpus: Mixture | str) -> Html:
    """Return documents, tokens, how often the run has read them, rejections, copies, leaks and lengths."""
    if isinstance(corpus, str):
        return section("Corpus", element("p", f"The corpus is not shown: {corpus}.", class_="note"))
    rows = [_corpus_row(one, name) for one in corpus.corpora for name in ("train", "heldout")]
    head = ("corpus", "split", "documents", "sentences", "tokens", "stored of read", "rejected", "language")
    lengths, _ = document_sizes(corpus.split("train"))
    found = distribution(lengths)
    shown = dict(zip(QUANTILES, found.quantiles, strict=True))
    quantiles = [(name, f"{shown[at]:,}") for at, name in SHOWN_QUANTILES.items()]
    tokenizer = corpus.corpora[0].manifest["tokenizer"]
    num_tokens = sum(one.split("train").num_tokens for one in corpus.corpora)
    epochs = tokens_read(run, run.trainings[0].last_step) / num_tokens
    times = np.format_float_positional(epochs, precision=3, fractional=False, trim="-")
    count = run.config.data.snapshots if isinstance(run.config, PretrainConfig) else None
    turns = f"They are the first of {count} snapshots, which the run reads in turn. " if count else ""
    return section(
        "Corpus",
        element(
            "p",
            f"The run has read at most {times} times the {num_tokens:,} tokens of the training documents: padding "
            f"counts. {turns}The documents that are held out measure what it has learned.",
        ),
        _beginning(corpus),
        table(head, rows, "corpus"),
        _copies(corpus),
        element(
            "p",
            f"Tokenizer: {tokenizer['kind']} with {tokenizer['vocab_size']:,} tokens"
            f"{', lowercase' if tokenizer.get('lowercase') else ''}. A training document has {found.mean:,.0f} tokens "
            "on average.",
        ),
        table(("tokens of a training document", "tokens"), quantiles, "lengths of documents"),
    )


def _beginning(corpus: Mixture) -> Html:
    """The first words of a training document, for people who do not know the corpus."""
    try:
        tokens, _, _ = corpus.corpora[0].split("train").read(np.array([0]))
        text = corpus.tokenizer().decode(tokens[:SHOWN_TOKENS].tolist())
    except UserError as error:
        return element("p", f"No text is shown: {error}.", class_="note")
    return element("p", "The first training document begins: ", element("bdi", text), " ...")


def _copies(corpus: Mixture) -> Html:
    """Documents that occur twice, and held-out documents that are trained on."""
    try:
        found = find_duplicates(corpus.split("train"), corpus.split("heldout"), COMPARED_TOKENS)
    except UserError as error:
        return element("p", f"Copies are not counted: {error}.", class_="note")
    said = f"{found.repeated:,} of {found.train:,} training documents are copies of an earlier one"
    if found.heldout:
        said += f"; {found.leaked:,} of {found.heldout:,} held-out documents are training documents too"
    return element("p", f"{said}{'' if found.exact else ' (a sample)'}.")


def _corpus_row(corpus: Corpus, name: str) -> tuple[object, ...]:
    manifest, split = corpus.manifest, corpus.split(name)
    documents = manifest["documents"]
    rejected = ", ".join(f"{count:,} {why}" for why, count in documents["rejected"].items()) or "none"
    sizes = (f"{split.num_documents:,}", f"{split.num_sentences:,}", f"{split.num_tokens:,}")
    both = (f"{documents['stored']:,} of {documents['in']:,}", rejected, manifest["settings"]["language"])
    return (os.path.basename(str(corpus.directory)), name, *sizes, *both)


def end_values(trainings: Sequence[Training]) -> Html:
    """Return a table of last values: of one training a row per metric, of several a row per training."""
    named = titles(trainings)
    if len(trainings) == 1:
        (only,) = trainings
        ends = [(title, _end(only, name, "train"), _end(only, name, "heldout")) for name, title in named.items()]
        rows = [("last step", f"{only.last_step:,}", ""), *ends]
        return table(("", "training", "held out"), rows, "values at the end")
    columns = [
        (f"{title}, {words}", [_end(one, name, split) for one in trainings])
        for name, title in named.items()
        for split, words in SPLITS.items()
    ]
    columns = [("last step", [f"{one.last_step:,}" for one in trainings])] + [one for one in columns if any(one[1])]
    by_training = zip([one.label for one in trainings], *(cells for _, cells in columns), strict=True)
    return table(("training", *(head for head, _ in columns)), by_training, "values at the end")


def _end(training: Training, name: str, split: str) -> str:
    value = training.last(name, split)
    return "" if value is None else _figure(name, value)


def _figure(name: str, value: float) -> str:
    if name == "learning_rate":
        return f"{value:.3g}"
    if name in FRACTIONS:
        return f"{value:.1%}"
    return f"{value:,.0f}" if abs(value) >= 1000 else format_metric(name, float(value))


def evaluations(trainings: Sequence[Training]) -> Html:
    """Return every evaluation as a folded table, or where they are many, some of them evenly spread."""
    names = dict.fromkeys(name for one in trainings for name in one.names("heldout") if name not in NOT_CURVES)
    lines = [(one.label, line) for one in trainings for line in one.lines if line["split"] == "heldout"]
    if not lines:
        return Html("")
    chosen = np.unique(np.linspace(0, len(lines) - 1, min(len(lines), MAX_EVALUATIONS)).astype(int)).tolist()
    rows = [
        (label, f"{line['step']:,}", *("" if line.get(name) is None else _figure(name, line[name]) for name in names))
        for label, line in (lines[at] for at in chosen)
    ]
    count = f"{len(rows)} of {len(lines):,}" if len(rows) < len(lines) else f"{len(lines)}"
    head = ("training", "step", *(name.replace("_", " ") for name in names))
    return folded(f"Evaluations as numbers ({count})", table(head, rows, "evaluations"))


def settings_section(config: Config) -> Html:
    """Return the fields that differ from the defaults, and all fields folded away."""
    meanings = {key: field.metadata["meaning"] for key, field, _ in fields_of(type(config))}
    differing, defaults = changed(config), flatten(to_json(defaults_of(config)))
    head = ("field", "value", "default", "meaning")

    def row(key: str, value: object, default: object) -> tuple[str, ...]:
        phase = key.split(".")
        generic = "train.phases[0]." + phase[-1] if key.startswith("train.phases.") else key
        return key, f"{value}", f"{default}", meanings.get(generic, "")

    rows = [row(key, value, default) for key, (value, default) in differing.items()]
    others = [
        row(key, value, default_of(key, defaults))
        for key, value in flatten(to_json(config)).items()
        if key not in differing
    ]
    changes = f"{len(rows)} fields differ from the defaults."
    return section(
        "Settings",
        element("p", changes),
        folded("What differs", table(head, rows, "fields that differ", class_="changed"), open_=len(rows) <= 12),
        folded(f"The {len(others)} fields at their defaults", table(head, others, "fields at their defaults")),
    )


def cost_section(run: Run, assumed: Assumed) -> Html:
    """Return `cost_of` as a table."""
    rows, note = cost_of(run, assumed)
    return section("Cost", table((), rows, "cost"), element("p", note, class_="note"))


def cost_of(run: Run, assumed: Assumed) -> tuple[list[tuple[str, str]], str]:
    """Return time and tokens, measured, and energy, measured where counters could be read and else estimated.

    Returns:
        names and values; a note on how they are known.
    """
    sessions = [session for one in run.trainings for session in one.sessions]
    seconds = sum(session.ended - session.began for session in sessions)
    rows = [("wall-clock time", _duration(seconds) if sessions else "not recorded")]
    speeds = [line.get("tokens_per_second") for one in run.trainings for line in one.lines if line["split"] == "train"]
    if known := [speed for speed in speeds if speed is not None]:
        rows.append(("tokens per second, median", f"{float(np.median(known)):,.0f}"))
    if run.phases:
        rows.append(("tokens, padding included", f"{tokens_read(run, run.trainings[0].last_step):,}"))
    rows += [("machine", _machine(run))]
    energy, why = _energy(run, sessions, seconds, assumed)
    rows += [(f"energy, {how}", f"{joules / 3.6e6:.3g} kWh") for how, joules in energy.items()]
    if energy and assumed.grams_per_kwh is not None:
        grams = sum(energy.values()) / 3.6e6 * assumed.grams_per_kwh
        rows.append((f"CO2 at {assumed.grams_per_kwh:g} g per kWh", f"{grams / 1000:.3g} kg"))
    return rows, f"Time is from the first to the last event of each start, evaluations and saving included. {why}"


def _duration(seconds: float) -> str:
    unit, size = next((unit, size) for unit, size in DURATIONS.items() if seconds >= size or size == 1)
    return f"{seconds / size:,.1f} {unit}"


def _machine(run: Run) -> str:
    if not run.machine:
        return "not recorded"
    devices, kind, processes, cores = (run.machine.get(name, "?") for name in MACHINE)
    return f"{devices} x {kind}; processes: {processes}; cores per host: {cores}"


def _energy(run: Run, sessions: Sequence[Session], seconds: float, assumed: Assumed) -> tuple[dict[str, float], str]:
    """Joules by how they are known, and that in words; {} where they are not."""
    measured = sum(one.measured - one.began for one in sessions if one.measured is not None)
    source = str(run.machine.get("energy", ""))
    if measured:
        found = {"measured": sum(one.joules for one in sessions)}
        note = (
            f"Energy was measured for {format_seconds(measured)} of that time ({source}), and of all that ran there, "
            "but without cooling and the rest of the machine."
        )
        if (left := seconds - measured) < MEASURED_ALL * seconds:
            return found, note
        power, why = _power(run, assumed.watts)
        if power is None:
            return found, f"{note} For the other {format_seconds(left)}: {why}"
        return found | {"estimated": power * left}, f"{note} For the other {format_seconds(left)}: {why}"
    power, why = _power(run, assumed.watts)
    if source:
        why += f" It was not measured: {source}."
    return ({"estimated": power * seconds} if sessions and power is not None else {}), why


def _power(run: Run, watts: float | None) -> tuple[float | None, str]:
    """Watts of all devices, and how they are known."""
    ending = "without cooling, memory and the rest of the machine"
    if watts is not None:
        return watts, f"Energy is an estimate: that time at {watts:g} W (--watts)."
    kind, devices = str(run.machine.get("device_kind", "")), run.machine.get("devices")
    if not isinstance(devices, int):
        return None, f"Energy is not estimated, as the machine is not recorded. {OWN_POWER}"
    if (chip := CHIPS.get(kind)) and chip.watts is not None:
        power = chip.watts * devices
        return power, f"Energy is an estimate: that time at {power:g} W, the figure of {chip.source}, {ending}."
    cores = run.machine.get("cores")
    if kind == "cpu" and isinstance(cores, int):
        power = WATTS_PER_CORE * cores
        return power, (
            f"Energy is an estimate: that time at {power:g} W, which is {WATTS_PER_CORE:g} W for each of {cores} cores "
            f"(Lannelongue et al. 2021), {ending}."
        )
    return None, f"Energy is not estimated: no published power of {kind} is known here. {OWN_POWER}"


def use_section(run: Run) -> Html:
    """Return where the model is, and commands that use it."""
    place = str(run.place)
    if not (run.phases or run.results):
        return section("Use it", element("p", "A fine-tuned model is there when the run has ended.", class_="note"))
    try:
        tokenizer = load_tokenizer(run.place / "tokenizer")
    except UserError as error:
        return section("Use it", element("p", f"No commands: {error}.", class_="note"))
    mask = tokenizer.tokens[tokenizer.mask_id]
    commands = finetuned_commands(place)
    if isinstance(run.config, PretrainConfig):
        commands = pretrained_commands(place, run.config, mask)
    return section("Use it", element("p", f"The model is in {place}."), element("pre", "\n".join(commands), tabindex=0))


def reproduction_section(run: Run) -> Html:
    """Return recipe, command, versions, seed and fingerprints."""
    verb, again = "finetune" if isinstance(run.config, FinetuneConfig) else "pretrain", f"{run.place.name}-again"
    command = f"bert-jax {verb} --config recipe.py --workdir {shlex.quote(again)}"
    rows: list[tuple[str, object]] = [("seed", run.config.seed)]
    rows += [(f"fingerprint of the {name}", value) for name, value in run.fingerprint.items()]
    versions = [(f"version of {name}", value) for name, value in run.machine.items() if name not in NOT_VERSIONS]
    rows += versions or [("versions", "not recorded")]
    return section(
        "Train it again",
        element("p", "With this file as ", element("code", "recipe.py"), ":"),
        element("pre", recipe_text(run.config), tabindex=0),
        element("pre", command, tabindex=0),
        table((), rows, "versions and fingerprints"),
    )


def results_table(run: Run) -> Html:
    """Return the dev scores of each training of a `finetune` that has ended."""
    found = run.results.get("runs")
    found = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    rows = [one for one in found if isinstance(one.get("scores"), dict)]
    if not rows:
        return Html("")
    settings = {"run": "training", "learning_rate": "learning rate", "seed": "seed", "step": "best step"}
    names = list(dict.fromkeys(str(name) for one in rows for name in one["scores"]))
    body = [[*map(one.get, settings), *map(one["scores"].get, names)] for one in rows]
    shown = [[f"{cell:.4g}" if isinstance(cell, float) else cell for cell in row] for row in body]
    head = [*settings.values(), *(name.replace("_", " ") for name in names)]
    return joined([element("h3", "Dev scores of each training"), table(head, shown, "dev scores")])
