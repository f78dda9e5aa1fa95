"""Requests, sectors and wavefronts of single accesses, against figures that can be worked out by hand."""

from __future__ import annotations

import numpy as np

from kernellab.explain.traffic.counting import global_count, shared_count

LANES = np.arange(32)[None, :]


def test_sectors_of_a_warp_are_counted_once() -> None:
    assert global_count(4 * LANES, None, 4).sectors == 4
    assert global_count(4 * LANES + 4, None, 4).sectors == 5
    assert global_count(0 * LANES, None, 4).sectors == 1
    assert global_count(64 * LANES, None, 4).sectors == 32
    assert global_count(16 * LANES, None, 16).sectors == 16


def test_the_order_of_lanes_does_not_matter() -> None:
    shuffled = np.random.default_rng(0).permutation(32)[None, :]
    assert global_count(4 * shuffled, None, 4).sectors == 4


def test_lanes_that_are_off_count_for_nothing() -> None:
    count = global_count(4 * LANES, LANES < 8, 4)
    assert (count.requests, count.sectors, count.lanes, count.lanes_off) == (1, 1, 8, 24)
    assert global_count(4 * LANES, LANES < 0, 4).requests == 0
    first_off = global_count(4 * LANES, LANES >= 24, 4)
    assert (first_off.sectors, first_off.bytes_used) == (1, 32)


def test_each_warp_is_a_request() -> None:
    threads = np.arange(128)[None, :] + 1000 * np.arange(3)[:, None]
    count = global_count(4 * threads, None, 4)
    assert (count.requests, count.sectors) == (12, 48)


def test_lanes_in_one_bank_wait_for_each_other() -> None:
    assert shared_count(4 * LANES, None, 4).wavefronts == 1
    assert shared_count(8 * LANES, None, 4).wavefronts == 2
    assert shared_count(128 * LANES, None, 4).wavefronts == 32
    assert shared_count(132 * LANES, None, 4).wavefronts == 1
    count = shared_count(128 * LANES, None, 4)
    assert count.wavefronts - count.ideal_wavefronts == 31


def test_lanes_that_want_one_word_share_it() -> None:
    assert shared_count(0 * LANES, None, 4).wavefronts == 1
    assert shared_count(LANES // 2 * 2, None, 2).wavefronts == 1


def test_wide_accesses_go_by_halves_and_quarters() -> None:
    assert shared_count(8 * LANES, None, 8).wavefronts == 2
    assert shared_count(16 * LANES, None, 16).wavefronts == 4
    assert shared_count(128 * LANES, None, 16).wavefronts == 32
    assert shared_count(16 * LANES, LANES < 8, 16).wavefronts == 1
