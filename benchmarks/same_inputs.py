"""Check that all results in a directory come from the same model, corpus and settings."""

import json
import pathlib


def check_inputs(output: pathlib.Path, **inputs: object) -> None:
    """Write the inputs of the first command to `output/inputs.json`; exit if a later command has other inputs."""
    given = {name: str(value) for name, value in inputs.items()}
    file = output / "inputs.json"
    if not file.exists() and any(output.glob("results*")):
        raise SystemExit(f"{output} has results of unknown inputs, without {file.name}; choose another --output")
    known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else given
    changed = [f"{name} {known.get(name)}, not {value}" for name, value in given.items() if known.get(name) != value]
    if changed:
        raise SystemExit(f"{output} has results of other inputs ({'; '.join(changed)}); choose another --output")
    output.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(given, indent=1) + "\n", encoding="utf-8")
