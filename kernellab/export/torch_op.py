"""A kept kernel as a PyTorch operator: traceable, with a functional twin that mutates nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from kernellab.errors import UsageError
from kernellab.export.checking import OutputSummary, descriptor_text
from kernellab.export.launcher import Chooser, LauncherPlan, flag_lines, operator_launch_text, refusal_lines
from kernellab.export.module import (
    ModuleParts,
    check_sections,
    definitions,
    dispatch_plan,
    heuristics_text,
    kernel_module_source,
    leading_sections,
    parts_of,
    why_unwritable,
)
from kernellab.registry import RecordedVersion
from kernellab.registry.launches_from_store import GridText
from kernellab.source import literal
from kernellab.store import Argument, RecordedLaunch

_REGISTER = '''\
def operator(name, mutated):
    """Return the decorator that makes a function an operator of PyTorch, which mutates these arguments.

    `torch.compile` and `torch.export` look into it, but for the interpreter, which runs on real tensors only.
    """
    if INTERPRETED:
        return torch.library.custom_op(name, mutates_args=mutated)
    return torch.library.triton_op(name, mutates_args=mutated)'''
_OPAQUE = '''\
def operator(name, mutated):
    """Return the decorator that makes a function an operator of PyTorch, which mutates these arguments.

    `torch.compile` and `torch.export` call it as a whole: its kernel takes what they cannot pass on.
    """
    return torch.library.custom_op(name, mutates_args=mutated)'''
_EXAMPLE = 'lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)'
_SCALARS = {bool: "bool", int: "int", float: "float", str: "str"}


def torch_op_text(
    recorded: RecordedVersion, expected: tuple[OutputSummary, ...] = (), chooser: Chooser | None = None
) -> str:
    """Return the source of a module with the kernel, its operator and the functional twin of that.

    With a ``chooser``, the operator chooses its config by the sizes at each call, and compilers call it as a whole.

    Raises:
        UsageError: the kernel was never launched, its grid is not a formula, or an argument has no type in a schema.
    """
    parts = parts_of(_with_bases(recorded), expected)
    plan = parts.plan
    why = why_unwritable(recorded)
    if plan is not None and plan.grid_name != "grid":
        why = "It has a parameter called grid"
    if why and recorded.launch is not None:
        raise UsageError(f"{recorded.version.label} cannot be an operator. {why}; --as module can.")
    if plan is None:
        raise UsageError(
            f"{recorded.version.label} was never launched in a cell; an operator needs to know its arguments."
        )
    if plan.grid is None or (chooser is not None and plan.grid.inferred):
        raise UsageError(
            f"The grid of {recorded.version.label} is not a formula of its arguments; launch it by a function of them, "
            f"such as {plan.name}[{_EXAMPLE}], and export it again."
        )
    is_recorded = bool(plan.grid.inferred)
    if chooser is not None:
        chooser = dataclasses.replace(chooser, device=chooser.device.replace(".base.", "."))  # as `_with_bases` does
        plan = dispatch_plan(parts, chooser)
    is_opaque = chooser is not None or _is_opaque(plan)
    heuristics = heuristics_text(parts.flat, parts.heuristics)
    sections = [
        *leading_sections(parts),
        *definitions(parts, None, heuristics=False),
        *([f"HEURISTICS = {heuristics}"] if heuristics else []),
        *(chooser.sections(plan.name) if chooser is not None else ()),
        _OPAQUE if is_opaque else _REGISTER,
        *([_recorded_grids(parts, plan)] if is_recorded else []),
    ]
    sections += [_operator_source(plan, parts, chooser, is_opaque=is_opaque), _functional_source(plan)]
    if plan.mutated:
        sections.append(_fake_implementations(plan, is_opaque=is_opaque))
    sections += [_opcheck_source(plan), operator_launch_text(plan, f"{plan.name}_op"), *check_sections(parts, plan)]
    return kernel_module_source(sections, parts, "" if chooser is None else chooser.words)


def _with_bases(recorded: RecordedVersion) -> RecordedVersion:
    """Replace descriptors by their tensors in the launches of a version; the operator makes the descriptors."""
    launches = []
    for launch in recorded.launches:
        arguments = list(launch.arguments)
        for i, a in enumerate(arguments):
            if a.kind == "descriptor":
                arguments[i] = dataclasses.replace(a.members[0], name=a.name, value=a.value, block=a.block)
        launches.append(dataclasses.replace(launch, arguments=tuple(arguments)))
    return dataclasses.replace(recorded, launches=tuple(launches))


def _is_opaque(plan: LauncherPlan) -> bool:
    """Whether the kernel takes tuples, descriptors or functions, which torch.compile does not pass on."""
    arguments = plan.launch.arguments
    return any(a.kind in ("tuple", "function", "value") or a.block or type(a.value) is tuple for a in arguments)


def _operator_source(plan: LauncherPlan, parts: ModuleParts, chooser: Chooser | None, *, is_opaque: bool) -> str:
    """Return the operator: it takes all tensors, mutates the outputs, and returns nothing."""
    names = dict.fromkeys(name.partition("[")[0] for name in plan.mutated)
    mutated = "{" + ", ".join(map(literal, names)) + "}" if names else "()"
    passed = ", ".join(f"{literal(argument.name)}: {_kernel_argument(argument)}" for argument in plan.parameters)
    options = _schema_options(plan)
    meta = ", ".join(f"{literal(n)}: {n if n in options else text}" for n, text in plan.meta)
    config = "" if chooser is None else f"**{chooser.call('{}')}"
    lines = [
        f'@operator("kernellab::{plan.name}", {mutated})',
        *_signature(f"{plan.name}_op", [*map(_typed_parameter, plan.parameters), *options.values()], "None"),
        f'    """Launch `{plan.name}`; it mutates {", ".join(plan.mutated) or "nothing"}."""',
        *(f"    {line}" for line in (*refusal_lines(plan.refusal), *flag_lines(plan))),
        f"    arguments = {{{', '.join(filter(None, [passed, meta, config]))}}}",
    ]
    if heuristics_text(parts.flat, parts.heuristics):
        lines += [
            "    # By a size, it splits dynamic shapes: torch.compile guards the size, torch.export needs it static.",
            "    for name, heuristic in HEURISTICS.items():",
            "        arguments[name] = heuristic(arguments)",
        ]
    assert plan.grid is not None
    sizes = f"recorded_grid({', '.join(text for text, _ in _grid_sizes(plan.launch))})"
    lines.append(f"    grid = {sizes if plan.grid.inferred else plan.grid.text}")
    kernel = plan.name
    if not is_opaque:
        kernel = "kernel"
        lines.append(f"    kernel = {plan.name} if INTERPRETED else torch.library.wrap_triton({plan.name})")
    return "\n".join([*lines, f"    {kernel}[grid](**arguments)"])


_GRIDS = '''\
def recorded_grid(*sizes):
    """Return the grid of the recorded launch of these sizes; raise ValueError for others."""
    for known, grid in GRIDS:
        if known == sizes:
            return grid
    raise ValueError(NO_GRID)'''


def recorded_grids_remark(kernel: str, grid: GridText | None) -> str:
    """Return the remark on an operator that knows grids of recorded sizes only, or ""."""
    if grid is None or not grid.inferred:
        return ""
    return (
        f"The grid of {kernel} is known for the sizes of recorded launches alone, since no function of its arguments "
        f"gave it; so its operator takes no others. Launch it by a function, such as {kernel}[{grid.of_meta}], and "
        "export it again."
    )


def _recorded_grids(parts: ModuleParts, plan: LauncherPlan) -> str:
    ran = [launch for launch in parts.recorded.launches if launch.grid is not None]
    grids = {tuple(value for _, value in _grid_sizes(launch)): launch.grid for launch in ran}
    rows = [f"    ({literal(sizes)}, {grid})," for sizes, grid in grids.items()]
    remark = literal(recorded_grids_remark(plan.name, plan.grid))
    return "\n".join([f"NO_GRID = {remark}", "GRIDS = [", *rows, "]", "", "", _GRIDS])


def _grid_sizes(launch: RecordedLaunch) -> Iterator[tuple[str, Any]]:
    """Yield expression and value of each input of a grid: extents, integers and constexprs."""
    for argument in launch.arguments:
        text = f"arguments[{literal(argument.name)}]" if argument.constexpr else argument.name
        if argument.kind == "tensor":
            yield f"tuple({text}.shape)", argument.shape
        elif argument.kind == "tuple":
            yield f"tuple(tuple(each.shape) for each in {text})", tuple(member.shape for member in argument.members)
        elif argument.kind == "scalar" and type(argument.value) is tuple:
            yield f"tuple({text})", argument.value
        elif argument.kind == "scalar" and type(argument.value) is int:
            yield text, argument.value


def _functional_source(plan: LauncherPlan) -> str:
    """Return the twin: outputs that are only written are allocated, others cloned; all are returned."""
    allocations = {argument.name: text for argument, text in plan.allocated}
    copies = {}
    for name in dict.fromkeys(name.partition("[")[0] for name in plan.mutated):
        is_tuple = plan.launch.argument(name).kind == "tuple"
        clone = f"[each.clone() for each in {name}]" if is_tuple else f"{name}.clone()"
        copies[name] = allocations.get(name, clone)
    kinds = ", ".join("torch.Tensor" for _ in plan.mutated)
    result = {0: "None", 1: "torch.Tensor"}.get(len(plan.mutated), f"tuple[{kinds}]")
    parameters, options = map(_typed_parameter, plan.required), _schema_options(plan)
    names = [*(argument.name for argument in plan.parameters), *options]
    lines = [
        f'@operator("kernellab::{plan.name}_functional", ())',
        *_signature(f"{plan.name}_functional", [*parameters, *options.values()], result),
        f'    """Return {", ".join(plan.mutated) or "nothing"}; no argument is mutated."""',
        *(f"    {name} = {text}" for name, text in copies.items()),
        f"    {plan.name}_op({', '.join(f'{name}={name}' for name in names)})",
        f"    return {', '.join(plan.mutated) or 'None'}",
    ]
    return "\n".join(lines)


def _fake_implementations(plan: LauncherPlan, *, is_opaque: bool) -> str:
    allocations = {argument.name: text for argument, text in plan.allocated}
    outputs = ", ".join(allocations.get(name, f"torch.empty_like({name})") for name in plan.mutated)
    parameters = ", ".join([*map(_typed_parameter, plan.required), *_schema_options(plan).values()])
    lines = [
        f"{plan.name}_op.register_fake(lambda *args, **kwargs: None)",
        "",
        *([] if not is_opaque else [""]),
        f"@{plan.name}_functional.register_fake",
        f"def _({parameters}):",
        f"    return {outputs}",
    ]
    if is_opaque:
        return "\n".join(lines)
    return "\n".join(["if INTERPRETED:", *(f"    {line}" if line else "" for line in lines)])


def _kernel_argument(argument: Argument) -> str:
    if argument.block:
        return descriptor_text(argument, argument.name)
    return f"tuple({argument.name})" if argument.kind == "tuple" or type(argument.value) is tuple else argument.name


def _opcheck_source(plan: LauncherPlan) -> str:
    lines = [
        "def opcheck(device):",
        '    """Let PyTorch check both operators on generated inputs."""',
        "    arguments = inputs(device)",
        f"    torch.library.opcheck({plan.name}_op, (), arguments)",
    ]
    lines += [f"    arguments.pop({literal(argument.name)})" for argument, _ in plan.allocated]
    return "\n".join([*lines, f"    torch.library.opcheck({plan.name}_functional, (), arguments)"])


def _signature(name: str, parameters: list[str], result: str) -> Iterator[str]:
    line = f"def {name}({', '.join(parameters)}) -> {result}:"
    if len(line) <= 100:
        yield line
    else:
        yield f"def {name}("
        yield from (f"    {parameter}," for parameter in parameters)
        yield f") -> {result}:"


def _schema_options(plan: LauncherPlan) -> dict[str, str]:
    """The constexprs and options that are parameters of the operator, by name, as text with type and default."""
    values = {a.name: a.value for a in plan.launch.arguments if a.kind == "scalar"} | dict(plan.launch.options)
    kinds = {name: _SCALARS.get(type(values.get(name))) for name, _ in plan.meta}
    return {name: f"{name}: {kinds[name]} = {text}" for name, text in plan.meta if kinds[name] is not None}


def _typed_parameter(argument: Argument) -> str:
    if argument.kind == "tensor":
        return f"{argument.name}: torch.Tensor"
    if argument.kind == "tuple" and all(member.kind == "tensor" for member in argument.members):
        return f"{argument.name}: list[torch.Tensor]"
    if type(argument.value) is tuple and len(kinds := {type(member) for member in argument.value}) == 1:
        (kind,) = kinds
        if kind in _SCALARS:
            return f"{argument.name}: list[{_SCALARS[kind]}]"
    if argument.kind == "scalar" and argument.value is None:
        return f"{argument.name}: torch.Tensor | None"
    if argument.kind == "scalar" and type(argument.value) in _SCALARS:
        return f"{argument.name}: {_SCALARS[type(argument.value)]}"
    what = f"a {argument.kind}" if argument.kind != "scalar" else repr(argument.value)
    raise UsageError(f"{argument.name} is {what}, which the schema of an operator cannot hold.")
