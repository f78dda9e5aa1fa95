"""Programs of the functions that are measured need no more memory than what Inductor makes of these."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks.program_models import KERNELS, MODELS, Model
from benchmarks.programs import compared_on_cpu, table
from tests.alone import run_alone
from tests.labs import shared_lab
from tests.tables import every


@pytest.mark.exhaustive  # Inductor compiles C++
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_the_module_of_a_program_allocates_what_is_planned_and_no_more_than_inductor(tmp_path: Path) -> None:
    chosen = [model for model in MODELS if model.name in {"chain of launches", "step of Adam"}]
    with shared_lab(store=":memory:") as lab:
        bound = {name: lab.bind(kernel) for name, kernel in KERNELS.items()}
        rows = [compared_on_cpu(lab, model, bound, tmp_path, float("inf")) for model in chosen]
    for row in rows:
        assert 0 < row.planned_bytes == row.module.peak_bytes <= row.compiled.peak_bytes
        assert row.donated_bytes <= row.planned_bytes, "what may be written to is not copied"
    assert "0 of 2 need more" in table(rows, on_gpu=False)


def test_each_function_has_a_name_of_its_own_and_there_are_ten() -> None:
    assert len({model.name for model in MODELS}) == len(MODELS) == 10


# The axis of each input along which a function takes any number of rows, and three that were not recorded.
ROWS = {
    "MLP": ({"x": 0}, (24, 31, 128)),
    "gated MLP": ({"x": 0}, (24, 31, 128)),
    "residual and norm": ({"x": 0, "residual": 0}, (24, 31, 128)),
    "attention from parts": ({"q": 1, "keys": 1, "v": 1}, (20, 24, 31)),
    "transformer block": ({"x": 0}, (20, 24, 31)),
    "gate of experts": ({"x": 0}, (24, 31, 128)),
    "step of Adam": ({"p": 0, "g": 0, "m": 0, "v": 0}, (24, 31, 128)),
    "rotary and cache": ({"x": 0, "cos": 0, "sin": 0}, (20, 24, 31)),
    "chain of launches": ({"x": 0}, (24, 31, 128)),
    "cross entropy": ({"x": 0, "labels": 0}, (24, 31, 128)),
}
ALONE = """
import importlib, sys, torch
sys.path.insert(0, ".")
for name in sys.argv[1:]:
    module = importlib.import_module(name)
    for given, returned, changed in torch.load(f"{name}.pt"):
        found = module.run(**given)
        for key, value in returned.items():
            torch.testing.assert_close(found[key], value, rtol=1e-3, atol=1e-3)
        for key, value in changed.items():
            torch.testing.assert_close(given[key], value, rtol=1e-3, atol=1e-3)
assert "kernellab" not in sys.modules
"""


def resized(model: Model, rows: int) -> dict[str, torch.Tensor]:
    """Return inputs of a function with so many rows."""
    axes, _ = ROWS[model.name]
    made = model.make("cpu", 2 if model.name == "transformer block" else 1)  # two heads: one is a size of its own
    for name, axis in axes.items():
        given = torch.cat([made[name], made[name]], axis) if rows > made[name].shape[axis] else made[name]
        made[name] = given.narrow(axis, 0, rows).contiguous()
    return made


@pytest.mark.slow
@pytest.mark.parametrize("model", every(3, MODELS), ids=lambda model: model.name)
def test_the_module_of_a_function_runs_alone_at_sizes_that_were_not_recorded(tmp_path: Path, model: Model) -> None:
    name = model.name.replace(" ", "_")
    with shared_lab(store=":memory:") as lab:
        bound = {name: lab.bind(kernel) for name, kernel in KERNELS.items()}
        inputs = resized(model, 28)
        with lab.capture(dynamic=True) as program:
            found = model.body(bound, **inputs)
            program.returns(*(found if isinstance(found, tuple) else (found,)))
        program.export(tmp_path / f"{name}.py")
        kept = []
        for rows in ROWS[model.name][1]:
            made = resized(model, rows)
            given = {name: made[name.removeprefix("inputs_")] for name in program.inputs}
            before = {name: tensor.clone() for name, tensor in given.items()}
            returned = model.body(bound, **made)
            several = returned if isinstance(returned, tuple) else (returned,)
            results = dict(zip(program.outputs[-len(several) :], several, strict=True))
            changed = {name: tensor for name, tensor in given.items() if not torch.equal(tensor, before[name])}
            kept.append((before, results, changed))
        torch.save(kept, tmp_path / f"{name}.pt")
    done = run_alone(ALONE, name, folder=tmp_path)
    assert done.returncode == 0, done.stderr
