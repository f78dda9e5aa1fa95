"""Groups of configs that left equal outputs, and the majority among them; this vote calls no config wrong.

Many correct kernels leave different bytes for different configs: partial sums in a scratch buffer, locks, padding. So
configs unlike the majority are marked, and only a reference can say which are right.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kernellab._triton.kernel import autotune_settings
from kernellab.checking.comparison import OutputDifference
from kernellab.compile.types import Compiled
from kernellab.errors import UsageError, plural
from kernellab.launch.arguments import memory_of
from kernellab.source import MalformedData, parse_json, reading, require, require_type
from kernellab.store.columns import Status
from kernellab.timing.config import Config
from kernellab.timing.launches import Launches, accessed_arguments
from kernellab.tune.result import Agreement, Row

NOT_REPEATED = "-"
"""The group of a row without comparable outputs: two of its launches differ, or no copy could be kept."""
DECIDES = "a reference decides (check=), or naming the arguments that count (outputs=)"

_MOST_FOUNDERS = 8  # groups that are compared with the others; a picture shows as many
_MOST_COMPARED = 64  # others per group; the first group is compared with all

Compare = Callable[[Config, Sequence[Config]], list[tuple[OutputDifference, ...]]]
"""Launches each config once; returns the differences of the outputs of each other config from the first one's."""


@dataclass(slots=True)
class Outputs:
    """The output groups of the configs that ran, in the order of the list.

    ``groups`` has the group of each config. ``pairs`` are the differences between two groups, () for equal ones.
    ``fresh`` configs were measured in this tuning; whether two launches of one agree is only checked if it is alone in
    its group. ``trusted`` configs agree with a reference.
    """

    groups: dict[Config, str]
    pairs: dict[frozenset[str], tuple[OutputDifference, ...]]
    fresh: Collection[Config] = ()
    trusted: Collection[Config] = ()

    def members(self) -> dict[str, list[Config]]:
        """Return the configs of each group, the largest group first; of equal ones, that of the earliest config."""
        members: dict[str, list[Config]] = {}
        for config, group in self.groups.items():
            if group != NOT_REPEATED:
                members.setdefault(group, []).append(config)
        return dict(sorted(members.items(), key=lambda item: -len(item[1])))

    def majority(self) -> list[Config]:
        """Return the configs of the group that holds more than half of all that ran; [] without one."""
        largest = next(iter(self.members().values()), [])
        return largest if 2 * len(largest) > len(self.groups) else []

    def minority(self) -> list[Config]:
        """Return the configs with outputs that are known to differ from the majority's."""
        majority = self.majority()
        if not majority:
            return []
        leader = self.groups[majority[0]]
        others = {*self.groups.values()} - {leader, NOT_REPEATED}
        apart = {g for g in others if self.pairs.get(frozenset((g, leader))) or _differ_on_one_bench((g, leader))}
        return [config for config, group in self.groups.items() if group in apart and config not in self.trusted]

    def agreement(self) -> Agreement:
        """Summarise the groups of equal outputs as an `Agreement`."""
        members = self.members()
        places = {group: place for place, group in enumerate(list(members)[:_MOST_FOUNDERS])}
        differences: dict[tuple[int, int], tuple[OutputDifference, ...]] = {}
        for pair, differing in self.pairs.items():
            if pair <= places.keys() and differing:
                first, second = sorted(places[group] for group in pair)
                differences[first, second] = differing
        return Agreement(
            groups=tuple(map(tuple, members.values())),
            has_majority=bool(self.majority()),
            disagrees=bool(differences) or _differ_on_one_bench(members),
            differences=dict(sorted(differences.items())),
            not_compared=tuple(config for config, group in self.groups.items() if group == NOT_REPEATED),
        )

    def settle(self, compare: Compare) -> None:
        """Compare groups until the equal ones, the majority and the differences of the largest are known.

        The number of launches is linear in the number of groups. After an error, the recorded part is valid.
        """
        done: list[str] = []
        if len(self.members()) > _MOST_FOUNDERS and not self.majority():
            self._compare_group(self._majority_candidate(compare), compare, done)
        while len(done) < _MOST_FOUNDERS:
            founder = next((group for group in self.members() if group not in done), None)
            if founder is None:
                return
            self._compare_group(founder, compare, done)

    def _compare_group(self, founder: str, compare: Compare, done: list[str]) -> None:
        """Compare a group with all that it was not compared with, and merge the equal ones."""
        members = self.members()
        others = [group for group in members if group != founder]
        new = [group for group in others if frozenset((group, founder)) not in self.pairs]
        first = self._representative(members[founder])
        is_alone = first in self.fresh and len(members[founder]) == 1
        done.append(founder)
        if is_alone and any(compare(first, [first])[0]):
            self.groups[first] = NOT_REPEATED
            return
        self._record_differences(founder, new[:_MOST_COMPARED] if len(done) > 1 else new, members, compare)
        self._merge_groups({group for group in others if self.pairs.get(frozenset((group, founder))) == ()}, founder)

    def _record_differences(
        self, founder: str, others: Sequence[str], members: Mapping[str, Sequence[Config]], compare: Compare
    ) -> None:
        """Compare a group with others that it was not compared with, and record the differences."""
        new = [group for group in others if frozenset((group, founder)) not in self.pairs]
        if new:
            first, *rest = (self._representative(members[group]) for group in (founder, *new))
            self.pairs |= {frozenset((g, founder)): pair for g, pair in zip(new, compare(first, rest), strict=True)}

    def _representative(self, configs: Sequence[Config]) -> Config:
        """Return a config of a group, a freshly measured one if possible."""
        return next((config for config in configs if config in self.fresh), configs[0])

    def _merge_groups(self, equal: Collection[str], founder: str) -> None:
        """Merge groups of equal outputs, with the known differences of each."""
        if not equal:
            return
        self.groups = {config: founder if group in equal else group for config, group in self.groups.items()}
        for pair, differing in list(self.pairs.items()):
            own = frozenset(founder if group in equal else group for group in pair)
            if len(own) > 1:
                self.pairs.setdefault(own, differing)

    def _majority_candidate(self, compare: Compare) -> str:
        """Return the only group that can have a majority once the groups equal to it are merged.

        The majority vote of Boyer and Moore (https://www.cs.utexas.edu/~moore/best-ideas/mjrty), weighted by the
        configs of a group. Groups that together cannot overtake the leader are compared in one call.
        """
        members = self.members()
        waiting = deque((group, len(configs)) for group, configs in members.items())
        leader, lead = "", 0
        while waiting:
            if not lead:
                leader, lead = waiting.popleft()
                continue
            part = [waiting.popleft()]
            while waiting and sum(own for _, own in part) + waiting[0][1] <= lead:
                part.append(waiting.popleft())
            self._record_differences(leader, [group for group, _ in part], members, compare)
            for group, own in part:
                if not self.pairs[frozenset((group, leader))]:
                    lead += own
                elif own <= lead:
                    lead -= own
                else:
                    leader, lead = group, own - lead
        return leader


def note_needless_restores(launches: Launches, compiled: Compiled) -> None:
    """Note the arguments of ``restore_value`` that the kernel does not write."""
    if not compiled.effects.unknown:
        stated = autotune_settings(launches.kernel).restore_value
        needless = [name for name in stated if name not in compiled.effects.mutated]
        notes = [f"restore_value names {name}, which the kernel does not write" for name in needless]
        launches.notes += [note for note in notes if note not in launches.notes]


def require_written(launches: Launches, config: Config, compiled: Compiled) -> None:
    """Raise `UsageError` if ``outputs`` names an argument that the kernel does not write."""
    effects = compiled.effects
    if launches.outputs is None or effects.through:  # what lies behind addresses has names once it is reached
        return
    mutated = accessed_arguments(effects)[0]
    written = [name for name in memory_of(launches.of(config).arguments) if name in mutated]
    if unknown := sorted(launches.outputs - set(written)):
        names = ", ".join(written) or "nothing"
        raise UsageError(f"outputs names {unknown[0]}, and {launches.name} writes {names}.")


def bench_group(bench: str, number: int) -> str:
    """Return the group of a row by its number on a bench; negative numbers are of outputs unlike all that it keeps."""
    return f"{bench}.{number}"


def _differ_on_one_bench(groups: Iterable[str]) -> bool:
    """Whether two of these groups have different numbers on one bench."""
    numbers_by_bench: dict[str, list[int]] = {}
    for group in groups:
        bench, _, number = group.rpartition(".")
        if bench and number.lstrip("-").isdecimal():
            numbers_by_bench.setdefault(bench, []).append(int(number))
    return any(len(numbers) > 1 and max(numbers) >= 0 for numbers in numbers_by_bench.values())


def outputs_of(rows: Mapping[Config, Row], fresh: Collection[Config] = ()) -> Outputs:
    """Return the output groups and differences that the rows of the configs that ran hold."""
    ran = {c: r for c, r in rows.items() if r.status in {Status.OK, Status.DIFFERS} and r.time_ms is not None}
    outputs = Outputs(
        {config: _group(row) for config, row in ran.items()}, {}, fresh, {c for c in ran if ran[c].checked}
    )
    for row in ran.values():
        for other, differing in _read_differences(row.apart).items() if row.apart else ():
            outputs.pairs[frozenset((_group(row), other))] = differing
    return outputs


def _read_differences(text: str) -> dict[str, tuple[OutputDifference, ...]]:
    """Return a row's differences from other groups, read from JSON; {} for a malformed text."""
    try:
        with reading("how outputs differ"):
            read = parse_json(text).items()
            differences = {group: tuple(OutputDifference(*values) for values in differing) for group, differing in read}
            require_type(differences, dict[str, tuple[OutputDifference, ...]], "the differences")
            require(all(differences.values()), "the differences", text, "one at least")
            return differences
    except MalformedData:
        return {}


def rows_with_agreement(rows: Mapping[Config, Row], outputs: Outputs) -> dict[Config, Row]:
    """Return the rows with a new group, new differences or a new status; those unlike the majority get `differs`."""
    outvoted, majority = set(outputs.minority()), outputs.majority()
    leader = outputs.groups[majority[0]] if majority else ""
    apart = _differences_json(outputs)
    changed = {}
    for config, group in outputs.groups.items():
        row = rows[config]
        updated = replace(row, apart=apart.get(group, ""), group=row.group if _group(row) == group else group)
        if config in outvoted:
            differing = outputs.pairs.get(frozenset((group, leader)), ())
            how = "; ".join(difference.text for difference in differing) or "its outputs differ"
            reason = f"{how}, from what {len(majority)} of the {len(outputs.groups)} configs leave; {DECIDES}"
            updated = replace(updated, status=Status.DIFFERS, reason=reason, standing="", tuning="")
        elif row.status is Status.DIFFERS:
            updated = replace(updated, status=Status.OK, reason="")
        if updated != row:
            changed[config] = updated
    return changed


def _group(row: Row) -> str:
    """Return the group of a row; a row older than groups is in that of its reference."""
    return row.group or f"checked {row.checked}"


def _differences_json(outputs: Outputs) -> dict[str, str]:
    """Return the differences of each group from the largest groups, as JSON."""
    largest = set(list(outputs.members())[:_MOST_FOUNDERS])
    differences: dict[str, dict[str, Any]] = {}
    for pair, differing in outputs.pairs.items():
        for group in pair if differing and len(pair) > 1 else ():
            (other,) = pair - {group}
            if other in largest:
                plain = [[d.argument, d.differing, d.elements, d.largest] for d in differing]
                differences.setdefault(group, {})[other] = plain
    return {group: json.dumps(others, sort_keys=True) for group, others in differences.items()}


def disagreement_note(agreement: Agreement) -> str:
    """Return the note for configs with different outputs; "" where all agree."""
    if not agreement.disagrees:
        return ""
    ran, largest = sum(map(len, agreement.groups)) + len(agreement.not_compared), len(agreement.groups[0])
    how = "; ".join(difference.text for difference in agreement.arguments)
    how = f"Between groups, at most: {how}" if how else "How they differ was not kept"
    if agreement.has_majority:
        return (
            f"Outputs disagree: {largest} of {ran} configs agree, and what differs from these does not win. {how}. "
            f"Where it may be right, {DECIDES}."
        )
    counts = Counter(map(len, agreement.groups))
    sizes = ", ".join(f"{plural(count, 'group')} of {size}" for size, count in counts.items())
    return (
        f"Outputs disagree, and no more than {largest} of {ran} configs agree ({sizes}), so all of them could win. "
        f"{how}. Where some may be wrong, {DECIDES}."
    )
