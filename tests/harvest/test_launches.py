"""Launches of a running program by kernel and case, on the CPU."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
from triton import knobs
from triton.compiler import CompiledKernel
from triton.runtime.autotuner import Autotuner

from kernellab import Harvest, Lab
from kernellab._triton.launch_hooks import observe_launches
from kernellab.errors import UsageError
from kernellab.harvest.counting import GraphCounter, LaunchCounter
from kernellab.harvest.sampling import NO_SAMPLER
from kernellab.harvest.verbs import RunningHarvest
from tests.harvest.kernels import add, add_kernel, copy_from_kernel, scale, scale_kernel
from tests.labs import lab_fixture

pytestmark = pytest.mark.slow
lab = lab_fixture("cuda:90")


@contextmanager
def counted(is_capturing: Any = lambda: False, **limits: int) -> Iterator[RunningHarvest]:
    graphs = GraphCounter(is_capturing)
    run = RunningHarvest(NO_SAMPLER, graphs, LaunchCounter(graphs, **limits), 0.0)
    with observe_launches(run.launches):
        yield run


def counts(seen: Harvest) -> dict[tuple[str, int], int]:
    return {(case.kernel, case.sizes["n"]): case.launches for case in seen.record.cases}


def test_every_launch_that_the_hook_of_triton_counts_is_counted(lab: Lab) -> None:
    hooked: list[Any] = []
    knobs.runtime.launch_enter_hook.add(hooked.append)
    try:
        with lab.harvest() as seen:
            for n in (100, 100, 200):
                add(n)
                scale(n)
            handle = add_kernel.warmup(*(torch.empty(0),) * 3, 64, 0.5, BLOCK=64, grid=(1,))
            handle[(1, 1, 1)](torch.rand(64), torch.rand(64), torch.empty(64), 64, 0.5, 64)
            add(200, kernel=lab.bind(add_kernel))
            add(200, kernel=lab.bind(add_kernel))
    finally:
        knobs.runtime.launch_enter_hook.remove(hooked.append)
    assert sum(case.launches for case in seen.record.cases) == len(hooked) == 9
    assert sum(value for (name, n), value in counts(seen).items() if name == "scale_kernel") == 3
    assert {case.kernel for case in seen.record.cases} == {"add_kernel", "scale_kernel"}


def test_cases_differ_in_shapes_and_integers_and_not_in_floats(lab: Lab) -> None:
    with lab.harvest() as seen:
        add(100, 0.5)
        add(100, 0.25)
        add(101, 0.25)
        add_kernel[(2,)](*(torch.rand(20, 5) for _ in range(3)), 100, 0.5, BLOCK=64)
    assert sorted(case.launches for case in seen.record.cases) == [1, 1, 2]


def test_launches_on_one_grid_are_one_case_whichever_extents_they_name(lab: Lab) -> None:
    x, kernel = torch.rand(64), lab.bind(add_kernel)
    with lab.harvest() as seen:
        for grid in ((1,), (1, 1), (1, 1, 1), (1,)):
            kernel[grid](x, x, torch.empty(64), 64, 0.5, BLOCK=64)
    (case,) = seen.record.cases
    assert case.launches == 4


def test_a_case_has_its_config_its_sizes_and_the_layout_of_its_tensors(lab: Lab) -> None:
    with lab.harvest() as seen:
        scale(200)
    (case,) = seen.record.cases
    assert case.config["BLOCK"] == 64
    assert case.config["num_warps"] == 2
    assert case.sizes == {"n": 200}
    assert case.shapes == {"x_ptr": "200", "out_ptr": "200"}
    assert case.launch.grid == (4, 1, 1)
    assert Path(case.file).name == "kernels.py"
    assert dict(case.launch.signature)["x_ptr"] == "*fp32"


def test_cases_beyond_the_limit_are_counted_together_by_kernel(lab: Lab) -> None:
    lab.launches.activate()
    with counted(most_cases=2) as run:
        for n in (100, 101, 102, 103, 102, 100):
            add(n)
    record = run.record()
    assert [case.launches for case in record.cases] == [2, 1]
    assert record.rest == {"add_kernel": 3}


def test_compiled_kernels_beyond_the_limit_are_counted_together(lab: Lab) -> None:
    lab.launches.activate()
    with counted(most_kernels=1) as run:
        add(100)
        for _ in range(3):
            scale(100)
    assert [case.kernel for case in run.record().cases] == ["add_kernel"]
    assert run.record().rest == {"scale_kernel": 3}


def test_no_tensor_is_kept(lab: Lab) -> None:
    with lab.harvest() as seen:
        gone = weakref.ref(add(100))
    assert gone() is None
    assert len(seen.record.cases) == 1


def test_launches_that_time_the_configs_of_an_autotuner_are_counted_apart(lab: Lab) -> None:
    configs = [triton.Config({"BLOCK": block}) for block in (32, 64)]

    def bench(call: Any, quantiles: Any = None) -> list[float]:
        call()
        return [1.0, 1.0, 1.0]

    tuned = triton.autotune(configs=configs, key=["n"], do_bench=bench)(scale_kernel.fn)
    with lab.harvest() as seen:
        x = torch.rand(100)
        for _ in range(2):
            tuned[lambda meta: (triton.cdiv(100, meta["BLOCK"]),)](x, torch.empty(100), 100)
    assert sorted((case.trials, case.count) for case in seen.record.cases) == [(1, 0), (1, 2)]
    assert all(case.config_names == ("BLOCK",) for case in seen.record.cases)
    assert [row["count"] for row in seen.rows()] == [2, 0]


def test_nothing_of_triton_stays_changed(lab: Lab) -> None:
    class Failed(Exception):
        """Raised by the program."""

    before = CompiledKernel.launch_metadata, Autotuner._bench, torch.cuda.CUDAGraph.replay
    hooks = list(knobs.runtime.launch_exit_hook.calls)
    with pytest.raises(Failed), lab.harvest():
        raise Failed
    assert before == (CompiledKernel.launch_metadata, Autotuner._bench, torch.cuda.CUDAGraph.replay)
    assert knobs.runtime.launch_exit_hook.calls == hooks


class Graph:
    """Stands in for `torch.cuda.CUDAGraph`."""

    def capture_begin(self, pool: Any = None) -> None: ...
    def capture_end(self) -> None: ...
    def replay(self) -> None: ...


def test_replays_of_a_graph_count_the_launches_that_it_captured(lab: Lab) -> None:
    lab.launches.activate()
    capturing: list[bool] = []
    with counted(lambda: bool(capturing)) as run, run.graphs.watch(Graph):
        add(100)
        graph, earlier = Graph(), Graph()
        graph.capture_begin()
        capturing.append(True)
        add(100)
        add(100)
        scale(100)
        capturing.clear()
        graph.capture_end()
        for _ in range(5):
            graph.replay()
        earlier.replay()
        live = run.record()
        del graph
    after = run.record()
    for record in (live, after):
        assert [(c.kernel, c.launches, c.captured, c.replayed) for c in record.cases] == [
            ("add_kernel", 1, 2, 10),
            ("scale_kernel", 0, 1, 5),
        ]
        assert record.unknown_replays == 1
    assert "replay" in Graph.__dict__
    assert not run.graphs.graphs  # a graph that is gone takes no room


def test_cases_with_inputs_are_tuned_over(lab: Lab) -> None:
    with lab.harvest() as seen:
        for n in (100, 1000, 1000):
            scale(n)
    cases = seen.cases(scale_kernel)
    assert cases == [{"n": 1000}, {"n": 100}]
    assert cases.weights == [2, 1]
    assert cases.baseline is not None
    assert [config.kwargs["BLOCK"] for config in cases.baseline] == [64, 64]
    arguments = seen.inputs(scale_kernel)(n=100)
    assert arguments["x_ptr"].shape == (100,)
    dispatch = lab.tune_over(
        scale_kernel,
        lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),),
        over=cases,
        inputs=seen.inputs(scale_kernel),
    )
    assert [case.sizes for case in dispatch.cases] == cases


def test_a_constexpr_of_a_plain_kernel_is_left_to_the_configs_where_named(lab: Lab) -> None:
    with lab.harvest() as seen:
        add(100)
    cases, configs = seen.cases(add_kernel, ["n"]), [triton.Config({"BLOCK": block}) for block in (32, 128)]
    inputs = seen.inputs(add_kernel, ["n"], tuned=["BLOCK"])
    dispatch = lab.tune_over(add_kernel, (4,), over=cases, inputs=inputs, configs=configs)
    assert {row.config.values["BLOCK"] for row in dispatch.cases[0].rows} == {32, 128}


def test_launches_of_other_dtypes_at_equal_sizes_are_noted(lab: Lab) -> None:
    with lab.harvest() as seen:
        for dtype in (torch.float32, torch.float16, torch.float32):
            x = torch.rand(64, dtype=dtype)
            add_kernel[(1,)](x, x, torch.empty_like(x), 64, 0.5, BLOCK=64)
    cases = seen.cases(add_kernel)
    (note,) = cases.notes
    assert note.startswith("1 of 3 launches of add_kernel have other dtypes or flags at the same sizes (out_ptr, x_ptr")
    inputs = seen.inputs(add_kernel)
    dispatch = lab.tune_over(add_kernel, (1,), over=cases, inputs=inputs, configs=[triton.Config({}, num_warps=2)])
    assert note in dispatch.notes


def test_integers_that_may_be_zero_are_no_sizes(lab: Lab) -> None:
    x, out = torch.rand(64), torch.empty(64)
    with lab.harvest() as seen:
        for first in (0, 32):
            copy_from_kernel[(1,)](x, out, first, 64, BLOCK=64)
    assert seen.cases(copy_from_kernel) == [{"n": 64, "BLOCK": 64}]
    with pytest.raises(UsageError, match="over has first=0"):
        lab.tune_over(copy_from_kernel, (1,), over=seen.cases(copy_from_kernel, ["first"]), configs=[{"BLOCK": 64}])


def test_a_kernel_that_was_not_launched_is_an_error(lab: Lab) -> None:
    with lab.harvest() as seen:
        scale(100)
    with pytest.raises(UsageError, match="No launch of add_kernel was harvested; launched were: scale_kernel"):
        seen.cases(add_kernel)
    with pytest.raises(UsageError, match="no integer 'm'"):
        seen.cases("scale_kernel", ["m"])
    with pytest.raises(UsageError, match="not a Triton kernel"):
        seen.cases(3)  # type: ignore[arg-type]


def test_a_harvest_is_saved_loaded_and_merged_for_many_ranks(lab: Lab, tmp_path: Path) -> None:
    with lab.harvest() as first:
        add(100)
        scale(100)
    with lab.harvest() as second:
        add(100)
        add(200)
    paths = [seen.save(tmp_path / f"{rank}.json") for rank, seen in enumerate((first, second))]
    merged = Harvest.load(paths[0]).merge(*map(Harvest.load, paths[1:]))
    expected = {("add_kernel", 100): 2, ("add_kernel", 200): 1, ("scale_kernel", 100): 1}
    assert counts(merged) == expected
    assert merged.record.programs == 2
    assert counts(Harvest.load(merged.save(tmp_path / "all.json"))) == expected
    assert merged.inputs("add_kernel")(n=200)["x_ptr"].shape == (200,)
    merged.save(tmp_path / "all.csv")
    assert "add_kernel" in (tmp_path / "all.csv").read_text()


@pytest.mark.parametrize("text", ["", "[]", '{"result": "Tuning"}', '{"result": "Harvest", "format": 2}'])
def test_a_file_that_is_no_harvest_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "seen.json"
    path.write_text(text)
    with pytest.raises(UsageError, match="not a saved harvest"):
        Harvest.load(path)


def test_the_frame_has_the_share_of_the_time_and_the_distance_to_the_roofline(lab: Lab) -> None:
    with lab.harvest() as seen:
        add(2**12)
        scale(100)
    frame = seen.frame
    assert list(frame["kernel"]) == ["add_kernel", "scale_kernel"]
    assert frame["share"].sum() == pytest.approx(1.0)
    assert list(frame["basis"]) == ["predicted", "predicted"]
    assert (frame["times_bound"] >= 1.0).all()
    assert "add_kernel" in seen._repr_html_()  # type: ignore[operator]
