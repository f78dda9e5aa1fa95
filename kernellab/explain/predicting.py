"""From a compiled launch to its predicted time, in full or from a few of its programs."""

from __future__ import annotations

from kernellab.explain.facts import DeviceRates, Facts, unknown_sentences
from kernellab.explain.launch_facts import (
    facts_of,
    sizes_of,
    static_facts,
    traffic_or_reason,
    with_memory_waits,
    with_traffic,
)
from kernellab.explain.prediction import Prediction, predict_facts
from kernellab.timing.launches import Implementation

_LANE_STEPS = 10**7  # of a sample of programs, with which times are the same as with all programs
_ROUNDS = 8  # of each loop, likewise; more than any pipeline has stages


def predict_implementation(implementation: Implementation, device: DeviceRates) -> Prediction:
    """Return the predicted time of a compiled launch.

    Raises:
        UsageError: times of its target cannot be predicted.
    """
    facts, why_not = facts_to_predict(implementation, device)
    return predict_facts(facts, unknown_sentences(facts, why_not))


def facts_to_predict(implementation: Implementation, device: DeviceRates) -> tuple[Facts, str]:
    """Return the facts of a compiled launch that its time is predicted from, and why they lack traffic, or ""."""
    traffic, why_not = traffic_or_reason(implementation, most_lane_steps=_LANE_STEPS, most_rounds=_ROUNDS)
    return facts_of(implementation, device, traffic), why_not


_QUICK_INSTRUCTIONS = 3000  # of a warp; each costs some 0.1 ms of CPU to follow
_QUICK_LANE_STEPS = 2 * 10**5  # a few programs
_GUESSED_TRIPS = 4  # times the guess, that a loop may have


def quick_prediction(implementation: Implementation, device: DeviceRates) -> Prediction | None:
    """Return the predicted time of a compiled launch from a few of its programs, in a fraction of a second.

    None where it would take longer: a warp executes too many instructions. The launch is one that
    `can_predict_quickly`.
    """
    compiled, launch = implementation.kernel, implementation.kernel_launch
    facts = static_facts(implementation, device)
    if _executed_instructions(facts) > _QUICK_INSTRUCTIONS:
        return None
    traffic, why_not = traffic_or_reason(implementation, most_lane_steps=_QUICK_LANE_STEPS, most_rounds=_ROUNDS)
    if traffic is not None:
        facts = with_traffic(facts, traffic, compiled.graph, sizes_of(launch.arguments))
    return predict_facts(with_memory_waits(facts), unknown_sentences(facts, why_not))


def _executed_instructions(facts: Facts) -> float:
    """Return the largest number of instructions to follow in a warp: of a loop, those of the first rounds."""
    executed = 0.0
    for line in facts.lines:
        trips = line.trips if line.knows_trips else line.trips * _GUESSED_TRIPS
        executed += line.instructions / max(line.trips, 1.0) * min(trips, 2 * _ROUNDS)
    return executed / (facts.programs * facts.warps)
