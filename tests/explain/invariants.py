"""What every explanation keeps to: its headline, findings, sentences and figures agree with each other."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import combinations

from kernellab.errors import time_text
from kernellab.explain.causes import UNDERSTATED, Cause, PerformanceFinding, bytes_text, count_text
from kernellab.explain.explanation import Explanation, explain_facts
from kernellab.explain.facts import AccessFacts, Facts
from kernellab.explain.model import (
    Bottleneck,
    floor_seconds,
    leaves_idle,
    needed_bytes_in_flight,
    roofline_seconds,
    times_of,
)

MOSTLY_OVERHEAD = 2 / 3
ROUNDED = 0.85  # of the time that a unit is shown with, which it may take at least in a measured launch
NO_HELP = "a larger grid would hardly be faster"
MEASURED = (0.6, 1.0, 3.0, 50.0)  # times of the estimate
Figures = Mapping[str, float]


def require_agreement(why: Explanation) -> None:
    """Require an explanation to agree with itself, and those of the launch had it been measured."""
    assert violations(why) == []
    for factor in MEASURED:
        time_s = max(factor * why.times.total, 0.95 * floor_seconds(why.facts))
        assert violations(explain_facts(replace(why.facts, time_s=time_s))) == []


def violations(why: Explanation) -> list[str]:
    """Return what an explanation says against itself, each in one line; a function of the explanation alone."""
    return [f"{check.__name__}: {problem}" for check in CHECKS for problem in check(why)]


def headline(why: Explanation) -> Iterator[str]:
    terms, total = why.times.terms, why.times.total
    if why.bound is not max(terms, key=lambda term: terms[term]):
        yield f"the bound {why.bound} is not the largest of {terms}"
    if not re.match(rf"Limited by {re.escape(str(why.bound))}[.:]", why.summary):
        yield f"the headline does not name {why.bound}: {why.summary}"
    if why.facts.time_s is not None and abs(total / why.facts.time_s - 1) > 1e-6:
        yield f"the terms make {total}, {why.facts.time_s} was measured"
    if f"roofline bound {time_text(roofline_seconds(why.facts, why.times))}" not in why.summary:
        yield f"the roofline bound is not that of the facts: {why.summary}"
    if min(terms.values()) < 0:
        yield f"a negative term: {terms}"


def gains(why: Explanation) -> Iterator[str]:
    for finding in why.findings:
        low, high = finding.gain
        if not 1 <= low <= high:
            yield f"{finding.cause}: no interval: {finding.gain}"
        left = why.times.without_terms(lowered_terms(why, finding))
        by_terms = left.total if why.facts.time_s is None else left.launch + ROUNDED * left.longest
        overhead = why.facts.device.launch_s if finding.cause is Cause.LAUNCH else 0.0
        for least, name in (
            (by_terms, "its terms"),
            (roofline_seconds(why.facts, why.times) - overhead, "the roofline bound"),
        ):
            if high > 1 and high * least > why.times.total * (1 + 1e-6):
                yield f"{finding.cause}: {high} promised, {name} allow {why.times.total / least}"


def lowered_terms(why: Explanation, finding: PerformanceFinding) -> set[Bottleneck]:
    """Return the terms that a finding makes smaller; of a measured launch, with the time that no unit explains."""
    now, then = times_of(why.facts), times_of(finding.fixed)
    lowered = {term for term, seconds in now.terms.items() if then.terms[term] < seconds}
    is_about_slowest = any(  # or about a unit that may be the slowest
        seconds >= 0.7 * now.longest and seconds - then.units[unit] > 0.25 * seconds
        for unit, seconds in now.units.items()
    )
    if why.facts.time_s is not None and (finding.cause in UNDERSTATED or is_about_slowest):
        lowered.add(Bottleneck.LATENCY)
    return lowered


def order(why: Explanation) -> Iterator[str]:
    causes = [finding.cause for finding in why.findings]
    if len(set(causes)) < len(causes):
        yield f"a cause twice: {causes}"
    if len(causes) > 5:
        yield f"more than five findings: {causes}"


def grid(why: Explanation) -> Iterator[str]:
    """Few programs come with what to change, or a sentence that nothing can."""
    causes = {finding.cause: finding.text for finding in why.findings}
    has_advice = "Make the grid larger" in causes.get(Cause.FEW_PROGRAMS, "")
    if leaves_idle(why.facts) and why.bound is not Bottleneck.LAUNCH and not has_advice and NO_HELP not in why.summary:
        yield f"{why.facts.programs} programs, and no word of the grid: {why.summary}"
    if NO_HELP in why.summary and has_advice:
        yield f"a larger grid is advised and denied: {why.summary}"
    for cause, words in ((Cause.FEW_PROGRAMS, "grid too small"), (Cause.LAST_WAVE, "partial last wave")):
        if words in why.summary and cause not in causes:
            yield f"{words} without what to change: {why.summary}"


def overhead(why: Explanation) -> Iterator[str]:
    if why.times.launch > MOSTLY_OVERHEAD * why.times.total:
        if [finding.cause for finding in why.findings] != [Cause.LAUNCH]:
            yield f"mostly overhead, and found {[finding.cause for finding in why.findings]}"
        if why.bound is not Bottleneck.LAUNCH:
            yield f"mostly overhead, and limited by {why.bound}"


def sentences(why: Explanation) -> Iterator[str]:
    for text in [why.summary, *(finding.text for finding in why.findings), *why.unknown]:
        if re.search(r"\bNone\b|\bnan\b|\binf\b|  |\.\.(?!\.)(?<!\.\.\.)", text) or not text.endswith("."):
            yield f"not a sentence: {text}"
        parts = text.split(". ")
        if len(set(parts)) < len(parts):
            yield f"a sentence twice: {text}"
    about_traffic = [each for each in why.unknown if each.startswith("Traffic") or "Addresses are unknown" in each]
    reasons = [each.partition(": ")[2] or each for each in about_traffic]
    if len(set(why.unknown)) < len(why.unknown) or len(set(reasons)) < len(reasons):
        yield f"something is unknown twice: {why.unknown}"


def advice(why: Explanation) -> Iterator[str]:
    """Nothing is advised that the launch does already, or cannot do."""
    facts, has_dots = why.facts, any(dot.in_loop for dot in why.facts.dots)
    stages_now = facts.loop_stages or (facts.stages if has_dots else 1)
    for text in (finding.text for finding in why.findings):
        for option, advised, now in re.findall(r"(\w+)=(\d+)\D*\(now (\d+)\)", text):
            if int(advised) <= int(now):
                yield f"{option}={advised} advised where it is {now}: {text}"
        yield from (f"advises what is so: {text}" for words, is_so in PRESENT.items() if words in text and is_so(facts))
        for warps in re.findall(r"num_warps=(\d+)(?!\w| or a multiple)", text):
            if int(warps) == facts.warps or int(warps) > 32:
                yield f"num_warps={warps} advised where it is {facts.warps}: {text}"
        for stages in re.findall(r"Prefetch with .*?num_stages=(\d+)", text):
            if int(stages) <= stages_now:
                yield f"num_stages={stages} advised where it is {stages_now}: {text}"


def _has_no_loop(facts: Facts) -> bool:
    in_loops = [each.in_loop for group in (facts.accesses, facts.reductions, facts.dots) for each in group]
    return not facts.loop_trips and not any(in_loops)


# By words of an advice: whether a launch does it already, or cannot.
PRESENT: Mapping[str, Callable[[Facts], bool]] = {
    "fewer stages": lambda facts: facts.stages <= 1,
    "fewer threads": lambda facts: facts.warps == 1,
    "more num_warps": lambda facts: facts.warps >= 32,
    "larger maxnreg": lambda facts: (facts.registers or 0) >= min(255, 65536 // (32 * facts.warps)),
    "split the loop": _has_no_loop,
}


def iterations(why: Explanation) -> Iterator[str]:
    """A number of iterations in one sentence is not assumed in another."""
    assumed = [each for each in why.unknown if each.startswith("Trip counts are assumed")]
    guesses = {each.line for each in why.facts.accesses if not each.knows_trips}
    guesses |= {each.line for each in why.facts.reductions if not each.knows_trips}
    for finding in why.findings:
        numbers = re.findall(r"[Ee]ach of (\S+) iterations", finding.text)
        if numbers and guesses & named_lines(finding.text):
            yield f"a guess is told as known: {finding.text}"
        if numbers and assumed and " in line" not in assumed[0]:
            yield f"trip counts are known, and assumed of loops without a line: {finding.text} {assumed}"


def named_lines(text: str) -> set[int]:
    """Return the numbers of the lines that a text names."""
    lists = re.findall(r"[Ll]ines? (\d+(?:(?:, | and )\d+)*)", text)
    return {int(number) for numbers in lists for number in re.findall(r"\d+", numbers)}


def joined(why: Explanation) -> Iterator[str]:
    """Accesses as bad as the one that a finding is about are named with it."""
    for finding in why.findings:
        places = Counter((each.line, each.argument) for each in why.facts.accesses)
        own = [each for each in why.facts.accesses if is_like(finding.cause, each)]
        own = [each for each in own if each.line is not None and places[each.line, each.argument] == 1]
        named = {id(each) for each in own if names(finding.text, each)}
        for first, other in combinations(own, 2):
            if figures_of(first) == figures_of(other) and (id(first) in named) != (id(other) in named):
                yield f"one of two equal accesses is named: {first}, {other}: {finding.text}"


def names(text: str, access: AccessFacts) -> bool:
    return access.line in named_lines(text) and re.search(rf"\b{access.argument}\b", text) is not None


def is_like(cause: Cause, access: AccessFacts) -> bool:
    """Whether a cause may be about an access."""
    if cause is Cause.UNCOALESCED:
        return access.operation != "atomic" and access.efficiency < 0.6 and not access.is_split
    return cause is Cause.NARROW and access.is_narrow and access.is_split


def figures_of(access: AccessFacts) -> tuple[object, ...]:
    """Return what makes two accesses equally bad."""
    sizes = (access.sectors, access.ideal_sectors, access.bytes, access.width_bytes, access.owned_bytes)
    return (*sizes, access.element_bytes, access.leaves_gaps)


def evidence(why: Explanation) -> Iterator[str]:
    """The figures of a finding are those of the facts, and its text has them."""
    facts = why.facts
    groups = (facts.accesses, facts.shared, facts.dots, facts.lines, facts.reductions, facts.atomics)
    rows = [each.line for group in groups for each in group]
    for finding in why.findings:
        figures = finding.evidence
        if finding.line not in {*rows, None}:
            yield f"{finding.cause}: no fact is about line {finding.line}"
        if (
            finding.line is not None
            and finding.line not in named_lines(finding.text)
            and finding.cause is not Cause.SMALL_BLOCK
        ):
            yield f"{finding.cause}: line {finding.line} is not in {finding.text}"
        if not FIGURES[finding.cause](figures, finding, why):
            yield f"{finding.cause}: {dict(figures)} are not those of the facts"
        for words in WORDS[finding.cause](figures):
            if words not in finding.text:
                yield f"{finding.cause}: {words!r} is not in {finding.text}"


def is_near(value: float, expected: float) -> bool:
    return abs(value - expected) <= 1e-9 * max(1.0, abs(expected))


def has_flops(figures: Figures, finding: PerformanceFinding, why: Explanation) -> bool:
    products = [(each.line, each.flops) for each in why.facts.dots]
    products += [(each.line, each.flops) for each in why.facts.reductions if each.as_product]
    return any(line == finding.line and is_near(figures["TFLOP"] * 1e12, flops) for line, flops in products)


def has_trips(figures: Figures, finding: PerformanceFinding, why: Explanation) -> bool:
    repeated = [(each.line, each.trips) for each in why.facts.accesses if each.in_loop]
    repeated += [(each.line, each.trips) for each in why.facts.reductions if each.in_loop]
    return "iterations" not in figures or (finding.line, figures["iterations"]) in repeated


def is_in_flight(figures: Figures, finding: PerformanceFinding, why: Explanation) -> bool:
    needed = needed_bytes_in_flight(why.facts)
    says_needed = f"about {bytes_text(needed)} needed" in finding.text
    return has_trips(figures, finding, why) and says_needed == (figures["KiB in flight"] * 1024 < needed)


def has_sectors(figures: Figures, finding: PerformanceFinding, why: Explanation) -> bool:
    lines = named_lines(finding.text)
    named = [each for each in why.facts.accesses if each.line in {*lines, None}]
    most, total = sum(each.sectors for each in named), sum(each.sectors for each in why.facts.accesses)
    return figures["ideal sectors"] < figures["sectors"] <= most + 1e-6 and is_near(
        figures["of all sectors"], figures["sectors"] / total
    )


def has_programs(figures: Figures, finding: PerformanceFinding, why: Explanation) -> bool:
    expected = (why.facts.programs, why.facts.device.multiprocessors)
    return figures["programs"] == expected[0] and figures.get("SMs", expected[1]) == expected[1]


def is_of_access(*names: str) -> Callable[[Figures, PerformanceFinding, Explanation], bool]:
    """Return a check that figures are properties of one access of the finding's line, in turn."""

    def check(figures: Figures, finding: PerformanceFinding, why: Explanation) -> bool:
        own = [each for each in why.facts.accesses if each.line == finding.line]
        return any(
            all(getattr(each, name) == value for name, value in zip(names, figures.values(), strict=False))
            for each in own
        )

    return check


def has_wavefronts(figures: Figures, finding: PerformanceFinding, why: Explanation) -> bool:
    lines = named_lines(finding.text)
    named = [each for each in why.facts.shared if each.line in lines or each.line is None]
    return figures["without conflicts"] < figures["wavefronts"] <= sum(each.wavefronts for each in named) + 1e-6


def has_updates(figures: Figures, finding: PerformanceFinding, why: Explanation) -> bool:
    own = [each for each in why.facts.atomics if each.line == finding.line]
    told = figures.get("updates of each address")
    return any(told == each.updates_per_address if each.knows_updates else told is None for each in own)


def has_times(figures: Figures, finding: PerformanceFinding, why: Explanation) -> bool:
    return is_near(figures["us"], why.times.total * 1e6) and is_near(
        figures["us of an empty launch"], why.times.launch * 1e6
    )


FIGURES: Mapping[Cause, Callable[[Figures, PerformanceFinding, Explanation], bool]] = {
    Cause.UNCOALESCED: has_sectors,
    Cause.NARROW: is_of_access("width_bytes", "possible_bytes"),
    Cause.REREAD: lambda figures, finding, why: figures["times loaded"] > 1,
    Cause.SHARED_LOADS: has_programs,
    Cause.ORDER: lambda figures, finding, why: is_near(
        figures["bytes moved of those there"], (why.facts.dram_bytes or 0) / why.facts.footprint_bytes
    ),
    Cause.CONFLICTS: has_wavefronts,
    Cause.NO_PIPELINE: is_in_flight,
    Cause.REDUCTION: has_trips,
    Cause.TILES: lambda figures, finding, why: any(
        each.line == finding.line and each.tile[:2] == (figures["rows"], figures["columns"]) for each in why.facts.dots
    ),
    Cause.ATOMICS: has_updates,
    Cause.NO_TENSOR_CORES: has_flops,
    Cause.WIDE_OPERANDS: has_flops,
    Cause.ARITHMETIC: lambda figures, finding, why: 0 < figures["of all instructions"] <= 1 + 1e-9,
    Cause.SPILLS: lambda figures, finding, why: figures["spilled bytes"] == why.facts.spill_bytes,
    Cause.FEW_PROGRAMS: has_programs,
    Cause.LAST_WAVE: has_programs,
    Cause.SMALL_BLOCK: has_programs,
    Cause.MASKED: is_of_access("lanes_off"),
    Cause.OCCUPANCY: lambda figures, finding, why: figures["warps"] == why.facts.resident * why.facts.warps,
    Cause.LAUNCH: has_times,
}
WORDS: Mapping[Cause, Callable[[Figures], tuple[str, ...]]] = {
    **dict.fromkeys(Cause, lambda figures: ()),
    Cause.UNCOALESCED: lambda f: (f"{count_text(f['sectors'])} sectors, {count_text(f['ideal sectors'])} ideal",),
    Cause.NARROW: lambda f: (f"{f['bytes at a time']:.0f} B per thread", f"{f['possible']:.0f} B fit"),
    Cause.REREAD: lambda f: (f"{f['times loaded']:.2g} times",),
    Cause.SHARED_LOADS: lambda f: (f"Each of {count_text(f['programs'])} programs",),
    Cause.ORDER: lambda f: (f"{f['bytes moved of those there']:.2g}x the footprint",),
    Cause.CONFLICTS: lambda f: (
        f"{count_text(f['wavefronts'])} wavefronts, {count_text(f['without conflicts'])} ideal",
    ),
    Cause.NO_PIPELINE: lambda f: (f"{bytes_text(f['KiB in flight'] * 1024)} in flight",),
    Cause.TILES: lambda f: (f"{f['rows']:.0f} x {f['columns']:.0f}",),
    Cause.SPILLS: lambda f: (f"{f['spilled bytes']:,.0f} B",),
    Cause.FEW_PROGRAMS: lambda f: (f"{f['programs']:.0f} program", f"for {f['SMs']:.0f} SMs"),
    Cause.LAST_WAVE: lambda f: (f"{f['programs']:,.0f} programs on {f['SMs']:.0f} SMs",),
    Cause.MASKED: lambda f: (f"{count_text(f['elements'])} elements",),
    Cause.SMALL_BLOCK: lambda f: (f"{count_text(f['elements'])} elements for {f['threads']:.0f} threads",),
    Cause.OCCUPANCY: lambda f: (f"{f['warps']:.0f} warp",),
    Cause.LAUNCH: lambda f: (f"{time_text(f['us of an empty launch'] / 1e6)} of {time_text(f['us'] / 1e6)}",),
}

CHECKS = (headline, gains, order, grid, overhead, sentences, advice, iterations, joined, evidence)
