"""A captured program: what a user runs, looks at, makes functional and exports."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernellab.capture.tape import Tape, moved_bytes, require_inputs
from kernellab.display import Displayable
from kernellab.errors import UsageError, choice_message, plural, value_message
from kernellab.launch.arguments import span_elements
from kernellab.registry import Registry, regenerated_arguments
from kernellab.workers.forks_and_interrupts import import_uninterrupted

if TYPE_CHECKING:
    from kernellab.capture.plan import MemoryPlan
    from kernellab.export.write import Exported

_OPEN = "its block has not ended"


class Program(Displayable):
    """A series of launches and torch operations, recorded by `Lab.capture`.

    It holds for the shapes, strides and constants of the recording; with `dynamic`, for all sizes under its `guards`.
    Until its block has ended without an error, every use of it raises `UsageError`.
    """

    def __init__(self, kernels: Registry, recorder: Any = None) -> None:
        self._kernels = kernels
        self._recorder = recorder
        self._tape: Tape | None = None
        self._problem = _OPEN
        self._functions: dict[int, Any] = {}
        self._graph: Any = None

    def __repr__(self) -> str:
        """One line; the steps are in `frame`."""
        if self._tape is None:
            return f"<Program: incomplete, {self._problem}>"
        sizes = "under guards for all sizes" if self._tape.sizes is not None else "of fixed sizes"
        steps, inputs = plural(len(self._tape.steps), "step"), plural(len(self._tape.inputs), "input")
        return f"<Program: {steps} from {inputs}, {sizes}>"

    @property
    def tape(self) -> Tape:
        """The program as data."""
        if self._tape is None:
            hint = "leave the with statement first" if self._problem == _OPEN else "run the block again"
            raise UsageError(f"The program is incomplete: {self._problem}. To use it, {hint}.")
        return self._tape

    @property
    def is_complete(self) -> bool:
        """Whether its block has ended well."""
        return self._tape is not None

    @property
    def problem(self) -> str:
        """Why the program is incomplete, or ""."""
        return self._problem if self._tape is None else ""

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the tensors that it takes, in the order of their first use."""
        return tuple(self.tape.names(self.tape.inputs))

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of its outputs: changed inputs first, then results that exist at the end of the block."""
        return self.tape.output_names

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on what the recording fixed, and on what will not repeat."""
        return self.tape.notes

    @property
    def guards(self) -> tuple[str, ...]:
        """The conditions on the sizes of its inputs under which it holds, with the lines that they come from."""
        return () if self.tape.sizes is None else tuple(guard.words for guard in self.tape.sizes.guards)

    @property
    def graph(self) -> Any:
        """The program as a `torch.fx.GraphModule`; call it with the inputs in order."""
        if self._graph is None:
            from kernellab.capture.graph import SideTable, graph_of  # needs torch

            self._graph = graph_of(self.tape, SideTable(self._kernels, self._functions))
        return self._graph

    @property
    def plan(self) -> MemoryPlan:
        """The memory plan: how its buffers share memory, and its peak."""
        return self.plan_with()

    def plan_with(self, donated: Collection[str] = ()) -> MemoryPlan:
        """Return the plan of a program that may overwrite some inputs after their last use."""
        from kernellab.capture.plan import plan_of

        tape = self.tape
        if isinstance(donated, str):
            raise UsageError(value_message("donated", donated, "a list of names, such as ['x']"))
        unknown = [name for name in donated if name not in self.inputs]
        if unknown and not self.inputs:
            raise UsageError(f"donated names {unknown[0]!r}, and the program has no inputs.")
        if unknown:
            raise UsageError(choice_message("input of the program", unknown[0], self.inputs))
        return plan_of(tape, [index for index in tape.inputs if tape.values[index].name in donated])

    @property
    def frame(self) -> Any:
        """A DataFrame with one row for each input and step."""
        return frame_of(self.tape)

    def returns(self, *tensors: Any) -> Any:
        """Choose the outputs, inside the block, instead of all results that exist at its end; return the tensors."""
        if self._recorder is None:
            raise UsageError("The block has ended; program.only(names) gives a program with fewer outputs.")
        for tensor in tensors:
            self.add_output(tensor)
        return tensors[0] if len(tensors) == 1 else tensors

    def add_output(self, tensor: Any) -> int:
        """Choose an output, inside the block; return its number, the same for the same value."""
        number = int(self._recorder.value_of(tensor))
        self._recorder.recording.outputs.append(number)
        return number

    def only(self, *names: str) -> Program:
        """Return the program with these outputs only, without steps that they do not depend on."""
        from kernellab.capture.build import compact, live_steps

        tape = self.tape
        unknown = [name for name in names if name not in tape.output_names]
        if unknown or not names:
            raise UsageError(choice_message("output of the program", unknown[0] if unknown else "", tape.output_names))
        outputs = tuple(tape.outputs[tape.output_names.index(name)] for name in names)
        steps = live_steps(tape, outputs)
        used = {index for step in steps for index in (*step.operands, *step.results)} | set(outputs) | set(tape.inputs)
        smaller = dataclasses.replace(tape, steps=steps, outputs=outputs, output_names=names)
        return self._like(compact(smaller, used))

    def functionalise(self) -> Program:
        """Return a program that changes nothing: each kernel works on copies, which later steps use."""
        from kernellab.capture.build import functionalise

        return self._like(functionalise(self.tape))

    def __call__(self, *inputs: Any) -> Any:
        """Run the program; return its output, or a tuple of several."""
        names = self.inputs
        if len(inputs) != len(names):
            raise UsageError(
                f"The program takes {plural(len(names), 'input')} ({', '.join(names)}); {len(inputs)} were given."
            )
        outputs = tuple(self.run(**dict(zip(names, inputs, strict=True))).values())
        return outputs[0] if len(outputs) == 1 else outputs

    def run(self, **inputs: Any) -> dict[str, Any]:
        """Run the program on inputs by name; return its outputs by name. Inputs that it changes are changed.

        Raises:
            UsageError: an input is missing, unknown, or not laid out as the recorded one.
        """
        import torch

        require_inputs(self.tape, inputs)
        with torch.no_grad(), torch._C._DisableAutocast():  # casts of the recording are steps of their own
            outputs: dict[str, Any] = self.graph(*(inputs[name] for name in self.inputs))
        return outputs

    def make_inputs(self, device: str | None = None, seed: int = 0) -> dict[str, Any]:
        """Return new inputs of the recorded shapes, strides and ranges of values, with random contents."""
        from kernellab.capture.statements import main_device

        inputs = regenerated_arguments(self.tape.samples, device or main_device(self.tape), seed)
        if device is None and len(self.tape.gpus) > 1:
            layouts = self.tape.input_layouts
            return {name: moved_to(tensor, layouts[name].device) for name, tensor in inputs.items()}
        return inputs

    def export(
        self, path: str | Path, *, name: str = "program", donated: Collection[str] = (), workspace: bool = False
    ) -> Exported:
        """Write the program as a Python module that needs torch and Triton, and nothing of kernellab.

        ``donated`` names inputs whose contents the caller needs no more: the module may write to them, and what it
        returns may lie there. With ``workspace``, its ``run`` takes the memory for what lives during the run alone,
        of ``WORKSPACE_BYTES``, and allocates its outputs only.

        Raises:
            UsageError: something in it cannot be written down, or the file cannot be written.
        """
        from kernellab.capture.plan import with_workspace
        from kernellab.capture.statements import main_device
        from kernellab.capture.writing import write

        if not isinstance(path, str | Path):
            raise UsageError(value_message("path", path, "the path of a file"))
        plan = self.plan_with(donated)
        if workspace:
            if self.tape.sizes is not None:
                raise UsageError("The size of a workspace has to be known; capture the program without dynamic=True.")
            plan = with_workspace(plan, main_device(self.tape))
        return write(self.tape, plan, lambda: self.run(**self.make_inputs()), Path(path), name)

    def complete(self, tape: Tape, functions: dict[int, Any]) -> None:
        """Set the recorded program at the end of its block; ``functions`` are the kernels by their ids."""
        self._tape, self._functions, self._recorder = tape, functions, None

    def abandon(self, problem: str) -> None:
        """Mark the program as incomplete for good."""
        self._recorder, self._problem = None, problem.rstrip(".")

    def _like(self, tape: Tape) -> Program:
        program = Program(self._kernels)
        program._tape, program._functions = tape, self._functions
        return program


_USE_COLUMNS = ("kernel", "kernel_id", "constants_id", "launch_id", "grid")
COLUMNS = (
    *("name", "op", *_USE_COLUMNS, "inputs", "mutated"),
    *("shape", "dtype", "bytes", "device", "place", "moved_bytes"),
)


def moved_to(tensor: Any, device: str) -> Any:
    """Return a tensor on another device, with its strides."""
    flat = tensor.as_strided((span_elements(tensor.shape, tensor.stride()),), (1,)).to(device)
    return flat.as_strided(tensor.shape, tensor.stride())


def frame_of(tape: Tape) -> Any:
    """Return a DataFrame of inputs, constants and steps, in order.

    ``bytes`` and layout are those of a step's result, or else of the value that it changes. ``moved_bytes`` are those
    that a launch reads and writes, each tensor once.
    """
    pd = import_uninterrupted("pandas")

    frame = pd.DataFrame(list(_rows(tape)), columns=list(COLUMNS))
    for column in ("kernel", "inputs", "mutated", "place"):
        frame[column] = [value if isinstance(value, str) else "" for value in frame[column]]
    for column in ("kernel_id", "constants_id", "launch_id", "moved_bytes"):
        frame[column] = frame[column].astype("Int64")
    frame.attrs = {"inputs": tape.names(tape.inputs), "outputs": list(tape.output_names)}
    return frame


def _rows(tape: Tape) -> Iterator[dict[str, Any]]:
    for index in tape.inputs:
        yield {"name": tape.values[index].name, "op": "input", **_layout_columns(tape, index)}
    for index, _ in tape.constants:
        yield {"name": tape.values[index].name, "op": "constant", **_layout_columns(tape, index)}
    for step in tape.steps:
        results = [index for index in step.results if index >= 0]
        described = [*results, *step.mutated]
        yield {
            "name": ", ".join(tape.names(results)),
            "op": step.operation,
            **({} if step.use is None else {name: getattr(step.use, name) for name in _USE_COLUMNS}),
            "inputs": ", ".join(tape.names(step.operands)),
            "mutated": "" if step.functional else ", ".join(tape.names(step.mutated)),
            **(_layout_columns(tape, described[0]) if described else {}),
            "place": step.place,
            "moved_bytes": None if step.use is None else moved_bytes(tape, step),
        }


def _layout_columns(tape: Tape, index: int) -> dict[str, Any]:
    layout = tape.values[index].layout
    return {"shape": layout.shape, "dtype": layout.dtype, "bytes": layout.size_bytes, "device": layout.device}
