"""The commands of `odd_places.py`: for each path option of each verb, the words of a command whose path is `ODD`."""

import json
import pathlib
from collections.abc import Callable

from benchmarks.faults.world import World, finetune, make_world, pretrain, start

TEMPLATE = {"template": "The {} is [MASK].", "fillers": ["cab", "cat"], "groups": {"a": ["in"], "b": ["on"]}}
TEXT = "A bad cab did feed a [MASK] in the ibid.\n"

ODD, OUT = pathlib.Path("ODD"), pathlib.Path("OUT")
OUT_0, OUT_1 = ("--output", "OUT"), ("--output", "OUT", "--workers=1")
COMPRESS, CLEAN = ("compress", "--method=heads", "--amount=0.5", "--examples=8"), ("clean", "--workers=1")
OTHER_WORDS = ("vocabulary", "--tokenizer")
SHORT = ("--config.train.steps=2", "--config.evaluate.every=2", "--config.checkpoint.every=2")

INPUTS: dict[str, Callable[[World], list[str]]] = {  # verb and option -> words; ODD is the path
    "tokenizer --input": lambda w: ["tokenizer", "--input", "ODD", "--vocab_size=200", "--output", "OUT"],
    "clean --input": lambda w: ["clean", "--input", "ODD", "--output", "OUT", "--workers=1"],
    "clean --recipe": lambda w: ["clean", "--input", f"{w.texts}", "--recipe", "ODD", "--output", "OUT"],
    "prepare --input": lambda w: ["prepare", "--input", "ODD", "--tokenizer", f"{w.tokenizer}", *OUT_1],
    "prepare --tokenizer": lambda w: ["prepare", "--input", f"{w.texts}", "--tokenizer", "ODD", *OUT_1],
    "prepare --clean": lambda w: [*prepare_to(w, "OUT"), "--clean", "ODD"],
    "clean --evaluation_files": lambda w: [*CLEAN, "--input", f"{w.texts}", *OUT_0, "--evaluation_files", "ODD"],
    "prepare --evaluation_files": lambda w: [*prepare_to(w, "OUT"), "--clean", "web", "--evaluation_files", "ODD"],
    "inspect CORPUS": lambda w: ["inspect", "ODD"],
    "inspect --against": lambda w: ["inspect", f"{w.corpus}", "--against", "ODD"],
    "inspect --config": lambda w: ["inspect", f"{w.corpus}", "--config", "ODD"],
    "config RECIPE": lambda w: ["config", "ODD"],
    "compile --config": lambda w: ["compile", "--config", "ODD"],
    "pretrain --config": lambda w: ["pretrain", "--config", "ODD", "--workdir", "OUT"],
    "pretrain data.corpus": lambda w: pretrain(w._replace(corpus=ODD), OUT, *SHORT),
    "pretrain init_from": lambda w: pretrain(w, OUT, "--config.init_from=ODD", *SHORT),
    "pretrain --corpus": lambda w: ["pretrain", "--config", f"{w.recipe}", "--workdir", "OUT", "--corpus", "ODD"],
    "pretrain --init_from": lambda w: pretrain(w, OUT, "--init_from", "ODD"),
    "evaluate --workdir": lambda w: ["evaluate", "--workdir", "ODD"],
    "evaluate --corpus": lambda w: ["evaluate", "--workdir", f"{w.run}", "--corpus", "ODD"],
    "plot --workdir": lambda w: ["plot", "--workdir", "ODD", "--output", "OUT.png"],
    "report WORKDIR": lambda w: ["report", "ODD", "--output", "OUT.html"],
    "report --follow": lambda w: ["report", "ODD", "--follow", "--port=0"],
    "export --workdir": lambda w: ["export", "--workdir", "ODD", "--output", "OUT"],
    "export --bias": lambda w: ["export", "--workdir", f"{w.run}", "--output", "OUT", "--bias", "ODD"],
    "compress --model": lambda w: [*COMPRESS, "--model", "ODD", "--data", f"{w.corpus}", "--output", "OUT"],
    "compress --data": lambda w: [*COMPRESS, "--model", f"{w.model}", "--data", "ODD", "--output", "OUT"],
    "verify DIR": lambda w: ["verify", "ODD"],
    "vocabulary --model": lambda w: ["vocabulary", "--model", "ODD", "--tokenizer", other_tokenizer(w), *OUT_0],
    "vocabulary --tokenizer": lambda w: ["vocabulary", "--model", f"{w.model}", "--tokenizer", "ODD", *OUT_0],
    "fill-mask --model": lambda w: ["fill-mask", "--model", "ODD", TEXT],
    "fill-mask --input": lambda w: ["fill-mask", "--model", f"{w.model}", "--input", "ODD"],
    "attention --model": lambda w: ["attention", "--model", "ODD", "--output", "OUT.html", TEXT],
    "finetune --config": lambda w: ["finetune", "--config", "ODD", "--workdir", "OUT"],
    "finetune init_from": lambda w: finetune(w._replace(model=ODD), OUT),
    "finetune task.data": lambda w: finetune(w._replace(task=ODD), OUT),
    "finetune --data": lambda w: finetune_on_file(w, "ODD"),
    "finetune --test": lambda w: [*finetune_on_file(w, f"{w.task}/train.jsonl"), "--test", "ODD"],
    "finetune --dev": lambda w: [*finetune_on_file(w, f"{w.task}/train.jsonl"), "--dev", "ODD"],
    "predict --model": lambda w: ["predict", "--model", "ODD", "--input", f"{w.task}/dev.jsonl"],
    "predict --input": lambda w: ["predict", "--model", f"{w.tuned}", "--input", "ODD"],
    "embed --model": lambda w: ["embed", "--model", "ODD", *lines_of(w), "--truncate", "--output", "OUT.npy"],
    "embed --input": lambda w: ["embed", "--model", f"{w.model}", "--input", "ODD", "--output", "OUT.npy"],
    "score --model": lambda w: ["score", "--model", "ODD", "--text", f"{w.task}/dev.jsonl"],
    "score --text": lambda w: ["score", "--model", f"{w.model}", "--text", "ODD"],
    "score --pairs": lambda w: ["score", "--model", f"{w.model}", "--pairs", "ODD"],
    "score --labeled": lambda w: ["score", "--model", f"{w.tuned}", "--labeled", "ODD"],
    "score --retrieval": lambda w: ["score", "--model", f"{w.model}", "--retrieval", "ODD"],
    "score --rerank": lambda w: ["score", "--model", f"{w.model}", "--retrieval", f"{w.task}", "--rerank", "ODD"],
    "bias --model": lambda w: bias_of(w, "ODD"),
    "bias --crows_pairs": lambda w: ["bias", "--model", f"{w.model}", "--crows_pairs", "ODD"],
    "bias --stereoset": lambda w: ["bias", "--model", f"{w.model}", "--stereoset", "ODD"],
    "bias --winobias": lambda w: ["bias", "--model", f"{w.model}", "--winobias", "ODD"],
    "bias --templates": lambda w: ["bias", "--model", f"{w.model}", "--templates", "ODD"],
    "bias --intersentence": lambda w: ["bias", "--model", f"{w.model}", "--intersentence", "ODD"],
    "bias --winogender": lambda w: ["bias", "--model", f"{w.model}", "--winogender", "ODD"],
    "evaluate --recipe": lambda w: ["evaluate", "--workdir", f"{w.run}", "--recipe", "ODD"],
    "report --recipe": lambda w: ["report", f"{w.run}", "--output", "OUT.html", "--recipe", "ODD"],
    "export --recipe": lambda w: ["export", "--workdir", f"{w.run}", "--output", "OUT", "--recipe", "ODD"],
    "compress --recipe": lambda w: [
        *COMPRESS, "--model", f"{w.model}", "--data", f"{w.corpus}", "--output", "OUT", "--recipe", "ODD",
    ],
    "vocabulary --recipe": lambda w: [
        "vocabulary", "--model", f"{w.model}", "--tokenizer", other_tokenizer(w), *OUT_0, "--recipe", "ODD",
    ],
    "fill-mask --recipe": lambda w: ["fill-mask", "--model", f"{w.model}", TEXT, "--recipe", "ODD"],
    "attention --recipe": lambda w: [
        "attention", "--model", f"{w.model}", "--output", "OUT.html", TEXT, "--recipe", "ODD",
    ],
    "predict --recipe": lambda w: [
        "predict", "--model", f"{w.tuned}", "--input", f"{w.task}/dev.jsonl", "--recipe", "ODD",
    ],
    "embed --recipe": lambda w: [
        "embed", "--model", f"{w.model}", *lines_of(w), "--truncate", "--output", "OUT.npy", "--recipe", "ODD",
    ],
    "score --recipe": lambda w: [
        "score", "--model", f"{w.model}", "--text", f"{w.task}/dev.jsonl", "--recipe", "ODD",
    ],
    "bias --recipe": lambda w: [*bias_of(w, f"{w.model}"), "--recipe", "ODD"],
    "mine --recipe": lambda w: mined_from(w, "--model", f"{w.model}", "--recipe", "ODD"),
    "verify --original": lambda w: ["verify", f"{w.model}", "--run", "--original", "ODD"],
    "verify --data": lambda w: ["verify", f"{w.model}", "--run", "--original", f"{w.model}", "--data", "ODD"],
    "pairs --corpus": lambda w: ["pairs", "--corpus", "ODD", "--output", "OUT"],
    "mine --pairs": lambda w: mined_from(w, pairs="ODD"),
    "mine --corpus": lambda w: mined_from(w, corpus="ODD"),
    "mine --model": lambda w: mined_from(w, "--model", "ODD"),
    "mine --cross_encoder": lambda w: [*mined_from(w), "--cross_encoder", "ODD"],
    "export --retrieval": lambda w: ["export", "--workdir", f"{w.run}", "--output", "OUT", "--retrieval", "ODD"],
    "finetune --init_from": lambda w: finetune_on_file(w._replace(model=ODD), f"{w.task}/train.jsonl"),
    "score --crows_pairs": lambda w: ["score", "--model", f"{w.model}", "--crows_pairs", "ODD"],
    "score --stereoset": lambda w: ["score", "--model", f"{w.model}", "--stereoset", "ODD"],
    "score --intersentence": lambda w: ["score", "--model", f"{w.model}", "--intersentence", "ODD"],
    "score --winobias": lambda w: ["score", "--model", f"{w.model}", "--winobias", "ODD"],
    "score --winogender": lambda w: ["score", "--model", f"{w.model}", "--winogender", "ODD"],
    "score --templates": lambda w: ["score", "--model", f"{w.model}", "--templates", "ODD"],
}  # fmt: skip
# Row of `INPUTS` -> the file or directory of its world that is an honest input; a row for each verb that reads files.
HONEST = {
    "tokenizer --input": "texts",
    "clean --input": "texts",
    "prepare --input": "texts",
    "inspect CORPUS": "corpus",
    "config RECIPE": "recipe",
    "compile --config": "recipe",
    "pretrain data.corpus": "corpus",
    "evaluate --workdir": "run",
    "plot --workdir": "run",
    "report WORKDIR": "run",
    "export --workdir": "run",
    "compress --model": "model",
    "verify DIR": "model",
    "vocabulary --model": "model",
    "fill-mask --model": "model",
    "attention --model": "model",
    "pairs --corpus": "corpus",
    "mine --pairs": "pairs.jsonl",
    "finetune task.data": "task",
    "predict --model": "tuned",
    "embed --model": "model",
    "score --model": "model",
    "bias --model": "model",
}
OUTPUTS: dict[str, Callable[[World], list[str]]] = {
    "tokenizer --output": lambda w: ["tokenizer", "--input", f"{w.texts}", "--vocab_size=200", "--output", "ODD"],
    "clean --output": lambda w: ["clean", "--input", f"{w.texts}", "--output", "ODD", "--workers=1"],
    "clean --keep_removed": lambda w: [*CLEAN, "--input", f"{w.texts}", "--output=OUT.jsonl", "--keep_removed", "ODD"],
    "prepare --output": lambda w: prepare_to(w, "ODD"),
    "prepare --append": lambda w: ["prepare", "--append", "--input", f"{w.texts}", "--output", "ODD", "--workers=1"],
    "prepare --keep_removed": lambda w: [*prepare_to(w, "OUT"), "--deduplicate=exact", "--keep_removed", "ODD"],
    "inspect --html": lambda w: ["inspect", f"{w.corpus}", "--html", "ODD"],
    "pretrain --workdir": lambda w: pretrain(w, ODD),
    "plot --output": lambda w: ["plot", "--workdir", f"{w.run}", "--output", "ODD.png"],
    "report --output": lambda w: ["report", f"{w.run}", "--output", "ODD.html"],
    "export --output": lambda w: ["export", "--workdir", f"{w.run}", "--output", "ODD"],
    "compress --output": lambda w: [*COMPRESS, "--model", f"{w.model}", "--data", f"{w.corpus}", "--output", "ODD"],
    "vocabulary --output": lambda w: [*OTHER_WORDS, other_tokenizer(w), "--model", f"{w.model}", "--output", "ODD"],
    "attention --output": lambda w: ["attention", "--model", f"{w.model}", "--output", "ODD.html", TEXT],
    "finetune --workdir": lambda w: finetune(w, ODD),
    "predict --output": lambda w: ["predict", "--model", f"{w.tuned}", *lines_of(w), "--output", "ODD"],
    "embed --output": lambda w: embed_to(w, "ODD.npy"),
    "embed --projector": lambda w: [*embed_to(w, "OUT.npy"), "--projector", "ODD"],
    "score --output": lambda w: ["score", "--model", f"{w.model}", "--text", f"{w.task}/dev.jsonl", "--output", "ODD"],
    "bias --output": lambda w: [*bias_of(w, f"{w.model}"), "--output", "ODD.html"],
    "pairs --output": lambda w: ["pairs", "--corpus", f"{w.corpus}", "--output", "ODD"],
    "mine --output": lambda w: mined_from(w, output="ODD"),
}  # fmt: skip


def prepare_to(world: World, output: str) -> list[str]:
    """Return the arguments of `prepare` for the texts of the world."""
    return [
        "prepare",
        "--input",
        f"{world.texts}",
        "--tokenizer",
        f"{world.tokenizer}",
        "--output",
        output,
        "--workers=1",
    ]


def lines_of(world: World) -> list[str]:
    """Return the option with lines of text."""
    return ["--input", f"{world.task}/dev.jsonl"]


def embed_to(world: World, output: str) -> list[str]:
    """Return the arguments of `embed`."""
    return ["embed", "--model", f"{world.model}", *lines_of(world), "--truncate", "--output", output]


def mined_from(world: World, *ranker: str, pairs: str = "", corpus: str = "", output: str = "OUT.jsonl") -> list[str]:
    """Return the arguments of `mine` for the pair and the documents of the world."""
    words = ["mine", *(ranker or ("--bm25",)), "--ranks", "0:2"]
    words += ["--pairs", pairs or f"{world.directory}/pairs.jsonl"]
    return [*words, "--corpus", corpus or f"{world.directory}/documents.jsonl", "--output", output]


def other_tokenizer(world: World) -> str:
    """Return the path of a tokenizer that no model of the world has."""
    return f"{world.directory}/other_tokenizer"


def bias_of(world: World, model: str) -> list[str]:
    """Return the arguments of `bias`."""
    return ["bias", "--model", model, "--templates", f"{world.directory}/templates.jsonl"]


def make_odd_world(directory: pathlib.Path) -> World:
    """Make the world of benchmarks/faults, a second tokenizer and a file of templates."""
    world = make_world(directory)
    words = ["tokenizer", "--input", f"{world.texts}", "--vocab_size=150", "--output", other_tokenizer(world)]
    if start(words, directory).wait().status:
        raise SystemExit("the tokenizer failed")
    (directory / "templates.jsonl").write_text(json.dumps(TEMPLATE) + "\n")
    (directory / "pairs.jsonl").write_text(json.dumps({"text": "a bad cab", "text_pair": "a cab did feed"}) + "\n")
    documents = [{"text": f"a bad cab did feed {word}"} for word in ("ibid", "bad", "cab")]
    (directory / "documents.jsonl").write_text("".join(json.dumps(document) + "\n" for document in documents))
    return world


def finetune_on_file(world: World, data: str) -> list[str]:
    """Return the arguments of `finetune` for a file of labeled texts."""
    words = ["--text=text", "--label=label", "--config.task.learning_rates=(1e-3,)", "--config.task.num_seeds=1"]
    words += ["--config.task.epochs=1", "--data", data]
    return ["finetune", "--workdir", "OUT", "--init_from", f"{world.model}", *words]
