"""Give hostile files of each format to the verbs that read them: are the files refused within limits?

    python benchmarks/hostile_inputs.py

Each trial is a process with 8 GiB of address space and a minute of CPU time. A trial passes if the verb refuses the
file (status 2 and a message), reports how many parts it left out, or finds nothing wrong, because a damaged byte can be
a letter of a text. A trial fails if it ends in a traceback, takes the whole minute, or takes more than MAX_MEMORY in
addition to Python and the libraries. The exit status is 1 if a trial fails. Needs the packages of the tests.
"""

import argparse
import bz2
import collections
import gzip
import io
import json
import lzma
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import struct
import sys
import tarfile
import tempfile
import traceback
import warnings
import zipfile
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pyarrow
import torch
import transformers
import zstandard
from pyarrow import parquet

import bert_jax.corpus.build.prepare
import bert_jax.inference.fill_mask
import bert_jax.reports.corpus.inspect  # noqa: F401  # before the processes fork, else each process would import JAX
from bert_jax.cli.main import main as run_verb
from bert_jax.tokenizer import SPECIAL_TOKENS, save_tokenizer
from bert_jax.tokenizer.tokenizer import wordpiece_tokenizer
from bert_jax.tokenizer.wordpiece import Normalizer

ADDRESS_SPACE, SECONDS = 8 << 30, 60
MAX_MEMORY = 1 << 30  # bytes of resident memory
UNPACKED = 16 << 20  # --max_unpacked_bytes of the trials; small, so that a trial takes seconds
FLIPS = 12  # number of damaged copies of a file
TOKENS = [*SPECIAL_TOKENS, *"abcdefghij", *(f"##{letter}" for letter in "abcdefghij")]
DEEP = b"[" * 100_000 + b"]" * 100_000
LINE = b"a bad cab did feed a big ibid. "

Trial = tuple[str, bytes]  # the name of the harmful file, and its content


class World(NamedTuple):
    """Harmless inputs: texts, a tokenizer and a model."""

    texts: pathlib.Path
    tokenizer: pathlib.Path
    model: pathlib.Path


def main() -> int:
    """Run all trials, and print a table."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    warnings.filterwarnings("ignore", message=r"os\.fork|Sparse invariant")  # JAX has no threads when we fork
    failures = []
    with tempfile.TemporaryDirectory() as directory:
        world = make_world(pathlib.Path(directory))
        print(f"| {' | '.join(('inputs', 'trials', *OUTCOMES, 'highest memory'))} |")
        print("| --- " * (3 + len(OUTCOMES)) + "|")
        for name, (trials, command) in CLASSES.items():
            counts, memory = collections.Counter[str](), 0
            for file, content in trials(random.Random(0), world):
                scratch = pathlib.Path(directory) / "trial"
                scratch.mkdir()
                outcome, peak, messages = attempt(command(scratch, world, file, content))
                counts[outcome] += 1
                memory = max(memory, peak)
                if outcome in FAILURES or peak > MAX_MEMORY:
                    failures.append(f"{name}: {file}: {outcome}, {peak >> 20} MiB\n{messages[-2000:]}")
                shutil.rmtree(scratch)
            cells = (str(counts[outcome]) for outcome in OUTCOMES)
            print(f"| {name} | {counts.total()} | {' | '.join(cells)} | {memory >> 20} MiB |", flush=True)
    print("\n".join(failures))
    return int(bool(failures))


OUTCOMES = ("refused", "left out and counted", "silent", "traceback", "killed")
FAILURES = ("traceback", "killed")


def attempt(argv: list[str]) -> tuple[str, int, str]:
    """Return the outcome of a verb, its peak resident memory in bytes, and its messages."""
    before, _ = _forked(lambda: 0)
    with tempfile.TemporaryFile() as output:
        peak, status = _forked(lambda: _run(argv, output.fileno()))
        output.seek(0)
        messages = output.read().decode(errors="replace")
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        outcome = "killed"
    elif code not in (0, 2) or "Traceback" in messages:
        outcome = "traceback"
    elif code == 2:
        outcome = "refused"
    else:
        outcome = "left out and counted" if re.search("[1-9][0-9,]* rejected", messages) else "silent"
    return outcome, peak - before, messages


def _forked(work: Callable[[], int]) -> tuple[int, int]:
    """Do the work in a forked process; return the peak memory and the exit status of the process."""
    if child := os.fork():
        _, status, usage = os.wait4(child, 0)
        return usage.ru_maxrss << 10, status
    status = 70
    try:
        status = work()
    finally:
        os._exit(status)


def _run(argv: list[str], output: int) -> int:
    """Run a verb whose messages go to a file; return the exit status."""
    os.dup2(output, 1)
    os.dup2(output, 2)
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    signal.alarm(5 * SECONDS)  # the alarm ends a verb that waits
    try:
        return run_verb(argv)
    except BaseException:  # a panic of a Rust library is not an Exception
        traceback.print_exc()
        return 70
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def make_world(directory: pathlib.Path) -> World:
    """Write the harmless inputs."""
    world = World(directory / "texts", directory / "tokenizer", directory / "model")
    world.texts.mkdir()
    for index in range(30):
        (world.texts / f"{index}.txt").write_bytes(LINE * (index + 3))
    transformers.utils.logging.disable_progress_bar()
    save_tokenizer(wordpiece_tokenizer(TOKENS, Normalizer()), world.tokenizer)
    sizes: dict[str, Any] = {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 24,
    }
    config = transformers.BertConfig(vocab_size=len(TOKENS), max_position_embeddings=32, **sizes)
    transformers.BertForMaskedLM(config).save_pretrained(world.model)
    for path in world.tokenizer.iterdir():
        shutil.copy(path, world.model)
    return world


def as_text(scratch: pathlib.Path, world: World, name: str, content: bytes) -> list[str]:
    """Run `prepare` on the harmless texts and the hostile file."""
    (scratch / name).write_bytes(content)
    texts = ["--input", str(world.texts), str(scratch / name), f"--max_unpacked_bytes={UNPACKED}", "--workers=1"]
    return ["prepare", *texts, "--tokenizer", str(world.tokenizer), "--output", str(scratch / "corpus")]


def as_tokenizer(scratch: pathlib.Path, world: World, name: str, content: bytes) -> list[str]:
    """Run `prepare` on the harmless texts, with the hostile file as its tokenizer."""
    (scratch / "tokenizer").mkdir()
    (scratch / "tokenizer" / "tokenizer.json").write_bytes(content)
    texts = ["--input", str(world.texts), "--workers=1"]
    return ["prepare", *texts, "--tokenizer", str(scratch / "tokenizer"), "--output", str(scratch / "corpus")]


def as_model(scratch: pathlib.Path, world: World, name: str, content: bytes) -> list[str]:
    """Run `fill-mask` with the harmless model, in which the hostile file replaces the file of that name."""
    shutil.copytree(world.model, scratch / "model")
    file = name.partition(":")[0]
    if file == "pytorch_model.bin":
        (scratch / "model" / "model.safetensors").unlink()
    (scratch / "model" / file).write_bytes(content)
    return ["fill-mask", "--model", str(scratch / "model"), "a [MASK]"]


def as_lines(scratch: pathlib.Path, world: World, name: str, content: bytes) -> list[str]:
    """Run `fill-mask` with the harmless model on the lines of the hostile file."""
    (scratch / name).write_bytes(content)
    return ["fill-mask", "--model", str(world.model), "--input", str(scratch / name)]


def as_corpus(scratch: pathlib.Path, world: World, name: str, content: bytes) -> list[str]:
    """Run `inspect` on a corpus whose manifest is the hostile file."""
    (scratch / "manifest.json").write_bytes(content)
    return ["inspect", str(scratch)]


def _flipped(rng: random.Random, name: str, content: bytes, last: int = 0) -> Iterator[Trial]:
    """Return copies of a file with one damaged byte each, among the last bytes or anywhere."""
    for number in range(FLIPS):
        offset = rng.randrange(max(0, len(content) - last) if last else 0, len(content))
        changed = content[:offset] + bytes([content[offset] ^ 1 << rng.randrange(8)]) + content[offset + 1 :]
        stem, dot, suffix = name.partition(".")
        yield f"{stem}{dot}{suffix}:{number}" if "/" in name else f"{stem}{number}{dot}{suffix}", changed


def right(rng: random.Random, world: World) -> Iterator[Trial]:
    """Yield a harmless text, for comparison."""
    yield "text.txt", LINE * 99


WRONG_JSON = {
    "deep": DEEP,
    "deep-object": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    "twice": b'{"a": 1, "a": 2}',
    "nan": b'{"a": NaN, "text": "a"}',
    "infinite": b'{"a": 1e999, "text": "a"}',
    "digits": b'{"a": ' + b"9" * 100_000 + b"}",
    "cut": b'{"text": "' + b'\\"' * 500_000,
    "latin": b'{"text": "\xe9"}',
    "surrogate": b'{"text": "\\ud800"}',
    "long": b'{"text": "' + b"a" * (40 << 20) + b'"}',
}


def json_records(rng: random.Random, world: World) -> Iterator[Trial]:
    """Yield hostile JSON lines and JSON lists."""
    for name, text in WRONG_JSON.items():
        yield f"{name}.jsonl", text
    for name in ("deep", "twice", "nan", "cut"):
        yield f"list-{name}.json", b'[{"text": "a"}, ' + WRONG_JSON[name] + b"]"


def _packed(text: bytes) -> Iterator[Trial]:
    yield "bomb.txt.gz", gzip.compress(text, 6)
    yield "bomb.txt.bz2", bz2.compress(text)
    yield "bomb.txt.xz", lzma.compress(text, preset=1)
    yield "bomb.txt.zst", zstandard.ZstdCompressor().compress(text)
    yield "bomb.jsonl.gz", gzip.compress(b'{"text": "' + text.replace(b"\n", b" "))


def _tar(name: str, data: bytes, **values: Any) -> bytes:
    buffer, info = io.BytesIO(), tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in values.items():
        setattr(info, key, value)
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def _zip(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def archives(rng: random.Random, world: World) -> Iterator[Trial]:
    """Yield compressed files and archives that unpack to too much, write outside of their directory, or are damaged."""
    text = (LINE + b"\n") * (4 * UNPACKED // len(LINE))
    yield from _packed(text)
    yield "bomb.tgz", gzip.compress(_tar("a.txt", text))
    yield "bomb.tar", _tar("a.txt.gz", gzip.compress(text))
    yield "bomb.zip", _zip({"a.txt": text})
    yield "members.zip", _zip({f"{index}.txt": text[: len(text) // 20] for index in range(40)})
    yield "nested.zip", _zip({"inner.zip": _zip({"a.txt": text})})
    yield "twice.zip", _zip({"a.txt.gz": gzip.compress(gzip.compress(text))})
    for name in ("../outside.txt", "/etc/outside.txt"):
        yield "place.tar", _tar(name, b"a")
    yield "link.tar", _tar("passwd", b"", type=tarfile.SYMTYPE, linkname="/etc/passwd")
    yield "device.tar", _tar("zero", b"", type=tarfile.CHRTYPE, devmajor=1, devminor=5)
    holes = {"GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.map": "0,0", "GNU.sparse.size": str(1 << 60)}
    yield "holes.tar", _tar("holes.txt", b"", pax_headers=holes)
    for name, content in list(_packed(LINE * 999)):
        yield from list(_flipped(rng, name, content))[:4]
    yield from _flipped(rng, "flipped.zip", _zip({"a.txt": LINE * 99, "b.txt": LINE}))


def _parquet(texts: Any, **options: Any) -> bytes:
    buffer = io.BytesIO()
    parquet.write_table(pyarrow.table({"text": texts}), buffer, compression="zstd", **options)
    return buffer.getvalue()


def parquet_files(rng: random.Random, world: World) -> Iterator[Trial]:
    """Yield Parquet files with repeated values, huge pages, or a false footer."""
    for size in (1 << 10, 1 << 20, 8 << 20):
        indices = pyarrow.array([0] * 300_000, pyarrow.int32())
        yield f"dictionary{size}.parquet", _parquet(pyarrow.DictionaryArray.from_arrays(indices, ["a" * size]))
    yield (
        "beginnings.parquet",
        _parquet(["a" * 100_000] * 3000, use_dictionary=False, column_encoding="DELTA_BYTE_ARRAY"),
    )
    yield "nulls.parquet", _parquet(pyarrow.nulls(3_000_000, pyarrow.string()))
    yield "page.parquet", _parquet(["a" * (1 << 20)] * 200, use_dictionary=False, data_page_size=1 << 30)
    group = b"\x35\x02\x18\x01a\x15\x02\x00"  # an element of the schema with one child
    schema = b"\x48\x04root\x15\x02\x00" + group * 10_000 + b"\x15\x0c\x25\x02\x18\x01a\x25\x00\x00"
    footer = b"\x15\x02\x19\xfc\x92\x4e" + schema + b"\x16\x00\x19\x0c\x00"
    yield "deep.parquet", b"PAR1" + footer + struct.pack("<I", len(footer)) + b"PAR1"
    content = _parquet([f"a bad cab {'abcdefghij'[index % 10]}" for index in range(3000)])
    yield from _flipped(rng, "footer.parquet", content, last=600)
    yield from _flipped(rng, "anywhere.parquet", content)


def xml(rng: random.Random, world: World) -> Iterator[Trial]:
    """Yield MediaWiki dumps with entities, or without an end."""
    laughs = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 30))
    page = "<page><title>a</title><ns>0</ns><revision><text>%s</text></revision></page></mediawiki>"
    yield "laughs.xml", f'<!DOCTYPE mediawiki [<!ENTITY a0 "ha">{laughs}]><mediawiki>{page % "&a29;"}'.encode()
    outside = '<!DOCTYPE mediawiki [<!ENTITY x SYSTEM "file:///etc/passwd">]><mediawiki>'
    yield "outside.xml", f"{outside}{page % '&x;'}".encode()
    yield "definition.xml", b'<!DOCTYPE mediawiki SYSTEM "http://localhost:1/x.dtd"><mediawiki/>'
    yield "deep.xml", b"<mediawiki>" + b"<a>" * 1_000_000
    yield "tag.xml", b"<mediawiki a='" + b"x" * (8 << 20)
    yield "text.xml", b"<mediawiki>" + (page % ("a" * (24 << 20))).encode()
    yield "attributes.xml", b"<mediawiki " + b" ".join(b'a%d="1"' % n for n in range(200_000)) + b"/>"


def tokenizers(rng: random.Random, world: World) -> Iterator[Trial]:
    """Yield `tokenizer.json` files with endless patterns, rules that lengthen texts, and values of wrong types."""
    text = (world.tokenizer / "tokenizer.json").read_text()
    base: dict[str, Any] = json.loads(text)
    replace = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    split = {"type": "Split", "behavior": "Isolated", "invert": False}
    changes: dict[str, dict[str, Any]] = {
        "backtracking": {"pre_tokenizer": {**split, "pattern": {"Regex": "(a|aa|[ab ])+$"}}},
        "quadratic": {"pre_tokenizer": {**split, "pattern": {"Regex": ".*.*.*x"}}},
        "growing": {"normalizer": {"type": "Sequence", "normalizers": [replace] * 40}},
        "bytes": {"normalizer": {"type": "Sequence", "normalizers": [{"type": "ByteLevel"}] * 40}},
        "prefix": {"normalizer": {"type": "Prepend", "prepend": "a" * (1 << 20)}},
        "words": {"model": base["model"] | {"max_input_chars_per_word": 1 << 60}},
        "unknown": {"model": base["model"] | {"unk_token": "nosuch"}},
    }
    for name, change in changes.items():
        yield name, json.dumps(base | change).encode()
    for name, wrong in WRONG_JSON.items():
        yield f"json-{name}", b'{"model": ' + wrong + b"}"
    keys = [key for key in base if key != "version"]
    for index in range(FLIPS):
        junk: Any = rng.choice((None, 3, "x", [], {}, [[]], {"type": "x"}, {"type": "Sequence"}))
        yield f"junk-{index}", json.dumps(base | {rng.choice(keys): junk}).encode()


def model_configs(rng: random.Random, world: World) -> Iterator[Trial]:
    """Yield `config.json` files with wrong numbers, sizes and types."""
    base = json.loads((world.model / "config.json").read_text())
    for field, value in (
        ("layer_norm_eps", 1e39), ("layer_norm_eps", -1.0), ("hidden_dropout_prob", 1.0), ("initializer_range", "x"),
        ("num_hidden_layers", 2**31 - 1), ("num_hidden_layers", 10**30), ("vocab_size", 2**30), ("hidden_size", 2**30),
        ("num_attention_heads", 0), ("architectures", [[]]), ("id2label", {"0": 1}), ("auto_map", {"x": "y"}),
    ):  # fmt: skip
        yield f"config.json:{field}={value}", json.dumps(base | {field: value}).encode()
    for name, wrong in WRONG_JSON.items():
        yield f"config.json:{name}", wrong
    yield "config.json:nan", (json.dumps(base)[:-1] + ', "layer_norm_eps": NaN}').encode()


def safetensors_files(rng: random.Random, world: World) -> Iterator[Trial]:
    """Yield `model.safetensors` files with a false header."""
    content = (world.model / "model.safetensors").read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    name = next(name for name in header if name != "__metadata__")
    for field, value in (
        ("shape", [2**62 + 1]), ("shape", [2**32, 2**32]), ("shape", [-1]), ("shape", [0, 2**62]), ("shape", [1] * 99),
        ("data_offsets", [0, 4]), ("data_offsets", [4, 0]), ("data_offsets", [0, 2**63]), ("dtype", "F8_E4M3"),
        ("dtype", "F4"), ("dtype", "F64"), ("dtype", "X"),
    ):  # fmt: skip
        text = json.dumps(header | {name: header[name] | {field: value}}).encode()
        yield f"model.safetensors:{field}={value}", struct.pack("<Q", len(text)) + text + data
    yield "model.safetensors:length", struct.pack("<Q", 2**63) + content[8:]
    for wrong in ("deep", "twice", "nan"):
        text = b'{"a": ' + WRONG_JSON[wrong] + b"}"
        yield f"model.safetensors:{wrong}", struct.pack("<Q", len(text)) + text


class _Call:
    """Pickle that calls a function which torch's loader of weights allows."""

    def __init__(self, function: Callable[..., Any], *arguments: Any):
        self._call = function, arguments

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self._call


def torch_files(rng: random.Random, world: World) -> Iterator[Trial]:
    """Yield `pytorch_model.bin` files with tensors that have no data in the file, and with calls of functions."""
    scalar, few = torch.ones(1), torch.arange(3.0)
    made: dict[str, Any] = {
        "expanded": scalar.expand(10**11),
        "expanded-half": scalar.half().expand(10**10),
        "overlapping": torch.arange(40_000.0).as_strided((20_000, 20_000), (1, 1)),
        "float8": few.to(torch.float8_e4m3fn),
        "sparse": torch.sparse_coo_tensor(torch.zeros(2, 1), scalar, (10**9, 10**9)),
        "meta": torch.ones(10**12, device="meta"),
        "negative": torch._neg_view(few),
        "conjugate": few.to(torch.complex64).conj(),
        "complex": few.to(torch.complex64),
        "bytearray": _Call(bytearray, 10**11),
        "codec": _Call(bytes.hex, b"x"),
        "command": _Call(os.system, "touch harmed"),
    }
    for name, value in made.items():
        for legacy in (False, True):
            buffer = io.BytesIO()
            torch.save({"bert.pooler.weight": value}, buffer, _use_new_zipfile_serialization=not legacy)
            yield f"pytorch_model.bin:{name}{' legacy' * legacy}", buffer.getvalue()
    buffer = io.BytesIO()
    torch.save({f"copy{index}": scalar.expand(1).repeat(1000) for index in range(9)}, buffer)
    packed = io.BytesIO()
    with zipfile.ZipFile(buffer) as old, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new:
        for info in old.infolist():
            new.writestr(info.filename, old.read(info) + bytes(100 << 20) * ("/data/0" in info.filename))
    yield "pytorch_model.bin:packed", packed.getvalue()
    for name, content in _flipped(rng, "pytorch_model.bin/", buffer.getvalue()):
        yield name.replace("/", ""), content


def manifests(rng: random.Random, world: World) -> Iterator[Trial]:
    """Yield hostile `manifest.json` files of a corpus."""
    yield from WRONG_JSON.items()


CLASSES: dict[str, tuple[Callable[..., Iterator[Trial]], Callable[..., list[str]]]] = {
    "(a right text)": (right, as_text),
    "JSON lines and lists": (json_records, as_text),
    "compressed files, archives": (archives, as_text),
    "Parquet": (parquet_files, as_text),
    "MediaWiki XML": (xml, as_text),
    "`tokenizer.json`": (tokenizers, as_tokenizer),
    "`config.json`": (model_configs, as_model),
    "`model.safetensors`": (safetensors_files, as_model),
    "`pytorch_model.bin`": (torch_files, as_model),
    "JSON lines for a model": (json_records, as_lines),
    "`manifest.json`": (manifests, as_corpus),
}

if __name__ == "__main__":
    sys.exit(main())
