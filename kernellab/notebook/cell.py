"""Running a cell of plain Triton: statement by statement, its kernels bound as they are defined."""

from __future__ import annotations

import ast
import contextlib
import linecache
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import CodeType
from typing import Any

from kernellab._triton.closure import closure_of
from kernellab._triton.kernel import Kernel, fix_signature
from kernellab.advice import remark_on
from kernellab.compile.types import Compiled
from kernellab.errors import Place, UsageError
from kernellab.lab import Lab
from kernellab.launch.arguments import memory_of
from kernellab.launch.calls import from_annotations, mock_arguments
from kernellab.launch.recording import LaunchRecord, Recorder, symbolic_expression
from kernellab.measure.checked_run import checks_of, require_equal
from kernellab.measure.comparison import Check
from kernellab.measure.reference import ReferenceFunction, check_in, expression_in, reference_of
from kernellab.notebook.expressions import evaluated
from kernellab.registry import launched_version, remember
from kernellab.store import Version
from kernellab.views.report import CellReport, KernelReport, argument_reports

Namespace = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CellOptions:
    """What the options of ``%%triton`` ask for.

    ``name`` is the name under which the cell's kernel is entered; ``args`` the arguments of a compile without a launch;
    ``check`` an expression that the kernel's output is compared with; ``show`` the stage to open;
    ``isolate`` whether first launches on a GPU are tried in a process of their own; with ``interpret``, launches run on
    the CPU also where there is a GPU; with ``tune``, it is shown how the configs of autotuned kernels compare; with
    ``explore``, there are sliders over the last launch; with ``why``, launches are explained. ``capture`` is the name
    that the cell's launches and operations of torch are bound to, as a program.
    """

    name: str | None = None
    target: str | None = None
    show: str | None = None
    run: bool = True
    args: str | None = None
    check: str | None = None
    timeout_s: float | None = None
    isolate: bool = True
    interpret: bool = False
    tune: bool = False
    explore: bool = False
    capture: str | None = None
    why: bool = False


@dataclass(slots=True)
class _Cell:
    """A cell while it runs."""

    lab: Lab
    namespace: Namespace
    file: str
    defined: dict[str, Any] = field(default_factory=dict)
    bound: list[Any] = field(default_factory=list)


def run_cell(
    lab: Lab, text: str, namespace: Namespace, file: str, options: CellOptions, show: Callable[[Any], None]
) -> CellReport:
    """Execute a cell in ``namespace`` and report on its kernels.

    ``file`` is the name that tracebacks and IR locations give the cell; line 1 of it is the line of the magic. The
    value of a last expression goes to ``show``. What was defined before an error stays defined.

    Raises:
        KernellabError: a kernel does not compile, cannot be launched, fails, or fails its check.
        Exception: whatever the cell's own Python raises, as it is.
    """
    __tracebackhide__ = True
    source = f"\n{text}"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    provide_modules(namespace)
    cell = _Cell(lab, namespace, file)
    with lab.compiling_for(options.target), _recording(lab, options) as recorder:
        with _captured(cell, options):
            _execute(cell, recorder, source, show)
        if options.name:
            _enter(cell, recorder, _last_kernel(cell, options.name), options.name)
        if options.args is not None:
            _compile_with(cell, options.args)
        else:
            _compile_derived(cell, recorder)
        checks = _checked(cell, recorder, options)
        reports = [
            _kernel_report(lab, record, version, checks.get(id(record), ()))
            for record, version in _remembered(cell, recorder, options, checked=checks)
        ]
        records = list(recorder.records.values())
        for tuning in _tunings(cell, recorder, options.check) if options.tune else ():
            show(tuning)
    if options.explore:
        show(_explored(cell, recorder, options))
    if options.why:
        with lab.compiling_for(options.target):
            reports = [_with_why(lab, *pair) for pair in zip(reports, records, strict=True)]
    return CellReport(tuple(reports), tuple(_hints(cell, recorder)), options.show)


def _with_why(lab: Lab, report: KernelReport, record: LaunchRecord) -> KernelReport:
    """Return a report with why the launch takes as long as it does, where there was one."""
    if record.grid is None or 0 in record.grid:
        return report
    options = {name: record.compiled.options[name] for name in ("num_warps", "num_stages", "num_ctas")}
    found = lab.explain(record.kernel, record.grid, **{**options, **record.arguments})
    return replace(report, explanation=found)


def _recording(lab: Lab, options: CellOptions) -> contextlib.AbstractContextManager[Recorder]:
    return lab.launches.recording(
        timeout_s=options.timeout_s,
        run=options.run,
        isolate=options.isolate,
        interpret=options.interpret,
        poison=options.check is not None,
    )


def _execute(cell: _Cell, recorder: Recorder, source: str, show: Callable[[Any], None]) -> None:
    """Run the statements, then enter the kernels: only now the helpers that stand below a kernel are known."""
    __tracebackhide__ = True
    try:
        for code, is_value in _statements(source, cell.file):
            value = eval(code, cell.namespace)
            _bind_new(cell)
            if is_value and not _is_launch_result(value):
                show(value)
    except (TypeError, AssertionError, RuntimeError) as exc:
        if remark := remark_on(exc):
            exc.add_note(remark)
        raise
    finally:
        for kernel in cell.bound:
            _enter(cell, recorder, kernel)


def _enter(cell: _Cell, recorder: Recorder, kernel: Kernel, name: str | None = None) -> None:
    """Enter a kernel as the cell launched it, in each of its versions, else as it is at the end of the cell."""
    launched = [record.closure for record in recorder.records.values() if record.owner is kernel]
    for closure in launched or [None]:
        cell.lab.kernels.add(kernel, name, closure)


@contextlib.contextmanager
def _captured(cell: _Cell, options: CellOptions) -> Iterator[None]:
    """Record what the cell does as a program, where its options name one; it is bound once the cell has ended well."""
    __tracebackhide__ = True
    if options.capture is None:
        yield
        return
    if not options.capture.isidentifier():
        raise UsageError(f"--capture {options.capture!r}: expected a name for the program, such as program.")
    if not options.run:
        raise UsageError("--capture records what a cell does, and with --no-run nothing is launched; drop one of them.")
    from kernellab.capture.block import Capture  # keeps `import kernellab` light

    with Capture(cell.lab.launches, cell.lab.kernels, lambda: cell.namespace) as program:
        yield
    cell.namespace[options.capture] = program


def provide_modules(namespace: Namespace) -> None:
    """Give the cell ``triton``, ``tl`` and ``torch`` where it has no such names yet."""
    import torch  # keeps `import kernellab` light
    import triton
    import triton.language as tl

    for name, module in {"triton": triton, "tl": tl, "torch": torch}.items():
        namespace.setdefault(name, module)


def _statements(source: str, file: str) -> Iterator[tuple[CodeType, bool]]:
    try:
        tree = ast.parse(source, file)
    except SyntaxError as exc:
        place = Place(file, exc.lineno or 1, (exc.offset or 1) - 1)
        raise UsageError(f"The cell is not valid Python: {exc.msg}.", place=place) from exc
    for index, node in enumerate(tree.body):
        if index == len(tree.body) - 1 and isinstance(node, ast.Expr):
            yield compile(ast.Expression(node.value), file, "eval", dont_inherit=True), True
        else:
            yield compile(ast.Module([node], []), file, "exec", dont_inherit=True), False


def _bind_new(cell: _Cell) -> None:
    """Bind the kernels that the last statement defined."""
    from kernellab._triton.bound import bind_in_place, is_bound
    from kernellab._triton.kernel import is_kernel, jit_function

    for name, value in list(cell.namespace.items()):
        if is_kernel(value) and not is_bound(value) and jit_function(value).fn.__code__.co_filename == cell.file:
            fix_signature(jit_function(value))
            bind_in_place(value, cell.lab.launches)
            cell.bound.append(value)
            cell.defined[name] = value


def _is_launch_result(value: object) -> bool:
    return value is None or type(value).__name__ == "CompiledKernel"


def _explored(cell: _Cell, recorder: Recorder, options: CellOptions) -> Any:
    """Return the panel over the last launch of the cell; it checks outputs that no launch reads as the cell does.

    Raises:
        UsageError: the cell launches nothing.
    """
    from kernellab.views.panels.opening import opened_on_launch  # loads ipywidgets

    launched = [record for record in recorder.records.values() if record.grid is not None]
    if not launched:
        raise UsageError("--explore: the cell launches no kernel; launch one, or call lab.explore(kernel, grid, ...).")
    effects = launched[-1].compiled.effects
    reads = effects.mutated & (effects.reads | effects.atomics)
    arguments = launched[-1].arguments
    check = None if options.check is None or reads else reference_of(_reference(cell, options.check), arguments)
    with cell.lab.compiling_for(options.target):
        return opened_on_launch(cell.lab.launches, cell.lab.kernels, launched[-1], check)


def _tunings(cell: _Cell, recorder: Recorder, check: str | None) -> list[Any]:
    """Return how the configs of each autotuned kernel that the cell launched compare; nothing is launched on its data.

    Raises:
        UsageError: the cell launches no kernel that has configs.
    """
    from kernellab.tune.autotune import tunings_of

    reference = None if check is None else check_in(check, cell.namespace)
    found = tunings_of(cell.lab.launches, cell.lab.kernels, recorder.records.values(), reference)
    if not found:
        raise UsageError("--tune: the cell launches no kernel with configs; decorate one with @triton.autotune.")
    return found


def _last_kernel(cell: _Cell, name: str) -> Any:
    kernels = _launchable(cell)
    if not kernels:
        raise UsageError(f"--name {name}: the cell defines no kernel.")
    return next(reversed(kernels.values()))


def _compile_with(cell: _Cell, args: str) -> None:
    kernels = _launchable(cell)
    if not kernels:
        raise UsageError("--args: the cell defines no kernel that takes arguments.")
    example = '--args "x, out, n, BLOCK=1024"'
    given, meta = evaluated(f"_kl_taken({args})", args, cell.namespace, "--args", example)
    for kernel in kernels.values():
        kernel.warmup(*given, grid=(1,), **meta)


def _compile_derived(cell: _Cell, recorder: Recorder) -> None:
    """Compile what the cell defines and does not launch, if its arguments can be told.

    They are those of the last launch of a kernel of this name with these parameters, or come from type annotations.
    """
    for record in recorder.records.values():
        known = mock_arguments(record.arguments)
        if known is not None:
            cell.lab.last_arguments[record.kernel.__name__] = known
    for kernel in _unseen(cell, recorder).values():
        function = jit_function_of(kernel)
        last = cell.lab.last_arguments.get(function.__name__, {})
        arguments = last if list(last) == list(function.arg_names) else from_annotations(function)
        if arguments is not None:
            function.warmup(grid=(1,), **arguments)


def _unseen(cell: _Cell, recorder: Recorder) -> dict[str, Any]:
    """Return the kernels that the cell defines and neither launches nor compiles."""
    seen = {id(cell.lab.kernels.owner_of(record.kernel)) for record in recorder.records.values()}
    return {name: kernel for name, kernel in _launchable(cell).items() if id(kernel) not in seen}


def jit_function_of(kernel: Kernel) -> Any:
    """Return the function under the decorators of a kernel."""
    from kernellab._triton.kernel import jit_function  # keeps `import kernellab` light

    return jit_function(kernel)


def _launchable(cell: _Cell) -> dict[str, Any]:
    """Return the kernels of the cell that no other kernel of it uses as a helper, by name."""
    used = {f.name for kernel in cell.defined.values() for f in closure_of(kernel)[0].functions[1:]}
    return {name: kernel for name, kernel in cell.defined.items() if name not in used}


def require_checks(report: CellReport) -> None:
    """Raise `CheckFailed` for the first output of a cell that differs from its reference."""
    for kernel in report.kernels:
        if kernel.check is not None:
            require_equal(kernel.check, kernel.compiled.kernel)


def _checked(cell: _Cell, recorder: Recorder, options: CellOptions) -> Mapping[int, tuple[Check, ...]]:
    if options.check is None or not options.run:
        return {}
    launched = [record for record in recorder.records.values() if record.launches]
    if not launched:
        raise UsageError(f"--check {options.check!r}: the cell launches no kernel.")
    record = launched[-1]
    check = _reference(cell, options.check)
    reference = reference_of(check, record.arguments)
    return {id(record): checks_of(reference, check, record, recorder, cell.lab.launches)}


def _reference(cell: _Cell, expression: str) -> ReferenceFunction:
    return expression_in(expression, cell.namespace, "--check")


def _remembered(
    cell: _Cell, recorder: Recorder, options: CellOptions, checked: Container[int]
) -> Iterator[tuple[LaunchRecord, Version | None]]:
    """Keep the launches of a cell in the store, each with its reference in terms of the kernel's parameters.

    They come with the version that was launched. An empty grid launched nothing, and would not tell how grids follow
    from arguments.
    """
    for record in list(recorder.records.values()):
        check = ""
        if options.check is not None and id(record) in checked:
            check = symbolic_expression(ast.parse(options.check, mode="eval").body, cell.namespace, record.arguments)
        keep = launched_version if record.grid is not None and 0 in record.grid else partial(remember, check=check)
        yield record, keep(cell.lab.kernels, record.kernel, record)


def _kernel_report(lab: Lab, record: LaunchRecord, version: Version | None, checks: tuple[Check, ...]) -> KernelReport:
    from kernellab._triton.kernel import best_config

    closure = record.closure or closure_of(record.kernel)[0]
    entry = closure.functions[0]
    elements = {name: tensor.numel() for name, tensor in memory_of(record.arguments).items()}
    compiled = _compiled_for_target(lab, record, version)
    return KernelReport(
        label=lab.kernels.label_of(record.kernel) if version is None else version.label,
        source=entry.text,
        file=closure.label(entry.file),
        first_line=entry.first_line,
        compiled=compiled,
        arguments=argument_reports(compiled, elements, record.run),
        launches=record.launches,
        grid=record.grid,
        run=record.run,
        checks=checks,
        config=best_config(record.owner, record.compiled.options),
        notes=_notes(record),
    )


def _compiled_for_target(lab: Lab, record: LaunchRecord, version: Version | None) -> Compiled:
    """Return what the card shows: on a machine with a GPU, another target may be asked for than what was launched."""
    if record.compiled.target == lab.target:
        return record.compiled
    options = {name: record.compiled.options[name] for name in ("num_warps", "num_stages", "num_ctas")}
    kernel = record.kernel if version is None else jit_function_of(lab.kernels[version.id])
    return lab.compile(kernel, target=str(lab.target), **{**options, **record.arguments})


def _notes(record: LaunchRecord) -> tuple[str, ...]:
    if record.grid is not None and 0 in record.grid:
        return (f"the grid {record.grid} is empty: nothing was launched",)
    return ()


def _hints(cell: _Cell, recorder: Recorder) -> Iterator[str]:
    """Yield how to launch each kernel that the cell defines and neither launches nor compiles."""
    for name, kernel in _unseen(cell, recorder).items():
        yield (
            f"{name} is defined and not launched: launch it with {name}[grid]({', '.join(kernel.arg_names)}), "
            f'or compile it with %%triton --args "...".'
        )
