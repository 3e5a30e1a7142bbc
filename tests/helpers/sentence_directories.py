"""Files that sentence-transformers adds to a random model directory: of a bi-encoder, or of a CrossEncoder."""

import json
import pathlib
from typing import Any

from tests.helpers.directory_cases import Draft


def add_bi_encoder_files(draft: Draft) -> None:
    """Add the files of a bi-encoder, as the versions 2 to 5 of sentence-transformers wrote them."""
    rng, width = draft.rng, draft.model.config.hidden_size
    modes = {
        f"pooling_mode_{mode}": False for mode in ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")
    }
    modes[rng.choice(("pooling_mode_cls_token", *["pooling_mode_mean_tokens"] * 4, "pooling_mode_max_tokens"))] = True
    if rng.random() < 0.5:
        modes |= {"pooling_mode_weightedmean_tokens": False, "pooling_mode_lasttoken": False, "include_prompt": True}
    kinds = [("Transformer", ""), ("Pooling", "1_Pooling")]
    if rng.random() < 0.4:
        kinds.append(("Normalize", "2_Normalize"))
    files: dict[str, Any] = {
        "modules.json": [
            {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for i, (kind, path) in enumerate(kinds)
        ],
        "sentence_bert_config.json": {"max_seq_length": 48, "do_lower_case": False},
        "1_Pooling/config.json": {"word_embedding_dimension": width, **modes},
        "config_sentence_transformers.json": {
            "__version__": {"sentence_transformers": "2.2.2", "transformers": "4.28.1", "pytorch": "2.0.1"}
        }
        | rng.choice(({}, {"prompts": {}, "default_prompt_name": None, "similarity_fn_name": "cosine"})),
    }

    def write(directory: pathlib.Path) -> None:
        (directory / "1_Pooling").mkdir()
        for name, content in files.items():
            (directory / name).write_text(json.dumps(content, indent=2))

    draft.wrap = write


def add_cross_encoder_files(draft: Draft) -> None:
    """Add what the versions 2 to 6 of sentence-transformers write for a CrossEncoder."""
    activation = draft.rng.choice(("torch.nn.modules.activation.Sigmoid", "torch.nn.modules.linear.Identity"))
    layout = draft.rng.choice((2, 4, 6))
    if layout == 2:
        draft.fields["sbert_ce_default_activation_function"] = activation
    elif layout == 4:
        draft.fields["sentence_transformers"] = {"activation_fn": activation, "version": "4.1.0"}
    else:
        score = {"method": "forward", "method_output_name": "logits"}
        files: dict[str, Any] = {
            "modules.json": [
                {
                    "idx": 0,
                    "name": "0",
                    "path": "",
                    "type": "sentence_transformers.base.modules.transformer.Transformer",
                }
            ],
            "sentence_bert_config.json": {
                "transformer_task": "sequence-classification",
                "modality_config": {"text": score},
                "module_output_name": "scores",
            },
            "config_sentence_transformers.json": {
                "__version__": {"pytorch": "2.13.0", "sentence_transformers": "6.2.0", "transformers": "5.24.0"},
                "activation_fn": activation,
                "default_prompt_name": None,
                "model_type": "CrossEncoder",
                "prompts": {},
            },
        }

        def write(directory: pathlib.Path) -> None:
            for name, content in files.items():
                (directory / name).write_text(json.dumps(content, indent=2))

        draft.wrap = write
