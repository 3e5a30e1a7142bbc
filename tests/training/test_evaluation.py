"""The size of an evaluation step, and its errors about memory."""

import jax
import numpy as np
import pytest

from bert_jax.errors import UserError
from bert_jax.objectives import make_objective
from bert_jax.parallel.sharding import AXES
from bert_jax.training import loop
from bert_jax.training.evaluation import evaluation_batch_size, make_evaluate
from tests.helpers.synthetic import synthetic_data, tiny_config, train


def mesh_of(*sizes: int) -> jax.sharding.AbstractMesh:
    return jax.sharding.AbstractMesh(sizes, AXES)


@pytest.mark.parametrize(
    ("mesh", "longest", "size"),
    [
        (mesh_of(1, 1, 1), 128, 256),
        (mesh_of(1, 1, 1), 512, 64),
        (mesh_of(1, 1, 1), 8_192, 4),
        (mesh_of(1, 1, 1), 65_536, 1),
        (mesh_of(8, 1, 1), 8_192, 32),
        (mesh_of(2, 4, 1), 512, 256),
        (mesh_of(2, 2, 2), 8_192, 16),  # the devices of a tensor axis share sequences
        (mesh_of(3, 1, 1), 128, 255),
        (mesh_of(512, 1, 1), 128, 512),
    ],
)
def test_an_evaluation_step_has_32768_tokens_on_a_device_and_at_most_256_sequences(mesh, longest, size) -> None:
    assert evaluation_batch_size(longest, mesh) == size


def test_an_error_about_memory_of_a_step_that_surfaces_at_its_end_suggests_settings(tmp_path, monkeypatch) -> None:
    def fetch_means(means):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 12.50GiB.")

    config = tiny_config()
    monkeypatch.setattr(loop, "fetch_means", fetch_means)
    with pytest.raises(UserError, match=r"a step of 8 sequences of 16 tokens needs 12\.5 GiB"):
        train(config, synthetic_data(config), tmp_path)


def test_an_error_of_xla_about_memory_names_the_batch_of_the_evaluation() -> None:
    objective = make_objective(tiny_config())
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]).reshape(1, 1, 1), AXES)

    def batches():
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 12.50GiB.")
        yield

    with pytest.raises(UserError, match=r"evaluation needs 12\.5 GiB more .* a smaller config\.evaluate\.batch_size"):
        make_evaluate(objective, mesh)({}, (), batches())
