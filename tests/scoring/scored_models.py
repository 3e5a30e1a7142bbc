"""Small models with published tokenizers and the same weights everywhere, and the sentences that are scored with them.

`python -m tests.scoring.scored_models` wrote tests/samples/minicons/scores.json. It needs `pip install minicons`,
which `make test` does not install.
"""

import contextlib
import importlib.metadata
import json
import lzma
import pathlib
import sys
import tempfile
import zlib

import numpy as np
import torch
import transformers

SAMPLES = pathlib.Path(__file__).resolve().parents[1] / "samples"
VOCABULARIES = {"Bert": "bert-base-uncased", "Roberta": "roberta-base", "Albert": "albert-base"}
METRICS = ("original", "within_word_l2r")
SENTENCES = (
    "The cats on the mat are unbelievably photogenic.",
    "Who isn't Mrs. Hutchinson's great-granddaughter?",
    "No.",
    "Carla couldn't discombobulate herself, naïve as she was!",
    "the keys to the cabinet is lost .",
)


def save(directory, name, task="ForMaskedLM"):
    """A model with the tokenizer of `VOCABULARIES[name]` in a directory; both are returned."""
    for file in (SAMPLES / "vocab" / VOCABULARIES[name]).glob("*.xz"):
        (directory / file.stem).write_bytes(lzma.decompress(file.read_bytes()))
    (directory / "config.json").write_text(json.dumps({"model_type": name.lower()}))
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    positions = 64 + (tokenizer.pad_token_id + 1 if name == "Roberta" else 0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    own = {"embedding_size": 8} if name == "Albert" else {}
    config = getattr(transformers, f"{name}Config")(
        vocab_size=len(tokenizer),
        max_position_embeddings=positions,
        pad_token_id=tokenizer.pad_token_id,
        **sizes,
        **own,
    )
    model = getattr(transformers, f"{name}{task}")(config).eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            drawn = np.random.RandomState(zlib.crc32(key.encode())).standard_normal(tuple(parameter.shape))
            centre = 1.0 if key.lower().endswith("norm.weight") else 0.0
            parameter.copy_(torch.from_numpy(centre + 0.3 * drawn))
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return model, tokenizer


def main():
    from minicons import scorer

    found = {package: importlib.metadata.version(package) for package in ("minicons", "transformers", "torch")}
    found["sentences"] = SENTENCES
    for name in VOCABULARIES:
        with tempfile.TemporaryDirectory() as place, contextlib.redirect_stdout(sys.stderr):
            model, tokenizer = save(pathlib.Path(place), name)
            theirs = scorer.MaskedLMScorer(model, "cpu", tokenizer)
            encoded = tokenizer(list(SENTENCES), padding=True)  # its own call is of transformers 4
            found[name] = {
                metric: theirs.sequence_score(encoded, reduction=lambda x: x.sum().item(), PLL_metric=metric)
                for metric in METRICS
            }
    (SAMPLES / "minicons").mkdir(exist_ok=True)
    (SAMPLES / "minicons" / "scores.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
