"""A program as a DataFrame: one row for each input and each step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kernellab.capture.tape import LAUNCH, Step, Tape

COLUMNS = (
    *("name", "op", "kernel", "kernel_id", "constants_id", "launch_id", "grid", "inputs", "mutated"),
    *("shape", "dtype", "bytes", "device", "place"),
)


def frame_of(tape: Tape) -> Any:
    """Return the rows in order. ``bytes`` and layout are those of what a step makes, or else of what it changes."""
    import pandas as pd  # keeps `import kernellab` light

    found = pd.DataFrame(list(_rows(tape)), columns=list(COLUMNS))
    for column in ("kernel", "inputs", "mutated", "place"):
        found[column] = found[column].fillna("")
    for column in ("kernel_id", "constants_id", "launch_id"):
        found[column] = found[column].astype("Int64")
    found.attrs = {"inputs": [tape.values[i].name for i in tape.inputs], "outputs": list(tape.output_names)}
    return found


def _rows(tape: Tape) -> Iterator[dict[str, Any]]:
    for index in tape.inputs:
        yield {"name": tape.values[index].name, "op": "input", **_layout(tape, index)}
    for index, _ in tape.constants:
        yield {"name": tape.values[index].name, "op": "constant", **_layout(tape, index)}
    for step in tape.steps:
        made = [index for index in step.results if index >= 0]
        seen = [*made, *step.mutated]
        yield {
            "name": ", ".join(tape.values[index].name for index in made),
            "op": step.operation,
            **_use(step),
            "inputs": ", ".join(tape.values[index].name for index in step.taken),
            "mutated": ", ".join(tape.values[index].name for index in step.mutated if not step.functional),
            **(_layout(tape, seen[0]) if seen else {}),
            "place": step.place,
        }


def _use(step: Step) -> dict[str, Any]:
    if step.operation != LAUNCH or step.use is None:
        return {}
    use = step.use
    return {
        "kernel": use.kernel,
        "kernel_id": use.kernel_id,
        "constants_id": use.constants_id,
        "launch_id": use.launch_id,
        "grid": use.grid,
    }


def _layout(tape: Tape, index: int) -> dict[str, Any]:
    layout = tape.values[index].layout
    return {"shape": layout.shape, "dtype": layout.dtype, "bytes": layout.size_bytes, "device": layout.device}
