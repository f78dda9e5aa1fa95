"""The gate between two revisions of a kernel in an executor's process that owns a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from kernellab._triton.closure import decorated_closure_of
from kernellab._triton.kernel import Kernel, jit_function
from kernellab.launch.calls import UserCall
from kernellab.registry import Session
from kernellab.tune.cluster_calls import ClusterCall
from kernellab.tune.cluster_tuning import (
    OpenEnvironment,
    RemoteWork,
    SentKernel,
    pack_arguments,
    queue_of,
    require_owner,
    result_of_call,
    run_here,
    unpack_arguments,
)
from kernellab.tune.run_tuning import Environment
from kernellab.tune.verbs import environment_of
from kernellab.upgrade.gate_result import GateResult
from kernellab.upgrade.gating import Against, GateOptions, earlier_call, failing_as_gate, gate_kernels

OpenSession = Callable[[], Session]
"""Returns the session of a process. It runs there, so it must be a function of a module."""


@failing_as_gate()
def gate_elsewhere(
    session: Session,
    later: UserCall,
    against: Against,
    options: GateOptions,
    executor: Any,
    opened: tuple[OpenEnvironment, OpenSession],
) -> GateResult:
    """Compare two revisions in one process of an executor, on copies of the arguments; ``opened`` are run there.

    Raises:
        UsageError: it is not an executor, or the launch cannot be sent.
        GateFailed: no process owns a GPU, or those were lost.
        KernellabError: what the comparison raised there.
    """
    kernel, grid, own = earlier_call(against)
    open_environment, open_session = opened
    queue = queue_of(environment_of(session), executor, open_environment)
    owner = require_owner(queue)
    work = partial(
        gate_here,
        open_session=open_session,
        grids=(grid, later.grid),
        arguments=pack_arguments((later.args, dict(own)), later.meta),
        options=options,
    )
    sent = RemoteWork(
        open_environment, owner.kind, tuple(_kernel_as_text(session, side) for side in (kernel, later.kernel)), work
    )
    subject = f"The gate of {jit_function(later.kernel).__name__}"
    result, name = result_of_call(queue, ClusterCall(run_here, sent, subject), GateResult)
    return replace(result, notes=tuple(dict.fromkeys((*result.notes, f"measured by {name}", *queue.notes))))


def gate_here(
    environment: Environment,
    earlier: Kernel,
    later: Kernel,
    *,
    open_session: OpenSession,
    grids: tuple[Any, Any],
    arguments: bytes,
    options: GateOptions,
) -> GateResult:
    """Compare two kernels in this process; the grid of the earlier is None where it is that of the later."""
    (args, own), meta = unpack_arguments(arguments, environment.device)
    return gate_kernels(open_session(), UserCall(later, grids[1], args, meta), (earlier, grids[0], own), options)


def _kernel_as_text(session: Session, kernel: Kernel) -> SentKernel:
    """A kernel with its decorators and globals, to be built again in another process."""
    closure = decorated_closure_of(session.kernels.owner_of(session.bind(kernel)))
    return SentKernel(str(jit_function(kernel).__name__), closure)
