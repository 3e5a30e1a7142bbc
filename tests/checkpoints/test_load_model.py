"""Model directories of every kind, opened one way; checkpoints of pretraining without their objective."""

import dataclasses
import hashlib
import json
import socket
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.checkpoints.load_model import open_model, read_weights, restore_run
from bert_jax.config import CheckpointConfig, ComputeConfig, EncoderConfig, PretrainConfig, TaskConfig, to_json
from bert_jax.console import Console
from bert_jax.errors import UserError
from bert_jax.interop.sentence_modules import SentenceModules, sentence_module_files
from bert_jax.interop.token_modules import projection_file
from bert_jax.models import Head, make_model
from bert_jax.objectives.tasks import task_head
from bert_jax.tasks.vector_heads import VECTOR_HEADS
from bert_jax.tokenizer import load_tokenizer
from bert_jax.training.checkpoint import Checkpoints
from tests.helpers.tiny_models import MAX_POSITIONS, save, tokenizer_of

HEADS = (Head("masked_token"), Head("next_sentence"))
QUIET = Console(silent=True)


@pytest.fixture
def run(tmp_path):
    """A work directory with checkpoints of steps 1 and 2, whose optimizer state and objective nothing here can make."""
    place = tmp_path / "run"
    tokenizer_of("bert").save_pretrained(place / "tokenizer")
    tokenizer = load_tokenizer(place / "tokenizer")
    model = EncoderConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=16,
        num_layers=2,
        num_heads=2,
        mlp_size=24,
        max_positions=MAX_POSITIONS,
    )
    config = dataclasses.replace(PretrainConfig(), model=model)
    fingerprint = {"corpus": "c", "tokenizer": tokenizer.sha256}
    (place / "run.json").write_text(json.dumps({"config": to_json(config), "fingerprint": fingerprint}))
    checkpoints = Checkpoints(place, CheckpointConfig(every=1))
    for step in (1, 2):
        params = jax.jit(make_model(model, ComputeConfig(), HEADS).init)(jax.random.key(step))
        state = {"step": jnp.int32(step), "params": params, "opt_state": [jnp.ones(7), {"other": jnp.zeros(3)}]}
        checkpoints.save(step, state, {"config": to_json(config), "fingerprint": fingerprint})
    checkpoints.close()
    return place


def params_of(step, config):
    return jax.device_get(jax.jit(make_model(config, ComputeConfig(), HEADS).init)(jax.random.key(step)))


def assert_equal(found, wanted):
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert isinstance(x, np.ndarray)
        np.testing.assert_array_equal(x, y)


def test_parameters_and_heads_come_from_the_checkpoint_alone(run):
    found = read_weights(run, console=QUIET)
    assert found.heads == HEADS
    assert_equal(found.params, params_of(2, found.config))
    assert (found.new, found.unused, found.directory) == ((), (), run / "tokenizer")
    assert_equal(read_weights(run, console=QUIET, step=1).params, params_of(1, found.config))
    config, step, params = restore_run(run, None, QUIET)
    assert (config.model, step) == (found.config, 2)
    assert_equal(params, found.params)


def test_wanted_heads_are_drawn_or_refused(run):
    wanted = (Head("masked_token"), Head("sequence_classification", 3))
    with pytest.raises(UserError, match="has no sequence_classification: fine-tune it first"):
        read_weights(run, wanted, console=QUIET)
    found = read_weights(run, wanted, jax.random.key(5), QUIET)
    assert found.heads == wanted
    assert (found.new, found.unused) == (("sequence_classification",), ("next_sentence",))
    drawn = jax.jit(make_model(found.config, ComputeConfig(), wanted).init)(jax.random.key(5))
    assert_equal(found.params["sequence_classification"], jax.device_get(drawn["sequence_classification"]))
    assert_equal(found.params["encoder"], params_of(2, found.config)["encoder"])
    assert_equal(read_weights(run, (Head("hidden_states"),), console=QUIET).params["encoder"], found.params["encoder"])


def test_a_flipped_bit_falls_back_to_the_checkpoint_before(run, capsys):
    """Every flip is either without effect or reported; none is restored."""
    config = read_weights(run, console=QUIET).config
    files = sorted((run / "checkpoints" / "2" / "state").rglob("d/*"), key=lambda path: path.stat().st_size)
    good, rng, fallbacks = files[-1].read_bytes(), np.random.default_rng(0), 0
    for _ in range(8):
        data = bytearray(good)
        data[rng.integers(len(data))] ^= 1 << rng.integers(8)
        files[-1].write_bytes(data)
        found = read_weights(run, console=Console())
        said = capsys.readouterr().err
        step = 1 if "checkpoints/2 is damaged" in said else 2
        assert f"weights of step {step}" in said
        assert_equal(found.params, params_of(step, config))
        fallbacks += step == 1
    assert fallbacks >= 3, "the flips hit nothing that matters: the test tests nothing"
    with pytest.raises(UserError, match="no checkpoint of step 7; there are"):
        read_weights(run, console=QUIET, step=7)


def test_metadata_that_lacks_a_parameter_is_damage(run):
    """The digests name every parameter, so one that the metadata leaves out is missed."""
    path = run / "checkpoints" / "2" / "state" / "_METADATA"
    values = json.loads(path.read_text())
    names = [name for name in values["tree_metadata"] if "next_sentence" in name]
    assert names
    for name in names:
        del values["tree_metadata"][name]
    path.write_text(json.dumps(values))
    with pytest.raises(UserError, match=r"step 2 is damaged .*params\.next_sentence"):
        read_weights(run, console=QUIET, step=2)


def test_a_changed_config_or_tokenizer_is_not_used(run):
    path = run / "run.json"
    good = path.read_text()
    path.write_text(good.replace('"num_heads": 2', '"num_heads": 4'))
    with pytest.raises(UserError, match=r"run.json .*model.num_heads: 2 -> 4"):
        read_weights(run, console=QUIET)
    path.write_text(good)
    tokenizer_of("albert").save_pretrained(run / "tokenizer")
    with pytest.raises(UserError, match="the tokenizer"):
        read_weights(run, console=QUIET)


def test_a_checkpoint_of_another_run_is_not_used(run):
    """run.json and the tokenizer agree with each other, so the checkpoint is the wrong one."""
    found = json.loads((run / "run.json").read_text())
    found["fingerprint"] |= {"tokenizer": "t"}
    checkpoints = Checkpoints(run, CheckpointConfig(every=1))
    checkpoints.save(3, {"params": {"x": jnp.ones(7)}}, found)
    checkpoints.close()
    with pytest.raises(UserError, match=r"checkpoints/3 is the checkpoint of another run: .*; remove it"):
        read_weights(run, console=QUIET)
    assert read_weights(run, console=QUIET, step=2).heads == HEADS


def test_a_work_directory_opens_like_an_export(run, tmp_path, capsys):
    save(tmp_path / "theirs", "bert")
    for place, layers in ((run, 2), (tmp_path / "theirs", 4)):
        found = open_model(place, (Head("masked_token"),))
        assert (found.config.num_layers, found.heads) == (layers, (Head("masked_token"),))
        assert found.tokenizer.vocab_size == found.config.vocab_size
    assert "weights of step 2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda place: None, "no model here"),
        (lambda place: (place / "runs").mkdir(), "this run of `finetune` has not ended"),
        (lambda place: (place / "run.json").write_text("[]"), r"run\.json: damaged .* restore this run"),
        (lambda place: (place / "config.json").write_text("{}"), "config.json"),
        (lambda place: (place / "bert_config.json").write_text("{}"), "0 checkpoints of TensorFlow"),
    ],
)
def test_directories_without_a_model(tmp_path, make, says):
    make(tmp_path)
    with pytest.raises(UserError, match=says):
        open_model(tmp_path)


TWO_PROCESSES = """
import hashlib, sys
import jax
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(sys.argv[2], 2, int(sys.argv[3]))
from bert_jax.checkpoints.load_model import read_weights
found = read_weights(sys.argv[1])
leaves = b"".join(leaf.tobytes() for leaf in jax.tree.leaves(found.params))
print(jax.process_count(), hashlib.sha256(leaves).hexdigest())
"""


@pytest.mark.slow
def test_two_processes_read_the_same_parameters(run):
    (next((run / "checkpoints" / "2").rglob("manifest.ocdbt"))).write_bytes(b"damaged")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{free.getsockname()[1]}"
    commands = [[sys.executable, "-c", TWO_PROCESSES, str(run), coordinator, str(number)] for number in range(2)]
    processes = [subprocess.Popen(one, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for one in commands]
    leaves = jax.tree.leaves(read_weights(run, console=QUIET, step=1).params)
    digest = hashlib.sha256(b"".join(leaf.tobytes() for leaf in leaves)).hexdigest()
    for process in processes:
        with process:
            out, err = process.communicate(timeout=240)
        assert out.splitlines()[-1:] == [f"2 {digest}"], err
        assert "weights of step 1" in err


@pytest.mark.parametrize("wanted", VECTOR_HEADS)
@pytest.mark.parametrize("present", VECTOR_HEADS)
def test_a_model_of_vectors_is_read_with_the_wanted_head_alone(tmp_path, present, wanted):
    """A training of dense vectors can start from a sparse encoder, and each other way."""
    save(tmp_path, "bert")
    similarity = VECTOR_HEADS[present].similarity
    modules = SentenceModules(vector_head=present, vector_width=4, projection="1_Dense", similarity=similarity)
    files = sentence_module_files(modules, read_weights(tmp_path).config)
    for name, text in {**files, **projection_file(np.ones((16, 4)))}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    head = task_head("similarity", 0, TaskConfig(vector_head=wanted, vector_width=4))
    weights = read_weights(tmp_path, (head,), jax.random.key(0))
    assert weights.heads == (head,)
    assert weights.params.keys() == make_model(weights.config, ComputeConfig(), (head,)).shapes.keys()
    keeps_projection = present == wanted == "late_interaction"
    assert ("token_embedding/kernel" in weights.unused) == (present == "late_interaction" and not keeps_projection)
    assert ("token_embedding/kernel" in weights.new) == (wanted == "late_interaction" and not keeps_projection)
