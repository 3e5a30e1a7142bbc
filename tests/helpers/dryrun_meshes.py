"""Run by test_dryrun.py on eight CPU devices: prints one JSON object, the dry run's report per mesh.

python tests/helpers/dryrun_meshes.py '{"NAME": {"mesh": [8, 1, 1], "grad_accum_steps": 1}, ...}'
"""

import json
import sys

from bert_jax import config as c
from bert_jax.dryrun.dry_run import dry_run, pretraining_compile_inputs, recipe_total
from bert_jax.dryrun.report import report_json

SIZES = {"vocab_size": 512, "hidden_size": 64, "num_layers": 4, "num_heads": 8, "mlp_size": 256, "max_positions": 32}
LENGTH, ROWS = 32, 64


def main(runs: str) -> None:
    """Compile for all meshes in turn."""
    found = {}
    for name, run in json.loads(runs).items():
        made = c.pretrain_config()
        made.model.update(**SIZES)
        made.mesh.data, made.mesh.fsdp, made.mesh.tensor = run["mesh"]
        made.train.update(batch_size=ROWS, grad_accum_steps=run["grad_accum_steps"])
        made.train.phases = c.phases({"seq_len": LENGTH})
        report = dry_run(pretraining_compile_inputs(c.resolve(c.PretrainConfig, made)), None, lambda text: None)
        found[name] = report_json(report, recipe_total(report, None, None))
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
