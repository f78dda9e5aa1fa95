"""Run a cell of plain Triton statement by statement, and bind its kernels as they are defined."""

from __future__ import annotations
import __future__

import ast
import codeop
import contextlib
import inspect
import io
import linecache
import tokenize
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import CodeType
from typing import Any, TypeVar

from kernellab._triton.interpreted import require_names_compiled
from kernellab._triton.kernel import autotune_settings, jit_function
from kernellab.advice import remark_on
from kernellab.checking.check_launch import require_equal, starting_values
from kernellab.checking.reference import check_in, reference_of
from kernellab.errors import KernellabError, Place, UsageError
from kernellab.lab import Lab
from kernellab.launch.pointers import annotated_arguments, mock_arguments
from kernellab.launch.recording import LaunchRecord, Recorder
from kernellab.notebook.cell_kernels import CellKernels, Namespace, follow_new_threads
from kernellab.notebook.cell_launches import (
    CheckOption,
    CheckOutcomes,
    check_launches,
    kernel_report,
    parse_checks,
    values_of_record,
    with_explanation,
)
from kernellab.notebook.cell_predictions import CellPredictions, PendingReport
from kernellab.notebook.expressions import evaluate
from kernellab.notebook.lab_opening import load_card
from kernellab.registry import launched_version, remember
from kernellab.store import Version
from kernellab.views.report import CellReport

_FUTURE = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class CellOptions:
    """The options of ``%%triton``, as its parser returns them; its help says what they mean.

    ``check`` has one expression, or several, each behind the name of its kernel and a colon.
    """

    name: str | None = None
    target: str | None = None
    show: str | None = None
    run: bool = True
    args: str | None = None
    check: str | Sequence[str] | None = None
    timeout_s: float | None = None
    isolate: bool = True
    interpret: bool = False
    tune: bool = False
    explore: bool = False
    capture: str | None = None
    why: bool = False
    values: bool = False
    output: str | None = None
    quiet: bool = False
    verbose: bool = False

    @property
    def checks(self) -> tuple[CheckOption, ...]:
        """The references of the cell's outputs, each with the kernel that it is for."""
        return parse_checks((self.check,) if isinstance(self.check, str) else self.check or ())


@dataclass(frozen=True, slots=True)
class _Cell:
    """A running cell; ``compiler`` has the flags of its code, and adds those that the code sets."""

    lab: Lab
    source: str
    namespace: Namespace
    file: str
    kernels: CellKernels
    compiler: codeop.Compile
    show: Callable[[Any], None]
    predictions: CellPredictions
    show_card: Callable[[PendingReport], object]


def run_cell(
    lab: Lab, text: str, namespace: Namespace, file: str, options: CellOptions, show: Callable[[Any], None]
) -> CellReport:
    """Execute a cell without ``await``, and wait for its predictions; see `run_cell_async`."""
    __tracebackhide__ = True
    return run_without_loop(run_cell_async(lab, text, namespace, file, options, show)).complete()


def run_without_loop(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Run a coroutine that never waits, without an event loop, and return its result.

    Raises:
        UsageError: it does.
    """
    __tracebackhide__ = True
    try:
        work.send(None)
    except StopIteration as exc:
        result: _Result = exc.value
        return result
    work.close()
    raise UsageError("The cell waits for something, and no event loop runs it; run it as a cell of its own.")


async def run_cell_async(
    lab: Lab,
    text: str,
    namespace: Namespace,
    file: str,
    options: CellOptions,
    show: Callable[[Any], None],
    compiler: codeop.Compile | None = None,
    show_card: Callable[[PendingReport], object] = lambda pending: None,
) -> PendingReport:
    """Execute a cell in ``namespace`` and report on its kernels; their predicted times may come later.

    ``file`` is the name that tracebacks and IR locations give the cell; line 1 of it is the line of the magic. The
    value of a last expression goes to ``show``. What was defined and launched before an error stays, and ``show_card``
    shows the launches. A check that cannot be made is among the problems of the report.

    Raises:
        KernellabError: a kernel does not compile, cannot be launched, or fails.
        Exception: whatever the cell's own Python raises, as it is.
    """
    __tracebackhide__ = True
    source = f"\n{text}"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    provide_modules(namespace)
    if options.run:
        lab.start_interpreter()
    load_card()
    lab.set_interpreting_aside()
    require_names_compiled(text, namespace)
    predictions, kernels = CellPredictions(lab), CellKernels(lab, namespace, file)
    compiler = compiler or codeop.Compile()
    cell = _Cell(lab, source, namespace, file, kernels, compiler, show, predictions, show_card)
    with lab.compiling_for(options.target), _record_launches(lab, options, predictions) as recorder:
        await _execute(cell, recorder, options)
        if options.name:
            cell.kernels.store_kernel(_last_kernel_of_cell(cell, recorder, options.name), recorder, options.name)
        _compile_without_launch(cell, recorder, options)
        with lab.launches.recording():  # what a reference launches is none of the cell's
            checks = options.checks if options.run else ()
            check_outcomes = check_launches(checks, recorder, lab.launches, namespace)
        reports = [
            kernel_report(lab, recorder, record, version, check_outcomes.of(record))
            for record, version in _store_launches(cell, recorder, check_outcomes)
        ]
        requests = tuple(predictions.request(record) for record in recorder.records.values())
        if options.tune:
            for tuning in _tune_launched(cell, recorder, options.checks, check_outcomes):
                show(tuning)
    if options.values:
        for record in recorder.records.values():
            show(values_of_record(lab, recorder, record))
    if options.explore:
        show(_open_panel(cell, recorder, options, check_outcomes))
    if options.why:
        with lab.compiling_for(options.target):
            pairs = zip(reports, recorder.records.values(), strict=True)
            reports = [with_explanation(lab, recorder, report, record) for report, record in pairs]
    hints, problems = tuple(_launch_hints(cell, recorder)), tuple(check_outcomes.problems)
    return PendingReport(CellReport(tuple(reports), hints, options.show, problems), requests)


def _launch_hints(cell: _Cell, recorder: Recorder) -> Iterator[str]:
    """Yield a hint for each kernel that the cell defines, but neither launches nor compiles."""
    for name, kernel in cell.kernels.not_launched(recorder):
        yield (
            f"{name} is defined and not launched: launch it with {name}[grid]({', '.join(kernel.arg_names)}), "
            f'or compile it with %%triton --args "...".'
        )


def _record_launches(
    lab: Lab, options: CellOptions, predictions: CellPredictions
) -> contextlib.AbstractContextManager[Recorder]:
    on_cpu = options.interpret or lab.launches.is_offline()  # where a NaN is followed to what its inputs held
    return lab.launches.recording(
        timeout_s=options.timeout_s,
        run=options.run,
        isolate=options.isolate,
        interpret=options.interpret,
        poison=options.check is not None,
        undoes=on_cpu or options.why or options.values or options.explore or options.tune,
        follows=follow_new_threads(),
        begins=predictions.begin,
    )


async def _execute(cell: _Cell, recorder: Recorder, options: CellOptions) -> None:
    """Run the statements, then store the kernels: their helpers may be defined below them.

    Where one raises, the launches before it are kept and shown, without checks.
    """
    __tracebackhide__ = True
    try:
        with cell.kernels.launching_through_lab(recorder), _capturing_program(cell, options):
            for code, is_value in _statements(cell):
                value = eval(code, cell.namespace)
                if code.co_flags & inspect.CO_COROUTINE:
                    value = await value
                cell.kernels.bind_new()
                if is_value and value is not None and type(value).__name__ != "CompiledKernel":
                    cell.show(value)
    except BaseException as exc:
        if isinstance(exc, TypeError | AttributeError | AssertionError | RuntimeError) and (remark := remark_on(exc)):
            exc.add_note(remark)
        with contextlib.suppress(KernellabError):  # it would hide what ended the cell
            cell.kernels.store_kernels(recorder)
            stored = list(_store_launches(cell, recorder, CheckOutcomes()))
            cell.lab.kernels.note_failure(exc)
            launched = [(record, version) for record, version in stored if record.launches]
            if launched and isinstance(exc, Exception):  # an interrupt waits for no card
                reports = tuple(kernel_report(cell.lab, recorder, record, version, ()) for record, version in launched)
                requests = tuple(cell.predictions.request(record) for record, _ in launched)
                cell.show_card(PendingReport(CellReport(reports, show=options.show), requests))
        raise
    cell.kernels.store_kernels(recorder)


@contextlib.contextmanager
def _capturing_program(cell: _Cell, options: CellOptions) -> Iterator[None]:
    """Capture the cell as a program, if its options name one; the name is bound when the cell succeeds."""
    __tracebackhide__ = True
    if options.capture is None:
        yield
        return
    if not options.capture.isidentifier():
        raise UsageError(f"--capture {options.capture!r}: expected a name for the program, such as program.")
    if not options.run:
        raise UsageError("--capture records what a cell does, and with --no-run nothing is launched; drop one of them.")
    from kernellab.capture.block import Capture  # keeps `import kernellab` light

    with Capture(cell.lab.session(), lambda: cell.namespace) as program:
        yield
    cell.namespace[options.capture] = program


def provide_modules(namespace: Namespace) -> None:
    """Define ``triton``, ``tl`` and ``torch`` in a namespace that lacks them."""
    import torch  # keeps `import kernellab` light
    import triton
    import triton.language as tl

    for name, module in {"triton": triton, "tl": tl, "torch": torch}.items():
        namespace.setdefault(name, module)


def _statements(cell: _Cell) -> Iterator[tuple[CodeType, bool]]:
    """Yield the code of each statement, and whether its value is shown: that of a last expression without a semicolon.

    A future feature that one imports holds for those after it, and in the cells that follow, as in any cell.
    """
    try:
        tree = ast.parse(cell.source, cell.file)
    except SyntaxError as exc:
        place = Place(cell.file, exc.lineno or 1, (exc.offset or 1) - 1)
        raise UsageError(f"The cell is not valid Python: {exc.msg}.", place=place) from exc
    for index, node in enumerate(tree.body):
        part: ast.Module | ast.Expression = ast.Module([node], [])
        if index == len(tree.body) - 1 and isinstance(node, ast.Expr) and not _ends_in_semicolon(cell.source):
            part = ast.Expression(node.value)
        is_value = isinstance(part, ast.Expression)
        flags = cell.compiler.flags & _FUTURE | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        code = compile(part, cell.file, "eval" if is_value else "exec", flags, dont_inherit=True)
        cell.compiler.flags |= code.co_flags & _FUTURE
        yield code, is_value


def _ends_in_semicolon(source: str) -> bool:
    """Whether a cell ends in a semicolon, which hides its value."""
    skipped = {tokenize.ENDMARKER, tokenize.NEWLINE, tokenize.NL, tokenize.COMMENT, tokenize.DEDENT}
    words = [token for token in tokenize.generate_tokens(io.StringIO(source).readline) if token.type not in skipped]
    return bool(words) and words[-1].string == ";"


def _open_panel(cell: _Cell, recorder: Recorder, options: CellOptions, check_outcomes: CheckOutcomes) -> Any:
    """Return the panel over the last launch of the cell, with its check on values from before the launch.

    Raises:
        UsageError: the cell launches nothing.
    """
    from kernellab.views.panels.opening import opened_on_launch  # loads ipywidgets

    launched = [record for record in recorder.records.values() if record.grid is not None]
    if not launched:
        raise UsageError("--explore: the cell launches no kernel; launch one, or call lab.explore(kernel, grid, ...).")
    record = launched[-1]
    check = check_outcomes.options.get(id(record)) if check_outcomes.is_of_one(record, "--explore") else None
    zeroed = autotune_settings(cell.lab.kernels.owner_of(record.kernel)).reset_to_zero
    with cell.lab.compiling_for(options.target), starting_values(record, recorder, zeroed):
        reference = None
        if check is not None:
            reference = reference_of(check.reference(cell.namespace), record.arguments).clone()
        return opened_on_launch(cell.lab.session(), record, reference)


def _tune_launched(
    cell: _Cell, recorder: Recorder, checks: tuple[CheckOption, ...], check_outcomes: CheckOutcomes
) -> list[Any]:
    """Return a tuning of each autotuned kernel that the cell launched, without launches on its data.

    Raises:
        UsageError: the cell launches no kernel that has configs.
    """
    from kernellab.tune.verbs import tune_recorded_launches

    records = list(recorder.records.values())
    references = {
        id(record): check_in(check.expression, cell.namespace)
        for record in records
        for check in checks
        if check.is_for(record, cell.namespace) and (check.kernel or record is records[-1])
        if check_outcomes.is_of_one(record, "--tune")
    }
    tunings = tune_recorded_launches(cell.lab.session(), recorder, references)
    if not tunings:
        raise UsageError(
            "--tune: the cell launches no kernel with configs; decorate one with @triton.autotune, "
            "or let %triton_tune NAME propose some."
        )
    return tunings


def _last_kernel_of_cell(cell: _Cell, recorder: Recorder, name: str) -> Any:
    """Return the last kernel that the cell defines, else the last imported one that it launches."""
    owners = {id(record.owner) for record in recorder.records.values()}
    kernels = [kernel for _, kernel in cell.kernels.launchable()]
    kernels = kernels or [kernel for kernel in cell.kernels.bound if id(kernel) in owners]
    if not kernels:
        raise UsageError(f"--name {name}: the cell defines no kernel.")
    return kernels[-1]


def _compile_without_launch(cell: _Cell, recorder: Recorder, options: CellOptions) -> None:
    """Compile the kernels of a cell for ``--args``, or those that it does not launch."""
    args = options.args
    if args is None:
        _compile_unlaunched(cell, recorder)
        return
    kernels = [kernel for _, kernel in cell.kernels.launchable()] + cell.kernels.store_imported(cell.source)
    if not kernels:
        raise UsageError("--args: the cell defines no kernel that takes arguments.")
    example = '--args "x, out, n, BLOCK=1024"'
    positional, meta = evaluate(f"_kl_taken({args})", args, cell.namespace, "--args", example)
    for kernel in kernels:
        kernel.warmup(*positional, grid=(1,), **meta)


def _compile_unlaunched(cell: _Cell, recorder: Recorder) -> None:
    """Compile the kernels that the cell defines but does not launch, if their arguments can be derived.

    They are those of the last launch of a kernel of this name with these parameters, or come from type annotations.
    """
    for record in recorder.records.values():
        known = mock_arguments(record.arguments)
        if known is not None:
            cell.lab.last_arguments[record.kernel.__name__] = known
    for _, kernel in cell.kernels.not_launched(recorder):
        function = jit_function(kernel)
        last = cell.lab.last_arguments.get(function.__name__, {})
        arguments = last if list(last) == list(function.arg_names) else annotated_arguments(function)
        if arguments is not None:
            function.warmup(grid=(1,), **arguments)


def require_checks(report: CellReport) -> None:
    """Raise `CheckFailed` for the first output of a cell that differs from its reference.

    The card above has the wrong elements and the hints; the error does not repeat them.

    Raises:
        KernellabError: a check could not be made.
    """
    for kernel in report.kernels:
        for check in kernel.checks:
            require_equal(replace(check, differences=(), hints=()), kernel.compiled.kernel)
    for problem in report.problems:
        raise problem


def _store_launches(
    cell: _Cell, recorder: Recorder, check_outcomes: CheckOutcomes
) -> Iterator[tuple[LaunchRecord, Version | None]]:
    """Store the launches of a cell, each with its reference over the kernel's parameters.

    They come with the version that was launched. An empty grid launched nothing, and would not show how grids follow
    from arguments.
    """
    for record in list(recorder.records.values()):
        check = check_outcomes.symbolic(record, cell.namespace)
        store = launched_version if record.grid is not None and 0 in record.grid else partial(remember, check=check)
        yield record, store(cell.lab.kernels, record.kernel, record)
