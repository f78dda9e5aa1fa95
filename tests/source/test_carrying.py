"""Values in a launch of the lab: those that cannot be carried, keys, the store, exports."""

from __future__ import annotations

import enum
import linecache
import operator
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from kernellab import Lab
from kernellab._triton.closure import closure_of, value_key
from kernellab._triton.loading import load
from kernellab.errors import KernellabError, LaunchError
from kernellab.store.columns import Status
from kernellab.timing.config import Config
from kernellab.tune.result import Row, measurement_of, row_of
from tests.export.exporting import run_files
from tests.labs import lab_fixture, shared_lab
from tests.source.kinds import CLASSES, KINDS, Kind, cell
from tests.source.test_kinds import plain_ttir
from tests.tables import every


class Lost:
    """A value that Triton takes for a global, and that nothing makes again."""

    def __deepcopy__(self, memo: object) -> Lost:
        return self

    def __reduce_ex__(self, protocol: object) -> str:
        raise TypeError("it is not to be copied")


LOST = tl.constexpr(Lost())
MORE = """
class Arguments(typing.NamedTuple):
    x: object
    scale: object

@triton.jit
def of_pair(o, given):
    tl.store(o, tl.load(given.x) * given.scale)
"""


@triton.jit
def kernel_of(o, C: tl.constexpr):
    tl.store(o, 1)


@triton.jit
def equal(o):
    if LOST == 1:
        tl.store(o, 1)
    else:
        tl.store(o, 2)


@triton.jit
def true(o):
    if not LOST:
        tl.store(o, 1)


@triton.jit
def untouched(o, FLAG: tl.constexpr):
    if FLAG:
        tl.store(o, 1)
    elif LOST == 1:
        tl.store(o, 2)


lab = lab_fixture("cuda:90")


@pytest.fixture
def out() -> torch.Tensor:
    return torch.zeros(1, dtype=torch.int32)


@pytest.mark.parametrize(
    "value",
    [(v for v in ()), sys.__stdin__, object(), torch.ones(2), (1, (2, object()))],
    ids=["generator", "file", "object", "tensor", "nested"],
)
@pytest.mark.parametrize("verb", ["compile", "effects", "graph", "run"])
def test_an_argument_that_cannot_be_carried_is_named(lab: Lab, out: torch.Tensor, verb: str, value: Any) -> None:
    grid = ((1,),) if verb == "run" else ()
    with pytest.raises(LaunchError, match=r"^C of kernel_of is a .* cannot be (sent|a constexpr) .* Give it as"):
        getattr(lab, verb)(kernel_of, *grid, out, value)
    assert int(out[0]) == 0


@pytest.mark.parametrize("kernel", [equal, true], ids=["==", "bool"])
def test_a_global_that_cannot_be_carried_is_an_error_where_it_is_used(lab: Lab, out: torch.Tensor, kernel: Any) -> None:
    with pytest.raises(KernellabError, match=r"LOST is a .*\.Lost, which cannot be sent .*it is not to be copied"):
        lab.run(kernel, (1,), out)
    assert int(out[0]) == 0


def test_a_global_that_cannot_be_carried_may_stand_in_a_branch_that_is_not_taken(lab: Lab, out: torch.Tensor) -> None:
    lab.run(untouched, (1,), out, True)
    assert int(out[0]) == 1
    with pytest.raises(KernellabError, match="LOST"):
        lab.run(untouched, (1,), out, False)


class Code(enum.IntEnum):
    A = 1


USES = (
    operator.eq,
    operator.ne,
    operator.lt,
    operator.add,
    operator.mul,
    operator.and_,
    operator.or_,
    operator.getitem,
)
ALONE = (bool, hash, len, int, float, iter, operator.neg, operator.index, operator.call, operator.attrgetter("size"))


@pytest.mark.parametrize("use", [*(lambda value, use=use: use(value, 1) for use in USES), *ALONE])
def test_a_stand_in_for_a_lost_value_raises_at_every_use(use: Any) -> None:
    lost = load(closure_of(equal)[0]).kernel.fn.__globals__["LOST"].value
    with pytest.raises(LaunchError, match="LOST is a"):
        use(lost)


def test_values_that_python_calls_equal_have_keys_of_their_own() -> None:
    values = [1, True, 1.0, Code.A, "1", tl.constexpr(1), np.int64(1), np.int32(1), (1,), [1], b"1"]
    assert len({value_key(value) for value in values}) == len(values)
    assert len({Config((("X", value),)) for value in values}) == len(values)


def test_equal_values_of_a_class_that_a_cell_defines_again_have_one_key() -> None:
    once, again = cell(KINDS["enum"], "Mode.A"), cell(KINDS["enum"], "Mode.B")
    assert again["Mode"] is not once["Mode"]
    for text in ("Mode.A", "Config(8)", "Pair(1, 2)", "Code.B", "Planet.A", "Act(3)", "functools.partial(twice, 2)"):
        assert value_key(eval(text, once)) == value_key(eval(text, again))
    assert value_key(once["Mode"].A) != value_key(once["Mode"].B)


@pytest.mark.slow
def test_a_launch_of_an_enum_member_is_not_that_of_its_number(lab: Lab, out: torch.Tensor) -> None:
    kernel = lab.bind(cell(KINDS["enum against its value"], "Mode.A")["by_argument"])
    mode = kernel.fn.__globals__["Mode"]
    found = {}
    for value in (1, mode.A, True, mode.B, 1.0):
        handle = kernel[(1,)](out, value)
        found[handle.hash] = int(out[0])
    assert list(found.values()) == [2, 1, 2, 2, 2]


def test_a_named_tuple_of_tensors_whose_class_a_cell_defines_is_launched(lab: Lab, out: torch.Tensor) -> None:
    text = CLASSES + MORE
    linecache.cache["In[7]"] = (len(text), None, text.splitlines(keepends=True), "In[7]")
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(text, "In[7]", "exec"), names)
    given = names["Arguments"](torch.full((1,), 6, dtype=torch.int32), 7)
    run = lab.run(names["of_pair"], (1,), out, given)
    assert (int(out[0]), run.changed["o"]) == (42, 1)
    assert lab.effects(names["of_pair"], out, given).reads == {"given[0]"}


@pytest.mark.slow
def test_configs_of_enum_members_are_tuned_and_known_again(lab: Lab, out: torch.Tensor) -> None:
    names = cell(KINDS["enum"], "Mode.A")
    configs = [triton.Config({"C": member}) for member in names["Mode"]]
    tuning = lab.tune(names["by_argument"], (1,), out, configs=configs)
    assert [row.config.parameters for row in tuning.rows] == [(("C", member),) for member in names["Mode"]]
    assert {str(row.status) for row in tuning.rows} == {"not_timed"}  # there is no GPU here, and both compile
    for member in names["Mode"]:
        row = Row(Config((("C", member),)), Status.OK, time_ms=1.0)
        kept = row_of(measurement_of(row, "key", "device"))
        assert kept is not None
        assert kept.config == row.config
        assert kept.config.key == row.config.key


KEPT = ["enum", "str enum", "flag", "enum with methods", "named tuple of enum", "dataclass", "dataclass attribute"]
KEPT += [
    "torch dtype",
    "numpy float32",
    "function",
    "lambda",
    "class of constants",
    "derived dataclass",
    "tuple of enum",
]


def compiled_cell(kind: Kind) -> dict[str, Any]:
    """Return what a cell defines, unless plain Triton compiles no such kernel, as 3.6 none that compares members."""
    names = cell(kind, kind.second)
    if plain_ttir(names["by_argument"], (torch.zeros(1, dtype=torch.int32), names["value"])) is None:
        pytest.skip("plain Triton compiles no such kernel")
    return names


@pytest.mark.slow
@pytest.mark.parametrize("name", every(3, KEPT))
def test_a_kernel_out_of_the_store_takes_the_values_of_the_notebook(tmp_path: Path, name: str) -> None:
    kind = KINDS[name]
    out, again = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    names = compiled_cell(kind)
    with shared_lab(target="cuda:90", store=tmp_path) as lab:
        version = lab.kernels.add(names["by_argument"])
        lab.run(names["by_argument"], (1,), out, names["value"])
    values = cell(kind, kind.second)  # as after a restart
    with shared_lab(target="cuda:90", store=tmp_path) as lab:
        lab.run(lab.kernels[version.id], (1,), again, values["value"])
    assert int(again[0]) == int(out[0])


@pytest.mark.slow
@pytest.mark.parametrize("name", every(3, KEPT))
def test_an_exported_module_has_the_values_of_a_launch(lab: Lab, tmp_path: Path, name: str) -> None:
    names = compiled_cell(KINDS[name])
    out, path = torch.zeros(1, dtype=torch.int32), tmp_path / "exported.py"
    with shared_lab(target="cuda:90", store=":memory:") as own:
        version = own.kernels.add(names["by_argument"])
        own.run(names["by_argument"], (1,), out, names["value"])
        own.export(version.label, path)
    done = run_files(path)
    assert done.returncode == 0, done.stderr
    module = runpy.run_path(str(path))
    again = torch.zeros(1, dtype=torch.int32)
    lab.run(module["by_argument"], (1,), again, C=module["META"]["C"])
    assert int(again[0]) == int(out[0])


@pytest.mark.gpu
def test_on_a_gpu_each_value_has_a_launch_of_its_own_also_when_it_is_known() -> None:
    names = cell(KINDS["enum against its value"], "Mode.A")
    mode, out = names["Mode"], torch.zeros(1, dtype=torch.int32, device="cuda")
    with Lab(store=":memory:") as lab:
        kernel = lab.bind(names["by_argument"])
        found = []
        for value in (1, mode.A, True, mode.B, 1.0) * 3:
            kernel[(1,)](out, value)
            found.append(int(out[0]))
    assert found == [2, 1, 2, 2, 2] * 3


@pytest.mark.gpu
def test_on_a_gpu_a_named_tuple_of_a_cell_is_tried_in_the_worker_and_launched() -> None:
    text = CLASSES + MORE
    linecache.cache["In[7]"] = (len(text), None, text.splitlines(keepends=True), "In[7]")
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(text, "In[7]", "exec"), names)
    out = torch.zeros(1, dtype=torch.int32, device="cuda")
    given = names["Arguments"](torch.full((1,), 6, dtype=torch.int32, device="cuda"), 7)
    with Lab(store=":memory:") as lab:
        run = lab.run(names["of_pair"], (1,), out, given)
    assert (int(out[0]), run.where, run.notes) == (42, "gpu", ())
