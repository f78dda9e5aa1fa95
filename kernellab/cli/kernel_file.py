"""A kernel file: Python that defines kernels and says how they are launched.

It says so by a function ``arguments(**sizes)``, which returns (grid, args, meta): the grid as for ``kernel[grid]``,
the arguments by position or as a dict by name, and constexprs and options by name. A file that the lab exported says
it by its ``inputs`` and ``launch``. A function ``reference`` takes parameters of the kernel by name and returns what
its outputs are to hold.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import linecache
import os
import sys
import traceback
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from kernellab._triton.kernel import Kernel, constexpr_names, is_kernel, parameter_names
from kernellab.advice import remark_on
from kernellab.checking.reference import keyword_names, required_names, takes_any_name
from kernellab.cli.parser import FORM, parse_assignments
from kernellab.errors import (
    KernellabError,
    LaunchError,
    Place,
    SourceError,
    UsageError,
    first_line,
    value_message,
    value_text,
)
from kernellab.upgrade.revisions import dotted_name, import_root

if TYPE_CHECKING:
    from kernellab.lab import Lab

_OWN_NAMES = ("device", "kernel")  # passed to `arguments` if it has such parameters
_ASK = "define arguments(**sizes), which returns (grid, args, meta)"


@dataclass(frozen=True, slots=True)
class KernelFile:
    """A file that was imported, and the kernel of it that was named."""

    path: Path
    module: ModuleType
    name: str
    kernel: Kernel

    @property
    def reference(self) -> Callable[..., Any] | None:
        """The reference for the outputs, by parameters of the kernel; None without one."""
        return self._function("reference")

    @property
    def arguments(self) -> Callable[..., Any] | None:
        """The function that returns grid, arguments and meta of a launch; None without one."""
        return self._function("arguments")

    @property
    def exported(self) -> tuple[Callable[..., Any], Callable[..., Any]] | None:
        """The ``launch`` and the ``inputs`` of an exported file; None without both."""
        launch, inputs = self._function("launch"), self._function("inputs")
        return None if launch is None or inputs is None else (launch, inputs)

    def _function(self, name: str) -> Callable[..., Any] | None:
        function = getattr(self.module, name, None)
        return function if callable(function) else None


@dataclass(frozen=True, slots=True)
class FileLaunch:
    """How a kernel file launches its kernel: ``args`` by position, ``named`` by name, constexprs and options too."""

    file: KernelFile
    grid: Any
    args: tuple[Any, ...]
    named: Mapping[str, Any]

    @property
    def kernel(self) -> Kernel:
        """The kernel."""
        return self.file.kernel

    @property
    def by_name(self) -> dict[str, Any]:
        """All arguments by the names of the kernel's parameters, constexprs and options included."""
        return {**dict(zip(parameter_names(self.kernel), self.args, strict=False)), **self.named}


def kernel_file(text: str) -> KernelFile:
    """Import the file that ``FILE.py::KERNEL`` names, and return it; a file with one kernel needs no name.

    Raises:
        UsageError: there is no such file, or no such kernel in it.
        SourceError: the file cannot be imported.
    """
    name, _, kernel = text.partition("::")
    path = Path(name)
    if not os.path.isfile(path):  # False of a name that is too long as well
        what = "a folder" if name and os.path.isdir(path) else "not a file"
        raise UsageError(f"{value_text(name)} is {what}; expected {FORM}, such as add.py::add_kernel.")
    module = _import_file(path)
    kernels = {key: value for key, value in vars(module).items() if is_kernel(value)}
    names = ", ".join(kernels) or "none"
    if not kernel:
        if len(kernels) != 1:
            raise UsageError(f"{name} has several kernels or none ({names}); name one: {name}::KERNEL.")
        kernel = next(iter(kernels))
    if kernel not in kernels:
        is_function = callable(getattr(module, kernel, None))
        more = "; it has a function of that name without @triton.jit" if is_function else ""
        raise UsageError(f"{name} has no kernel {kernel!r}{more}; its kernels are: {names}.")
    return KernelFile(path, module, kernel, kernels[kernel])


def file_launch(file: KernelFile, sizes: Mapping[str, Any], device: str) -> FileLaunch:
    """Return the file's launch for some sizes, on ``device``: ``cpu`` or ``cuda``.

    Raises:
        UsageError: the file does not say it, or does not take these sizes.
        LaunchError: its function raises, or returns something else.
    """
    if file.arguments is not None:
        return _by_arguments(file, file.arguments, sizes, device)
    if file.exported is not None:
        if sizes:
            raise UsageError(f"{file.path} was exported and launches one size; for others {_ASK}.")
        return _by_export(file, *file.exported, device)
    raise UsageError(f"{file.path} does not say how {file.name} is launched; {_ASK}.")


def launch_of(lab: Lab, args: Namespace) -> FileLaunch:
    """Return the launch that the options of a command name.

    Raises:
        KernellabError: there is no such kernel, or its file does not say how it is launched.
    """
    return launch_of_file(lab, kernel_file(args.kernel), args)


def launch_of_file(lab: Lab, file: KernelFile, args: Namespace) -> FileLaunch:
    """Return the launch of a file by the sizes and the meta of a command; see `launch_of`."""
    launch = file_launch(file, parse_assignments(args.size, "--size"), device_of(lab))
    return with_meta(lab, launch, parse_assignments(args.meta, "--meta"))


def sizes_of(file: KernelFile) -> tuple[str, ...]:
    """Return the sizes that the file's ``arguments`` takes by name."""
    function = file.arguments
    return () if function is None else tuple(name for name in keyword_names(function) if name not in _OWN_NAMES)


def with_meta(lab: Lab, launch: FileLaunch, meta: Mapping[str, Any]) -> FileLaunch:
    """Return a launch with what ``--meta`` gives in place of what the file does.

    Raises:
        UsageError: a name is neither a constexpr of the kernel nor an option of its compiler.
    """
    names = parameter_names(launch.kernel)
    constexprs = tuple(name for name in names if name in constexpr_names(launch.kernel))
    require_known(lab, launch.file, "--meta", meta, constexprs)
    if any(name in meta for name in names[: len(launch.args)]):
        return replace(launch, args=(), named={**launch.by_name, **meta})
    return replace(launch, named={**launch.named, **meta})


def require_known(
    lab: Lab, file: KernelFile, option: str, given: Iterable[str], parameters: Sequence[str] | None = None
) -> None:
    """Raise where an option names what is none of these parameters of the kernel (None: any), nor of its compiler.

    Raises:
        UsageError: it does.
    """
    from kernellab._triton.specialize import default_options, option_names

    parameters = parameter_names(file.kernel) if parameters is None else parameters
    known = (*parameters, *default_options(lab.target))
    for name in given:
        if name not in known:
            shown = ", ".join((*parameters, *option_names(lab.target)))
            raise UsageError(f"{option} {name}: {file.name} has no such constexpr or option; expected one of {shown}.")


def device_of(lab: Lab) -> str:
    """Return the device of the tensors of a lab's launches: ``cpu`` or ``cuda``."""
    return "cpu" if lab.launches.is_offline() else "cuda"


def _by_arguments(file: KernelFile, function: Callable[..., Any], sizes: Mapping[str, Any], device: str) -> FileLaunch:
    known = sizes_of(file)
    unknown = [name for name in sizes if name not in known]
    if unknown and not takes_any_name(function):
        accepted = ", ".join(known) or "none"
        raise UsageError(f"arguments() of {file.path} takes no size {unknown[0]!r}; the sizes it takes: {accepted}.")
    missing = [name for name in required_names(function) if name not in {*_OWN_NAMES, *sizes}]
    if missing:
        raise UsageError(f"arguments() of {file.path} takes {', '.join(missing)}; give it: --size {missing[0]}=4096.")
    own = {"device": device, "kernel": file.name}
    passed = {name: own[name] for name in _OWN_NAMES if name in keyword_names(function)}
    with _errors_of_file(file.path, "arguments() raised", LaunchError):
        result = function(**{**passed, **sizes})
    if not isinstance(result, tuple | list) or len(result) != 3:
        raise LaunchError(value_message("what arguments() returns", result, "(grid, args, meta)", owner=str(file.path)))
    grid, args, meta = result
    if not callable(grid) and not isinstance(grid, int | tuple | list):
        expected = "a tuple such as (64,), or a function of meta"
        raise LaunchError(value_message("the grid of arguments()", grid, expected, owner=str(file.path)))
    if not isinstance(meta, Mapping) or not isinstance(args, tuple | list | Mapping):
        wrong, value = ("meta", meta) if not isinstance(meta, Mapping) else ("args", args)
        expected = "a dict by name" if wrong == "meta" else "a tuple, or a dict by name"
        raise LaunchError(value_message(f"{wrong} of arguments()", value, expected, owner=str(file.path)))
    if isinstance(args, Mapping):
        return FileLaunch(file, grid, (), {**args, **meta})
    return FileLaunch(file, grid, tuple(args), dict(meta))


class _Caught(BaseException):
    """Ends the ``launch`` of an exported file where it would launch its kernel."""

    def __init__(self, launch: FileLaunch) -> None:
        super().__init__()
        self.launch = launch


class _RecordingKernel:
    """Replaces the kernel of an exported file, to record the launch that its ``launch`` makes."""

    def __init__(self, file: KernelFile) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file.kernel, name)

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        def call_by_name(*args: Any, **named: Any) -> Any:
            raise _Caught(FileLaunch(self._file, grid, args, named))

        return call_by_name


def _by_export(file: KernelFile, launch: Callable[..., Any], inputs: Callable[..., Any], device: str) -> FileLaunch:
    """Return the launch of the file's ``check``, which knows the grid, else of its ``launch``."""
    check = getattr(file.module, "check", None)
    setattr(file.module, file.name, _RecordingKernel(file))
    try:
        with _errors_of_file(file.path, "launch() raised", LaunchError):
            check(device) if callable(check) else launch(**inputs(device))
    except _Caught as caught:
        return caught.launch
    finally:
        setattr(file.module, file.name, file.kernel)
    raise UsageError(f"launch() of {file.path} does not launch {file.name} itself; {_ASK}.")


def _import_file(path: Path) -> ModuleType:
    """Import a file as Python would from its folder: by its dotted name in a package, else by its own."""
    root, dotted = import_root(path.resolve()), dotted_name(path.resolve())
    if str(root) not in sys.path:
        sys.path.append(str(root))  # a random.py beside the file is not what torch imports
    with _errors_of_file(path, "cannot be imported", SourceError):
        if root != path.resolve().parent:
            return importlib.import_module(dotted)
        module = sys.modules.get(dotted)
        if module is not None and Path(getattr(module, "__file__", None) or "").resolve() == path.resolve():
            return module
        return _execute(path, dotted if _is_free(dotted, path) else f"kernel_file_{dotted}")


def _is_free(name: str, path: Path) -> bool:
    """Whether importing this name would load that file, and nothing else has the name."""
    if name in sys.modules or name in sys.stdlib_module_names or not name.isidentifier():
        return False
    spec = importlib.util.find_spec(name)
    return spec is not None and Path(spec.origin or "").resolve() == path.resolve()


def _execute(path: Path, name: str) -> ModuleType:
    loader = importlib.machinery.SourceFileLoader(name, str(path.resolve()))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # as dataclasses and pickle expect
    try:
        loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextmanager
def _errors_of_file(path: Path, what: str, error: type[SourceError | LaunchError]) -> Iterator[None]:
    """Make whatever the user's file raises an error with its line."""
    try:
        yield
    except (KernellabError, KeyboardInterrupt, _Caught):
        raise
    except BaseException as exc:
        reason = "it ends the process" if isinstance(exc, SystemExit) else f"{type(exc).__name__}: {first_line(exc)}"
        reason = exc.msg if isinstance(exc, SyntaxError) else reason
        remark = remark_on(exc)
        message = f"{path} {what}: {reason}.{f' {remark}' if remark else ''}"
        raise error(message, place=_place(exc, path), detail=trail_of(exc)) from exc


def trail_of(exc: BaseException) -> str:
    """Return the stack of an exception, a line per frame, the innermost last, and its message."""
    frames = traceback.extract_tb(exc.__traceback__)
    lines = [f"{frame.filename}, line {frame.lineno}, in {frame.name}: {frame.line}" for frame in frames]
    return "\n".join([*lines, f"{type(exc).__name__}: {exc}"])


@contextmanager
def reference_blamed(file: KernelFile, check: object) -> Iterator[None]:
    """Make an error of the file's ``reference``, which is what a launch is compared with, the file's fault.

    Raises:
        LaunchError: it takes what the kernel has not, raises, or returns something else.
    """
    try:
        yield
    except UsageError as exc:
        if check is not file.reference or not exc.message.startswith("check "):
            raise
        place = None if exc.__cause__ is None else _place(exc.__cause__, file.path)
        message = (
            f"reference() of {file.path}, which the outputs are compared with: {exc.message} --no-check leaves it out."
        )
        raise LaunchError(message, place=place, kernel=file.name) from exc


def fault_of_file(exc: BaseException, path: Path) -> LaunchError | None:
    """Return the error of a function of a kernel file, such as a grid, with its line.

    None where the exception does not come from the file: a frame of the lab stands below the last one of it, other
    than those that tracebacks hide, as that of the arguments which a grid function asks for another name.
    """
    own, of_lab_or_file = Path(__file__).parents[1], []
    for frame, _ in traceback.walk_tb(exc.__traceback__):
        file = Path(frame.f_code.co_filename).resolve()
        if file == path.resolve() or (own in file.parents and "__tracebackhide__" not in frame.f_locals):
            of_lab_or_file.append(file)
    if of_lab_or_file[-1:] != [path.resolve()]:
        return None
    message = f"{path} raised {type(exc).__name__}: {first_line(exc)}."
    return LaunchError(message, place=_place(exc, path), detail=trail_of(exc))


def _place(exc: BaseException, path: Path) -> Place | None:
    """Return the line of the user's code that an exception comes from: the last one of the file, if it is in it."""
    if isinstance(exc, SyntaxError) and exc.filename and exc.lineno:
        column = None if exc.offset is None else max(exc.offset - 1, 0)
        return Place(exc.filename, exc.lineno, column, exc.text.rstrip("\n") if exc.text else None)
    frames = [f for f in traceback.extract_tb(exc.__traceback__) if Path(f.filename).resolve() == path.resolve()]
    if not frames or frames[-1].lineno is None:
        return None
    line = frames[-1].lineno
    return Place(str(path.resolve()), line, text=linecache.getline(frames[-1].filename, line).rstrip("\n"))
