"""Predicted times: a time with its interval for a named device, what it cannot predict, and how it shows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.errors import UsageError
from kernellab.explain.devices import DEVICES, device_for, named_device
from kernellab.explain.facts import AtomicFacts
from kernellab.explain.prediction import predict_facts
from kernellab.target import parse_target
from tests.labs import lab_fixture, shared_lab

N = 1 << 22
X, OUT = torch.zeros(N), torch.empty(N)


@triton.jit
def double(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) * 2, mask=offsets < n)


@triton.jit
def every_32nd(x_ptr, out_ptr, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + places, tl.load(x_ptr + places * 32))


@triton.jit
def sum_of(values):
    return tl.sum(values * 2, axis=0)


@triton.jit
def sums_of_rows(x_ptr, out_ptr, rows, BLOCK: tl.constexpr):
    for row in range(rows):
        tl.store(out_ptr + row, sum_of(tl.load(x_ptr + row * BLOCK + tl.arange(0, BLOCK))))


@triton.jit
def sum_under_a_lock(x_ptr, out_ptr, lock_ptr, locks, BLOCK: tl.constexpr):
    lock_ptr += tl.program_id(0) % locks
    total = tl.sum(tl.load(x_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)), axis=0)
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    tl.store(out_ptr, tl.load(out_ptr) + total)
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr, 0)


def grid(meta: dict[str, int]) -> tuple[int, ...]:
    return (triton.cdiv(N, meta["BLOCK"]),)


lab = lab_fixture("cuda:90")


def predict(lab: kernellab.Lab, **options: str) -> kernellab.Prediction:
    return lab.predict(double, grid, X, OUT, N, BLOCK=1024, **options)


@pytest.mark.slow
def test_a_copy_takes_about_its_bytes_over_the_bandwidth(lab: kernellab.Lab) -> None:
    prediction = predict(lab, device="h100")
    assert prediction.device == "H100"
    assert prediction.bound == "HBM"
    bytes_over_bandwidth_ms = 2 * 4 * N / 3350e9 * 1e3
    assert bytes_over_bandwidth_ms < prediction.time_ms < 2 * bytes_over_bandwidth_ms
    assert prediction.low_ms < prediction.time_ms < prediction.high_ms
    assert 0.5 < prediction.share < 1
    assert prediction.unknown == ()


@pytest.mark.slow
def test_elements_that_two_threads_load_come_from_hbm_once(lab: kernellab.Lab) -> None:
    programs, block = N // 32 // 128, {"BLOCK": 128}
    own, shared = (lab.predict(every_32nd, (programs,), X, OUT, **block, num_warps=warps) for warps in (4, 8))
    assert own.facts is not None
    assert shared.facts is not None
    assert shared.facts.accesses[0].copies == 2
    assert shared.facts.accesses[0].sectors == 2 * own.facts.accesses[0].sectors
    assert shared.terms["HBM"] == own.terms["HBM"]


@pytest.mark.slow
def test_the_shuffles_of_a_sum_in_a_helper_are_counted_in_every_round_of_a_loop(lab: kernellab.Lab) -> None:
    few, many = (lab.predict(sums_of_rows, (1,), X, OUT, rows, BLOCK=1024).facts for rows in (10, 100))
    assert few is not None
    assert many is not None
    shuffles = [sum(line.slow.get("shuffle", 0.0) for line in facts.lines) for facts in (few, many)]
    assert shuffles[1] == 10 * shuffles[0] > 0


@pytest.mark.slow
def test_programs_that_share_a_lock_take_turns(lab: kernellab.Lab) -> None:
    locks = torch.zeros(64, dtype=torch.int32)
    one, many = (
        lab.predict(sum_under_a_lock, (256,), X, OUT, locks, count, BLOCK=1024, device="h100") for count in (1, 64)
    )
    assert one.facts is not None
    assert [atomic.is_lock for atomic in one.facts.atomics] == [True, False]
    assert one.terms["atomics"] >= 256 * 0.8e-3
    assert many.terms["atomics"] < one.terms["atomics"] / 10


@pytest.mark.slow
def test_a_slower_device_takes_longer(lab: kernellab.Lab) -> None:
    slow, quick = predict(lab, device="l4"), predict(lab, device="h200")
    assert (slow.target, quick.target) == ("cuda:89", "cuda:90")
    assert slow.time_ms > 5 * quick.time_ms


@pytest.mark.slow
def test_a_target_may_be_named_by_its_model(lab: kernellab.Lab) -> None:
    assert predict(lab, target="h200").device == "H200"
    assert predict(lab, target="cuda:90").device == "H100"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "h300"}, "device is 'h300'; expected one of t4, "),
        ({"device": "l4", "target": "cuda:90"}, "device l4 is a cuda:89, and target is cuda:90"),
        ({"target": "hip:gfx942"}, "Times cannot be predicted for hip:gfx942"),
    ],
)
def test_what_cannot_be_predicted_is_said(lab: kernellab.Lab, options: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        predict(lab, **options)


@pytest.mark.parametrize("name", DEVICES)
def test_every_device_of_the_table_has_a_known_target_and_a_source(name: str) -> None:
    device = named_device(name.upper())
    assert device_for(parse_target(device.target), name) == device.rates
    assert device.source.startswith("https://")


def test_a_prediction_shows_as_a_card_a_figure_and_data(lab: kernellab.Lab) -> None:
    prediction = predict(lab, device="h200")
    text = prediction._repr_mimebundle_()["text/plain"]
    assert "on H200, limited by HBM" in text
    assert list(prediction.frame["time_ms"]) == sorted(prediction.terms.values(), reverse=True)
    assert "predicted for H200" in prediction.plot(dark=True).axes[0].get_title(loc="left")


def test_contended_atomics_make_the_interval_wide(lab: kernellab.Lab) -> None:
    facts = predict(lab).facts
    assert facts is not None
    contended = replace(facts, atomics=(AtomicFacts(None, "out_ptr", updates=1e6, addresses=64.0),))
    narrow, wide = predict_facts(facts), predict_facts(contended)
    assert wide.high_ms / wide.low_ms > 2 * narrow.high_ms / narrow.low_ms


def test_the_page_of_predictions_lists_every_device_with_its_bandwidth() -> None:
    page = (Path(__file__).parents[2] / "docs" / "predictions.md").read_text(encoding="utf-8")
    for device in DEVICES.values():
        assert f"| `{device.name}` | {device.rates.name} | {device.target} |" in page


@pytest.mark.slow
def test_a_lab_whose_target_is_a_model_predicts_and_tunes_for_it() -> None:
    with shared_lab("h200", ":memory:") as own:
        assert str(own.target) == "cuda:90"
        assert predict(own).device == "H200"
        assert predict(own, target="l4").device == "L4"
        assert predict(own, target="cuda:90").device == "H200"
        assert str(own.compile(double, X, OUT, N, BLOCK=1024, target="l4").target) == "cuda:89"
        own.use_target("l4")
        assert predict(own).device == "L4"
        tuning = own.tune(double, grid, X, OUT, N, configs=[triton.Config({"BLOCK": 1024})])
        assert tuning.provenance["predicted_for"] == "L4"
        own.use_target("cuda:89")
        assert predict(own).device == "L40S"
