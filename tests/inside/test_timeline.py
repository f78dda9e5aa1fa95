"""The timeline of a launch: time stamps in the text of a kernel, and what follows from them."""

from __future__ import annotations

import re
import textwrap
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

import kernellab
from benchmarks.timeline import WAITED_CYCLES, places_by_resources, waiting
from kernellab._triton.closure import closure_of
from kernellab.errors import CannotRun, UsageError
from kernellab.inside.rewritten import run_on_copies
from kernellab.inside.timeline import Timeline, times_of_table
from kernellab.inside.timeline_verbs import TABLE, late_starts, stamped_implementation, stamped_kernel, timeline_of_run
from kernellab.launch.calls import UserCall
from kernellab.registry.calls import compile_call
from kernellab.source.edits import edits_of
from kernellab.views.cards.inside import timeline_card
from kernellab.views.figures.inside import lanes_of, merged_bars, timeline_figure, wave_bars
from tests.labs import lab_fixture
from tests.tables import every


@triton.jit
def doubled(value):
    return value * 2


@triton.jit
def sum_kernel(x, out, rounds, BLOCK: tl.constexpr):
    """Sums, or leaves early."""
    if tl.program_id(0) == 3:
        return
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for _ in range(rounds):
        total += doubled(tl.load(x + offsets))
    tl.store(
        out + offsets,
        total,
    )


@triton.autotune([triton.Config({"BLOCK": 64}, num_warps=2)], key=[])
@triton.heuristics({"TWICE": lambda arguments: arguments["n"] > 1})
@triton.jit
def decorated_kernel(x, n, BLOCK: tl.constexpr, TWICE: tl.constexpr):
    offsets = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    if TWICE:
        tl.store(x + offsets, tl.load(x + offsets) * 2)
    else:
        tl.store(x + offsets, tl.load(x + offsets))


@gluon.jit
def gluon_kernel(x, out, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    offsets = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    gl.store(out + offsets, gl.load(x + offsets) * 2)


FIRST = sum_kernel.starting_line_number
LOOP, STORE = FIRST + 7, FIRST + 9
lab = lab_fixture("cuda:90")


def stamped(lab: kernellab.Lab, lines: tuple[int, ...] = ()) -> tuple[Any, Any]:
    arguments = {"x": torch.ones(4 * 64), "out": torch.zeros(4 * 64), "rounds": 5, "BLOCK": 64}
    plain = compile_call(lab.session(), UserCall(lab.bind(sum_kernel), (4,), (), arguments))
    return stamped_implementation(lab.session(), plain, lines, "cpu")


def test_each_program_stores_its_sm_its_start_and_its_end(lab: kernellab.Lab) -> None:
    implementation, _ = stamped(lab)
    table = run_on_copies(lab.session(), implementation, 60.0).arguments[TABLE].numpy()
    assert table[:, 0].tolist() == [0, 1, 2, 3]  # the interpreter's SM numbers
    assert (table[:, 2] > table[:, 1]).all(), "also of the program that returns early"
    assert (table[1:, 1] >= table[:-1, 2]).all()


def test_a_copy_with_stamps_computes_the_same_and_leaves_the_arguments_alone(lab: kernellab.Lab) -> None:
    implementation, _ = stamped(lab, (LOOP, STORE))
    copied = run_on_copies(lab.session(), implementation, 60.0)
    out = copied.arguments["out"]
    assert (out[: 3 * 64] == 10).all()
    assert (implementation.kernel_launch.arguments["out"] == 0).all()


def test_cycles_of_all_iterations_are_added_to_the_part_of_a_line(lab: kernellab.Lab) -> None:
    implementation, kernel = stamped(lab, (LOOP, STORE))
    table = run_on_copies(lab.session(), implementation, 60.0).arguments[TABLE].numpy()
    assert kernel.columns == table.shape[1] == 6
    assert (table[:3, 3:] > 0).all()
    assert table[3, 3] > 0
    assert (table[3, 4:] == 0).all(), "a program that returns early never reaches the lines"
    assert (table[:, 3:].sum(axis=1) <= table[:, 2] - table[:, 1]).all()


def test_stamps_are_read_from_the_clocks_of_the_device(lab: kernellab.Lab) -> None:
    plain, _ = stamped(lab)
    ptx = plain.kernel.stages["ptx"]
    assert ptx.count("%smid") == 1
    assert ptx.count("%globaltimer") == 3, "one at the start, one at each exit"
    assert "%clock64" not in ptx
    assert "red." not in ptx
    assert "atom." not in ptx
    with_lines, _ = stamped(lab, (LOOP,))
    ptx = with_lines.kernel.stages["ptx"]
    assert ptx.count("%clock64") == 4
    assert len(re.findall(r"\b(?:red|atom)\.(?:\w+\.)*global", ptx)) == 3


def test_the_ttir_of_the_rest_is_that_of_the_plain_kernel(lab: kernellab.Lab) -> None:
    def operations(text: str) -> list[str]:
        names = ("tt.load", "tt.store", "tt.make_range", "scf.for", "arith.addf", "arith.mulf", "tt.splat")
        return [name for line in text.splitlines() for name in names if f"{name} " in line]

    implementation, _ = stamped(lab)
    arguments = implementation.kernel_launch.arguments
    plain = lab.compile(sum_kernel, *(arguments[name] for name in ("x", "out", "rounds")), BLOCK=64)
    copied = operations(implementation.kernel.stages["ttir"])
    own = operations(plain.stages["ttir"])
    assert [name for name in copied if name != "tt.store"] == [name for name in own if name != "tt.store"]
    assert copied.count("tt.store") - own.count("tt.store") == 4  # SM and start; an end at each exit


def test_statements_share_the_lines_that_are_there() -> None:
    closure, _ = closure_of(sum_kernel)
    kernel = stamped_kernel(closure, (STORE,))
    old, new = closure.functions[0].text.splitlines(), kernel.closure.functions[0].text.splitlines()
    assert all(mine.split("(")[0].strip() in line for mine, line in zip(old, new, strict=True))


def test_a_statement_before_or_after_a_loop_has_a_line_of_its_own() -> None:
    edits = edits_of("def f(a):\n    for i in range(3):\n        a = i\n    return a\n")
    edits.before(edits.body[0], "first()")
    edits.after(edits.body[0], "last()")
    assert edits.result() == (
        "def f(a):\n    first()\n    for i in range(3):\n        a = i\n    last()\n    return a\n"
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("def f(): return 1\n", "def f(t): end(); return 1\n"),
        ("def f(\n    a,  # (\n):\n    a = 'ä'; b = a\n", "def f(t, \n    a,  # (\n):\n    a = 'ä'; b = a; end()\n"),
        ("def f(*a):\n    if a: return\n    b()", "def f(t, *a):\n    if a: end(); return\n    b(); end()"),
    ],
)
def test_exits_and_parameters_are_found_in_any_layout(before: str, after: str) -> None:
    from kernellab.inside.timeline_verbs import _add_ends

    edits = edits_of(before)
    edits.add_parameter("t")
    _add_ends(edits, "end()")
    assert edits.result() == after


def test_a_line_without_a_statement_is_refused_with_those_that_have_one() -> None:
    closure, _ = closure_of(sum_kernel)
    with pytest.raises(UsageError, match=f"expected one of .*{STORE}"):
        stamped_kernel(closure, (STORE + 1,))


def test_a_branch_of_elif_cannot_be_marked() -> None:
    text = textwrap.dedent("""
        def k(x):
            if x == 1:
                x = 2
            elif x == 3:
                x = 4
    """).strip()
    edits = edits_of(text)
    assert not edits.before(edits.body[0].orelse[0], "mark()")  # type: ignore[attr-defined]


def test_decorated_kernels_keep_their_config_and_heuristics(lab: kernellab.Lab) -> None:
    x = torch.ones(128)
    plain = compile_call(lab.session(), UserCall(lab.bind(decorated_kernel), (1, 2), (x, 5), {}))
    implementation, kernel = stamped_implementation(lab.session(), plain, (), "cpu")
    timeline = timeline_of_run(lab.session(), implementation, kernel, 60.0, (), (10.0, 10.5))
    assert implementation.kernel_launch.options["num_warps"] == 2
    assert timeline.frame["program"].tolist() == [(0, 0, 0), (0, 1, 0)]


@pytest.mark.parametrize("lines", [(), (gluon_kernel.starting_line_number + 4,)])
def test_a_kernel_in_gluon_gets_stamps_in_its_own_language(lab: kernellab.Lab, lines: tuple[int, ...]) -> None:
    arguments = {"x": torch.ones(128), "out": torch.zeros(128), "BLOCK": 128}
    plain = compile_call(lab.session(), UserCall(lab.bind(gluon_kernel), (1,), (), arguments))
    implementation, _ = stamped_implementation(lab.session(), plain, lines, "cpu")
    ptx = implementation.kernel.stages["ptx"]
    assert ptx.count("%globaltimer") == 2
    assert ptx.count("%clock64") == (3 if lines else 0)


def test_without_a_gpu_the_error_says_what_it_needs(lab: kernellab.Lab) -> None:
    if torch.cuda.is_available():
        pytest.skip("needs a machine without a GPU")
    x = torch.ones(128)
    with pytest.raises(CannotRun, match="NVIDIA GPU, and there is none here"):
        lab.timeline(decorated_kernel, (1, 2), x, 5)


def table_of(*programs: tuple[int, int, int]) -> Any:
    return np.array(programs, np.int64)


def timeline_from(table: Any, **more: Any) -> Timeline:
    times = times_of_table(table)
    facts: dict[str, Any] = {
        "kernel": "k",
        "grid": (len(table), 1, 1),
        "device": "H100",
        "multiprocessors": 2,
        "launch_us": 14.0,
        "plain_us": 10.0,
        "stamped_us": 10.2,
        **more,
    }
    return Timeline(
        sm=times.sm,
        start_us=times.start_us,
        end_us=times.end_us,
        parts_us=times.parts_us,
        resolution_ns=times.resolution_ns,
        **facts,
    )


# Two SMs with two places each, six programs: four in the first wave, two in the second, both on SM 0.
TABLE_OF_WAVES = table_of(
    *[(0, 1000, 5000), (1, 1000, 5000), (0, 1064, 5064), (1, 1064, 5064), (0, 5000, 9000), (0, 5096, 9128)]
)


def test_waves_follow_from_the_places_of_an_sm() -> None:
    timeline = timeline_from(TABLE_OF_WAVES)
    assert timeline.places_per_sm == 2
    assert timeline.wave.tolist() == [1, 1, 1, 1, 2, 2]
    assert [wave.programs for wave in timeline.waves] == [4, 2]
    assert timeline.waves[1].share == pytest.approx(1 / 3)
    assert (timeline.waves[1].start_us, timeline.waves[1].end_us) == (4.0, 8.128)


@pytest.mark.parametrize(("warps", "places"), [(1, 32), *every(3, [(2, 32), (4, 16), (8, 8)])[1:]])
def test_the_kernel_that_waits_has_the_places_of_its_warps_with_and_without_stamps(
    lab: kernellab.Lab, warps: int, places: int
) -> None:
    out = torch.zeros(1, dtype=torch.int64)
    call = UserCall(lab.bind(waiting), (1,), (out, WAITED_CYCLES), {"num_warps": warps})
    plain = compile_call(lab.session(), call)
    copy, _ = stamped_implementation(lab.session(), plain, (), "cpu")
    assert places_by_resources(plain.kernel)[0] == places_by_resources(copy.kernel)[0] == places
    loop = plain.kernel.stages["ptx"].partition("$L__BB0_")[2]
    assert "%clock64" in loop
    assert not re.search(r"\b(?:ld|st)\.(?:global|local)", loop.partition("bra")[0]), "the loop reaches no memory"


def test_programs_that_fit_and_are_not_seen_at_once_are_noted(lab: kernellab.Lab) -> None:
    out = torch.zeros(1, dtype=torch.int64)
    compiled = lab.compile(waiting, out, WAITED_CYCLES, num_warps=8)  # eight fit
    rows = [(n % 2, n // 2 * 100, n // 2 * 100 + 450) for n in range(16)]
    few, many = timeline_from(table_of(*rows[:14])), timeline_from(table_of(*rows))
    assert late_starts(few, compiled) == (), "the grid has too few programs"
    (note,) = late_starts(many, compiled)
    assert note.startswith("at most 5 programs ran on an SM at a time, 8 fit")
    assert late_starts(timeline_from(table_of(*((n % 2, n, 900) for n in range(16)))), compiled) == ()


def test_gap_tail_idle_time_and_resolution_follow_from_the_stamps() -> None:
    timeline = timeline_from(TABLE_OF_WAVES)
    assert timeline.span_us == pytest.approx(8.128)
    assert timeline.gap_us == pytest.approx(14.0 - 8.128)
    assert timeline.tail_us == pytest.approx(9.128 - 5.064)
    assert timeline.idle_share == pytest.approx(1 - (8.128 + 4.064) / (2 * 8.128))
    assert timeline.resolution_ns == 32


def test_an_sm_without_a_program_is_idle_from_the_start() -> None:
    timeline = timeline_from(table_of((0, 0, 100)))
    assert timeline.tail_us == timeline.span_us
    assert timeline.idle_share == pytest.approx(0.5)


def test_programs_that_take_long_are_named() -> None:
    timeline = timeline_from(table_of(*[(n % 2, n * 10, n * 10 + 1000) for n in range(9)], (1, 50, 5000)))
    assert timeline.long_programs == (9,)
    assert "(9, 0, 0) 4.95 us" in timeline_card(timeline).text()


def test_parts_share_the_time_of_their_program() -> None:
    table = np.array([[0, 0, 1000, 10, 30, 60], [1, 0, 2000, 100, 0, 100]], np.int64)
    timeline = timeline_from(table, lines=(12, 15))
    assert timeline.parts_us is not None
    assert timeline.parts_us.tolist() == [[0.1, 0.3, 0.6], [1.0, 0.0, 1.0]]
    assert timeline.shares == pytest.approx({"start": 1.1 / 3, "line 12": 0.3 / 3, "line 15": 1.6 / 3})
    assert list(timeline.frame.columns[-3:]) == ["start us", "line 12 us", "line 15 us"]


@pytest.mark.parametrize("sms", [1, 6, 101])
def test_the_axis_of_sms_has_no_tick_beyond_the_last(sms: int) -> None:
    timeline = timeline_from(table_of(*((sm, 100, 200) for sm in range(sms))))
    axes = timeline_figure(timeline).axes[0]
    low, high = sorted(axes.get_ylim())
    assert max(tick for tick in axes.get_yticks() if low <= tick <= high) <= sms - 1


def test_a_high_cost_of_the_stamps_is_said_on_the_picture_and_in_the_text() -> None:
    cheap, dear = timeline_from(TABLE_OF_WAVES), timeline_from(TABLE_OF_WAVES, stamped_us=11.5)
    assert "cost 2.0 % (10.2 us vs 10 us without)" in timeline_card(cheap).text()
    assert "cost 15 %" in timeline_card(dear).text()
    assert "the times of the plain kernel differ" in timeline_card(dear).text()
    assert not any("cost" in text.get_text() for text in timeline_figure(cheap).texts)
    assert any("cost 15 %" in text.get_text() for text in timeline_figure(dear).texts)


def test_programs_of_an_sm_are_drawn_on_places_of_their_own() -> None:
    timeline = timeline_from(TABLE_OF_WAVES)
    assert lanes_of(timeline) == [0, 0, 1, 1, 0, 1]
    assert {name: len(bars) for name, bars in wave_bars(timeline).items()} == {"wave 1": 4, "wave 2": 2}


def test_a_large_grid_is_drawn_merged_and_says_so() -> None:
    rows = [(n % 2, n // 2 * 100, n // 2 * 100 + 100) for n in range(8000)]
    timeline = timeline_from(table_of(*rows))
    bars = merged_bars(timeline)
    assert sum(map(len, bars.values())) < 8000
    assert any("drawn as one bar" in text.get_text() for text in timeline_figure(timeline).texts)


@pytest.mark.parametrize("dark", [False, True])
def test_a_timeline_is_plotted_and_saved(tmp_path: Any, dark: bool) -> None:
    table = np.array([[0, 0, 1000, 10, 30, 60], [1, 0, 2000, 100, 0, 100]], np.int64)
    timeline = timeline_from(table, lines=(12, 15))
    assert timeline.plot(dark=dark).axes[0].get_ylabel() == "SM"
    assert timeline.save(tmp_path / "t.svg", dark=dark).read_text().startswith("<?xml")
    assert timeline.save(tmp_path / "t.csv").read_text().startswith("program,sm,start_us,end_us,wave,start us")
    assert '"part"' not in timeline.save(tmp_path / "t.json").read_text()
    assert "SMs over time" in timeline.to_html()
