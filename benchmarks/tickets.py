"""Train a classifier of tickets with several labels: from a CSV file to a model that transformers opens.

    python benchmarks/tickets.py --init_from MODEL --output tickets/

Writes a CSV as help desks export it: semicolons between columns, newlines and quotes in texts, 2 % of the rows without
a label, 5 % with two labels. Then the program runs `bert-jax finetune` with seven options, and compares the predictions
of `bert-jax predict` and transformers. Prints the seconds of the training, its scores, and the largest difference of a
probability. Without --init_from, the model is a BERT of two layers with random weights, which learns little but shows
the time.
"""

import argparse
import csv
import json
import pathlib
import random
import subprocess
import sys
import time

import torch
import transformers

TOPICS = {
    "hardware": ["printer jams", "screen stays black", "battery is empty", "keyboard is broken"],
    "billing": ["invoice is wrong", "refund is missing", "charged twice", "payment failed"],
    "account": ["password is lost", "login fails", "account is locked", "reset mail is missing"],
    "network": ["wifi is slow", "vpn disconnects", "no internet", "cable is loose"],
}


def main() -> None:
    """Write the tickets, train a classifier, predict, and compare the predictions with transformers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--init_from", type=pathlib.Path, help="model directory (default: a random BERT)")
    parser.add_argument("--output", type=pathlib.Path, required=True, help="directory to create")
    parser.add_argument("--tickets", type=int, default=3_000)
    args = parser.parse_args()
    args.output.mkdir(parents=True)
    source, run, answers = (args.output / name for name in ("tickets.csv", "run", "answers.jsonl"))
    write_tickets(source, args.tickets)
    start = args.init_from or save_random_bert(args.output / "start")
    options = [f"--data={source}", "--text=subject,body", "--label=topic", f"--init_from={start}", f"--workdir={run}"]
    options += ["--label_separator=;", "--skip_unlabeled"]
    begin = time.perf_counter()
    bert_jax("finetune", *options)
    seconds = time.perf_counter() - begin
    bert_jax("predict", f"--model={run}", f"--input={source}", f"--output={answers}", "--copy_input")
    scores = json.loads((run / "results.json").read_text())["best"]["scores"]
    print(f"{len(options)} options, {seconds:.0f} s; " + ", ".join(f"{name} {x:.4f}" for name, x in scores.items()))
    print(f"largest difference from transformers: {largest_difference(run / 'model', answers):.1e}")


def bert_jax(*words: str) -> None:
    """Run a verb; its messages go to the terminal."""
    subprocess.run([sys.executable, "-m", "bert_jax", *words], check=True)


def write_tickets(path: pathlib.Path, count: int) -> None:
    """Write the tickets; every call writes equal tickets."""
    rng = random.Random(0)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=";")
        writer.writerow(["number", "subject", "body", "topic"])
        for ticket in range(count):
            topics = rng.sample([*TOPICS], 2 if rng.random() < 0.05 else 1)
            faults = [rng.choice(TOPICS[topic]) for topic in topics]
            body = f'Hello,\nmy {" and my ".join(faults)}; please "help" by {rng.randint(1, 28)} May.\n\nThank you'
            label = "" if rng.random() < 0.02 else ";".join(topics)
            writer.writerow([ticket, faults[0].capitalize(), body, label])


def save_random_bert(directory: pathlib.Path) -> pathlib.Path:
    """Save a random BERT of two layers with the words of the tickets, and return its directory."""
    words = {word for faults in TOPICS.values() for fault in faults for word in fault.split()}
    words |= {"hello", "my", "and", "please", "help", "reference", "thank", "you", *".,;\"'0123456789"}
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted(words), *(f"##{digit}" for digit in range(10))]
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(tokens), hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=512
    )
    transformers.BertModel(config).save_pretrained(directory)
    transformers.BertTokenizer(vocab={token: n for n, token in enumerate(tokens)}).save_pretrained(directory)
    return directory


def largest_difference(model_directory: pathlib.Path, answers: pathlib.Path) -> float:
    """Return the largest difference between our probabilities and transformers', over the first 200 answers."""
    model = transformers.AutoModelForSequenceClassification.from_pretrained(model_directory).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_directory)
    differences = []
    for line in answers.read_text(encoding="utf-8").splitlines()[:200]:
        answer = json.loads(line)
        texts = answer["input"]["subject"], answer["input"]["body"]
        with torch.no_grad():
            logits = model(**tokenizer(*texts, return_tensors="pt", truncation=True, max_length=128)).logits[0]
        given = torch.tensor([answer["probabilities"][name] for name in model.config.id2label.values()])
        differences.append((torch.sigmoid(logits) - given).abs().max().item())
    return max(differences)


if __name__ == "__main__":
    main()
