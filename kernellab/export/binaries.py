"""A kernel as compiled binaries: a folder with cubins, a table of them, a loader, and a module for Triton.

``NAME.py`` is the loader: its ``launch`` needs torch and the CUDA driver. ``NAME.json`` has an entry for each cubin,
with what decides whether it is the one to launch, and how it is launched. ``NAME_triton.py`` is the plain kernel, for
targets and specializations that the folder lacks.
"""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernellab.compile.types import Compiled, CompileJob, compile_job
from kernellab.errors import CompileError, KernellabError, UsageError, first_line, plural
from kernellab.export.checking import OutputSummary
from kernellab.export.launcher import Chooser, contiguous_strides
from kernellab.export.module import (
    IS_INTERPRETED,
    ModuleParts,
    dispatch_plan,
    dispatch_sections,
    docstring_lines,
    heuristics_text,
    launch_sections,
    meta_sections,
    module_source,
    module_text,
    parts_of,
    why_unwritable,
)
from kernellab.ir.ptx import ptx_parameters
from kernellab.launch.arguments import TRITON_NAMES
from kernellab.registry import RecordedVersion, values_of
from kernellab.registry.launches_from_store import given_arguments, options_of, regenerated_arguments
from kernellab.source import Binding, Constant, Constexpr, Dtype, Items, Opaque, is_plain, literal, referenced_functions
from kernellab.store import Argument, RecordedLaunch
from kernellab.target import Target, parse_target

if TYPE_CHECKING:
    from kernellab.compile.cache import Compiler

_TMA_HOST_TYPES = {8: 10, 9: 8, 10: 9}  # TMA_DTYPE_DEVICE_TO_HOST of Triton's driver.py; others are the same
_DESCRIPTOR = re.compile(r"(tensordesc<[^\]]*\]).*")


@dataclass(frozen=True, slots=True)
class BinaryVariant:
    """A specialization of a kernel to compile, and the options that its launch passes."""

    job: CompileJob
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BinaryFiles:
    """The files of a kernel's binaries by name, and notes on specializations that have none."""

    kernel: str
    files: Mapping[str, bytes]
    notes: tuple[str, ...] = ()


def recorded_variants(recorded: RecordedVersion, function: Any, targets: Sequence[Target]) -> list[BinaryVariant]:
    """Return the specializations of a kernel's recorded launches, for these targets; without any, for their own.

    Raises:
        UsageError, LaunchError: a launch cannot be specialized for a target.
    """
    variants = []
    for launch in recorded.launches:
        given = [_shrunk(argument) for argument in given_arguments(launch)]
        arguments = {**regenerated_arguments(given, "cpu", 0), **values_of(launch)}
        for target in targets or (parse_target(launch.target),):
            variants.append(BinaryVariant(compile_job(function, target, (), arguments), options_of(launch)))
    return variants


def _shrunk(argument: Argument) -> Argument:
    """Return an argument of the same specialization with as few elements as possible."""
    if argument.kind == "tensor":
        return dataclasses.replace(argument, shape=(), stride=(), low=None, high=None, values=None)
    if argument.kind == "descriptor":
        block = argument.block
        base = dataclasses.replace(
            argument.members[0], shape=block, stride=contiguous_strides(block), low=None, high=None, values=None
        )
        return dataclasses.replace(argument, members=(base,))
    return dataclasses.replace(argument, members=tuple(map(_shrunk, argument.members)))


def kernel_files(
    recorded: RecordedVersion,
    function: Any,
    variants: Sequence[BinaryVariant],
    compiler: Compiler,
    expected: tuple[OutputSummary, ...] = (),
    chooser: Chooser | None = None,
) -> BinaryFiles:
    """Return the files of a kernel's binaries.

    With a ``chooser``, the loader's ``launch`` picks its config by the sizes.

    Raises:
        UsageError: its launches cannot be written down, or no variant compiles to a cubin.
    """
    parts = parts_of(recorded, expected)
    label = recorded.version.label
    if parts.plan is None:
        raise UsageError(
            f"{label} cannot be exported as binaries. {why_unwritable(recorded) or 'It was not launched'}."
        )
    name = parts.plan.name
    _require_exportable(label, name, recorded.launches)
    entries, cubins, notes = _compiled_entries(name, variants, compiler)
    from kernellab._triton import VERSION
    from kernellab._triton.specialize import parameter_flags
    from kernellab.export.binary_loader import MANIFEST_SCHEMA

    targets = {str(variant.job.target): variant.job.target for variant in variants}
    manifest = {
        "schema": MANIFEST_SCHEMA,
        "kernel": name,
        "triton": VERSION,
        "parameters": [_plain_fields(flags) for flags in parameter_flags(function)],
        "defaults": {text: _plain_options(target) for text, target in sorted(targets.items())},
        "binaries": entries,
    }
    table = f"{json.dumps(manifest, indent=1)}\n".encode()
    loader = _loader_source(parts, hashlib.sha256(table).hexdigest(), chooser)
    fallback = module_text(recorded, expected)
    files = {f"{name}.py": loader.encode(), f"{name}_triton.py": fallback.encode(), f"{name}.json": table, **cubins}
    return BinaryFiles(name, files, notes)


def _require_exportable(label: str, name: str, launches: Sequence[RecordedLaunch]) -> None:
    if name in _loader_names():
        raise UsageError(f"{label} has the name of a part of the loader, {name}; rename it.")
    for argument in (argument for launch in launches for argument in launch.arguments):
        what = ""
        if argument.source is not None or argument.kind in ("function", "value"):
            what = "a function or an object, which a table of binaries cannot name"
        elif argument.block and argument.value is not None:
            what = "a descriptor of Gluon, whose layout the loader does not know"
        if what:
            raise UsageError(f"{argument.name} of {label} is {what}; export it as a module.")


def _plain_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if is_plain(value)}


def _plain_options(target: Target) -> dict[str, Any]:
    """Return the default options of a target but for lists, such as the paths of libraries."""
    from kernellab._triton.specialize import default_options

    return {name: v for name, v in default_options(target).items() if v is None or isinstance(v, bool | int | str)}


def _compiled_entries(
    name: str, variants: Sequence[BinaryVariant], compiler: Compiler
) -> tuple[list[dict[str, Any]], dict[str, bytes], tuple[str, ...]]:
    """Compile variants; return their entries in the table, their cubins by file name, and notes on those refused."""
    for variant in variants:
        if variant.job.target.backend != "cuda":
            raise UsageError(
                f"The binaries of {name} are cubins, which {variant.job.target} does not run; "
                "pass targets=, such as ('cuda:80', 'cuda:90'), or export it as a module."
            )
    distinct = list({(v.job.digest, literal(_plain_fields(v.options))): v for v in variants}.values())
    results = dict(compiler.stream([variant.job for variant in distinct]))
    entries, cubins, refused = [], dict[str, bytes](), list[str]()
    for number, variant in enumerate(distinct):
        result = results[number]
        if isinstance(result, CompileError):
            refused.append(f"no binary for {variant.job.target}: {first_line(result)}")
            continue
        if isinstance(result, KernellabError):
            raise result
        image = result.binary
        entry = _entry(name, variant, result, image)
        entries.append(entry)
        cubins[entry["file"]] = image
    if not entries:
        raise UsageError(f"None of {plural(len(distinct), 'variant')} of {name} compiles: {refused[0]}.")
    return entries, cubins, tuple(dict.fromkeys(refused))


def _entry(name: str, variant: BinaryVariant, compiled: Compiled, image: bytes) -> dict[str, Any]:
    """Return the entry of a compiled variant in the table.

    Raises:
        UsageError: its launch needs what the loader does not do.
    """
    metadata = json.loads(compiled.binary_path.with_suffix(".json").read_text(encoding="utf-8"))
    maps = [fields for fields in metadata.get("tensordesc_meta") or () if fields is not None]
    if metadata.get("instrumentation_mode") or any(fields.get("is_im2col") for fields in maps):
        what = "instrumented" if metadata.get("instrumentation_mode") else "one with an im2col descriptor"
        raise UsageError(f"{name} is {what}, which the loader of binaries cannot launch; export it as a module.")
    defaults = _plain_options(variant.job.target)
    options = {n: v for n, v in variant.options.items() if v is not None and (n not in defaults or v != defaults[n])}
    if odd := [option for option, value in options.items() if not is_plain(value)]:
        raise UsageError(f"{odd[0]} of {name} is {options[odd[0]]!r}, which has no literal; a table needs one.")
    digest = hashlib.sha256(image).hexdigest()
    return {
        "target": str(variant.job.target),
        "file": f"{name}-{digest[:16]}.cubin",
        "sha256": digest,
        "symbol": metadata["name"],
        "arguments": argument_keys(variant.job),
        "options": options,
        "num_warps": metadata["num_warps"],
        "num_ctas": metadata["num_ctas"],
        "shared_bytes": metadata["shared"],
        "scratch_bytes": [metadata["global_scratch_size"], metadata["profile_scratch_size"]],
        "cooperative": bool(metadata["launch_cooperative_grid"]),
        "pdl": bool(metadata["launch_pdl"]),
        "parameter_bytes": [parameter.size_bytes for parameter in ptx_parameters(compiled.ptx)],
        "tensor_maps": [_host_fields(fields) for fields in maps],
    }


def _host_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields from which the host encodes a tensor map, with the driver's number of its element type."""
    names = ("swizzle", "elem_size", "block_size", "fp4_padded")
    kind = fields["elem_type"]
    return {**{name: fields[name] for name in names}, "elem_type": _TMA_HOST_TYPES.get(kind, kind)}


def argument_keys(job: CompileJob) -> list[Any]:
    """Return the keys of a job's arguments, as `kernellab.export.binary_loader.argument_key` finds them in a launch.

    Raises:
        UsageError: a constant has no literal.
    """
    from kernellab.export.binary_loader import constant_text  # it imports torch

    constants, attributes = dict(job.constants), dict(job.attributes)

    def key(path: tuple[int, ...], kind: Any) -> list[Any]:
        if isinstance(kind, tuple | list):
            return [key((*path, index), member) for index, member in enumerate(kind)]
        if kind == "constexpr":
            return ["constexpr", constant_text(_constant(constants[path], job.closure.name))]
        return [_DESCRIPTOR.sub(r"\1>", kind), ("tt.divisibility", 16) in attributes.get(path, ())]

    return [key((index,), kind) for index, (_, kind) in enumerate(job.signature)]


def _constant(binding: Binding, kernel: str) -> Any:
    from kernellab.export.binary_loader import Dtype as NamedDtype

    match binding:
        case Constant(value):
            return value
        case Constexpr(inner):
            return _constant(inner, kernel)
        case Dtype(name):
            return NamedDtype(name)
        case Items("tuple" | "list", members):
            return tuple(_constant(member, kernel) for member in members)
    raise UsageError(f"A constexpr of {kernel} has no literal, which a table of binaries needs; export it as a module.")


def _loader_source(parts: ModuleParts, table_digest: str, chooser: Chooser | None) -> str:
    plan = parts.plan
    assert plan is not None
    imports, loader = _loader_text()
    heuristics = heuristics_text(parts.flat, parts.heuristics) or "{}"
    kernel = (
        f"{plan.name} = BinaryKernel(\n    {literal(plan.name)},\n    os.path.dirname(os.path.abspath(__file__)),\n"
        f"    {literal(table_digest)},\n    {heuristics},\n    INTERPRETED,\n)"
    )
    sections = [loader, IS_INTERPRETED, *_host_functions(parts), kernel]
    words = _WORDS if chooser is None else f"{chooser.words} {_WORDS}"
    if chooser is None:
        sections += [*meta_sections(parts, plan, None), *launch_sections(parts, plan, None)]
    else:
        sections += dispatch_sections(parts, dispatch_plan(parts, chooser), chooser)
    return _timed_by_triton(module_source(docstring_lines(parts, words), imports, sections))


def _timed_by_triton(text: str) -> str:
    """Let the ``main`` of a module time nothing where Triton, which has the stopwatch, is not installed."""
    leave = '    if not installed_triton():\n        print("Triton is not installed: not timed.")\n        return\n'
    place = text.index("    if INTERPRETED:\n        print(")
    return text[:place] + leave + text[place:]


_WORDS = (
    "Its binaries lie next to it, and are launched without Triton, which is imported only for a target or a "
    "specialization that has none."
)


def _host_functions(parts: ModuleParts) -> Iterator[str]:
    """Yield the imports, constants and Python functions of heuristics; those of the kernel stay in Triton's module."""
    flat, closure = parts.flat, parts.flat.closure
    bindings = [value for _, value in parts.heuristics if not isinstance(value, Opaque)]
    pending = [index for binding in bindings for index in referenced_functions(binding)]
    used: set[int] = set()
    while pending:
        index = pending.pop()
        if index not in used:
            used.add(index)
            own = [binding for _, binding in closure.functions[index].bindings]
            pending += [callee for binding in own for callee in referenced_functions(binding)]
    texts = "\n".join(flat.texts[index] for index in sorted(used) if index in flat.texts)
    words = set(re.findall(r"\w+", texts))
    needed = words - {"torch", "triton", "tl"}  # the loader's own
    imports = {name: text for name, text in flat.imports.items() if name in needed}
    unused = frozenset(range(len(closure.functions))) - used
    host = dataclasses.replace(flat, imports=imports, imported=flat.imported | unused, constants={}, needs={})
    yield "\n".join(host.import_lines())
    yield "\n".join(f"{name} = {text}" for name, text in flat.constants.items() if name in words)
    yield from host.functions(lambda index: "", kernels=False)


def _loader_text() -> tuple[list[str], str]:
    """Return the imports of the loader and the rest of its text, without docstrings and imports of this package."""
    imports, bodies = {"import os", "import sys"}, []
    for file in ("binary_driver.py", "binary_launch.py", "binary_loader.py"):
        text = Path(__file__).with_name(file).read_text(encoding="utf-8")
        lines = text.splitlines()
        tree = ast.parse(text)
        last = 0
        for node in tree.body[1:]:
            if not isinstance(node, ast.Import | ast.ImportFrom):
                break
            last = node.end_lineno or last
            module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            if module != "__future__" and not module.startswith("kernellab"):
                imports.add(ast.unparse(node))
        bodies.append("\n".join(lines[last:]).strip())
    plain = sorted(line for line in imports if line.startswith("import"))
    others = sorted(imports - set(plain))
    names = f"TRITON_NAMES = {literal(TRITON_NAMES)}"
    return ["from __future__ import annotations", "", *plain, *others], "\n\n\n".join([names, *bodies])


def _loader_names() -> set[str]:
    """Return the names at the top of the loader."""
    nodes = ast.parse(_loader_text()[1]).body
    definitions = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    targets = (part for node in nodes if isinstance(node, ast.Assign) for part in ast.walk(node))
    return definitions | {part.id for part in targets if isinstance(part, ast.Name)}
