"""The verbs of the lab that look inside a launch: its traffic, counters, values, and its programs over time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kernellab._triton.kernel import Kernel
from kernellab.errors import UsageError
from kernellab.lab.workspace import Workspace
from kernellab.launch.calls import UserCall
from kernellab.launch.run import Run
from kernellab.launch.verbs import verbs

if TYPE_CHECKING:
    from kernellab.explain.profile import Profile
    from kernellab.explain.traffic.result import Traffic
    from kernellab.inside.equivalence import Equivalence
    from kernellab.inside.first_difference import FirstDifference
    from kernellab.inside.timeline import Timeline
    from kernellab.inside.values import Values


@verbs
class LooksInside(Workspace):
    """A workspace that counts and records what launches do inside."""

    def traffic(self, kernel: Kernel, grid: Any, /, *args: Any, target: str | None = None, **meta: Any) -> Traffic:
        """Count the sectors of each memory access: is it coalesced? Needs no GPU; errors are those of `compile`."""
        from kernellab.explain.verbs import traffic_of_call

        call = self._user_call("traffic", kernel, grid, args, meta)
        return traffic_of_call(self.session(target), call)

    def profile(
        self, kernel: Kernel, grid: Any, /, *args: Any, counters: bool = False, timeout_s: float = 60.0, **meta: Any
    ) -> Profile:
        """Sample where a launch spends its time, by line and instruction; with ``counters``, Nsight Compute counts."""
        from kernellab.explain.verbs import profile_with_explanation
        from kernellab.registry.calls import call_in

        call = call_in(session := self.session(), "profile", kernel, grid, args, meta)
        return profile_with_explanation(session, call, timeout_s, counters=counters)

    def values(
        self,
        kernel: Kernel | str | int,
        grid: Any = None,
        /,
        *args: Any,
        program: Any = (0, 0, 0),
        programs: Sequence[Any] | None = None,
        lines: Iterable[int] | None = None,
        timeout_s: float = 60.0,
        **meta: Any,
    ) -> Values:
        """Record what each line of a kernel holds in one program, or in several ``programs``; ``lines`` picks some.

        On the CPU every access is checked. With tensors of a GPU, a copy of the kernel stores what the GPU computes. No
        tensor changes. A kept kernel alone runs on new arguments like those of its latest launch.

        Raises:
            UsageError: the grid has no such program.
            LaunchError: the arguments or options do not fit the kernel.
        """
        from kernellab.inside.logged_launch import values_where_launched
        from kernellab.registry.calls import call_in

        call = call_in(session := self.session(), "values", kernel, grid, args, meta)
        chosen = [program] if programs is None else list(programs)
        values = values_where_launched(session, call, chosen, None if lines is None else set(lines), timeout_s)
        return replace(values, notes=(*_notes_on_arguments(kernel, grid, args, meta), *values.notes))

    def first_difference(
        self,
        kernel: Kernel | str | int,
        other: Any,
        grid: Any = None,
        /,
        *args: Any,
        programs: Sequence[Any] | None = None,
        timeout_s: float = 60.0,
        **meta: Any,
    ) -> FirstDifference:
        """Find the first line of ``other`` whose values differ from those of a kernel by more than their roundings.

        ``other`` is a kernel or a kept one's name, a `triton.Config` or dict with other options of the same kernel, or
        ``"float64"`` for the kernel itself in that precision. Both run on the CPU, on copies. With tensors of a GPU,
        ``"cpu"`` compares what the GPU computes. Without ``programs``, those are compared that store the first element
        that differs.

        Raises:
            UsageError: the grid has no such program, or the grids differ.
            LaunchError: the arguments do not fit one of the kernels.
        """
        from kernellab.inside.compared_launches import first_difference_of_calls
        from kernellab.registry.calls import call_in

        call = call_in(session := self.session(), "first_difference", kernel, grid, args, meta)
        label = kernel if isinstance(kernel, str) else ""
        difference = first_difference_of_calls(session, call, other, programs, timeout_s, label)
        return replace(difference, notes=_notes_on_arguments(kernel, grid, args, meta))

    def equivalent(
        self,
        a: Kernel | str | int,
        b: Any,
        grid: Any = None,
        /,
        *args: Any,
        on_gpu: bool = False,
        timeout_s: float = 60.0,
        **meta: Any,
    ) -> Equivalence:
        """Compare what two kernels compute, without a tolerance: sums in another order are equal, a lost term is not.

        Both run on the CPU, on copies, where floats are elements of a ring (docs/algebra.md). ``b`` is a kernel with
        the same arguments, ``(kernel, grid, meta)``, a `triton.Config` or dict of other options of ``a``, or a function
        of torch that takes arguments of ``a`` by name and returns its outputs. Of ``meta``, each kernel gets the
        constexprs that it has. With ``on_gpu``, both are compiled with Triton's floating-point sanitizer, whose
        definitions differ in some places, and launched on the GPU.

        Raises:
            UsageError: ``b`` is none of these, or uses an operation of torch that the algebra does not know.
            CannotRun: with ``on_gpu``, there is no NVIDIA GPU, or this Triton has no sanitizer.
            LaunchError: the arguments do not fit one of the kernels.
        """
        from kernellab.inside.equivalence import equivalence_of
        from kernellab.registry.calls import call_in

        call = call_in(session := self.session(), "equivalent", a, grid, args, meta)
        kept = isinstance(b, str | int)
        return equivalence_of(session, call, session.kernels[b] if kept else b, timeout_s, on_gpu=on_gpu)

    def _run_in_algebra(
        self, bound: Any, grid: Any, args: tuple[Any, ...], meta: dict[str, Any], timeout_s: float, check: Any
    ) -> Run:
        from kernellab.inside.equivalence import run_call_in_algebra

        if check is not None:
            raise UsageError("check compares floats, and algebra has none; use lab.equivalent(kernel, function, ...).")
        return run_call_in_algebra(self.session(), UserCall(bound, grid, args, meta), timeout_s)

    def timeline(
        self,
        kernel: Kernel | str | int,
        grid: Any = None,
        /,
        *args: Any,
        lines: Iterable[int] | None = None,
        timeout_s: float = 60.0,
        **meta: Any,
    ) -> Timeline:
        """Record where and when each program of a launch runs, and the time from each of ``lines`` to the next one.

        A copy of the kernel with time stamps is launched on copies of the arguments; its cost is measured.

        Raises:
            CannotRun: there is no NVIDIA GPU.
            UsageError, LaunchError: the call does not fit the kernel, or a line has no statement.
        """
        from kernellab.inside.timeline_verbs import timeline_of_call
        from kernellab.registry.calls import call_in

        call = call_in(session := self.session(), "timeline", kernel, grid, args, meta)
        return timeline_of_call(session, call, tuple(lines or ()), timeout_s)


def _notes_on_arguments(
    kernel: Kernel | str | int, grid: Any, args: tuple[Any, ...], meta: Mapping[str, Any]
) -> tuple[str, ...]:
    """A note where the values are those of new arguments, whose contents are not what a launch had."""
    from kernellab.registry.calls import is_recorded_call

    if not is_recorded_call(kernel, grid, args, meta):
        return ()
    return ("run on new arguments like those of its latest launch; for your own, give the launch: kernel[grid](...)",)
