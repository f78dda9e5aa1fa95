"""An earlier revision of a Python file: of a commit, another file, or a version of a package, to import next to it."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from kernellab._triton.kernel import is_kernel
from kernellab.errors import SourceError, UsageError, first_line
from kernellab.settings import child_environment
from kernellab.workers.scratch import Scratch

_EXPECTED = "expected a commit, such as HEAD~1; a file, such as old.py or old.py::KERNEL; or PACKAGE==VERSION"
_REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9][A-Za-z0-9.!+_-]*")
_SHARED = {"kernellab", "triton", "torch", "numpy"}
"""Modules that both revisions share, since both run in one process."""


@dataclass(frozen=True, slots=True)
class EarlierFile:
    """The earlier revision of a file; its imports of the top-level ``names`` are looked up in the folders ``roots``.

    ``kernel`` is the name in ``FILE::KERNEL``, "" without one. ``package`` is the folder of a package whose kernels a
    file outside of it is to import; None otherwise.
    """

    path: Path
    label: str
    roots: tuple[Path, ...]
    names: frozenset[str]
    kernel: str = ""
    package: Path | None = None


@contextmanager
def earlier_file(path: Path, against: str) -> Iterator[EarlierFile]:
    """Fetch the revision of a file that ``against`` names: a file, ``PACKAGE==VERSION``, or else a commit of git.

    What is fetched stands in a temporary folder during the with statement.

    Raises:
        UsageError: there is no such revision, it has no such file, or pip cannot fetch it.
    """
    path = path.resolve()
    name, _, kernel = against.partition("::")
    if name and Path(name).is_file():
        other = Path(name).resolve()
        yield EarlierFile(other, against, (import_root(other),), _sibling_names(other), kernel)
        return
    with Scratch() as folder:
        if "==" in against:
            yield _file_of_package(path, against, folder)
        else:
            yield _file_of_commit(path, against, folder)


@contextmanager
def importing_earlier(earlier: EarlierFile) -> Iterator[None]:
    """Import the modules of an earlier revision in place of those of the same name, which are restored afterwards.

    Raises:
        UsageError: nothing of the package that was asked for is imported.
    """
    names = set(earlier.names) - _SHARED - sys.stdlib_module_names
    present = _modules_named(names)
    finder, path = _RevisionFinder(names, earlier.roots), list(sys.path)
    for name in present:
        del sys.modules[name]
    sys.meta_path.insert(0, finder)
    importlib.invalidate_caches()
    try:
        yield
        if earlier.package is not None and not any(_is_below(m, earlier.package) for m in sys.modules.values()):
            raise UsageError(f"{earlier.path.name} imports nothing of {earlier.label}: both sides would be the same.")
    finally:
        sys.meta_path.remove(finder)
        sys.path[:] = path
        for name in _modules_named({*names, f"kernel_file_{earlier.path.stem}"}):
            del sys.modules[name]
        sys.modules.update(present)


def import_kernel(earlier: EarlierFile, name: str) -> Any:
    """The kernel of an earlier revision by its name, or by the one in ``FILE::KERNEL``.

    Raises:
        UsageError: the file has no such kernel.
        SourceError: the file cannot be imported.
    """
    with importing_earlier(earlier):
        try:
            module = importlib.import_module(dotted_name(earlier.path))
        except Exception as exc:
            reason = f"{type(exc).__name__}: {first_line(exc)}"
            raise SourceError(f"{earlier.path.name} of {earlier.label} cannot be imported: {reason}.") from exc
    kernel = getattr(module, earlier.kernel or name, None)
    if not is_kernel(kernel):
        raise UsageError(f"{earlier.path.name} of {earlier.label} has no kernel {earlier.kernel or name!r}.")
    return kernel


def import_root(path: Path) -> Path:
    """The folder from which a file is imported: above all packages that it is in."""
    folder = path.parent
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    return folder


def dotted_name(path: Path) -> str:
    """The name by which a file is imported from its `import_root`."""
    return ".".join(path.relative_to(import_root(path)).with_suffix("").parts)


class _RevisionFinder(importlib.abc.MetaPathFinder):
    """Finds top-level modules of some names in folders of an earlier revision."""

    def __init__(self, names: set[str], roots: Sequence[Path]) -> None:
        self._names, self._roots = names, [str(root) for root in roots]

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec of a top-level module of the revision; None for all others."""
        if path is not None or name not in self._names:
            return None
        return importlib.machinery.PathFinder.find_spec(name, self._roots, target)


def _sibling_names(path: Path) -> frozenset[str]:
    """The top-level names that a file may mean files next to it by: its package, else all modules of its folder."""
    root = import_root(path)
    return frozenset({path.relative_to(root).parts[0]}) if root != path.parent else _module_names(root)


def _module_names(folder: Path) -> frozenset[str]:
    """The names of modules and packages in a folder; those without ``__init__.py`` count where they are imported."""
    packages = {
        entry.name
        for entry in folder.iterdir()
        if (entry / "__init__.py").is_file()
        or (entry.is_dir() and getattr(sys.modules.get(entry.name), "__file__", "") is None)
    }
    return frozenset({entry.stem for entry in folder.glob("*.py")} | packages)


def _modules_named(names: set[str]) -> dict[str, ModuleType]:
    return {name: module for name, module in sys.modules.items() if name.partition(".")[0] in names}


def _is_below(module: ModuleType, folder: Path) -> bool:
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and folder in Path(file).resolve().parents


def _file_of_commit(path: Path, revision: str, folder: Path) -> EarlierFile:
    """Write the tree of a commit into a folder, with all files next to the one that is asked for."""
    no_commit = f"--against {revision!r}: no such commit or file; {_EXPECTED}."
    if not revision or revision.startswith("-"):
        raise UsageError(no_commit)
    if not _has_git(path.parent):
        raise UsageError(f"--against {revision!r}: {path.parent} is in no git repository; {_EXPECTED}.")
    top = Path(_git(path.parent, "rev-parse", "--show-toplevel")).resolve()
    try:
        commit = _git(top, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    except UsageError:
        raise UsageError(no_commit) from None
    inside = path.relative_to(top)
    if not _git(top, "ls-tree", "--name-only", commit, "--", inside.as_posix()):
        raise UsageError(f"--against {revision!r}: {inside} is not in that commit.")
    tree = folder.resolve() / "tree"
    index = {"GIT_INDEX_FILE": str(folder / "index")}  # the index of the repository stays as it is
    _git(top, "read-tree", commit, **index)
    _git(top, "checkout-index", "--all", f"--prefix={tree}/", **index)
    earlier = tree / inside
    imported = list(_imported_roots(top, tree))
    roots = dict.fromkeys([import_root(earlier), *(root for _, root in imported)])
    names = _sibling_names(earlier) | {name for name, _ in imported}
    return EarlierFile(earlier, f"{revision} ({commit[:8]})", tuple(roots), names)


def _imported_roots(top: Path, tree: Path) -> Iterator[tuple[str, Path]]:
    """Top-level names imported from the repository now, with the folders of a commit's tree that have them."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or name.partition(".")[0] in _SHARED or not _is_below(module, top):
            continue
        earlier = tree / Path(file).resolve().relative_to(top)
        levels = name.count(".") + (earlier.name == "__init__.py")
        if earlier.is_file() and levels < len(earlier.parents):
            yield name.partition(".")[0], earlier.parents[levels]


def _has_git(folder: Path) -> bool:
    try:
        return _git(folder, "rev-parse", "--is-inside-work-tree") == "true"
    except UsageError:
        return False


def _git(folder: Path, *words: str, **variables: str) -> str:
    """The output of git.

    Raises:
        UsageError: git is missing, or fails.
    """
    command = ["git", "-C", str(folder), *words]
    environment = child_environment(**variables)
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    except FileNotFoundError as exc:
        raise UsageError("--against a commit needs git, which is not installed; pass a file instead.") from exc
    if done.returncode:
        raise UsageError(f"git {words[0]} failed in {folder}: {_last_line(done.stderr)}.")
    return done.stdout.strip()


def _file_of_package(path: Path, requirement: str, folder: Path) -> EarlierFile:
    """Install a version of a package into a folder; a file outside of the package is imported anew with it."""
    if not _REQUIREMENT.fullmatch(requirement):
        raise UsageError(f"--against {requirement!r}: {_EXPECTED}, such as flag_gems==4.2.0.")
    target = folder.resolve() / "package"
    words = ["install", "--quiet", "--no-deps", "--disable-pip-version-check", "--no-input"]
    command = [sys.executable, "-m", "pip", *words, "--target", str(target), requirement]
    done = subprocess.run(command, env=child_environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        advice = f"without a network, install it elsewhere with pip install --target, and pass its {path.name}"
        raise UsageError(f"pip cannot fetch {requirement}: {_last_line(done.stderr)}; {advice}.")
    root = import_root(path)
    counterpart = target / path.relative_to(root)
    if root != path.parent and counterpart.is_file():
        return EarlierFile(counterpart, requirement, (target,), _module_names(target))
    if root != path.parent and (target / counterpart.relative_to(target).parts[0]).is_dir():
        raise UsageError(f"{requirement} has no {path.relative_to(root)}.")
    names = _module_names(target) | _sibling_names(path)
    return EarlierFile(path, requirement, (target, root), names, package=target)


def _last_line(text: str) -> str:
    lines = [line.strip().rstrip(".") for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("ERROR", "fatal", "error"))]
    return (errors or lines or ["no message"])[-1]
