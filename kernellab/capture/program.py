"""A captured program: what a user runs, looks at, makes functional and exports."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernellab.capture.entering import use_of
from kernellab.capture.tape import Tape
from kernellab.errors import UsageError, choice_message
from kernellab.registry.table import Registry

if TYPE_CHECKING:
    from kernellab.capture.plan import Plan
    from kernellab.export.write import Exported

_OPEN = "its block has not ended"


class Program:
    """A series of launches and torch operations, recorded by `Lab.capture`.

    It holds for the shapes, strides and constants of the recording. Until its block has ended well, every use of it is
    a `UsageError`.
    """

    def __init__(self, kernels: Registry, recorder: Any = None) -> None:
        self._kernels = kernels
        self._recorder = recorder
        self._tape: Tape | None = None
        self._problem = _OPEN
        self._functions: dict[int, Any] = {}
        self._graph: Any = None

    @property
    def tape(self) -> Tape:
        """The program as data."""
        if self._tape is None:
            hint = "leave the with statement first" if self._problem == _OPEN else "run the block again"
            raise UsageError(f"The program is incomplete: {self._problem}. To use it, {hint}.")
        return self._tape

    @property
    def is_complete(self) -> bool:
        return self._tape is not None

    @property
    def problem(self) -> str:
        """Why the program is incomplete, or ""."""
        return self._problem if self._tape is None else ""

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the tensors that it takes, in the order of their first use."""
        return tuple(self.tape.values[index].name for index in self.tape.inputs)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of what it gives: changed inputs first, then what was left at the end of the block."""
        return self.tape.output_names

    @property
    def notes(self) -> tuple[str, ...]:
        """What the recording fixed, and what will not repeat."""
        return self.tape.notes

    @property
    def graph(self) -> Any:
        """The program as a `torch.fx.GraphModule`; call it with the inputs in order."""
        if self._graph is None:
            from kernellab.capture.graph import graph_of  # needs torch
            from kernellab.capture.launching import SideTable

            self._graph = graph_of(self.tape, SideTable(self._kernels, self._functions))
        return self._graph

    @property
    def plan(self) -> Plan:
        """Where its buffers lie, and what memory it needs at most."""
        from kernellab.capture.lifetimes import plan_of

        return plan_of(self.tape)

    @property
    def frame(self) -> Any:
        """A DataFrame with one row for each input and step."""
        from kernellab.capture.table import frame_of

        return frame_of(self.tape)

    def returns(self, *tensors: Any) -> Any:
        """Say inside the block what the program gives, instead of all that is left at its end; return the tensors."""
        if self._recorder is None:
            raise UsageError("The block has ended; program.only(names) gives a program with fewer outputs.")
        self._recorder.recording.returned += [self._recorder.value_of(tensor) for tensor in tensors]
        return tensors[0] if len(tensors) == 1 else tensors

    def only(self, *names: str) -> Program:
        """Return the program with these outputs only, without what does nothing for them.

        Raises:
            UsageError: it has no such output.
        """
        from kernellab.capture.finish import compacted, live_steps

        tape = self.tape
        unknown = [name for name in names if name not in tape.output_names]
        if unknown or not names:
            raise UsageError(choice_message("output of the program", unknown[0] if unknown else "", tape.output_names))
        outputs = tuple(tape.outputs[tape.output_names.index(name)] for name in names)
        steps = live_steps(tape, outputs)
        used = {index for step in steps for index in (*step.taken, *step.results)} | set(outputs) | set(tape.inputs)
        smaller = dataclasses.replace(tape, steps=steps, outputs=outputs, output_names=names)
        return self._like(compacted(smaller, used))

    def functionalise(self) -> Program:
        """Return a program that changes nothing: each kernel works on copies, which later steps see."""
        from kernellab.capture.functional import functionalised

        return self._like(functionalised(self.tape))

    def __call__(self, *inputs: Any) -> Any:
        """Run the program; return its output, or a tuple of several."""
        names = self.inputs
        if len(inputs) != len(names):
            raise UsageError(f"The program takes {len(names)} inputs ({', '.join(names)}); {len(inputs)} were given.")
        found = tuple(self.run(**dict(zip(names, inputs, strict=True))).values())
        return found[0] if len(found) == 1 else found

    def run(self, **inputs: Any) -> dict[str, Any]:
        """Run the program on inputs by name; return its outputs by name. Inputs that it changes are changed.

        Raises:
            UsageError: an input is missing, unknown, or not laid out as the recorded one.
        """
        import torch

        from kernellab.capture.entering import require_inputs

        require_inputs(self.tape, inputs)
        with torch.no_grad():
            found: dict[str, Any] = self.graph(*(inputs[name] for name in self.inputs))
        return found

    def make_inputs(self, device: str | None = None, seed: int = 0) -> dict[str, Any]:
        """Return new inputs of the recorded shapes, strides and ranges of values, with random contents."""
        from kernellab.capture.statements import main_device
        from kernellab.registry.recorded_inputs import made_arguments

        return made_arguments(self.tape.samples, device or main_device(self.tape), seed)

    def export(self, path: str | Path, *, name: str = "program") -> Exported:
        """Write the program as a Python module that needs torch and Triton, and nothing of kernellab.

        Raises:
            UsageError: something in it cannot be written down, or the file cannot be written.
        """
        from kernellab.capture.writing import write

        return write(self.tape, self.plan, lambda: self.run(**self.make_inputs()), Path(path), name)

    def complete(self, scope: Mapping[str, Any]) -> None:
        """Take what was recorded; called at the end of the block. ``scope`` holds the user's variables."""
        from kernellab.capture.finish import finished

        enter = partial(use_of, self._kernels, scope, self._functions)
        self._tape = finished(self._recorder.recording, scope, enter)
        self._recorder = None

    def abandon(self, problem: str) -> None:
        """Mark the program as one that never came to its end."""
        self._recorder, self._problem = None, problem.rstrip(".")

    def _like(self, tape: Tape) -> Program:
        program = Program(self._kernels)
        program._tape, program._functions = tape, self._functions
        return program
