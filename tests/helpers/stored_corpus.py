"""A corpus on the disk, written without text: documents given as arguments of `pack_document`."""

import pathlib

from bert_jax.corpus.build.corpus_writer import assemble_corpus_from_shards, pack_document, token_dtype, write_shard


def store(directory, train, heldout=(), vocab_size=30522, documents_per_shard=1 << 30, **summary):
    """The corpus in `directory`; returns its manifest."""
    shards = []
    for split, documents in (("train", list(train)), ("heldout", list(heldout))):
        for block, start in enumerate(range(0, len(documents), documents_per_shard)):
            packed = (pack_document(*document) for document in documents[start : start + documents_per_shard])
            directory.mkdir(exist_ok=True)
            shards.append(write_shard(directory, split, 0, block, packed))
    (directory / "tokenizer").mkdir(parents=True)
    summary["tokenizer"] = {"sha256": "0" * 64, "vocab_size": vocab_size}
    manifest = assemble_corpus_from_shards(directory, directory, shards, token_dtype(vocab_size), summary)
    for path in pathlib.Path(directory).glob("*.rows"):
        path.unlink()
    return manifest
