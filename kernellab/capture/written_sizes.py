"""The sizes of a program in its module: what it requires of its inputs, and what it measures while it runs."""

from __future__ import annotations

from collections.abc import Iterator

from kernellab.capture.size import Guard, guard_problem, names_in
from kernellab.capture.sized_recording import measured_in
from kernellab.capture.tape import Step, Tape
from kernellab.source import literal

_LAYOUTS = "# dtype, shape and strides of each input: the program holds for these alone."

_REQUIRE = '''\
def require(**tensors):
    """Raise ValueError for an input that is not laid out as the recorded one."""
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name} is a {type(tensor).__name__}; expected a tensor.")
        found = (tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()))
        if found != LAYOUTS[name]:
            raise ValueError(f"{name} is {found}; the program was recorded with {LAYOUTS[name]}.")'''

_REQUIRE_SIZE = '''\
def require_size(holds, words):
    """Raise ValueError for sizes for which the program does not hold."""
    if not holds:
        raise ValueError(f"PROBLEM")'''

_REQUIRE_SIZES = '''\
def require(NAMES):
    """Raise ValueError for inputs whose sizes or layouts are others than the program holds for."""
    for name, tensor, dtype, rank in (
KINDS
    ):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name} is a {type(tensor).__name__}; expected a tensor.")
        if (tensor.dtype, tensor.dim()) != (dtype, rank):
            raise ValueError(f"{name} is {tensor.dtype} of {tensor.dim()} axes; expected {dtype} of {rank}.")
GUARDS
    for name, tensor, shape, stride in (
LAYOUTS
    ):
        found = (tuple(tensor.shape), tuple(tensor.stride()))
        if found != (shape, stride):
            raise ValueError(f"{name} has shape and strides {found}; the program holds for {(shape, stride)}.")'''


def requirements(tape: Tape) -> Iterator[str]:
    """Yield the functions by which a module refuses inputs."""
    values = [tape.values[index] for index in tape.inputs]
    if tape.sizes is None:
        rows = [
            f"    {literal(v.name)}: (torch.{v.layout.dtype}, {v.layout.shape}, {v.layout.stride})," for v in values
        ]
        yield "\n".join([_LAYOUTS, "LAYOUTS = {", *rows, "}"])
        yield _REQUIRE
        return
    yield _REQUIRE_SIZE.replace("PROBLEM", guard_problem("{words}"))
    given = [(literal(value.name), value.name, value.layout) for value in values]
    parts = {
        "NAMES": ", ".join(value.name for value in values),
        "KINDS": "\n".join(f"        ({n}, {v}, torch.{each.dtype}, {len(each.shape)})," for n, v, each in given),
        "GUARDS": "\n".join(f"    {line}" for line in _asked(_guards_of_inputs(tape))),
        "LAYOUTS": "\n".join(f"        ({n}, {v}, {each.shape}, {each.stride})," for n, v, each in given),
    }
    text = _REQUIRE_SIZES
    for name, part in parts.items():
        text = text.replace(name, part, 1)
    yield text if given else "\n".join(["def require():", '    """Require nothing: the program takes no inputs."""'])


class Measurements:
    """Writes what a module measures in a run, where data decides on a size, and asks the guards of such sizes."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.known = {tape.values[index].name for index in tape.inputs}
        own = set(_guards_of_inputs(tape))
        self.guards = [] if tape.sizes is None else [guard for guard in tape.sizes.guards if guard not in own]

    def after(self, step: Step) -> Iterator[str]:
        """Yield the statements that follow a step whose results have shapes that data decides."""
        if self.tape.sizes is None:
            return
        for symbol, where in measured_in(self.tape, [index for index in step.results if index >= 0]).items():
            if symbol.name.isidentifier() and symbol.name not in self.known:
                self.known.add(symbol.name)
                yield f"{symbol.name} = {self.tape.values[where.value].name}.shape[{where.axis}]"
        ready = [guard for guard in self.guards if self.known.issuperset(names_in(guard.text))]
        self.guards = [guard for guard in self.guards if guard not in ready]
        yield from _asked(ready)


def _guards_of_inputs(tape: Tape) -> list[Guard]:
    names = {tape.values[index].name for index in tape.inputs}
    return [] if tape.sizes is None else [g for g in tape.sizes.guards if names.issuperset(names_in(g.text))]


def _asked(guards: list[Guard]) -> Iterator[str]:
    return (f"require_size({guard.text}, {literal(guard.words)})" for guard in guards)
