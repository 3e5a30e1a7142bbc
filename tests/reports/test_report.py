"""The page about a run: its sentences, its refusals, hostile text that stays text, and its size."""

import io
import json
import pathlib
import re
import shutil
import struct

import numpy as np
import pytest

from bert_jax.config import FinetuneConfig, finetune_config, resolve, to_json
from bert_jax.console import Console
from bert_jax.corpus.build.prepare import prepare
from bert_jax.corpus.manifest import manifest_seal
from bert_jax.errors import SHOWN, UserError
from bert_jax.reports.corpus.examples import sequence_examples
from bert_jax.reports.provenance import provenance_of
from bert_jax.reports.run import predictions
from bert_jax.reports.run.cost import AssumedPower, compute_run_cost
from bert_jax.reports.run.curves import horizontal_axes, training_charts
from bert_jax.reports.run.page import report_page
from bert_jax.reports.run.record import read_runs
from bert_jax.reports.run.sections import find_run_corpus
from bert_jax.reports.run.tiles import run_tiles
from bert_jax.reports.run.warnings import comparison_warnings, summarize_run
from bert_jax.tokenizer import load_tokenizer
from bert_jax.tokenizer.train import train_tokenizer
from tests.helpers.browser import Opened
from tests.helpers.written_pages import HOSTILE, Page, curve, write_run

STEPS = {"steps": 1000}


def report(*places: pathlib.Path, watts: float | None = None) -> str:
    return report_page(places, Console(io.StringIO()), AssumedPower(watts))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A run on hostile documents, with hostile settings, metrics, machine, manifest and directory."""
    place = tmp_path_factory.mktemp("<b onclick=alert(0)>")
    words = " ".join(f"word{number} of plain text." for number in range(20))
    (place / "texts").mkdir()
    for number in range(12):
        text = "\n".join(f"{one} Document {number}. {words}" for one in HOSTILE[:5])
        (place / "texts" / f"{number}.txt").write_text(text)
    train_tokenizer([[str(place / "texts")]], 360, str(place / "tokenizer"), kind="byte_level")
    options = {"workers": 1, "heldout_fraction": 0.5, "deduplicate": "none"}
    manifest = prepare([str(place / "texts")], place / "tokenizer", place / "corpus", **options)
    path = place / "corpus" / "manifest.json"
    rejected = {"rejected": {HOSTILE[0]: 3}}
    forged = manifest | {"documents": manifest["documents"] | rejected}
    path.write_text(json.dumps(forged | {"seal": manifest_seal(forged)}))
    lines = [line | {f"{HOSTILE[1]}_loss": 1.0} for line in curve(1000, 20)]
    run = place / HOSTILE[1].replace("/", "")
    machine = {"devices": 1, "device_kind": HOSTILE[0], HOSTILE[2]: HOSTILE[3], "control": HOSTILE[5]}
    data = {"corpus": str(place / "corpus"), "sentence_pairs": "full_sentences", "snapshots": 3}
    write_run(run, lines, machine, data=data, train=STEPS, model={"vocab_size": 360})
    values = json.loads((run / "run.json").read_text())
    values["fingerprint"] = {"corpus": manifest["fingerprint"], "tokenizer": "beef", HOSTILE[0]: HOSTILE[4]}
    values["config"]["init_from"] = HOSTILE[3]
    (run / "run.json").write_text(json.dumps(values))
    return run


def test_hostile_text_stays_text(hostile, monkeypatch) -> None:
    """In documents, masked tokens, settings, metric names, versions, fingerprints, the manifest and the path."""

    def random_predictions(workdir, batch, tokenizer, console):
        rng, shape = np.random.default_rng(0), batch["masked_positions"].shape
        return predictions.predictions_by_sequence(batch, rng.random((*shape, tokenizer.vocab_size)))

    monkeypatch.setattr(predictions, "predict_batch", random_predictions)
    page = Page(report(hostile))
    sequences = page.text[page.text.index("Inputs and predictions of the model") :]
    assert "Sequence 4" in sequences
    marks = [int(one) for one in re.findall(r"Sequence \d+: (\d+) to predict", sequences)]
    assert f" of {sum(marks)} (" in sequences  # right of all that are marked
    assert "✗" in sequences
    shown = "".join(sequences.split())  # masks interrupt some of the copies, not all
    for text in HOSTILE[:5]:
        assert text in page.text or "".join(text.split()) in shown, text
    assert HOSTILE[1].replace("/", "") in page.text  # the directory
    assert f"3 {HOSTILE[0]}" in page.text  # the manifest
    assert f"The first training document begins: {HOSTILE[0]}" in page.text
    tokens = json.loads((hostile.parent / "corpus" / "manifest.json").read_text())["splits"]["train"]["tokens"]
    assert f"{round(1000 * 256 * 128 / tokens, -1):.0f} times the {tokens:,} tokens of" in page.text
    assert "They are the first of 3 snapshots, which the run reads in turn." in page.text
    assert f"version of {HOSTILE[2]}" in page.text
    assert repr(HOSTILE[3]) in page.text  # the recipe
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]", page.text)


def test_the_page_of_a_run_in_a_bucket_names_the_bucket(hostile, tmp_path, monkeypatch) -> None:
    """The local copy of the run holds no checkpoints, and is emptied at the next start."""
    run = tmp_path / "runs" / "base"
    write_run(run, curve(1000, 20), train=STEPS)
    shutil.copytree(hostile.parent / "tokenizer", run / "tokenizer")
    monkeypatch.setitem(SHOWN, str(run), "gs://bucket/runs/base")
    text = report(run)
    assert "The model is in gs://bucket/runs/base." in text
    assert "bert-jax export    --workdir gs://bucket/runs/base --output gs://bucket/runs/base-export" in text
    assert str(tmp_path) not in text


def test_the_page_loads_nothing_and_runs_nothing(hostile) -> None:
    text = report(hostile)
    page = Page(text)
    (policy,) = (meta["content"] for meta in page.metas if meta.get("http-equiv") == "Content-Security-Policy")
    rules = dict(rule.split(maxsplit=1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert "script-src" not in rules
    assert text.index("Content-Security-Policy") < text.index("<style>")
    style = text[text.index("<style>") : text.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style
    assert "prefers-color-scheme:dark" in style


def test_a_browser_runs_nothing_of_it_and_keys_reach_all_of_it(hostile, browser, tmp_path) -> None:
    for dark in (False, True):
        (tmp_path / "page.html").write_text(report(hostile), encoding="utf-8")
        assert browser.open((tmp_path / "page.html").as_uri(), dark=dark) == Opened([], [])
        text = browser.run("document.body.innerText")
        assert "Train it again" in text
        assert f"3 {HOSTILE[0]}" in text
        assert browser.run("document.querySelectorAll('script, img, iframe, [onclick], [onload]').length") == 0
    browser.run("document.querySelectorAll('details').forEach(one => one.open = true)")
    reached = browser.reached()
    assert reached == list(range(len(reached)))
    assert len(reached) > 10
    width = "document.documentElement.scrollWidth"
    browser.open((tmp_path / "page.html").as_uri(), wide=360)
    assert browser.run(width) == 360  # a phone scrolls only down


HEALTHY = curve(1000, 10)
WRONG = {
    "damaged": ([*HEALTHY, {"step": "<b>", "split": "train"}], "1 damaged lines of metrics.jsonl are left out"),
    "not finite": ([*HEALTHY[:-1], HEALTHY[-1] | {"loss": None}], "1 lines of metrics have a loss"),
    "skipped": ([line | {"skipped_steps": 40} for line in HEALTHY], "40 steps were skipped"),
    "plateau": (
        curve(1000, 10, loss=5.9),
        "still on the plateau: the masked-token loss is 5.90, the unigram loss 6.00",
    ),
    "gradient": ([line | {"grad_norm": 1.3 ** (line["step"] / 40)} for line in HEALTHY], "the gradient norm grows"),
    "repeats": (
        [line | ({"mlm_loss": 3 + line["step"] / 500} if line["split"] == "heldout" else {}) for line in HEALTHY],
        "the held-out masked-token loss rose from 3.20 to 5.00",
    ),
    "worse than the initial weights": (
        [
            {"step": 0, "split": "heldout", "mlm_loss": 2.5, "seq_len": 128},
            *(line | ({"mlm_loss": 2.7, "seq_len": 128} if line["split"] == "heldout" else {}) for line in HEALTHY),
        ],
        "the held-out masked-token loss rose from 2.50 of the initial weights to 2.70: try a lower learning rate",
    ),
    "plateau, rarity": (
        [
            {name: x for name, x in line.items() if line["split"] == "heldout" or name != "unigram_loss"}
            | ({"unigram_loss": 6.0} if line["split"] == "heldout" else {})
            for line in curve(1000, 10, loss=5.9)
        ],
        "still on the plateau: the masked-token loss is 5.90, the unigram loss 6.00",
    ),
    "repeats, left to right": (
        [
            line | ({"next_token_loss": 3 + line["step"] / 500} if line["split"] == "heldout" else {})
            for line in HEALTHY
        ],
        "the held-out next token loss rose from 3.20 to 5.00",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_each_fault_of_a_run_gives_one_warning(name: str, tmp_path: pathlib.Path) -> None:
    lines, says = WRONG[name]
    write_run(tmp_path / "run", lines, train=STEPS)
    found = summarize_run(read_runs([tmp_path / "run"])[0])
    assert len(found.warnings) == 1
    assert says in found.warnings[0]
    assert found.sentences[2].startswith("Something looks wrong")


def test_a_run_that_ends_with_next_tokens_is_described_by_its_last_evaluation(tmp_path: pathlib.Path) -> None:
    phases = [{"seq_len": 64, "fraction": 0.5}, {"seq_len": 64, "fraction": 0.5, "objective": "left_to_right"}]
    begin = [line for line in HEALTHY if line["step"] <= 500]
    last = {"step": 1000, "split": "heldout", "next_token_loss": 4.25, "next_token_accuracy": 0.31, "unigram_loss": 6.0}
    write_run(tmp_path / "run", [*begin, last], train=STEPS | {"phases": phases})
    run = read_runs([tmp_path / "run"])[0]
    found = summarize_run(run)
    assert "the last phase is left_to_right" in found.warnings[0]
    assert "Of the held-out next tokens, it predicts 31.0% right." in found.sentences[2]
    assert "The held-out next token loss is 4.250 nats, 1.75 nats below the unigram loss of 6.00" in found.sentences[2]
    assert "masked" not in found.sentences[2]
    tiles = {tile.name: tile for tile in run_tiles(run, compute_run_cost(run, AssumedPower(None)))}
    assert tiles["held-out loss"][1:] == ("4.250 nats", "1.75 below the unigram loss, 6.00")
    assert tiles["held-out accuracy"][1:] == ("31.0%", "of the next tokens")


def test_the_sentence_about_a_healthy_run_names_only_checks_with_data(tmp_path: pathlib.Path) -> None:
    """A run without held-out documents, and a run of a few steps."""
    write_run(tmp_path / "run", HEALTHY, train=STEPS)
    write_run(tmp_path / "training only", [line for line in HEALTHY if line["split"] == "train"], train=STEPS)
    write_run(tmp_path / "short", [line for line in HEALTHY if line["split"] == "train"][:9], train=STEPS)
    finite, norm = "losses and gradients are finite", "the gradient norm ends below 10 times its usual value"
    checked = [
        summarize_run(run).checked
        for run in read_runs([tmp_path / "run", tmp_path / "training only", tmp_path / "short"])
    ]
    assert checked == [
        f"{finite}, the held-out masked-token loss does not rise and {norm}",
        f"{finite} and {norm}",
        finite,
    ]


def test_a_warning_about_the_best_model_is_given_once(tmp_path: pathlib.Path) -> None:
    made = finetune_config()
    made.init_from, made.task.name, made.task.data = str(tmp_path / "start"), "qnli", str(tmp_path)
    run = {"config": to_json(resolve(FinetuneConfig, made)), "fingerprint": {"task": "f00", "tokenizer": "beef"}}
    (tmp_path / "run.json").write_text(json.dumps(run))
    for name in ("lr0.001_seed0", "lr0.001_seed1"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        line = {"step": 1, "split": "train", "loss": 1.0}
        (tmp_path / "runs" / name / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    row = {"precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 9, "predicted": 0}
    labels = {"labels": [row | {"label": "a/b, <x>"}], "calibration": {"ece": 0.0, "bins": []}}
    (tmp_path / "labels.json").write_text(json.dumps({"dev": labels}))
    found = summarize_run(read_runs([tmp_path])[0])
    assert found.warnings == ("the best model finds no example of the labels 'a/b, <x>' in the dev set",)


def test_a_run_has_read_the_lengths_of_the_phases_that_have_begun(tmp_path: pathlib.Path) -> None:
    phases = [{"seq_len": length, "fraction": fraction} for length, fraction in ((64, 0.2), (32, 0.8), (512, 0.0))]
    for steps, lengths in ((150, "64"), (900, "64, then 32"), (1000, "64, then 32")):
        write_run(
            tmp_path / f"{steps}", [line for line in HEALTHY if line["step"] <= steps], train=STEPS | {"phases": phases}
        )
        (run,) = read_runs([tmp_path / f"{steps}"])
        assert summarize_run(run).sentences[1].endswith(f"in sequences of {lengths}.")


def test_three_sentences_of_a_healthy_run(tmp_path: pathlib.Path) -> None:
    write_run(tmp_path / "run", HEALTHY[: len(HEALTHY) // 2], train=STEPS | {"batch_size": 32})
    found = summarize_run(read_runs([tmp_path / "run"])[0])
    last = [line for line in HEALTHY[: len(HEALTHY) // 2] if line["split"] == "heldout"][-1]
    below = 6.0 - last["mlm_loss"]
    assert not found.warnings
    what, how_far, health = found.sentences
    assert what.startswith("An encoder of the family bert with 12 layers of width 768")
    assert what.endswith("was pretrained by masked tokens and next sentence on nowhere, from random weights.")
    tokens = f"{500 * 32 * 128:,} tokens including padding, in sequences of 128"
    assert how_far == f"It has done 50% of its 1,000 steps: {tokens}."
    assert f"held-out masked-token loss is {last['mlm_loss']:.3f} nats" in health
    assert f"{abs(below):.2f} nats {'below' if below > 0 else 'above'} the unigram loss of 6.00" in health


def test_notes_below_the_curves_explain_masking_rates_and_muon_rates(tmp_path: pathlib.Path) -> None:
    """Masking rates that differ from the evaluation's, and the rate of Muon's matrices; nothing where neither is so."""
    falling = {"seq_len": 64, "mask_probability": 0.4, "mask_probability_end": 0.15}
    muon = {"name": "muon", "peak_learning_rate": 2e-3, "muon_learning_rate": 0.02}
    write_run(tmp_path / "muon", HEALTHY, train=STEPS | {"phases": [falling]}, optimizer=muon)
    text = Page(report(tmp_path / "muon")).text
    assert "Training asks for 40% to 15% of the tokens, the evaluation always for 15%." in text
    assert "the rate of Muon's matrices is 10 times as high." in text
    write_run(tmp_path / "run", HEALTHY, train=STEPS)
    text = Page(report(tmp_path / "run")).text
    assert "Training asks for" not in text
    assert "Muon" not in text.partition("Settings")[0]


def test_a_page_without_corpus_and_checkpoint_says_so(tmp_path: pathlib.Path) -> None:
    write_run(tmp_path / "run", HEALTHY, train=STEPS)
    text = Page(report(tmp_path / "run")).text
    assert "The corpus is not shown: not found" in text
    assert "No sequences: not found" in text
    assert "No commands: " in text  # without a tokenizer
    assert "Energy is not estimated, as the machine is not recorded" in text


def write_events(place: pathlib.Path, name: str, first_step: int, times: list[float], joules: float = 0.0) -> None:
    """A TensorBoard file by hand: the start of a session at times[0], then a summary at each later time.

    The one at times[1] has `joules`, where there are any.
    """
    place.mkdir(exist_ok=True)
    content = b""
    for number, time in enumerate(times):
        event = b"\x09" + struct.pack("<d", time) + b"\x10" + bytes([first_step + number])
        event += b"\x3a\x02\x08\x01" if number == 0 else b""  # session_log { status: START }
        if number == 1 and joules:  # summary { value { tag, simple_value } }
            value = b"\x0a\x13train/energy_joules\x15" + struct.pack("<f", joules)
            value = b"\x0a" + bytes([len(value)]) + value
            event += b"\x2a" + bytes([len(value)]) + value
        content += struct.pack("<QI", len(event), 0) + event + struct.pack("<I", 0)
    (place / name).write_bytes(content + b"\x0b\x00\x00half")


def test_time_and_energy_of_a_run_that_was_started_twice(tmp_path: pathlib.Path) -> None:
    """Two starts of 1,800 s on two GPUs of 360 W are 0.7 kWh; the second start is marked in the curves."""
    gpu = {"devices": 2, "device_kind": "NVIDIA H200", "processes": 1, "cores": 16}
    write_run(tmp_path / "run", curve(100, 2), gpu, train={"steps": 100})
    write_events(tmp_path / "run" / "tensorboard", "events.1", 1, [1000.0, 1600.0, 2800.0])
    write_events(tmp_path / "run" / "tensorboard", "events.2", 51, [9000.0, 10800.0])
    page = Page(report(tmp_path / "run"))
    assert "wall-clock time1.0 hours" in page.text
    assert "energy, estimated1.4 kWh" in page.text
    assert "1400 W, the figure of NVIDIA H200 data sheet" in page.text
    assert "restarted after step 50" in page.text
    assert "energy, estimated0.1 kWh" in Page(report(tmp_path / "run", watts=100.0)).text


def test_measured_energy_adds_up_over_starts_and_the_rest_is_estimated(tmp_path: pathlib.Path) -> None:
    """0.5 kWh and 0.25 kWh are measured for 600 and 1,800 s; the other 1,200 s at 300 W are 0.1 kWh."""
    machine = {"devices": 1, "device_kind": "cpu", "processes": 1, "cores": 25, "energy": "RAPL, 2 CPU packages"}
    write_run(tmp_path / "run", curve(100, 2), machine, train={"steps": 100})
    write_events(tmp_path / "run" / "tensorboard", "events.1", 1, [1000.0, 1600.0, 2800.0], 0.5 * 3.6e6)
    write_events(tmp_path / "run" / "tensorboard", "events.2", 51, [9000.0, 10800.0], 0.25 * 3.6e6)
    text = Page(report_page([tmp_path / "run"], Console(io.StringIO()), AssumedPower(grams_per_kwh=200.0))).text
    assert "energy, measured0.75 kWh" in text
    assert "measured for 40:00 of that time (RAPL, 2 CPU packages)" in text
    assert "energy, estimated0.1 kWh" in text
    assert "For the other 20:00: Energy is an estimate: that time at 300 W" in text
    assert "CO2 at 200 g per kWh0.17 kg" in text
    assert "version of energy" not in text


def test_energy_that_was_not_measured_says_why(tmp_path: pathlib.Path) -> None:
    machine = {"devices": 1, "device_kind": "cpu", "processes": 1, "cores": 2, "energy": "no counter there"}
    write_run(tmp_path / "run", curve(100, 2), machine, train={"steps": 100})
    write_events(tmp_path / "run" / "tensorboard", "events.1", 1, [1000.0, 1600.0])
    text = Page(report(tmp_path / "run")).text
    assert "energy, estimated4 Wh" in text
    assert "It was not measured: no counter there." in text
    assert "measured for" not in text


def test_several_runs_share_their_charts(tmp_path: pathlib.Path) -> None:
    for name, loss in (("first", 3.0), ("second", 2.0)):
        write_run(tmp_path / name, curve(1000, 10, loss=loss), train=STEPS)
    text = report(tmp_path / "first", tmp_path / "second")
    page = Page(text)
    assert page.text.index("2 runs: first, second") < page.text.index("Each run")
    assert len(re.findall("<figure>", text)) > 4
    (legend,) = re.findall('<ul class="legend">.*?</ul>', text)
    assert re.findall("</svg>(.*?)</li>", legend) == ["first", "second"]
    assert "not comparable" not in page.text
    assert "masked-token loss (nats), held out: first from" in text
    assert page.text.count("Train it again") == 2


def test_runs_of_different_vocabularies_or_corpora_have_a_warning(tmp_path: pathlib.Path) -> None:
    for name, changes in {"a": {}, "b": {"tokenizer": "f00"}, "c": {"corpus": "bad"}}.items():
        write_run(tmp_path / name, HEALTHY, train=STEPS)
        values = json.loads((tmp_path / name / "run.json").read_text())
        values["fingerprint"] |= changes
        (tmp_path / name / "run.json").write_text(json.dumps(values))
    assert comparison_warnings(read_runs([tmp_path / "a"])) == []
    (of_words,) = comparison_warnings(read_runs([tmp_path / "a", tmp_path / "b"]))
    assert of_words.startswith("a / b have different vocabularies.")
    both = comparison_warnings(read_runs([tmp_path / name for name in "abc"]))
    assert [warning.partition(".")[0] for warning in both] == [
        "a, c / b have different vocabularies",
        "a, b / c have different corpora",
    ]
    text = Page(report(*(tmp_path / name for name in "abc"))).text
    assert text.index("not comparable") < text.index(both[0]) < text.index("masked-token loss")


def test_tiles_come_first_and_have_references(tmp_path: pathlib.Path) -> None:
    """1,000 steps of 32 x 128 tokens; 1,800 s at 360 W are 0.18 kWh, and 36 g of CO2 at 200 g per kWh."""
    gpu = {"devices": 2, "device_kind": "NVIDIA B200", "processes": 1, "cores": 16}
    write_run(tmp_path / "run", HEALTHY, gpu, train=STEPS | {"batch_size": 32})
    write_events(tmp_path / "run" / "tensorboard", "events.1", 1, [1000.0, 2800.0])
    text = report_page([tmp_path / "run"], Console(io.StringIO()), AssumedPower(360.0, 200.0))
    tiles = re.findall('<dt>(.*?)</dt><dd>(.*?)</dd><dd class="note">(.*?)</dd>', text)
    assert tiles == [
        ("held-out loss", "3.000 nats", "3.00 below the unigram loss, 6.00"),
        ("held-out accuracy", "40.0%", "of the tokens to predict"),
        ("tokens", "4.1 million", "padding included; all 1,000 steps"),
        ("time", "30.0 minutes", "5,000 tokens per second"),
        ("cost", "36 g CO2", "0.18 kWh, estimated"),
    ]
    page = Page(text).text
    assert (
        page.index("looks healthy") < page.index("Losses and gradients are finite") < page.index("The run in sentences")
    )
    assert "memory2 GB" in page  # of 2,000,001,000 bytes


@pytest.mark.parametrize(("kind", "is_shown"), [("cpu", False), ("NVIDIA H200", True), ("unheard of", False)])
def test_utilization_needs_a_published_peak(kind: str, is_shown: bool, tmp_path: pathlib.Path) -> None:
    """The demo's peak was measured beside other work, and its utilization was 173 %."""
    lines = curve(1000, 10, model_flops_utilization=1.73)
    write_run(tmp_path / "run", lines, {"devices": 1, "device_kind": kind, "cores": 2}, train=STEPS)
    text = Page(report(tmp_path / "run")).text
    assert ("173.0%" in text) == is_shown
    assert ("FLOPs utilization is left out: this device has no published peak" in text) != is_shown


def test_axes_of_tokens_and_time(tmp_path: pathlib.Path) -> None:
    """100 steps of 8 x 64 tokens at 512 tokens/s are 100 s; 100 steps of 4 x 512 at 1,024 tokens/s are 200 s."""
    phases = [{"fraction": 0.5, "seq_len": 64, "batch_size": 8}, {"fraction": 0.5, "seq_len": 512, "batch_size": 4}]
    lines = curve(200, 10)
    for line in lines:
        if line["split"] == "train":
            line["tokens_per_second"] = 512.0 if line["step"] <= 100 else 1024.0
    write_run(tmp_path / "run", lines, train={"steps": 200, "phases": phases})
    (run,) = read_runs([tmp_path / "run"])
    axes = horizontal_axes(run.trainings, [run.pretraining])
    assert [axis.title for axis in axes.values()] == ["step", "tokens", "minutes"]
    steps = [0, 50, 100, 150, 200]
    assert [axes["tokens"].positions[0](step) for step in steps] == [0, 25_600, 51_200, 153_600, 256_000]
    minutes = [axes["time"].positions[0](step) for step in steps]
    assert minutes == pytest.approx([0, 50 / 60, 100 / 60, 200 / 60, 300 / 60])
    charts = training_charts(run.trainings[0], run.pretraining.phases, axes["tokens"])
    assert [x for x, _ in charts["mlm_loss"].curves[1].points] == [51_200.0, 256_000.0]
    assert [phase[:2] for phase in charts["mlm_loss"].marks.phases] == [(0, 51_200), (51_200, 256_000)]
    assert list(horizontal_axes(run.trainings, [None])) == ["steps"]  # a fine-tuning


def test_a_grid_of_fine_tuning_shows_each_training(tmp_path: pathlib.Path) -> None:
    from bert_jax.config import FinetuneConfig, finetune_config, resolve, to_json

    made = finetune_config()
    made.init_from, made.task.name, made.task.num_seeds = "my-bert", "mrpc", 2
    (tmp_path / "grid").mkdir()
    config = resolve(FinetuneConfig, made)
    (tmp_path / "grid" / "run.json").write_text(
        json.dumps({"config": to_json(config), "fingerprint": {"task": "f00", "tokenizer": "beef"}})
    )
    runs = []
    for seed, score in ((0, 0.8), (1, 0.9)):
        place = tmp_path / "grid" / "runs" / f"lr2e-05_seed{seed}"
        place.mkdir(parents=True)
        lines = [{"step": 10, "split": "train", "loss": 0.5, "task_loss": 0.5, "grad_norm": 1.0}]
        lines += [{"step": 10, "split": "heldout", "f1": score - 0.1, "seq_len": 64}]
        lines += [{"step": 20, "split": "heldout", "f1": score, "seq_len": 64}]
        (place / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        runs.append({"learning_rate": 2e-5, "seed": seed, "run": place.name, "step": 20, "scores": {"f1": score}})
    mean = {"2e-05": {"f1": {"mean": 0.85, "standard_deviation": 0.0707}}}
    results = {"task": "mrpc", "metric": "f1", "best": runs[1], "mean": mean, "runs": runs}
    (tmp_path / "grid" / "results.json").write_text(json.dumps(results))
    text = report(tmp_path / "grid")
    page = Page(text)
    assert "The task mrpc was fine-tuned from the weights of my-bert." in page.text
    assert "the best training scores f1 0.9000; f1 over the seeds 0.8500 ± 0.0707" in page.text
    assert "f1, held out: lr2e-05_seed0 from 0.7 at step 10 to 0.8 at step 20" in text
    assert "bert-jax finetune --config recipe.py" in page.text
    made.task.random_weights, runs[1]["scores"]["threshold"] = True, 0.4
    mean["2e-05"]["threshold"] = {"mean": 0.4, "standard_deviation": 0.0}
    recorded = {"config": to_json(resolve(FinetuneConfig, made)), "fingerprint": {"tokenizer": "beef"}}
    (tmp_path / "grid" / "run.json").write_text(json.dumps(recorded))
    (tmp_path / "grid" / "results.json").write_text(json.dumps(results))
    provenance = provenance_of(tmp_path / "grid", None)
    assert "Fine-tuned for mrpc from random weights of the architecture of my-bert, " in provenance.origin
    assert provenance.task_scores == {"f1": 0.9}
    (tmp_path / "grid" / "results.json").unlink()
    page = Page(report(tmp_path / "grid"))
    assert "the last evaluation of the training lr2e-05_seed1 scores f1 0.9000." in page.text


def test_refusals(tmp_path: pathlib.Path) -> None:
    write_run(tmp_path / "run", HEALTHY, train=STEPS)
    write_run(tmp_path / "new", [], train=STEPS)
    (tmp_path / "damaged").mkdir()
    shutil.copy(tmp_path / "run" / "run.json", tmp_path / "damaged")
    (tmp_path / "damaged" / "metrics.jsonl").write_text("{no JSON}\n")
    for places, says in {
        ("absent",): "no run here",
        ("new",): "no metrics yet",
        ("damaged",): "no metrics yet",
        ("run", "run"): "given twice",
        ("run", "new/../run"): "given twice",
    }.items():
        with pytest.raises(UserError, match=says):
            report(*(tmp_path / place for place in places))
    with pytest.raises(UserError, match="--watts -1: give a number above 0"):
        report(tmp_path / "run", watts=-1.0)


def test_a_million_steps_are_a_small_file(tmp_path: pathlib.Path) -> None:
    """10,000 lines of training with noise, and 1,000 evaluations; the highest and the lowest value are drawn."""
    rng = np.random.default_rng(0)
    lines = curve(1_000_000, 100)
    for line in lines:
        line["mlm_loss"] += float(rng.normal(0, 0.1))
    lines[4_321]["mlm_loss"], lines[7_654]["mlm_loss"] = 20.0, 0.5
    write_run(tmp_path / "run", lines, {"device_kind": "NVIDIA H200", "devices": 1}, train={"steps": 1_000_000})
    text = report(tmp_path / "run")
    assert len(text.encode()) < 3_000_000
    assert "least 0.5" in text
    for title in ("tokens per second", "model FLOPs utilization", "time spent waiting for input", "memory"):
        assert f"{title}: training from" in text
    heights = drawn_heights(text)
    # The axis runs from 0 to 20, over 234 units that end 26 above the bottom of 280.
    assert min(heights) == pytest.approx(254 - 234 * 20 / 20, abs=0.1)
    assert max(heights) == pytest.approx(254 - 234 * 0.5 / 20, abs=0.1)


def drawn_heights(text: str) -> list[float]:
    """The vertical coordinates of the first line of the first chart."""
    path = next(one["d"] for one in Page(text).paths if one["class"] == "line line0 dash0 thin")
    return [float(y) for _, y in re.findall(r"[ML]([\d.]+) ([\d.]+)", path)]


def test_a_value_that_is_not_finite_breaks_the_line(tmp_path: pathlib.Path) -> None:
    lines = curve(100, 10)
    lines[4] |= {"mlm_loss": None}
    lines[6] |= {"mlm_loss": None}
    write_run(tmp_path / "run", lines, train={"steps": 100})
    paths = Page(report(tmp_path / "run")).paths
    assert next(one["d"] for one in paths if one["class"] == "line line0 dash0 thin").count("M") == 3
    legend, *drawn = (one["d"] for one in paths if one["class"] == "broken")
    assert legend.count("M") == 1
    assert drawn[0].count("M") in (1, 2)


def test_predictions_are_at_their_tokens(hostile) -> None:
    """A model that is certain of the right token everywhere but at one place."""
    run = read_runs([hostile])[0]
    corpus = find_run_corpus(run.pretraining.data.corpus, run.fingerprint["corpus"])
    assert not isinstance(corpus, str), corpus
    batch = predictions.heldout_batch(run.pretraining, run.seed, run.trainings[0].last_step, corpus, 2)
    labels = batch["masked_labels"]
    certain = np.eye(360, dtype=np.float32)[labels]
    certain[1, 2] = np.eye(360)[(labels[1, 2] + 1) % 360]
    rows = predictions.predictions_by_sequence(batch, list(certain))
    wrong = [(row, at) for row, found in enumerate(rows) for at, each in enumerate(found) if not each.is_right]
    order = np.argsort(batch["masked_positions"][1][batch["masked_weights"][1] > 0])
    assert wrong == [(1, order.tolist().index(2))]
    tokenizer = load_tokenizer(corpus.tokenizer_directory)
    examples = sequence_examples(batch, 1, tokenizer)
    text = predictions.sequence_html(0, examples, rows[1], ("", ""), tokenizer)
    assert text.count('class="miss"') == 1
    assert text.count('class="hit"') == len(rows[1]) - 1
