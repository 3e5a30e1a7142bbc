"""evaluate, plot, report, export, compress, verify, vocabulary; fill-mask, attention, predict, embed, score, bias."""

import argparse
import functools
import json
import pathlib
import sys
import time

from bert_jax.cli.options.command import FOLLOW_PORT
from bert_jax.cli.verbs.outputs import new_output, open_console
from bert_jax.errors import UserError, shown


def evaluate(args: argparse.Namespace) -> None:
    """Print the held-out metrics of a run."""
    from bert_jax.cli.results_text import evaluation_table
    from bert_jax.runs.evaluate import evaluate as run
    from bert_jax.training.saving.mirror import fetched

    with open_console() as console:
        other = pathlib.Path(args.corpus) if args.corpus else None
        metrics = run(fetched(args.workdir), args.step, console, other)
    print(json.dumps(metrics) if args.json else evaluation_table(metrics, args.corpus))


def plot(args: argparse.Namespace) -> None:
    """Draw learning curves."""
    from bert_jax.reports.plots import plot_run as draw
    from bert_jax.training.saving.mirror import fetched

    with open_console() as console:
        draw(fetched(args.workdir), pathlib.Path(args.output), console.say)
    print(args.output)


def report(args: argparse.Namespace) -> None:
    """Write a run, or several, as a page, or serve it."""
    from bert_jax.reports.run_page.write import serve_report, write_report

    if args.follow:
        serve_report(args.workdir, FOLLOW_PORT if args.port is None else args.port, args.watts, args.grams_per_kwh)
        return
    if args.port is not None:
        raise UserError("--port: only with --follow")
    print(write_report(args.workdir, args.output, args.watts, args.grams_per_kwh))


def export(args: argparse.Namespace) -> None:
    """Write a model for other programs."""
    from bert_jax.runs.export import export as run
    from bert_jax.training.saving.mirror import fetched, uploaded

    with open_console() as console, console.working("exporting"):
        for_card = args.license, args.base_model, pathlib.Path(args.bias) if args.bias else None
        with uploaded(args.output) as output:
            place = fetched(args.workdir)
            run(place, args.step, output, args.format, console, args.head, args.part, *for_card)


def compress(args: argparse.Namespace) -> None:
    """Write a smaller model; print what it saves and costs."""
    from bert_jax.parallel.compilation import use_compilation_cache
    from bert_jax.runs.compression.compress import compress as run
    from bert_jax.runs.compression.prune import PARTS
    from bert_jax.training.saving.mirror import fetched

    if (args.amount is None) == (args.method in PARTS):
        raise UserError(f"--amount is for the methods {', '.join(PARTS)}, and they need it")
    if args.amount is not None and not 0 < args.amount < 1:
        raise UserError(f"--amount {args.amount:g}: a fraction above 0 and below 1")
    if args.examples < 1:
        raise UserError(f"--examples {args.examples}: at least 1")
    use_compilation_cache()
    place, output, amount = fetched(args.model), pathlib.Path(args.output), args.amount or 0.0
    with open_console() as console, console.working("compressing"):
        lines = run(place, output, args.method, amount, args.data, args.examples, console)
    print("\n".join([*lines, args.output]))


def verify(args: argparse.Namespace) -> int:
    """Print what is damaged; return 1 where anything is."""
    from bert_jax.reports.verify import verify as run
    from bert_jax.training.saving.mirror import fetched

    began = time.monotonic()
    with open_console() as console:
        found = run(fetched(args.path), console.progress)
    for line in map(shown, found.damage):
        print(line)
    read = f"{found.checked}; {found.bytes / 1e6:,.1f} MB read in {time.monotonic() - began:.1f} s"
    print(f"{args.path}: {f'{len(found.damage)} damaged' if found.damage else 'intact'} ({read})")
    return 1 if found.damage else 0


def vocabulary(args: argparse.Namespace) -> None:
    """Write a model with another vocabulary."""
    from bert_jax.runs.vocabulary import change_vocabulary
    from bert_jax.training.saving.mirror import fetched

    with open_console() as console, console.working("changing the vocabulary"):
        change_vocabulary(fetched(args.model), pathlib.Path(args.tokenizer), pathlib.Path(args.output), console)


def fill_mask(args: argparse.Namespace) -> None:
    """Print the most probable tokens at each [MASK]."""
    if (args.text is None) == (args.input is None):
        raise UserError("give a TEXT in quotes or --input FILE, and not both")

    from bert_jax.inference import fill_mask as module
    from bert_jax.inference.inputs import Input, name_of, num_inputs, read_inputs, texts_of
    from bert_jax.inference.load import open_model

    inputs = [Input("the text", 1, {"text": args.text})] if args.input is None else read_inputs(args.input)
    total = None if args.input is None else num_inputs(args.input)
    model = open_model(args.model, module.HEADS)
    with open_console(silent=sys.stdout.isatty()) as console:
        number = 0
        for number, one in enumerate(inputs, 1):
            guesses = module.fill_mask(model, texts_of(one)["text"], args.top_k, one.where)
            if number > 1:
                console.progress("filling", number - 1, total, "texts")
            if args.json:
                print(json.dumps(guesses, ensure_ascii=False))
                continue
            if number > 1:
                print()
            for guess in guesses:
                print(f"{guess['probability']:7.2%}  {guess['token']:<16}  {guess['text']}")
        if not number:
            raise UserError(f"{name_of(args.input)}: no text in it; write one per line")


def attention(args: argparse.Namespace) -> None:
    """Write what each head reads as a page or as a picture."""
    from bert_jax.reports.attention_page.page import write_attention
    from bert_jax.reports.attention_page.picture import is_picture, write_picture

    write = write_picture if is_picture(args.output) else write_attention
    with open_console() as console, console.working("reading and drawing"):
        written = write(
            args.model, args.text, args.pair, args.output, args.words, args.layer, args.head, args.first_token
        )
    print(written)


def predict(args: argparse.Namespace) -> None:
    """Write the predictions of a fine-tuned model as JSON lines."""
    from bert_jax.inference.predict import predict_file as run
    from bert_jax.parallel.compilation import use_compilation_cache

    use_compilation_cache()
    with open_console(silent=args.output == "-") as console:
        counts = run(
            args.model,
            args.input,
            args.output,
            args.batch_size,
            lambda done, total: console.progress("predicting", done, total, "examples"),
        )
    print(", ".join(f"{count:,} {what.replace('_', ' ')}" for what, count in counts.items() if count), file=sys.stderr)


def embed(args: argparse.Namespace) -> None:
    """Write the vectors of texts."""
    from bert_jax.inference.embed import embed as run
    from bert_jax.inference.feature_files import check_projector, write_projector
    from bert_jax.parallel.compilation import use_compilation_cache

    if args.projector:
        check_projector(pathlib.Path(args.projector), args.input, pathlib.Path(args.output))
    use_compilation_cache()
    with open_console() as console:
        made = run(
            args.model,
            args.input,
            pathlib.Path(args.output),
            args.pooling,
            args.layers,
            args.batch_size,
            args.max_seq_len,
            args.truncate,
            normalize=args.normalize,
            prompt_name=args.prompt_name,
            progress=functools.partial(console.progress, unit="texts"),
        )
    if args.projector:
        write_projector(pathlib.Path(args.output), args.input, pathlib.Path(args.projector))
    cut = f", {made.truncated:,} of them cut" if made.truncated else ""
    empty = f", {made.empty:,} of them empty" if made.empty else ""
    print(f"{made.texts:,} texts{cut}{empty}, {made.tokens:,} tokens, {made.width} features -> {args.output}")


def score(args: argparse.Namespace) -> None:
    """Print what a model scores on minimal pairs, text and bias pairs."""
    from bert_jax.cli.results_text import score_table
    from bert_jax.inference.load import open_model
    from bert_jax.inference.scoring.score import BENCHMARKS, heads_for, results_json, run_benchmark, scoring_model
    from bert_jax.parallel.compilation import use_compilation_cache

    wanted = [(name, source) for name in BENCHMARKS for source in getattr(args, name)]
    if not wanted:
        raise UserError(f"nothing to score; give {' or '.join(f'--{name}' for name in BENCHMARKS)}")
    use_compilation_cache()
    results = []
    with open_console() as console, new_output(args.output) as file:
        opened = open_model(args.model, heads_for(name for name, _ in wanted))
        model = scoring_model(opened, args.masking, args.temperature)
        for name, source in wanted:
            progress = functools.partial(console.progress, f"scoring {source}", unit=BENCHMARKS[name].unit)
            results.append(run_benchmark(model, name, source, args.fraction, progress))
        if file:
            json.dump(results_json(args.model, results, sentences=True), file, ensure_ascii=False)
    if args.json:
        print(json.dumps(results_json(args.model, results), ensure_ascii=False))
    else:
        print("\n\n".join(score_table(report) for report, _ in results))


def bias(args: argparse.Namespace) -> None:
    """Print what a model associates, with what each figure says and does not say."""
    from bert_jax.cli.results_text import readings_text, score_table
    from bert_jax.inference.load import open_model, weights_digest
    from bert_jax.inference.scoring.bias.templates import PACKAGED
    from bert_jax.inference.scoring.score import BENCHMARKS, heads_for, run_benchmark, scoring_model
    from bert_jax.parallel.compilation import use_compilation_cache
    from bert_jax.reports.bias_page.page import bias_json, bias_page
    from bert_jax.reports.bias_page.readings import MEANINGS, readings
    from bert_jax.reports.html.markup import check_name

    wanted = [(name, source) for name in MEANINGS for source in getattr(args, name)]
    wanted = wanted or [("templates", source) for source in PACKAGED]
    check_name(args.output or ".html")
    use_compilation_cache()
    reports = []
    with open_console() as console, new_output(args.output) as file:
        model = open_model(args.model, heads_for(name for name, _ in wanted))
        scoring = scoring_model(model)
        for name, source in wanted:
            progress = functools.partial(console.progress, f"scoring {source}", unit=BENCHMARKS[name].unit)
            reports.append(run_benchmark(scoring, name, source, args.fraction, progress)[0])
        if file:
            file.write(bias_page(args.model, reports))
    if args.json:
        print(json.dumps(bias_json(args.model, weights_digest(model.params), reports), ensure_ascii=False))
    else:
        print("\n\n".join(f"{score_table(report)}\n\n{readings_text(readings(report))}" for report in reports))
