"""Which configs of a tuning left the same outputs, and whether those are most: a vote, which calls no config wrong.

Many right kernels leave other contents for another config: partial sums in a scratch buffer, locks, padding. So configs
that differ from most are told from the others, and only a reference can say which are right.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kernellab.measure.comparison import OutputDifference
from kernellab.measure.config import Config, Status
from kernellab.source import Malformed, parsed_json, reading, require, require_type
from kernellab.tune.result import Agreement, Row

NOT_REPEATED = "-"
"""The group of a row whose outputs say nothing, since two of its launches differ or nothing could be kept."""
DECIDES = "a reference decides (check=), or naming the arguments that count (outputs=)"

_MOST_FOUNDERS = 8  # so many groups are compared with the others: the ones that a picture shows
_MOST_COMPARED = 64  # with each of them but the first, which is compared with all

Compare = Callable[[Config, Sequence[Config]], list[tuple[OutputDifference, ...]]]
"""Launches each config once, and tells how the outputs of the others differ from those of the first."""


@dataclass(slots=True)
class Outputs:
    """What is known of the outputs of configs that ran, in the order of the list.

    ``groups`` has the group of each. ``pairs`` are the differences between two groups; none for two that are equal.
    ``fresh`` configs were measured just now, so they are at hand; nobody has seen yet whether one that is alone in its
    group repeats itself. ``trusted`` ones agree with a reference.
    """

    groups: dict[Config, str]
    pairs: dict[frozenset[str], tuple[OutputDifference, ...]]
    fresh: Collection[Config] = ()
    trusted: Collection[Config] = ()

    def members(self) -> dict[str, list[Config]]:
        """Return the configs of each group, the largest group first; of equal ones, that of the earliest config."""
        found: dict[str, list[Config]] = {}
        for config, group in self.groups.items():
            if group != NOT_REPEATED:
                found.setdefault(group, []).append(config)
        return dict(sorted(found.items(), key=lambda item: -len(item[1])))

    def majority(self) -> list[Config]:
        """Return the configs of the group that holds more than half of all that ran, if there is one."""
        largest = next(iter(self.members().values()), [])
        return largest if 2 * len(largest) > len(self.groups) else []

    def outvoted(self) -> list[Config]:
        """Return the configs that are known to differ from most."""
        majority = self.majority()
        if not majority:
            return []
        leader = self.groups[majority[0]]
        apart = {group for group in set(self.groups.values()) if self._differ(group, leader)}
        return [config for config, group in self.groups.items() if group in apart and config not in self.trusted]

    def _differ(self, group: str, other: str) -> bool:
        """Tell whether two groups are known to differ: somebody compared them, or a bench that told them apart."""
        if NOT_REPEATED in {group, other} or group == other:
            return False
        return bool(self.pairs.get(frozenset((group, other)))) or _told_apart((group, other))

    def agreement(self) -> Agreement:
        """Return what a tuning tells of it."""
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
            disagrees=bool(differences) or _told_apart(members),
            differences=dict(sorted(differences.items())),
            not_compared=tuple(config for config, group in self.groups.items() if group == NOT_REPEATED),
        )

    def settle(self, compare: Compare) -> None:
        """Find out which groups are one, whether one holds more than half, and how the largest differ.

        That takes a number of launches that grows with the number of groups, not with its square. What an error leaves
        behind is true, but not all that could be known.
        """
        done: list[str] = []
        if len(self.members()) > _MOST_FOUNDERS and not self.majority():
            self._meet(self._leader(compare), compare, done)
        while len(done) < _MOST_FOUNDERS:
            founder = next((group for group in self.members() if group not in done), None)
            if founder is None:
                return
            self._meet(founder, compare, done)

    def _meet(self, founder: str, compare: Compare, done: list[str]) -> None:
        """Compare a group with those that it has not met, and join those that are equal."""
        members = self.members()
        others = [group for group in members if group != founder]
        new = [group for group in others if frozenset((group, founder)) not in self.pairs]
        first = self._first(members[founder])
        is_alone = first in self.fresh and len(members[founder]) == 1
        done.append(founder)
        if is_alone and any(compare(first, [first])[0]):
            self.groups[first] = NOT_REPEATED
            return
        self._ask(founder, new[:_MOST_COMPARED] if len(done) > 1 else new, members, compare)
        self._join({group for group in others if self.pairs.get(frozenset((group, founder))) == ()}, founder)

    def _ask(
        self, founder: str, others: Sequence[str], members: Mapping[str, Sequence[Config]], compare: Compare
    ) -> None:
        """Enter how a group differs from others that it has not met."""
        new = [group for group in others if frozenset((group, founder)) not in self.pairs]
        if new:
            found = compare(self._first(members[founder]), [self._first(members[group]) for group in new])
            self.pairs.update({frozenset((group, founder)): each for group, each in zip(new, found, strict=True)})

    def _first(self, configs: Sequence[Config]) -> Config:
        """Return a config of a group, one that is at hand if possible."""
        return next((config for config in configs if config in self.fresh), configs[0])

    def _join(self, equal: Collection[str], founder: str) -> None:
        """Make groups one, with what is known of each."""
        if not equal:
            return
        self.groups = {config: founder if group in equal else group for config, group in self.groups.items()}
        for pair, differing in list(self.pairs.items()):
            own = frozenset(founder if group in equal else group for group in pair)
            if len(own) > 1:
                self.pairs.setdefault(own, differing)

    def _leader(self, compare: Compare) -> str:
        """Return the only group that may turn out to hold more than half, once those equal to it are joined.

        That is the majority vote of Boyer and Moore (https://www.cs.utexas.edu/~moore/best-ideas/mjrty), which compares
        each group once, with the weight of its configs. As many as cannot depose the leader are compared at once.
        """
        members = self.members()
        waiting = deque((group, len(configs)) for group, configs in members.items())
        leader, lead = "", 0
        while waiting:
            if not lead:
                leader, lead = waiting.popleft()
                continue
            part = _part(waiting, lead)
            self._ask(leader, [group for group, _ in part], members, compare)
            for group, own in part:
                if not self.pairs[frozenset((group, leader))]:
                    lead += own
                elif own <= lead:
                    lead -= own
                else:
                    leader, lead = group, own - lead
        return leader


def bench_group(bench: str, number: int) -> str:
    """Return the group of a row by its number on a bench, which keeps the first few; a negative one is like none."""
    return f"{bench}.{number}"


def _told_apart(groups: Iterable[str]) -> bool:
    """Tell whether a bench told some of these groups apart: it compares each with those that it keeps."""
    found: dict[str, list[int]] = {}
    for group in groups:
        bench, _, number = group.rpartition(".")
        if bench and number.lstrip("-").isdecimal():
            found.setdefault(bench, []).append(int(number))
    return any(len(numbers) > 1 and max(numbers) >= 0 for numbers in found.values())


def _part(waiting: deque[tuple[str, int]], lead: int) -> list[tuple[str, int]]:
    """Take the next groups, at least one, that together weigh no more than the leader is ahead."""
    found: list[tuple[str, int]] = []
    while waiting and (not found or waiting[0][1] <= lead):
        found.append(waiting.popleft())
        lead -= found[-1][1]
    return found


def outputs_of(rows: Mapping[Config, Row], fresh: Collection[Config] = ()) -> Outputs:
    """Return what rows say of the outputs of those configs that ran."""
    ran = {c: r for c, r in rows.items() if r.status in {Status.OK, Status.DIFFERS} and r.time_ms is not None}
    found = Outputs({config: _group(row) for config, row in ran.items()}, {}, fresh, {c for c in ran if ran[c].checked})
    for row in ran.values():
        for other, differing in _differences(row.apart).items() if row.apart else ():
            found.pairs[frozenset((_group(row), other))] = differing
    return found


def _differences(text: str) -> dict[str, tuple[OutputDifference, ...]]:
    """Return how a row differs from other groups; nothing for a text that is not what a row keeps."""
    try:
        with reading("how outputs differ"):
            read = parsed_json(text).items()
            found = {group: tuple(OutputDifference(*each) for each in differing) for group, differing in read}
            for differing in found.values():
                require_type(differing, tuple[OutputDifference, ...], "the differences")
                require(bool(differing), "the differences", differing, "one at least")
            return found
    except Malformed:
        return {}


def judged(rows: Mapping[Config, Row], outputs: Outputs) -> dict[Config, Row]:
    """Return the rows that change by what is known of their outputs: those that differ from most are told so."""
    outvoted, majority = set(outputs.outvoted()), outputs.majority()
    leader = outputs.groups[majority[0]] if majority else ""
    apart = _apart(outputs)
    found = {}
    for config, group in outputs.groups.items():
        row = rows[config]
        new = replace(row, apart=apart.get(group, ""), group=row.group if _group(row) == group else group)
        if config in outvoted:
            differing = outputs.pairs.get(frozenset((group, leader)), ())
            reason = _reason(differing, len(majority), len(outputs.groups))
            new = replace(new, status=Status.DIFFERS, reason=reason, standing="", tuning="")
        elif row.status is Status.DIFFERS:
            new = replace(new, status=Status.OK, reason="")
        if new != row:
            found[config] = new
    return found


def _group(row: Row) -> str:
    """Return the group of a row; those from before groups were kept agreed with each other, or with a reference."""
    return row.group or f"checked {row.checked}"


def _apart(outputs: Outputs) -> dict[str, str]:
    """Return how each group differs from the largest, as JSON."""
    largest = set(list(outputs.members())[:_MOST_FOUNDERS])
    found: dict[str, dict[str, Any]] = {}
    for pair, differing in outputs.pairs.items():
        for group in pair if differing and len(pair) > 1 else ():
            (other,) = pair - {group}
            if other in largest:
                plain = [[each.argument, each.differing, each.elements, each.largest] for each in differing]
                found.setdefault(group, {})[other] = plain
    return {group: json.dumps(others, sort_keys=True) for group, others in found.items()}


def _reason(differing: Sequence[OutputDifference], agreeing: int, ran: int) -> str:
    how = "; ".join(each.text for each in differing) or "its outputs differ"
    return f"{how}, from what {agreeing} of the {ran} configs leave; {DECIDES}"


def remark_of(agreement: Agreement) -> str:
    """Return what the user should know where configs left different outputs, else ""."""
    if not agreement.disagrees:
        return ""
    ran, largest = sum(map(len, agreement.groups)) + len(agreement.not_compared), len(agreement.groups[0])
    how = "; ".join(each.text for each in agreement.arguments)
    how = f"Between groups, at most: {how}" if how else "How they differ was not kept"
    if agreement.has_majority:
        return (
            f"Outputs disagree: {largest} of {ran} configs agree, and what differs from these does not win. {how}. "
            f"Where it may be right, {DECIDES}."
        )
    return (
        f"Outputs disagree, and no more than {largest} of {ran} configs agree ({_sizes(agreement)}), so all of them "
        f"could win. {how}. Where some may be wrong, {DECIDES}."
    )


def _sizes(agreement: Agreement) -> str:
    counts = Counter(map(len, agreement.groups))
    return ", ".join(f"{count} {'group' if count == 1 else 'groups'} of {size}" for size, count in counts.items())
