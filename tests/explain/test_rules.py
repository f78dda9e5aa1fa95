from __future__ import annotations

from dataclasses import replace

import pytest

from kernellab.explain.causes import Cause, PerformanceFinding
from kernellab.explain.compute_rules import COMPUTE_RULES
from kernellab.explain.devices import device_of_table
from kernellab.explain.explanation import RULES, explain_facts
from kernellab.explain.facts import (
    AccessFacts,
    AtomicFacts,
    DotFacts,
    Facts,
    LineFacts,
    ReductionFacts,
    SharedFacts,
    WidthLimit,
)
from kernellab.explain.memory_rules import MEMORY_RULES
from kernellab.explain.model import Bottleneck, floor_seconds, gain_of, times_of
from kernellab.target import parse_target

DEVICE = device_of_table(parse_target("cuda:90"))
MEGABYTES = 1e6


def access(megabytes: float = 256, **changes: object) -> AccessFacts:
    """Return a coalesced load of 16 bytes per thread, each byte once."""
    size = megabytes * MEGABYTES
    found = AccessFacts(
        line=3,
        operation="load",
        argument="x",
        bytes=size,
        sectors=size / 32,
        ideal_sectors=size / 32,
        requests=size / 512,
        touched_bytes=size,
        width_bytes=16,
        owned_bytes=32,
        tile_bytes=4096.0,
    )
    return replace(found, **changes)  # type: ignore[arg-type]


def facts(*accesses: AccessFacts, **changes: object) -> Facts:
    """Return a launch of many programs that are limited by memory."""
    given = accesses or (access(), access(operation="store", argument="out", line=4))
    found = Facts(
        kernel="k",
        target="cuda:90",
        device=DEVICE,
        programs=65536,
        warps=4,
        resident=16,
        accesses=given,
        footprint_bytes=sum(each.touched_bytes or 0 for each in given),
        has_traffic=True,
    )
    return replace(found, **changes)  # type: ignore[arg-type]


def first(found: Facts) -> PerformanceFinding:
    return explain_facts(found).findings[0]


def test_a_launch_at_the_limit_has_no_suggestion() -> None:
    plain = facts()
    answer = explain_facts(replace(plain, time_s=floor_seconds(plain) / 0.94, device=replace(DEVICE, is_measured=True)))
    assert answer.findings == ()
    assert answer.summary.startswith(
        "Limited by HBM. Measured 185 us, 94 % of the roofline; roofline bound 174 us (rates"
    )
    assert answer.summary.endswith("measured on H100). No suggestion.")
    assert answer.bound is Bottleneck.DRAM


def test_a_launch_far_from_its_bound_without_a_finding_is_to_be_tuned() -> None:
    plain = facts()
    answers = [explain_facts(replace(plain, time_s=floor_seconds(plain) / share)) for share in (0.65, 0.55)]
    assert [answer.findings for answer in answers] == [(), ()]
    assert ["tune it" in answer.summary for answer in answers] == [False, True]


def test_strided_threads_are_uncoalesced() -> None:
    found = first(facts(access(sectors=64e6, ideal_sectors=8e6, lane_step_bytes=4096.0, width_bytes=4), access(64)))
    assert (found.cause, found.line) == (Cause.UNCOALESCED, 3)
    assert "64 M sectors, 8 M ideal; 97 % of the kernel's traffic" in found.text
    assert found.gain[0] > 1.3


def test_pieces_of_what_a_thread_owns_are_narrow_and_not_uncoalesced() -> None:
    piece = access(
        sectors=128e6, ideal_sectors=8e6, width_bytes=1, element_bytes=1, lane_step_bytes=16.0, owned_bytes=16
    )
    found = first(facts(replace(piece, requests=8e6), access(64)))
    assert found.cause is Cause.NARROW
    assert "tl.multiple_of(offset, 16)" in found.text


def test_a_field_of_every_structure_is_uncoalesced_though_its_step_is_what_a_thread_owns() -> None:
    field = access(32, sectors=8e6, ideal_sectors=1e6, lane_step_bytes=32.0, width_bytes=4, argument_bytes=256e6)
    found = first(facts(field, access(16)))
    assert found.cause is Cause.UNCOALESCED


def test_a_row_that_is_loaded_twice_is_read_several_times() -> None:
    loads = (access(), access(line=5), access(line=6, operation="store", argument="out"))
    twice = facts(*loads, footprint_bytes=512 * MEGABYTES, dram_bytes=768 * MEGABYTES)
    assert (first(twice).cause, first(twice).line) == (Cause.REREAD, 5)


def test_a_row_that_no_block_holds_is_to_be_read_in_fewer_passes_which_may_wait_as_often() -> None:
    loads = (access(in_loop=True), access(line=5, in_loop=True), access(line=6, operation="store", argument="out"))
    kept = facts(*loads, footprint_bytes=512 * MEGABYTES, dram_bytes=768 * MEGABYTES, loop_trips=64.0)
    long = replace(kept, programs=kept.programs // 64, loop_trips=4096.0)
    short, waiting = (explain_facts(each).findings for each in (kept, long))
    assert "Keep the row in registers" in next(each for each in short if each.cause is Cause.REREAD).text
    found = next(each for each in waiting if each.cause is Cause.REREAD)
    assert "too long for the registers of a program: use fewer passes" in found.text
    assert found.least_fixed is not None
    assert found.least_fixed.loop_trips == long.loop_trips
    assert found.gain[0] < 1.1 < found.gain[1]


def test_lanes_that_are_coalesced_in_a_loop_may_still_wait_for_each_wide_load() -> None:
    lane = access(in_loop=True, trips=256.0, sectors=64e6, ideal_sectors=8e6, width_bytes=4, lane_step_bytes=1024.0)
    loop = facts(replace(lane, owned_bytes=4), access(1), programs=1024, loop_trips=80.0)
    found = first(loop)
    assert found.cause is Cause.UNCOALESCED
    assert found.fixed.loop_trips == 10
    assert found.least_fixed is not None
    assert found.least_fixed.loop_trips == pytest.approx(80)  # 122 loads of 16 bytes, which would wait no oftener
    few = replace(loop, accesses=(replace(loop.accesses[0], bytes=32e6), access(1)))
    least = first(few).least_fixed
    assert least is not None
    assert least.loop_trips == pytest.approx(32e6 / (1024 * 128 * 16))


def test_bytes_that_memory_moves_again_are_a_matter_of_order() -> None:
    shared = access(2048, touched_bytes=256 * MEGABYTES)
    found = first(facts(shared, footprint_bytes=256 * MEGABYTES, dram_bytes=2048 * MEGABYTES))
    assert found.cause is Cause.ORDER


def test_turns_of_banks_are_conflicts() -> None:
    shared = (SharedFacts(7, "load", 64e6, 8e6),)
    found = first(facts(access(1), shared=shared))
    assert (found.cause, found.line, explain_facts(facts(access(1), shared=shared)).bound) == (
        Cause.CONFLICTS,
        7,
        Bottleneck.SHARED,
    )


def test_conflicts_of_lanes_that_step_by_what_a_thread_owns_may_stay() -> None:
    """Four wavefronts a request: the words of its 32 lanes are then in 8 of the 32 banks."""
    scalar, wide = SharedFacts(7, "load", 64e6, 8e6, requests=8e6), SharedFacts(7, "load", 64e6, 8e6, requests=2e6)
    for shared, left in ((scalar, 32e6), (wide, 8e6), (replace(scalar, requests=0.0), 32e6)):
        least = first(facts(access(1), shared=(shared,))).least_fixed
        assert least is not None
        assert least.shared[0].wavefronts == left
    stays, goes = (first(facts(access(1), shared=(shared,))).gain for shared in (scalar, wide))
    assert 1 < stays[0] < goes[0]
    assert stays[1] == goes[1]


def test_findings_are_ordered_by_what_is_expected_and_promise_the_least() -> None:
    lines = (LineFacts(5, 7e7, {}, frozenset({"division"})),)
    both = facts(access(1), shared=(SharedFacts(7, "load", 16e6, 4e6, requests=4e6),), lines=lines)
    found = explain_facts(both).findings
    assert [each.cause for each in found] == [Cause.CONFLICTS, Cause.ARITHMETIC]
    assert found[0].gain[0] < found[1].gain[0]


def test_a_loop_that_waits_for_each_load_needs_stages() -> None:
    loop = access(trips=256.0, in_loop=True, line=9)
    found = first(facts(loop, programs=264, resident=2, loop_trips=256.0, stages=1))
    assert (found.cause, found.line) == (Cause.NO_PIPELINE, 9)
    assert "num_stages" in found.text


def test_a_loop_whose_loads_are_under_way_needs_none() -> None:
    loop = access(trips=256.0, in_loop=True, is_async=True)
    assert all(
        each.cause is not Cause.NO_PIPELINE
        for each in explain_facts(facts(loop, programs=264, resident=2, loop_trips=64.0)).findings
    )


def test_atomics_of_every_lane_on_one_address_are_contended() -> None:
    found = first(facts(access(64), atomics=(AtomicFacts(8, "out", 16e6, 1.0),)))
    assert (found.cause, found.line) == (Cause.ATOMICS, 8)


def test_one_atomic_per_program_is_fine() -> None:
    answer = explain_facts(facts(access(64), atomics=(AtomicFacts(8, "out", 65536.0, 1.0),)))
    assert all(each.cause is not Cause.ATOMICS for each in answer.findings)


def test_small_tiles_of_a_product_fetch_too_often() -> None:
    dot = DotFacts(6, "fp16", 6e10, True, (32, 32, 32), in_loop=True)
    loads = access(4000, touched_bytes=64 * MEGABYTES, is_async=True, in_loop=True, trips=64.0)
    asked = facts(loads, dots=(dot,), footprint_bytes=64 * MEGABYTES)
    found = first(asked)
    assert (found.cause, found.line) == (Cause.TILES, 6)
    assert f"most of the time is {times_of(asked).largest}" in found.text


def test_tiny_tiles_of_a_product_compute_addresses_for_few_products() -> None:
    dot = DotFacts(6, "fp16", 6e9, True, (16, 16, 16), in_loop=True)
    loads = access(64, is_async=True, in_loop=True, trips=64.0)
    asked = facts(loads, dots=(dot,), lines=(LineFacts(7, 2e9),), programs=4096)
    assert times_of(asked).longest == times_of(asked).arithmetic
    assert (first(asked).cause, first(asked).line) == (Cause.TILES, 6)
    asked = replace(asked, dots=(replace(dot, tile=(32, 64, 32)),))
    assert all(each.cause is not Cause.TILES for each in explain_facts(asked).findings)


def test_an_exact_product_leaves_the_tensor_cores_idle() -> None:
    dot = DotFacts(6, "fp32", 6e10, False, (64, 64, 32), in_loop=True)
    found = first(facts(access(16), dots=(dot,), lines=(LineFacts(6, 2e9),)))
    assert (found.cause, found.line) == (Cause.NO_TENSOR_CORES, 6)
    assert "input_precision" in found.text


def test_a_sum_of_products_is_to_be_a_dot() -> None:
    product = ReductionFacts(6, 64.0, in_loop=True, as_product=True, flops=6e10)
    found = first(facts(access(16), reductions=(product,), lines=(LineFacts(6, 4e9),)))
    assert found.cause is Cause.NO_TENSOR_CORES
    assert "tl.dot" in found.text


def test_operands_wider_than_their_data_are_told() -> None:
    dot = DotFacts(6, "tf32", 6e11, True, (128, 128, 32), was_narrower="fp16", in_loop=True)
    assert first(facts(access(64, is_async=True), dots=(dot,))).cause is Cause.WIDE_OPERANDS


@pytest.mark.parametrize(
    ("word", "says"),
    [("fp64", "fp32"), ("pow", "Multiply"), ("division64", "32-bit"), ("libdevice erf", "erf by libdevice")],
)
def test_slow_arithmetic_names_what_is_slow(word: str, says: str) -> None:
    lines = (LineFacts(5, 4e9, {}, frozenset({word})), LineFacts(6, 1e8))
    found = first(facts(access(16), lines=lines))
    assert (found.cause, found.line) == (Cause.ARITHMETIC, 5)
    assert says in found.text


def test_a_reduction_in_every_round_is_to_come_after_the_loop() -> None:
    each = ReductionFacts(5, 256.0, in_loop=True, accumulates=True)
    loop = access(64, in_loop=True, trips=256.0, line=4)
    found = first(facts(loop, programs=1056, loop_trips=256.0, reductions=(each,), lines=(LineFacts(5, 2e9),)))
    assert (found.cause, found.line) == (Cause.REDUCTION, 5)


def test_spills_are_told_with_more_warps_as_the_remedy() -> None:
    lines = (LineFacts(5, 2e9, {"spill": 1e9}),)
    answer = explain_facts(facts(access(64), lines=lines, spill_bytes=512, registers=255))
    assert answer.findings[0].cause is Cause.SPILLS
    assert "num_warps=8" in answer.findings[0].text
    assert answer.bound is Bottleneck.SPILLS


def test_a_grid_smaller_than_the_device_is_too_few_programs() -> None:
    answer = explain_facts(facts(programs=8, loop_trips=1000.0))
    assert (answer.findings[0].cause, answer.bound) == (Cause.FEW_PROGRAMS, Bottleneck.LATENCY)
    assert answer.summary.startswith("Limited by latency: grid too small, 8 programs for 132 SMs.")
    assert answer.findings[0].gain[1] > 4


def test_one_program_too_many_makes_a_last_wave() -> None:
    answer = explain_facts(facts(access(1), programs=140, resident=1, lines=(LineFacts(5, 2e9, cycles=3e9),)))
    assert (answer.findings[0].cause, answer.bound) == (Cause.LAST_WAVE, Bottleneck.LATENCY)
    assert answer.summary.startswith("Limited by latency: partial last wave, 140 programs for 132 SMs.")


def test_fewer_elements_than_threads_are_a_small_block() -> None:
    tiny = access(64, tile_bytes=128.0, is_replicated=True, owned_bytes=1, requests=2e6)
    found = first(facts(tiny, replace(tiny, operation="store", argument="out"), programs=1 << 19))
    assert found.cause is Cause.SMALL_BLOCK


def test_a_mask_that_switches_most_lanes_off_is_told() -> None:
    off = access(128, lanes_off=0.87, tile_bytes=16384.0)
    found = first(facts(off, lines=(LineFacts(5, 4e9),)))
    assert (found.cause, found.line) == (Cause.MASKED, 3)


def test_a_launch_that_does_next_to_nothing_is_overhead() -> None:
    answer = explain_facts(facts(access(0.01), programs=16))
    assert (answer.findings[0].cause, answer.bound) == (Cause.LAUNCH, Bottleneck.LAUNCH)


def test_accesses_as_bad_as_the_worst_are_named_with_it() -> None:
    scattered = access(sectors=64e6, ideal_sectors=8e6, lane_step_bytes=4096.0, width_bytes=4)
    twin = replace(scattered, line=4, operation="store", argument="out")
    found = first(facts(scattered, twin))
    assert "Line 3 loads x and line 4 stores out with scattered addresses: 128 M sectors, 16 M ideal" in found.text
    assert found.evidence["sectors"] == 128e6
    assert "Lines 3 and 5 load x with" in first(facts(scattered, replace(scattered, line=5))).text
    assert "line 4" not in first(facts(scattered, replace(twin, sectors=32e6))).text


def test_a_reason_of_two_narrow_accesses_is_told_once() -> None:
    limits = (WidthLimit("mask", "n", 1001),)
    piece = access(sectors=128e6, width_bytes=1, element_bytes=1, lane_step_bytes=16.0, owned_bytes=16, limits=limits)
    found = first(facts(piece, replace(piece, line=4, operation="store", argument="out"), access(64)))
    assert found.text.startswith("Line 3 loads x and line 4 stores out 1 B per thread")
    assert found.text.count("The mask compares with n (1,001)") == 1


def test_no_stages_are_advised_that_a_loop_has() -> None:
    loop = access(trips=256.0, in_loop=True, line=9)
    asked = facts(loop, programs=264, resident=2, loop_trips=256.0)
    assert "Prefetch with tl.range(..., num_stages=4)" in first(asked).text
    assert "num_stages=4) does not pipeline it" in first(replace(asked, loop_stages=4)).text
    product = DotFacts(9, "fp16", 1e9, True, (128, 128, 32), in_loop=True)
    asked = replace(asked, dots=(product,), stages=2)
    assert "Prefetch with num_stages=3 or more (now 2)." in first(asked).text
    assert "num_stages=3 does not pipeline it" in first(replace(asked, stages=3)).text


def test_no_more_warps_or_registers_are_advised_than_there_can_be() -> None:
    lines = (LineFacts(5, 2e9, {"spill": 1e9}),)
    spilling = facts(access(64), lines=lines, spill_bytes=512, registers=64, warps=32, resident=2)
    assert first(spilling).text.endswith("Use a smaller block.")
    assert "a smaller block, or a larger maxnreg." in first(replace(spilling, registers=32)).text


def test_a_block_of_one_warp_is_not_to_have_fewer() -> None:
    tiny = access(64, tile_bytes=64.0, is_replicated=True, owned_bytes=1, requests=2e6)
    small = facts(tiny, replace(tiny, operation="store", argument="out"), programs=1 << 19)
    assert "num_warps=1" in first(small).text
    assert "num_warps" not in first(replace(small, warps=1)).text


def test_a_small_grid_that_another_would_not_help_is_said() -> None:
    contended = facts(access(1), programs=8, atomics=(AtomicFacts(8, "out", 64e6, 1.0),))
    assert "8 programs for 132 SMs, but a larger grid would hardly be faster." in explain_facts(contended).summary


def test_a_launch_that_is_overhead_has_that_finding_near_its_roofline_bound_too() -> None:
    tiny = facts(access(0.01), programs=16)
    answer = explain_facts(replace(tiny, time_s=1.05 * floor_seconds(tiny)))
    assert [each.cause for each in answer.findings] == [Cause.LAUNCH]
    assert answer.share is not None
    assert answer.share > 0.9


@pytest.mark.parametrize("factor", [0.5, 1.0, 7.0])
def test_the_terms_of_a_measured_launch_make_up_its_time(factor: float) -> None:
    time_s = factor * times_of(facts()).total
    times = explain_facts(replace(facts(), time_s=time_s)).times
    assert times.total == pytest.approx(time_s)
    assert (times.latency > times_of(facts()).latency) == (factor > 1)


def test_no_rule_finds_anything_in_a_plain_copy() -> None:
    assert [cause for cause, rule in RULES.items() if rule(facts()) is not None] == []


def test_each_cause_has_one_rule() -> None:
    assert set(RULES) == set(Cause)
    assert not MEMORY_RULES.keys() & COMPUTE_RULES.keys()


def test_no_gain_goes_beyond_what_the_bytes_take() -> None:
    slow = facts(access(sectors=64e6, ideal_sectors=8e6, lane_step_bytes=4096.0))
    measured = replace(slow, time_s=1.3 * floor_seconds(slow))
    _, high = gain_of(measured, replace(measured, accesses=(access(),)))
    assert high <= 1.3 + 1e-9


def test_gains_are_ordered_and_at_least_one() -> None:
    slow = facts(access(sectors=64e6, ideal_sectors=8e6, lane_step_bytes=4096.0))
    for time_s in (None, 1e-5, 1e-3, 1.0):
        low, high = gain_of(replace(slow, time_s=time_s), facts())
        assert 1.0 <= low <= high


def test_at_most_five_findings_come_with_the_largest_first() -> None:
    lines = (LineFacts(5, 8e9, {"spill": 1e9}, frozenset({"fp64"})),)
    off = access(sectors=64e6, ideal_sectors=8e6, lane_step_bytes=4096.0, lanes_off=0.8, tile_bytes=9000.0)
    answer = explain_facts(facts(off, lines=lines, spill_bytes=64, shared=(SharedFacts(7, "load", 640e6, 8e6),)))
    assert 2 <= len(answer.findings) <= 5


def test_samples_move_a_finding_up_that_they_bear_out() -> None:
    lines = (LineFacts(5, 4e9, {}, frozenset({"division"})),)
    level = facts(access(16, lanes_off=0.59, tile_bytes=16384.0), lines=lines)
    assert [each.cause for each in explain_facts(level).findings] == [Cause.ARITHMETIC, Cause.MASKED]
    sampled = replace(level, line_shares={3: 1.0})
    assert explain_facts(sampled).findings[0].cause is Cause.MASKED
    waiting = replace(sampled, stalls={"pipe busy": 0.9}, line_shares={5: 0.9})
    assert explain_facts(waiting).findings[0].cause is Cause.ARITHMETIC


def test_without_a_gpu_it_says_what_it_cannot_know() -> None:
    why = explain_facts(replace(facts(), has_traffic=False))
    assert "Estimated" in why.summary
    assert "(H100 data sheet)" in why.summary
    assert why.unknown == ("Addresses are unknown: all accesses count as coalesced, without bank conflicts.",)


def test_the_time_of_a_launch_is_that_of_its_slowest_unit_and_more() -> None:
    times = times_of(facts())
    assert times.longest == times.dram
    assert times.dram < times.total < 1.5 * times.dram
