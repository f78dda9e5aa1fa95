"""The text with which an exported kernel chooses its config by sizes and device: decisions of those it was tuned on.

It is plain Python over torch: a table of decisions by device, a function of the sizes for each, and a dictionary of
what was chosen before, so that a launch whose sizes are known costs a lookup.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernellab.export.choosing import config_for, decision_for, decision_on, fitting
from kernellab.source import literal

Source = Callable[[str], str]
"""Returns a function of the sizes under a name, as Python, that gives the place of a config."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What was found on one model of device: few configs, and a function of the sizes that picks one.

    ``configs`` are constexprs and options by name, ``shared_bytes`` what each takes of shared memory, where that is
    known. ``words`` says what it was measured with.
    """

    device: str
    target: str
    multiprocessors: int
    configs: tuple[Mapping[str, Any], ...]
    shared_bytes: tuple[int | None, ...]
    source: Source
    words: str


@dataclass(frozen=True, slots=True)
class Chooser:
    """How the launch of a module finds its config.

    ``sizes`` are the arguments of the decisions by name, each as an expression over the parameters of the launch, and
    ``device`` is the expression of the device. The first of the ``decisions`` is that of the device it was made for.
    """

    sizes: tuple[tuple[str, str], ...]
    device: str
    decisions: tuple[Decision, ...]

    @property
    def names(self) -> frozenset[str]:
        """The constexprs and options that the configs set."""
        return frozenset(name for decision in self.decisions for config in decision.configs for name in config)

    def call(self, given: str = "meta") -> str:
        """Return the expression of the config, but for what is ``given``."""
        sizes = ", ".join(text for _, text in self.sizes)
        return f"config_for(({sizes},), {self.device}, {given})"

    @property
    def variants(self) -> str:
        """The expression of the configs that fit a ``device``, which the module checks."""
        decided = "decision_on(torch.device(device))"
        return f'[{decided}["configs"][place] for place in fitting({decided}, torch.device(device))]'

    @property
    def words(self) -> str:
        """What the docstring of the module says of it."""
        names = ", ".join(name for name, _ in self.sizes)
        where = "; ".join(f"{each.device} ({each.words})" for each in self.decisions)
        return f"Its config is chosen by {names}, as measured on {where}."

    def sections(self, kernel: str) -> Iterator[str]:
        """Yield the text: the functions of the sizes, the table, and what looks into it."""
        for number, decision in enumerate(self.decisions, 1):
            yield decision.source(f"choose_{number}").rstrip()
        yield "\n".join(["DECISIONS = {", *_rows(self.decisions), "}", f"KERNEL = {literal(kernel)}", "CHOSEN = {}"])
        yield from (_source(function) for function in (config_for, decision_on, fitting, decision_for))


def _rows(decisions: Sequence[Decision]) -> Iterator[str]:
    for number, decision in enumerate(decisions, 1):
        yield f"    # {' '.join(decision.words.split())}"
        yield f"    {literal(decision.device)}: {{"
        yield f'        "target": {literal(decision.target)},'
        yield f'        "multiprocessors": {decision.multiprocessors},'
        yield '        "configs": ['
        yield from (f"            {literal(dict(config))}," for config in decision.configs)
        yield "        ],"
        yield f'        "shared_bytes": {literal(list(decision.shared_bytes))},'
        yield f'        "choose": choose_{number},'
        yield "    },"


def _source(function: Callable[..., Any]) -> str:
    """Return a function of `kernellab.export.choosing` as a module has it, which imports torch at its top."""
    text = inspect.getsource(function).replace(": Any", "").replace(" -> Any", "")
    return text.replace("    import torch\n\n", "").rstrip()
