"""What explanations say follows from their own table of times, whatever they explain."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
import torch

import kernellab
from kernellab.explain.causes import Cause
from kernellab.explain.explanation import RULES, Explanation, explain_facts
from kernellab.explain.model import Bottleneck, Times, times_of
from tests.explain.planted import KernelCall
from tests.explain.planted_compute import COMPUTE_PAIRS
from tests.explain.planted_memory import MEMORY_PAIRS
from tests.explain.traffic import kernels
from tests.kernels.cases import all_cases
from tests.tables import every

PAIRS = (*MEMORY_PAIRS, *COMPUTE_PAIRS)
pytestmark = pytest.mark.slow


def require_consistent(why: Explanation) -> None:
    require_largest_term(why)
    require_gains_within_terms(why)
    require_unknown_once(why)
    require_iterations_known(why)
    require_possible_advice(why)


def require_largest_term(why: Explanation) -> None:
    terms = why.times.terms
    largest = max(terms, key=lambda term: terms[term])
    assert why.bound is largest, why.summary
    assert why.summary.startswith(f"Limited by {why.bound}"), why.summary


def require_gains_within_terms(why: Explanation) -> None:
    now = times_of(why.facts)
    left: dict[str, float] = {}
    for rule in RULES:
        proposal = rule(why.facts)
        if proposal is not None:
            left[proposal.cause] = without_lowered(now, times_of(proposal.fixed)).total
    for finding in why.findings:
        low, high = finding.gain
        assert 1 <= low <= high
        if why.facts.time_s is None:
            assert high <= now.total / left[finding.cause] + 1e-9, finding


def require_iterations_known(why: Explanation) -> None:
    """A number of iterations in one sentence is not assumed in another."""
    if any(each.startswith("Trip counts are assumed") for each in why.unknown):
        lines = {each.line for each in why.facts.accesses if not each.knows_trips}
        assert not any(re.search(r"each of \S+ iterations", each.text) for each in why.findings if each.line in lines)


def require_possible_advice(why: Explanation) -> None:
    """What is advised is not what the launch does already; equal accesses of a line are named together."""
    for finding in why.findings:
        stages = re.search(r"num_stages=(\d+) or more \(now (\d+)\)", finding.text)
        assert stages is None or int(stages[2]) < int(stages[1])
        if finding.cause is Cause.UNCOALESCED:
            own = [each for each in why.facts.accesses if each.line == finding.line and each.efficiency < 0.6]
            worst = max(own, key=lambda each: each.sectors - each.ideal_sectors)
            same = [each for each in own if not each.is_split and each.operation != "atomic"]
            assert all(each.argument in finding.text for each in same if each.sectors == worst.sectors)


def without_lowered(now: Times, then: Times) -> Times:
    after = then.terms
    return now.without_terms([term for term, seconds in now.terms.items() if after[term] < seconds])


def require_unknown_once(why: Explanation) -> None:
    assert len(set(why.unknown)) == len(why.unknown)
    about_traffic = [each for each in why.unknown if each.startswith("Traffic") or "Addresses are unknown" in each]
    reasons = [each.partition(": ")[2] or each for each in about_traffic]
    assert len(set(reasons)) == len(reasons), why.unknown


@pytest.mark.parametrize("name", every(5, all_cases()))
def test_statements_about_kernels_follow_from_their_table(lab: kernellab.Lab, name: str) -> None:
    case = all_cases()[name]
    require_consistent(lab.explain(case.kernel, case.grid, **case.fresh_arguments(), **case.meta))


@pytest.mark.parametrize("pair", every(5, PAIRS), ids=lambda pair: pair.name)
def test_statements_about_slow_kernels_follow_from_their_table(lab: kernellab.Lab, pair: Any) -> None:
    require_consistent(explained_call(lab, pair.slow, pair.inputs(False, "cpu")))


def explained_call(lab: kernellab.Lab, call: KernelCall, inputs: dict[str, Any]) -> Explanation:
    grid, arguments = call.of(inputs)
    return lab.explain(call.kernel, grid, **arguments)


@pytest.mark.parametrize("target", ["hip:gfx942", "cuda:80", "cuda:120"])
def test_what_is_not_known_of_a_target_is_said_once(lab: kernellab.Lab, target: str) -> None:
    case = all_cases()["softmax-float32"]
    why = lab.explain(case.kernel, case.grid, **case.fresh_arguments(), target=target, **case.meta)
    require_consistent(why)
    assert sum("is not followed" in each for each in why.unknown) == (target == "hip:gfx942")


def test_time_that_no_unit_accounts_for_is_latency_in_the_table(lab: kernellab.Lab) -> None:
    case = all_cases()["add-float32"]
    facts = lab.explain(case.kernel, case.grid, **case.fresh_arguments(), **case.meta).facts
    for time_s in (1e-6, 1e-5, 1e-3):
        why = explain_facts(replace(facts, time_s=time_s))
        require_largest_term(why)
        assert (why.times.largest is Bottleneck.LATENCY) == (time_s > 1e-6)


def test_a_reason_that_holds_for_several_lines_is_one_sentence(lab: kernellab.Lab) -> None:
    x, y = torch.rand(32, 32).half(), torch.zeros(32, 32).half()
    why = lab.explain(kernels.branches_on_a_product, (1,), x, y, N=32)
    require_unknown_once(why)
    assert any(each.startswith("Traffic, line") for each in why.unknown)
