"""Compare layers of a frozen encoder as features of a BiLSTM tagger (Devlin et al. 2019, table 7).

    python benchmarks/feature_tagging.py --model runs/small --task upos --data DATA --output tagging/

The encoder is not trained. The encoder computes the features of each word once, from the first piece of the word. As in
the paper, a BiLSTM of two layers and a classifier are trained on the features. Each feature is scaled to mean 0 and
standard deviation 1 over the training words, because sums of layers are larger than single layers. Prints a row for
each choice of layers: mean and standard deviation of the dev set's score after the last epoch, and the paper's score on
CoNLL-2003. The tasks are defined in pretraining_gain.py. Every finished training adds a line to `results.jsonl`, so a
stopped command resumes after the last finished training.
"""

import argparse
import json
import pathlib
import platform
from collections.abc import Callable, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from pretraining_gain import SPLITS, TRIALS
from recipe_table import spread
from same_inputs import check_inputs
from table_picture import draw

from bert_jax.checkpoints.load_model import OpenModel, digest_of_config_and_params, open_model, read_weights
from bert_jax.config import ComputeConfig, TaskConfig
from bert_jax.console import Console
from bert_jax.finetuning.task_data import TaskSplit, read_split
from bert_jax.inference.embed import HEADS
from bert_jax.models import make_model
from bert_jax.tasks.batching import collate, doubling_buckets, plan_feature_batches
from bert_jax.tasks.scoring import score_predictions
from bert_jax.tasks.table import resolve_task
from bert_jax.tasks.task import Task

BATCH = 32
# Features from hidden states [layers + 1, words, hidden], and the dev F1 of BERT base in the paper.
LAYERS: dict[str, tuple[Callable[[np.ndarray], np.ndarray], float]] = {
    "embeddings": (lambda states: states[0], 91.0),
    "second to last": (lambda states: states[-2], 95.6),
    "last": (lambda states: states[-1], 94.9),
    "sum of the last four": (lambda states: states[-4:].sum(0), 95.9),  # a weighted sum in the paper
    "concatenation of the last four": (lambda states: np.concatenate(list(states[-4:]), axis=-1), 96.1),
    "sum of all": (lambda states: states[1:].sum(0), 95.5),  # a weighted sum in the paper
}
RANDOM = "last, random weights"  # the same encoder with random weights: the score shows the tagger alone


class Tagger(nn.Module):
    """BiLSTM of two layers and a classifier: float32 `[batch, words, width]` -> `[batch, words, classes]`."""

    width: int
    classes: int

    @nn.compact
    def __call__(self, x: jax.Array, lengths: jax.Array) -> jax.Array:
        """Return the logits."""
        for _ in range(2):
            forward, backward = nn.RNN(nn.OptimizedLSTMCell(self.width)), nn.RNN(nn.OptimizedLSTMCell(self.width))
            layer: Any = nn.Bidirectional(forward, backward)
            x = layer(x, seq_lengths=lengths)
        return nn.Dense(self.classes)(x)


def main() -> None:
    """Train a tagger for every choice of layers with every seed, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a work directory or an export")
    parser.add_argument("--task", default="wnut17", choices=("wnut17", "upos"), help="a task that labels words")
    parser.add_argument(
        "--data", type=pathlib.Path, required=True, help="the whole data sets of tests/samples/README.md"
    )
    parser.add_argument("--output", type=pathlib.Path, required=True, help="for TASK/results.jsonl, table.md and .png")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--width", type=int, default=128, help="of each direction of the BiLSTM; 768 in the paper")
    parser.add_argument("--learning_rate", type=float, default=1e-3)
    args = parser.parse_args()
    output = args.output / args.task
    tagger = {name: getattr(args, name) for name in ("epochs", "width", "learning_rate")}
    weights = read_weights(args.model)
    check_inputs(output, model=digest_of_config_and_params(weights), data=args.data.resolve(), **tagger)
    results = output / "results.jsonl"
    lines = results.read_text(encoding="utf-8").splitlines() if results.is_file() else []
    done = {(line["layers"], line["seed"]): line["score"] for line in map(json.loads, lines)}
    trial = next(row for row in TRIALS if row.name == args.task)
    overrides, _ = SPLITS[args.task](args.data, output / "data")
    values = trial.values | {key: str(value) for key, value in overrides.items()}
    settings = TaskConfig(
        **{key.removeprefix("task."): value for key, value in values.items() if key.startswith("task.")}
    )
    task, model = resolve_task(settings), open_model(args.model, HEADS)
    train, dev = (read_split(task, settings, name, model.tokenizer, Console()) for name in ("train", "dev"))
    for name in (*LAYERS, RANDOM):
        missing = [seed for seed in range(args.seeds) if (name, seed) not in done]
        if not missing:
            continue
        select = LAYERS["last" if name == RANDOM else name][0]
        features = [words_of(model, part, select, random=name == RANDOM) for part in (train, dev)]
        for seed in missing:
            done[name, seed] = trained(features, (train, dev), task, args, seed)[trial.metric]
            with results.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"layers": name, "seed": seed, "score": done[name, seed]}) + "\n")
            print(f"{name}, seed {seed}: {100 * done[name, seed]:.1f} %", flush=True)
    scores = {name: [100 * done[name, seed] for seed in range(args.seeds)] for name in (*LAYERS, RANDOM)}
    table = [
        f"{args.task}, {args.seeds} seeds, {args.epochs} epochs, BiLSTM 2 x {args.width}, JAX {jax.__version__}, "
        f"{platform.machine()}",
        "",
        f"| layers | {trial.metric}, % | published (entity F1 on CoNLL-2003, BERT base; sums are weighted) |",
        "| --- | --- | --- |",
    ]
    for name, values_by_seed in scores.items():
        table.append(f"| {name} | {spread(values_by_seed, 1)} | {LAYERS[name][1] if name in LAYERS else ''} |")
    (output / "table.md").write_text("\n".join(table) + "\n", encoding="utf-8")
    ours = {name: {f"{args.task}: {trial.metric}, %": values_by_seed} for name, values_by_seed in scores.items()}
    draw(ours, {name: {"entity F1, %": published} for name, (_, published) in LAYERS.items()}, output / "table.png")
    print("\n".join(table))


def words_of(
    model: OpenModel, part: TaskSplit, select: Callable[[np.ndarray], np.ndarray], random: bool
) -> list[np.ndarray]:
    """Return the features of the words of each example, float32 `[words, width]`."""
    encoder = make_model(model.config, ComputeConfig(), HEADS)
    params = encoder.init(jax.random.key(0)) if random else {"encoder": model.params["encoder"]}
    compute = jax.jit(lambda params, batch: encoder.apply(params, batch, None)["hidden_states"])
    lengths = np.array([feature.length for feature in part.features])
    vectors: list[dict[int, np.ndarray]] = [{} for _ in part.examples]
    for indices, length, *_ in plan_feature_batches(
        lengths, doubling_buckets(128), BATCH, seed=0, epoch=0, shuffle=False
    ):
        chosen = [part.features[index] for index in indices]
        batch = collate(chosen, length, model.config.num_token_types, model.tokenizer.pad_id, BATCH)
        states = np.asarray(compute(params, {name: batch[name] for name in batch if not name.startswith("token_l")}))
        for row, feature in enumerate(chosen):
            words = feature.alignment["words"]
            at = np.flatnonzero(words >= 0)
            vectors[feature.example].update(zip(words[at].tolist(), select(states[:, row, at]), strict=True))
    return [np.stack([words[index_of_word] for index_of_word in range(len(words))]) for words in vectors]


def trained(
    features: Sequence[list[np.ndarray]],
    parts: tuple[TaskSplit, TaskSplit],
    task: Task,
    args: argparse.Namespace,
    seed: int,
) -> dict[str, float]:
    """Train a tagger and return the scores of the dev set."""
    tagger: Any = Tagger(args.width, len(task.labels))
    words = np.concatenate(features[0])
    inputs, heldout = ([(x - words.mean(0)) / (words.std(0) + 1e-6) for x in part] for part in features)
    labels = [np.array(example["labels"]) for example in parts[0].examples]
    steps = args.epochs * len(batches(inputs, labels, seed, 0, shuffle=True))
    optimizer = optax.adam(optax.linear_schedule(args.learning_rate, 0.0, steps))
    params = tagger.init(jax.random.key(seed), jnp.zeros((1, 8, inputs[0].shape[1])), jnp.array([8]))

    def loss(params: optax.Params, x: jax.Array, lengths: jax.Array, gold: jax.Array) -> jax.Array:
        each = optax.softmax_cross_entropy_with_integer_labels(tagger.apply(params, x, lengths), gold)
        return jnp.sum(each, where=jnp.arange(gold.shape[1]) < lengths[:, None]) / lengths.sum()

    @jax.jit
    def step(
        params: optax.Params, state: optax.OptState, x: jax.Array, lengths: jax.Array, gold: jax.Array
    ) -> tuple[optax.Params, optax.OptState]:
        updates, state = optimizer.update(jax.grad(loss)(params, x, lengths, gold), state)
        return optax.apply_updates(params, updates), state

    state = optimizer.init(params)
    for epoch in range(args.epochs):
        for x, lengths, gold, _ in batches(inputs, labels, seed, epoch, shuffle=True):
            params, state = step(params, state, x, lengths, gold)
    predict = jax.jit(lambda params, x, lengths: tagger.apply(params, x, lengths).argmax(-1))
    tags_by_example: dict[int, list[int]] = {}
    for x, lengths, _, indices in batches(heldout, None, 0, 0, shuffle=False):
        tags = np.asarray(predict(params, x, lengths))
        tags_by_example |= {int(n): tags[row, : lengths[row]].tolist() for row, n in enumerate(indices)}
    values = [tags_by_example[index] for index in range(len(tags_by_example))]
    return dict(score_predictions(task, parts[1].examples, values))


def batches(
    inputs: list[np.ndarray], labels: list[np.ndarray] | None, seed: int, epoch: int, shuffle: bool
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Return features `[BATCH, words, width]`, numbers of words, labels, and the indices of the examples."""
    sizes = np.array([len(x) for x in inputs])
    made = []
    for indices, length, *_ in plan_feature_batches(sizes, doubling_buckets(128), BATCH, seed, epoch, shuffle):
        x = np.zeros((BATCH, length, inputs[0].shape[1]), np.float32)
        gold, lengths = np.zeros((BATCH, length), np.int32), np.zeros(BATCH, np.int32)
        for row, index in enumerate(indices):
            lengths[row] = sizes[index]
            x[row, : sizes[index]] = inputs[index]
            if labels is not None:
                gold[row, : sizes[index]] = labels[index]
        made.append((x, np.maximum(lengths, 1), gold, indices))
    return made


if __name__ == "__main__":
    main()
