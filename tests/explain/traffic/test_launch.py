"""Traffic of launches, against figures that follow from the rules of the hardware."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from triton.tools.tensor_descriptor import TensorDescriptor

import kernellab
from benchmarks import traffic_kernels, traffic_kernels_more
from kernellab.errors import LaunchError, UsageError
from kernellab.explain.traffic.result import DESCRIPTOR, Traffic, TrafficRow
from kernellab.views.cards.traffic import access_badge, shown_rows, traffic_card
from tests.explain.traffic import kernels
from tests.kernels.cases import all_cases

N = 16384


def only(traffic: Traffic, operation: str, space: str = "global", argument: str | None = None) -> TrafficRow:
    """Return the row of an operation."""
    found = [
        row
        for row in traffic.rows
        if (row.operation, row.space) == (operation, space) and argument in {None, row.argument}
    ]
    assert len(found) == 1, found
    return found[0]


def copied(lab: kernellab.Lab, x: torch.Tensor, block: int = 1024, **options: Any) -> Traffic:
    y = torch.zeros(x.numel() + x.storage_offset())[x.storage_offset() :]
    grid = lambda meta: (-(-x.numel() // meta["BLOCK"]),)  # noqa: E731
    return lab.traffic(traffic_kernels.traffic_copy, grid, x, y, x.numel(), BLOCK=block, **options)


@pytest.mark.slow
def test_a_contiguous_copy_uses_all_that_it_moves(lab: kernellab.Lab) -> None:
    traffic = copied(lab, torch.rand(N))
    load = only(traffic, "load")
    assert (load.requests, load.sectors, load.ideal_sectors) == (128, 2048, 2048)
    assert (load.bytes, load.bytes_used, load.efficiency) == (4 * N, 4 * N, 1.0)
    assert (load.argument, load.instruction) == ("x", "ld.global.v4.b32")
    assert load.line == traffic_kernels.traffic_copy.starting_line_number + 4
    assert not traffic.unknown
    assert traffic.share == 1


@pytest.mark.slow
def test_a_small_argument_fills_its_part_of_the_map(lab: kernellab.Lab) -> None:
    read, written = copied(lab, torch.rand(48), block=16).arguments[:2]
    assert [row.tolist().count(1) for row in read.programs[:4]] == [86, 86, 86, 0]
    assert set(written.programs[:3].max(axis=0).tolist()) == {2}


@pytest.mark.slow
def test_a_base_that_is_one_element_off_takes_narrow_loads_and_more_sectors(lab: kernellab.Lab) -> None:
    load = only(copied(lab, torch.rand(N + 1)[1:]), "load")
    assert (load.requests, load.sectors, load.ideal_sectors) == (512, 2560, 2048)
    assert load.example is not None
    assert load.example.begin_bytes == 4
    assert load.efficiency == pytest.approx(0.8)


@pytest.mark.slow
def test_threads_without_elements_load_again_and_do_not_store(lab: kernellab.Lab) -> None:
    traffic = copied(lab, torch.rand(N), block=64, num_warps=4)
    assert only(traffic, "load").requests == 1024
    assert only(traffic, "store").requests == 512


@pytest.mark.slow
def test_lanes_that_are_masked_off_are_counted(lab: kernellab.Lab) -> None:
    traffic = lab.traffic(
        traffic_kernels.traffic_parity_mask, (4,), torch.rand(4096), torch.rand(4096), BLOCK=1024, EVERY=4
    )
    assert only(traffic, "load").lanes_off == 0  # of four elements in a thread one is on
    traffic = lab.traffic(
        traffic_kernels.traffic_parity_mask, (4,), torch.rand(4096), torch.rand(4096), BLOCK=1024, EVERY=64
    )
    assert only(traffic, "load").lanes_off == pytest.approx(15 / 16)


@pytest.mark.slow
def test_a_stride_moves_a_sector_for_each_element(lab: kernellab.Lab) -> None:
    x = torch.rand(2048 * 8)
    traffic = lab.traffic(traffic_kernels.traffic_strided, (4,), x, torch.zeros(2048), 2048, 8, BLOCK=512)
    load = only(traffic, "load")
    assert (load.requests, load.sectors, load.ideal_sectors) == (64, 2048, 256)
    assert load.efficiency == pytest.approx(1 / 8)
    example = load.example
    assert example is not None
    assert example.sectors == 32
    assert [offset for offset in example.offsets if offset is not None][:3] == [0, 128, 256]  # a thread has four


@pytest.mark.slow
def test_a_gather_goes_where_the_indices_say(lab: kernellab.Lab) -> None:
    y = torch.zeros(1024)
    near, far = torch.arange(1024, dtype=torch.int32), torch.arange(1024, dtype=torch.int32) * 8
    found = [
        only(
            lab.traffic(traffic_kernels.traffic_gather, (1,), torch.rand(8192), index, y, 1024, BLOCK=1024),
            "load",
            argument="x",
        )
        for index in (near, far)
    ]
    assert (found[0].sectors, found[1].sectors) == (512, 1024)  # of 16 threads each, and of 32
    assert found[1].ideal_sectors == found[0].ideal_sectors


@pytest.mark.slow
def test_a_loop_counts_once_per_round(lab: kernellab.Lab) -> None:
    limit = torch.tensor([3, 0, 1, 5], dtype=torch.int32)
    traffic = lab.traffic(traffic_kernels.traffic_while, (4,), torch.rand(8192), torch.zeros(1024), limit, BLOCK=256)
    assert only(traffic, "load", argument="x").bytes_used == 9 * 256 * 4


@pytest.mark.slow
def test_a_branch_counts_where_programs_take_it(lab: kernellab.Lab) -> None:
    x, y, z = torch.rand(4096), torch.rand(8192), torch.zeros(4096)
    traffic = lab.traffic(traffic_kernels.traffic_branch, (16,), x, y, z, BLOCK=256)
    assert only(traffic, "load", argument="x").bytes_used == 6 * 256 * 4
    assert only(traffic, "load", argument="y").bytes_used == 10 * 256 * 4


@pytest.mark.slow
def test_an_inlined_helper_has_its_own_line_and_its_caller(lab: kernellab.Lab) -> None:
    load = only(lab.traffic(kernels.calls_a_helper, (4,), torch.rand(4096), torch.zeros(4096), BLOCK=1024), "load")
    assert load.line == kernels.helper_load.starting_line_number + 2
    assert [line for _, line in load.calls] == [kernels.calls_a_helper.starting_line_number + 3]


@pytest.mark.slow
def test_what_is_never_read_or_written_is_told(lab: kernellab.Lab) -> None:
    x, y = torch.rand(4096), torch.zeros(4096)
    traffic = lab.traffic(traffic_kernels.traffic_copy, (3,), x, y, 3000, BLOCK=1024)
    rows = {each.argument: each for each in traffic.arguments}
    assert (rows["x"].elements, rows["x"].never_read, rows["x"].never_written) == (4096, 1096, None)
    assert (rows["y"].never_read, rows["y"].never_written) == (None, 1096)
    assert rows["x"].reads_per_element == 1
    strided = lab.traffic(traffic_kernels.traffic_copy, (1,), x[::2], y, 1024, BLOCK=1024)
    assert {each.argument: each.never_read for each in strided.arguments}["x"] == 2048 - 512


@pytest.mark.slow
def test_programs_that_read_the_same_are_seen_in_each_wave(lab: kernellab.Lab) -> None:
    m, n = 1024, 64
    a, b = torch.rand(m, n).half(), torch.rand(n, n).half()
    traffic = lab.traffic(
        traffic_kernels_more.traffic_matmul_even,
        (m // 64, 1),
        a,
        b,
        torch.zeros(m, n).half(),
        n,
        n,
        BM=64,
        BN=64,
        BK=64,
    )
    rows = {each.argument: each for each in traffic.arguments}
    assert rows["b"].reads_per_element == m // 64
    assert rows["b"].footprint_bytes == 2 * n * n
    assert rows["a"].reads_per_element == 1


@pytest.mark.slow
def test_pipelined_copies_are_loads_of_their_arguments(lab: kernellab.Lab) -> None:
    a, b, c = torch.rand(128, 256).half(), torch.rand(256, 128).half(), torch.zeros(128, 128).half()
    for stages, instruction in ((1, "ld.global.v4.b32"), (3, "cp.async.cg.shared.global")):
        meta = {"BM": 64, "BN": 64, "BK": 32, "num_stages": stages}
        traffic = lab.traffic(traffic_kernels_more.traffic_matmul_even, (2, 2), a, b, c, 128, 256, **meta)
        load = only(traffic, "load", argument="a")
        assert (load.sectors, load.instruction) == (2 * 128 * 256 * 2 // 32, instruction)


@pytest.mark.slow
def test_a_descriptor_moves_the_rows_of_its_boxes(lab: kernellab.Lab) -> None:
    x, y = torch.rand(128, 128).half(), torch.zeros(128, 128).half()
    boxes = [TensorDescriptor.from_tensor(tensor, [32, 64]) for tensor in (x, y)]
    traffic = lab.traffic(traffic_kernels_more.traffic_descriptor_copy, (4, 2), *boxes, M=32, N=64)
    load = only(traffic, "load")
    assert (load.argument, load.requests, load.sectors) == ("x", 8, 128 * 128 * 2 // 32)
    assert {each.argument: each.never_read for each in traffic.arguments}["x"] == 0


@pytest.mark.slow
def test_a_descriptor_is_cut_off_at_the_end_of_its_tensor(lab: kernellab.Lab) -> None:
    x, y = torch.rand(100, 64).half(), torch.zeros(100, 64).half()
    boxes = [TensorDescriptor.from_tensor(tensor, [32, 64]) for tensor in (x, y)]
    traffic = lab.traffic(traffic_kernels_more.traffic_descriptor_copy, (4, 1), *boxes, M=32, N=64)
    assert only(traffic, "load").sectors == 100 * 64 * 2 // 32


@pytest.mark.slow
def test_a_target_without_tensor_maps_loads_through_pointers(lab: kernellab.Lab) -> None:
    x, y = torch.rand(128, 128).half(), torch.zeros(128, 128).half()
    boxes = [TensorDescriptor.from_tensor(tensor, [32, 64]) for tensor in (x, y)]
    kernel, meta = traffic_kernels_more.traffic_descriptor_copy, {"target": "cuda:80", "M": 32, "N": 64}
    traffic = lab.traffic(kernel, (4, 2), *boxes, **meta)
    # Some versions of Triton give the lanes of a warp neighbours of one row, others one column of 32 rows.
    layout = re.search(r"threadsPerWarp = \[(\d+), (\d+)\]", lab.compile(kernel, *boxes, **meta).ttgir)
    assert layout is not None
    rows, columns = map(int, layout.groups())
    load = only(traffic, "load")
    assert load.requests == 128 * 128 // 32
    assert load.sectors == load.requests * rows * max(1, columns * 2 // 32)
    assert not traffic.unknown


@pytest.mark.slow
def test_a_descriptor_that_the_kernel_makes_is_followed(lab: kernellab.Lab) -> None:
    x, y = torch.rand(128, 128), torch.zeros(128, 128)
    traffic = lab.traffic(traffic_kernels_more.traffic_device_descriptor, (4, 4), x, y, 128, 128, M=32, N=32)
    assert only(traffic, "load").argument == "x"
    assert only(traffic, "load").sectors == 128 * 128 * 4 // 32


@pytest.mark.slow
def test_atomics_have_rows_of_their_own(lab: kernellab.Lab) -> None:
    traffic = lab.traffic(
        traffic_kernels_more.traffic_atomic_scalar, (4,), torch.rand(4096), torch.zeros(1), BLOCK=1024
    )
    atomic = only(traffic, "atomic")
    assert (atomic.argument, atomic.requests, atomic.sectors) == ("total", 4, 4)


@pytest.mark.slow
def test_tickets_are_handed_out_one_by_one(lab: kernellab.Lab) -> None:
    y = torch.zeros(128, dtype=torch.int32)
    traffic = lab.traffic(kernels.takes_tickets, (16,), torch.zeros(1, dtype=torch.int32), y)
    assert only(traffic, "store").sectors == 16
    assert {each.argument: each.never_written for each in traffic.arguments}["y"] == 128 - 16


@pytest.mark.slow
def test_values_that_a_kernel_stores_and_loads_again_are_followed(lab: kernellab.Lab) -> None:
    index, y, z = torch.zeros(128, dtype=torch.int32), torch.rand(1024), torch.zeros(128)
    traffic = lab.traffic(kernels.reads_what_it_stored, (1,), index, y, z, BLOCK=128, num_warps=1)
    assert only(traffic, "load", argument="y").sectors == 128
    assert index.eq(0).all()


@pytest.mark.slow
def test_members_of_a_tuple_have_names(lab: kernellab.Lab) -> None:
    traffic = lab.traffic(kernels.loads_members, (1,), (torch.rand(256), torch.rand(512)), torch.zeros(256), BLOCK=256)
    assert only(traffic, "load", argument="inputs[0]").sectors == 32
    assert only(traffic, "load", argument="inputs[1]").efficiency == 0.25  # elements lie 16 bytes apart in each request


@pytest.mark.slow
def test_arguments_that_share_memory_stay_as_they_are(lab: kernellab.Lab) -> None:
    x = torch.arange(256.0)
    traffic = lab.traffic(kernels.reverses_in_place, (1,), x, N=256)
    assert torch.equal(x, torch.arange(256.0))
    assert only(traffic, "store").sectors == 32
    assert not traffic.unknown


@pytest.mark.slow
@pytest.mark.parametrize(("columns", "dtype", "warps"), [(128, torch.float16, 1), (100, torch.float32, 4)])
def test_programs_that_add_up_under_a_lock_are_followed(
    lab: kernellab.Lab, columns: int, dtype: torch.dtype, warps: int
) -> None:
    rows, groups = 13, 4
    x, parts = torch.ones(rows, columns, dtype=dtype), torch.zeros(groups, columns, dtype=dtype)
    weights, statistics = torch.ones(columns, dtype=dtype), torch.ones(rows)
    locks = torch.zeros(2 * groups, dtype=torch.int32)
    launch = (x, x, parts, parts.clone(), x, weights, statistics, statistics, locks, columns, columns)
    meta = {"GROUP": groups, "BLOCK": 128, "num_warps": warps}
    traffic = lab.traffic(kernels.layer_norm_backward, (rows,), *launch, **meta)
    why = lab.explain(kernels.layer_norm_backward, (rows,), *launch, **meta)
    for unknown in (traffic.unknown, why.unknown):
        assert any("spin until another one is done" in str(each) for each in unknown)
    rows_of_parts = [row for row in traffic.rows if row.operation == "load" and row.argument == "dw"]
    assert sum(row.bytes_used for row in rows_of_parts) == (rows - groups) * columns * dtype.itemsize
    assert not locks.any()


@pytest.mark.slow
def test_what_was_stored_without_being_known_is_unknown_where_it_decides(lab: kernellab.Lab) -> None:
    x, y = torch.rand(32, 32).half(), torch.zeros(32, 32).half()
    traffic = lab.traffic(kernels.stores_a_product_and_branches_on_it, (1,), x, y, N=32)
    assert any("depends on" in str(each) for each in traffic.unknown)


@pytest.mark.slow
def test_what_depends_on_a_product_is_unknown_and_says_so(lab: kernellab.Lab) -> None:
    x, y = torch.rand(32, 32).half(), torch.zeros(32, 32).half()
    traffic = lab.traffic(kernels.branches_on_a_product, (1,), x, y, N=32)
    assert traffic.unknown
    assert "depends on" in str(traffic.unknown[0])


@pytest.mark.slow
def test_a_large_grid_is_extrapolated_from_a_sample(lab: kernellab.Lab) -> None:
    n = 1 << 24
    x, y = torch.empty(n, dtype=torch.int8), torch.empty(n, dtype=torch.int8)
    traffic = lab.traffic(traffic_kernels.traffic_copy, (n // 16,), x, y, n, BLOCK=16, num_warps=1)
    assert 0 < traffic.share < 1
    assert only(traffic, "store").bytes_used == pytest.approx(n, rel=1e-6)
    assert not traffic.arguments
    assert "note: extrapolated from" in traffic_card(traffic).text()


def test_an_amd_target_is_unknown(lab: kernellab.Lab) -> None:
    traffic = copied(lab, torch.rand(N), target="hip:gfx942")
    assert not traffic.rows
    assert "hip:gfx942" in str(traffic.unknown[0])
    said = "the machine code of hip:gfx942 is not followed, only that of cuda targets"
    assert repr(traffic).endswith(f"on hip:gfx942: unknown, {said}>")
    assert traffic_card(traffic).text().splitlines()[1:] == [f"unknown: {said}"]
    assert "of the grid" not in (traffic_card(traffic).text() + traffic_card(traffic).html()).lower()


@pytest.mark.slow
def test_the_frame_has_a_row_per_access(lab: kernellab.Lab) -> None:
    frame = copied(lab, torch.rand(N)).frame
    wanted = ["line", "operation", "space", "argument", "requests", "sectors", "ideal_sectors", "wavefronts"]
    assert {*wanted, "conflicts", "bytes", "efficiency"} <= set(frame.columns)
    assert list(frame.operation) == ["load", "store"]
    assert frame.sectors.sum() == 4096
    assert list(copied(lab, torch.rand(N)).argument_frame.argument) == ["x", "y"]


@pytest.mark.slow
def test_an_empty_grid_moves_nothing(lab: kernellab.Lab) -> None:
    traffic = lab.traffic(traffic_kernels.traffic_copy, (0,), torch.rand(8), torch.zeros(8), 8, BLOCK=16)
    assert not traffic.rows
    assert traffic.share == 1


def test_a_wrong_call_is_an_error(lab: kernellab.Lab) -> None:
    with pytest.raises(UsageError, match="grid is missing"):
        lab.traffic(traffic_kernels.traffic_copy, torch.rand(8), torch.zeros(8), 8, BLOCK=16)
    with pytest.raises(LaunchError):
        lab.traffic(traffic_kernels.traffic_copy, (1,), torch.rand(8), torch.zeros(8), BLOCK=16)


@pytest.mark.slow
def test_addresses_that_pass_the_end_of_shared_memory_are_those_of_the_data(lab: kernellab.Lab) -> None:
    case = all_cases()["histogram-uint8"]
    arguments = case.fresh_arguments()
    bins = arguments["x_ptr"]
    assert isinstance(bins, torch.Tensor)
    example = only(lab.traffic(case.kernel, case.grid, **arguments, **case.meta), "atomic").example
    assert example is not None
    assert list(example.offsets) == (4 * bins[:32].int()).tolist()


@pytest.mark.slow
def test_setting_up_a_descriptor_is_named_and_is_one_row_of_the_card(lab: kernellab.Lab) -> None:
    x, y = torch.rand(64, 64), torch.zeros(64, 64)
    traffic = lab.traffic(kernels.copies_by_a_descriptor, (2, 2), x, y, 64, BLOCK=32)
    line = kernels.copies_by_a_descriptor.starting_line_number + 2
    setup = [row for row in traffic.rows if row.line == line]
    assert {row.argument for row in setup} == {DESCRIPTOR}
    assert {row.space for row in setup} == {"shared", "global"}
    (shown,) = [row for row in shown_rows(traffic) if row.line == line]
    assert shown.requests == sum(row.requests for row in setup)
    assert shown.sectors == sum(row.sectors for row in setup)
    assert "set up     global  tensor descriptor" in traffic_card(traffic).text()
    assert "atomic" not in traffic_card(traffic).text()


@pytest.mark.slow
@pytest.mark.parametrize("warps", [1, 4])
def test_a_scalar_is_read_once_by_each_warp_with_one_sector_which_is_ideal(lab: kernellab.Lab, warps: int) -> None:
    x, y, scale, bias = torch.rand(8, 128), torch.zeros(8, 128), torch.rand(1), torch.rand(8)
    traffic = lab.traffic(kernels.scales_rows, (8,), x, scale, bias, y, BLOCK=128, num_warps=warps)
    reads = {each.argument: each.reads_per_element for each in traffic.arguments}
    assert reads == {"x": 1.0, "scale": 8.0 * warps, "bias": 1.0 * warps, "y": None}
    row = only(traffic, "load", argument="scale")
    assert (row.requests, row.sectors, row.ideal_sectors, row.efficiency) == (8 * warps, 8 * warps, 8 * warps, 1.0)
    assert "kl-well" in access_badge(row)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [kernels.scales_rows, kernels.adds_a_column])
def test_bytes_of_arguments_are_those_of_their_rows(lab: kernellab.Lab, kernel: Any) -> None:
    x, y, scale, bias = torch.rand(8, 128), torch.zeros(8, 128), torch.rand(1), torch.rand(8)
    traffic = lab.traffic(kernel, (8,), x, scale, bias, y, BLOCK=128)
    used = {(row.argument, row.operation): row.bytes_used for row in traffic.rows if row.space == "global"}
    for each in traffic.arguments:
        assert each.read_bytes == used.get((each.argument, "load"), 0)
        assert each.written_bytes == used.get((each.argument, "store"), 0)


@pytest.mark.slow
def test_accesses_through_a_table_of_pointers_are_those_of_their_table(lab: kernellab.Lab) -> None:
    many = [torch.rand(128) for _ in range(3)]
    table = torch.tensor([each.data_ptr() for each in many])
    y = torch.zeros(3, 128)
    traffic = lab.traffic(kernels.follows_a_table, (3,), table, y, BLOCK=128)
    row = only(traffic, "load", argument="memory reached through table")
    assert (row.sectors, row.ideal_sectors) == (48, 48)
    assert traffic.notes == ("reads through the pointers stored in `table`; their targets are resolved at launch",)
    text = traffic_card(traffic).text()
    assert "via table" in text
    assert "outside" not in text
    assert only(traffic, "store").argument == "y"
    why = lab.explain(kernels.follows_a_table, (3,), table, y, BLOCK=128)
    (load,) = [each for each in why.facts.accesses if "reached" in each.argument]
    assert load.sectors == 48


@pytest.mark.slow
@pytest.mark.parametrize(
    ("load", "kept"),
    [
        ("ld.global.b32", 1),
        ("ld.volatile.global.b32", 2),
        *(
            pytest.param(load, kept, marks=pytest.mark.exhaustive)
            for load, kept in (
                ("ld.global.cv.b32", 1),
                ("ld.relaxed.gpu.global.b32", 2),
                ("ld.mmio.relaxed.sys.global.b32", 2),
            )
        ),
    ],
)
def test_repeated_loads_are_counted_as_often_as_the_binary_keeps_them(lab: kernellab.Lab, load: str, kept: int) -> None:
    x, y = torch.zeros(512, dtype=torch.int32), torch.zeros(512, dtype=torch.int32)
    launch = (kernels.loads_by_inline_ptx, (4,), x, y)
    meta = {"LOAD": f"{load} $0, [$1];", "BLOCK": 128}
    traffic = lab.traffic(*launch, **meta)
    assert not traffic.unknown
    assert sum(row.requests for row in traffic.rows if row.operation == "load") == 16 * kept
    sass = lab.compile(kernels.loads_by_inline_ptx, x, y, **meta).sass
    assert len(re.findall(r"\bLDG", sass)) == kept
