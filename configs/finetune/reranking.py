"""A cross-encoder, which sorts the documents that a search found: it reads the query and a document together.

    bert-jax mine --bm25 --pairs pairs.jsonl --corpus corpus.jsonl --output mined.jsonl --number 7
    bert-jax finetune --config=reranking --workdir runs/reranker --config.init_from=my-bert/ \\
        --config.task.train=mined.jsonl --config.task.dev_fraction=0.05
    bert-jax score --model my-vectors/ --retrieval collection/ --rerank runs/reranker

A line of mined.jsonl is {"text": ..., "text_pair": ..., "negative": [...]}, with equally many negatives in all lines.
The loss is the cross entropy of text_pair among these texts. sentence-transformers opens the result as a CrossEncoder.
Hardware and time: some minutes on 2 CPU cores for a thousand lines and a small model.
Score: not measured.
"""

import ml_collections

from bert_jax.config.recipes import finetuning


def get_config() -> ml_collections.ConfigDict:
    """Return the recipe."""
    config = finetuning(epochs=1, batch_size=16, learning_rate=2e-5)
    config.task.update(name="custom", kind="reranking", max_seq_len=256)
    return config
