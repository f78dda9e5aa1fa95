"""The arguments and the memory of the launches of a bench, as data for the process that times them."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from kernellab.checking.reference import Reference
from kernellab.compile.entries import triton_files
from kernellab.compile.types import Compiled
from kernellab.errors import UsageError
from kernellab.gpu.device_view import is_comparable
from kernellab.gpu.ipc import IpcExport, Memory, needs_torch_mapping
from kernellab.launch.arguments import ArgumentSpec, TensorSpec, memory_of, tensors_of
from kernellab.launch.memory import NOTHING, ReachedMemory, reached_memory
from kernellab.launch.poison import fill_of
from kernellab.timing.bench import BenchOptions
from kernellab.timing.bench_jobs import BenchKernel, ExpectedOutput, Setup
from kernellab.timing.hooks import HookCalls
from kernellab.timing.launches import Implementation, KernelLaunch, accessed_arguments

_MOST_SPECS = 64
Specs = tuple[tuple[str, ArgumentSpec], ...]
"""Arguments of a launch by name, as data."""


@dataclass(slots=True)
class CommonMemory:
    """The union of the memory that the launches of a bench reach, in a stable order.

    ``arguments`` are those of each launch that adds memory or names. ``behind`` is the memory reached through addresses
    among them. ``mutated`` and ``read`` name the arguments that some launch may write and read.
    """

    arguments: list[Mapping[str, Any]] = field(default_factory=list)
    mutated: frozenset[str] = frozenset()
    read: frozenset[str] = frozenset()
    behind: ReachedMemory = NOTHING
    _known: set[tuple[str, int]] = field(default_factory=set)
    _specs: dict[int, tuple[KernelLaunch, Specs]] = field(default_factory=dict)  # by the id of the launch

    def take(self, implementation: Implementation, launch: KernelLaunch, device: int) -> bool:
        """Add a launch; return whether it brings memory, names or effects that are new."""
        effects, is_new = implementation.kernel.effects, False
        if not effects.through <= self.behind.through:
            self.behind = self.behind.merge(reached_memory(launch.arguments, effects, "cuda"))
            is_new = True
        mutated, read = accessed_arguments(effects, self.behind)
        if not (mutated <= self.mutated and read <= self.read):
            self.mutated, self.read = self.mutated | mutated, self.read | read
            is_new = True
        views = {(name, view.storage) for name, view in _views(self.specs(launch, device))}
        if not views <= self._known:
            self._known |= views
            self.arguments.append(launch.arguments)
            is_new = True
        return is_new

    def specs(self, launch: KernelLaunch, device: int) -> Specs:
        """Return the arguments of a launch as data, cached by launch."""
        known = self._specs.get(id(launch))
        if known is None:
            exported = IpcExport(device, self.mutated, behind=self.behind)
            for arguments in self.arguments:  # so that each memory has its index
                exported.specs(arguments)
            known = self._specs[id(launch)] = launch, exported.specs(launch.arguments)
            if len(self._specs) > _MOST_SPECS:  # a slider's bench lives long, and each launch holds its arguments
                del self._specs[next(iter(self._specs))]
        return known[1]

    def setup(self, options: BenchOptions, exported: IpcExport, values: IpcExport, *, is_here: bool = False) -> Setup:
        """Return the setup of a bench; ``exported`` collects the arguments and ``values`` the reference.

        With ``is_here``, the bench is in this process, and memories have no IPC handles.

        Raises:
            CannotExport: the memory of an argument cannot be shared.
            UsageError: the reference does not fit the outputs.
        """
        known = [*self.arguments, self.behind.tensors]
        views = [pair for arguments in known for pair in _views(exported.specs(arguments))]
        written = [(key, view) for key, view in views if key in self.mutated]
        outputs: dict[str, TensorSpec] = {}
        names: dict[TensorSpec, list[str]] = {}
        for key, view in written:
            outputs.setdefault(key, view)
            names.setdefault(view, []).append(key)
        everything = {key: value for arguments in reversed(known) for key, value in arguments.items()}
        expected = () if options.reference is None else expected_outputs(options.reference, everything, outputs, values)
        judged = tuple(output for output in expected if options.counts(output.name))
        if expected and not judged:
            names_of_values = ", ".join(output.name for output in expected)
            raise UsageError(f"check gives values for {names_of_values} alone, and outputs names none of these.")
        storages = {view.storage for _, view in written}
        return Setup(
            name=uuid4().hex,
            device=exported.device,
            memories=_own_memories(exported, storages) if is_here else exported.memories(),
            read=frozenset(view.storage for key, view in views if key in self.read),
            outputs=tuple(names) if options.compares else (),
            names=tuple(keys[0] for keys in names.values()),
            left_out=frozenset(i for i, keys in enumerate(names.values()) if not any(map(options.counts, keys))),
            zeroed=tuple(view for key, view in views if key in options.reset),
            expected=judged,
            references=() if is_here else values.memories(),
            tables=exported.tables,
        )


def needs_torch(setup: Setup) -> bool:
    """Whether only torch can map some memory or compare some output, such as complex or sub-byte formats."""
    compared = [spec for index, spec in enumerate(setup.outputs) if index not in setup.left_out]
    return needs_torch_mapping((*setup.memories, *setup.references)) or not all(map(is_comparable, compared))


def bench_kernel(
    compiled: Compiled, launch: KernelLaunch, specs: Specs, hooks: bytes | HookCalls | None
) -> BenchKernel:
    """Return the launch of a compiled kernel as data, with its arguments as ``specs``."""
    return BenchKernel(
        files=tuple(triton_files(compiled).items()),
        digest=compiled.digest,
        signature=launch.job.signature,
        constants=tuple(path for path, _ in launch.job.constants),
        grid=launch.grid,
        arguments=specs,
        hooks=hooks,
    )


def expected_outputs(
    reference: Reference, arguments: Mapping[str, Any], views: Mapping[str, TensorSpec], exported: IpcExport
) -> tuple[ExpectedOutput, ...]:
    """Return the expected outputs of a bench; ``exported`` collects their values.

    ``views`` are the outputs in the memory of the bench, ``arguments`` those of a launch in user memory.
    """
    tensors = memory_of(arguments)
    values = reference.of({name: tensors[name] for name in views if name in tensors})
    specs, bounds = (
        {name: spec for name, spec in exported.specs(tensors_by_name) if isinstance(spec, TensorSpec)}
        for tensors_by_name in (
            {name: value.value for name, value in values.items()},
            {name: value.error for name, value in values.items() if value.error is not None},
        )
    )
    return tuple(
        ExpectedOutput(name, views[name], spec, bounds.get(name), values[name].unit, fill_of(tensors[name]))
        for name, spec in specs.items()
    )


def _views(specs: Sequence[tuple[str, ArgumentSpec]]) -> list[tuple[str, TensorSpec]]:
    return [pair for name, spec in specs for pair in tensors_of(name, spec)]


def _own_memories(exported: IpcExport, written: Container[int]) -> tuple[Memory, ...]:
    """Return the storages of arguments as memories of this process, which need no handles."""
    tables = {view.storage for view in exported.tables.views}
    originals = [bytes_of(storage) for storage in exported.storages]
    return tuple(
        Memory(None, original.numel(), original.data_ptr(), index in written, index in tables)
        for index, original in enumerate(originals)
    )


def bytes_of(storage: Any) -> Any:
    """Return a storage of the GPU as a tensor of its bytes; an empty one for None."""
    import torch

    if storage is None:
        return torch.empty(0, dtype=torch.uint8, device="cuda")
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
