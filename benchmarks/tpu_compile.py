"""Compile steps of published shapes for TPUs: compile time, and FLOPs, bytes, memory and collectives per chip.

    .venv-tpu/bin/python benchmarks/tpu_compile.py

First, run `make test-tpu`, which makes .venv-tpu; no TPU is needed. Prints a Markdown table. Compile times are wall
times, tracing included, so use a quiet machine.
"""

import argparse
from typing import NamedTuple

from bert_jax.config import PretrainConfig, phases, resolve
from bert_jax.config.recipes import bert_recipe_of_devlin2019
from bert_jax.dryrun.topology import compile_only_devices


class Shape(NamedTuple):
    """One program: a model, a slice, a mesh (data, fsdp, tensor), `rows` sequences per chip, and their length."""

    size: str
    topology: str
    mesh: tuple[int, int, int]
    rows: int
    length: int
    remat: bool = False


SHAPES = [
    Shape("base", "v5e:2x2", (-1, 1, 1), 64, 128),
    Shape("base", "v5e:2x2", (-1, 1, 1), 16, 512),
    Shape("base", "v5e:2x2", (1, -1, 1), 64, 128),
    Shape("base", "v5e:2x2", (1, 1, -1), 64, 128),
    Shape("large", "v5e:2x2", (-1, 1, 1), 8, 512, remat=True),
    Shape("large", "v5e:16x16", (-1, 1, 1), 16, 128),
    Shape("large", "v5e:16x16", (-1, 1, 1), 16, 512, remat=True),
]
COLUMNS = (
    "model",
    "slice",
    "mesh",
    "rows x tokens a chip",
    "compile s",
    "TFLOP",
    "of model's",
    "GB accessed",
    "GB in HBM",
    "GB temporary",
    "collectives",
)


def main() -> None:
    """Print a line for each shape as soon as it is compiled."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=int, nargs="*", metavar="N", help="lines of the table, from 0 (default: all)")
    only = parser.parse_args().only
    print("| " + " | ".join(COLUMNS) + " |")
    print("|" + " --- |" * len(COLUMNS))
    for number, shape in enumerate(SHAPES):
        if only is None or number in only:
            print(line(shape), flush=True)


def line(shape: Shape) -> str:
    """Compile a shape and return its row of the table."""
    chips = compile_only_devices(shape.topology)
    from bert_jax.dryrun.dry_run import dry_run, pretraining_compile_inputs

    made = bert_recipe_of_devlin2019(shape.size)
    made.mesh.data, made.mesh.fsdp, made.mesh.tensor = shape.mesh
    made.compute.remat = shape.remat
    made.train.batch_size = made.evaluate.batch_size = shape.rows * len(chips)
    made.train.phases = phases({"seq_len": shape.length})
    report = dry_run(pretraining_compile_inputs(resolve(PretrainConfig, made)), chips, lambda text: None)
    phase = report.phases[0]
    cells = [
        shape.size + (", remat" if shape.remat else ""),
        shape.topology,
        "x".join(str(size) for size in report.mesh.values()),
        f"{shape.rows} x {shape.length}",
        f"{phase.compile_seconds:.0f}",
    ]
    if phase.cost is None:
        cells += ["does not fit"] + [""] * 5
    else:
        cells += [
            f"{phase.cost.flops / 1e12:.3f}",
            f"{phase.cost.flops / phase.model_flops:.3f}",
            f"{phase.cost.bytes / 1e9:.1f}",
            f"{phase.cost.hbm_bytes / 1e9:.1f}",
            f"{phase.memory.temporaries / 1e9:.2f}",
        ]
        cells.append("; ".join(f"{x.kind} {x.count:,} of {x.bytes / 1e9:.3f} GB" for x in phase.cost.collectives))
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
