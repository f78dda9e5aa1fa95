from __future__ import annotations

import linecache
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kernellab.explain.traffic.accesses import WarpExample
from kernellab.explain.traffic.result import ArgumentTraffic, Traffic, TrafficRow, UnknownTraffic
from kernellab.views.cards.traffic import access_badge, request_words, spacing_words, traffic_card
from kernellab.views.figures.memory import mapped_programs, program_map, program_slider, touched_bytes, warp_map
from kernellab.views.palette import BLUE
from tests.views.test_card import Reader

FILE = "In[<3>]"
SOURCE = ["import triton\n", "@triton.jit\n", 'def copy(x, y, name="<&>"):\n', "    at = 8\n", "    x[at] < y\n"]
STRIDED = WarpExample(tuple(range(0, 32 * 128, 128)), 4, 32, 4)
DENSE = WarpExample(tuple(range(0, 128, 4)), 4, 4, 4)
LOAD = TrafficRow(
    line=5,
    file=FILE,
    operation="load",
    space="global",
    argument="x<0>",
    requests=64,
    sectors=2048,
    ideal_sectors=256,
    wavefronts=0,
    conflicts=0,
    bytes=65536,
    bytes_used=8192,
    efficiency=0.125,
    lanes_off=0.25,
    instruction="ld.global.b32",
    example=STRIDED,
)
STORE = replace(
    LOAD, operation="store", argument="y", sectors=256, bytes=8192, efficiency=1.0, lanes_off=0.0, example=DENSE
)
SHARED = replace(
    LOAD,
    space="shared",
    argument=None,
    sectors=0,
    ideal_sectors=0,
    wavefronts=256,
    conflicts=192,
    efficiency=0.25,
    example=None,
)
ATOMIC = replace(STORE, operation="atomic", argument="total", line=None, file=None, example=None)


def touched(name: str, value: int, **changes: Any) -> ArgumentTraffic:
    programs = np.zeros((64, 256), np.uint8)
    for program in range(4):
        programs[program, program * 64 : program * 64 + 64] = value
    counts: dict[str, Any] = {
        "elements": 1024,
        "is_read": value == 1,
        "is_written": value == 2,
        "never_read": 0 if value == 1 else None,
        "never_written": 0 if value == 2 else None,
        "read_bytes": 4096 * (value == 1),
        "written_bytes": 4096 * (value == 2),
        "reads_per_element": 1.0 if value == 1 else None,
        "footprint_bytes": 4096,
        "wave_bytes": 8192,
        "waves": 2,
    }
    return ArgumentTraffic(argument=name, programs=programs, **{**counts, **changes})


@pytest.fixture
def traffic(monkeypatch: pytest.MonkeyPatch) -> Traffic:
    monkeypatch.setitem(linecache.cache, FILE, (1, None, SOURCE, FILE))
    arguments = (touched("x<0>", 1, never_read=24), touched("y", 2, never_written=8))
    return Traffic("copy", "cuda:90", (4, 2, 1), (LOAD, STORE, SHARED, ATOMIC), arguments, (), 1.0, 264)


def test_the_card_says_what_each_access_moves_and_what_of_it_is_used(traffic: Traffic) -> None:
    text = Reader(traffic_card(traffic).html()).text
    assert "5 ▽ load x<0> 64 2,048 256 8.19 kB / 65.5 kB, 12 %" in text
    assert "5 ▽ load shared memory 64 256 192" in text
    assert "⬡ atomic total" in text
    assert "25 %" in text


def test_columns_without_anything_to_say_are_left_out(traffic: Traffic) -> None:
    text = Reader(traffic_card(replace(traffic, rows=(STORE,))).html()).text
    assert "lanes off" not in text
    assert "conflicts" not in text


def test_a_line_of_the_source_has_a_badge_for_each_access(traffic: Traffic) -> None:
    html = traffic_card(traffic).html()
    text = Reader(html).text
    assert 'def copy(x, y, name="<&>"):' in text
    assert "import triton" not in text
    assert "x[at] < y ▽ x<0> 32 sectors, 4 ideal △ y 4 sectors ▽ shared memory 4 wavefronts, 1 ideal" in text
    assert 'class="kl-badge kl-poor"' in access_badge(LOAD)
    assert 'class="kl-badge kl-well"' in access_badge(STORE)


def test_requests_are_averages() -> None:
    assert request_words(replace(LOAD, requests=2, sectors=9, ideal_sectors=8)) == "4.5 sectors, 4 ideal"
    assert request_words(replace(LOAD, requests=8, sectors=8, ideal_sectors=8)) == "1 sector"


def test_a_warp_is_drawn_by_the_sectors_that_its_lanes_touch() -> None:
    picture = warp_map(STRIDED, "a load of <x>")
    assert picture.count('<g class="kl-poor"') == 32
    assert "sector from byte 128 of the argument: 4 of 32 bytes used, by lane 1" in Reader(picture).text
    dense = warp_map(DENSE, "a store")
    assert dense.count('<g class="kl-well"') == 4
    assert "32 of 32 bytes used, by 8 lanes from 8 to 15" in dense


def test_an_argument_that_starts_within_a_sector_has_its_sectors_where_they_are() -> None:
    used = touched_bytes(replace(DENSE, begin_bytes=4, sectors=5))
    assert [len(each) for each in used.values()] == [28, 32, 32, 32, 4]


def test_lanes_that_are_masked_off_are_told() -> None:
    example = replace(DENSE, offsets=(None, *DENSE.offsets[1:]))
    assert "lane 0 accesses nothing" in warp_map(example, "a store")


def test_the_distance_of_lanes_is_told_where_it_is_one() -> None:
    assert spacing_words(STRIDED) == "; lanes 128 bytes apart"
    assert spacing_words(replace(DENSE, offsets=(8,) * 32)) == "; all lanes at one address"
    assert spacing_words(replace(DENSE, offsets=(0, 4, 12, 16))) == ""


def test_programs_are_drawn_in_their_order_by_what_they_touch(traffic: Traffic) -> None:
    picture = program_map(traffic.arguments[0], (4, 2, 1), 264)
    text = Reader(picture).text
    assert "program 1, 0 reads about 256 to 511" in text
    assert "program 0, 1 touches nothing" in text
    assert picture.count(f'<path stroke="{BLUE}"') == 4


def test_a_slider_has_a_stop_for_all_programs_and_for_each_that_is_drawn(traffic: Traffic) -> None:
    slider = program_slider((4, 2, 1), 8)
    assert Reader(slider).tags.count("input") == 9
    assert 'aria-label="program 3, 1"' in slider
    assert program_slider((1, 1, 1), 1) == ""
    assert Reader(traffic_card(traffic).html()).tags.count("form") == 1


def test_a_map_shows_the_first_wave(traffic: Traffic) -> None:
    assert mapped_programs((1000, 1, 1), 264, 64) == 64
    assert mapped_programs((1000, 1, 1), 3, 64) == 3
    assert mapped_programs((2, 2, 1), 264, 64) == 4
    text = Reader(traffic_card(replace(traffic, grid=(1000, 1, 1))).html()).text
    assert "The first 64 of 264 programs of the first wave" in text


def test_what_was_never_read_or_never_written_is_a_sentence(traffic: Traffic) -> None:
    untouched = touched("z", 0)
    shown = replace(traffic, arguments=(*traffic.arguments, untouched))
    for text in (Reader(traffic_card(shown).html()).text, traffic_card(shown).text()):
        assert "Of x<0>, 24 of 1,024 elements were never read." in text
        assert "Of y, 8 of 1,024 elements were never written." in text
        assert "z was neither read nor written." in text


def test_text_says_what_could_not_be_worked_out_and_how_much_was_looked_at() -> None:
    unknown = (UnknownTraffic(12, "the address comes out of memory"), UnknownTraffic(None, "inline assembly"))
    traffic = Traffic("gather", "cuda:90", (4096, 1, 1), (), (), unknown, 0.125, 264, ("one more",))
    assert traffic_card(traffic).text().splitlines() == [
        "gather  cuda:90  grid 4,096",
        "unknown: line 12: the address comes out of memory",
        "unknown: inline assembly",
        "note: extrapolated from 12 % of the grid; elements never read or written are unknown",
        "note: one more",
    ]
    text = Reader(traffic_card(traffic).html()).text
    assert "Unknown: line 12: the address comes out of memory." in text
    assert "Extrapolated from 12 % of the grid; elements never read or written are unknown." in text
    assert "One more." in text


def test_a_launch_without_accesses_says_so() -> None:
    traffic = Traffic("nothing", "cuda:90", (1, 1, 1), (), (), (), 1.0, 264)
    assert "It accesses no memory." in traffic_card(traffic).text()
    assert "It accesses no memory." in Reader(traffic_card(traffic).html()).text


def test_a_notebook_shows_the_card(traffic: Traffic) -> None:
    shell = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell()
    shown, _ = shell.display_formatter.format(traffic)
    assert "kl-card" in shown["text/html"]
    assert shown["text/plain"] == traffic_card(traffic).text()
