"""What an exported module checks itself with: generated inputs, what the outputs held, and a benchmark on a GPU."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from kernellab.export.flatten import Flat, function_text
from kernellab.export.launcher import LauncherPlan, scalar_text
from kernellab.measure.tolerance import share_of_largest, unit_named
from kernellab.registry.recorded_launches import bounds_of, given_arguments, listed_tensor, random_tensor, tensors_among
from kernellab.source import literal
from kernellab.store import Argument, RecordedLaunch


@dataclass(frozen=True, slots=True)
class Expected:
    """What an output held; see `summary`."""

    name: str
    shape: tuple[int, ...]
    counts: tuple[int, ...]
    means: tuple[float, ...]
    samples: tuple[float, ...]


def summary(tensor: Any) -> tuple[list[int], list[int], list[float], list[float]]:
    """Return what an output is compared by: its shape, counts, mean magnitudes, and evenly spaced samples.

    Of whole numbers, the count is their sum modulo 2**64; there is no mean, and all is exact. Else the counts are those
    of NaN, inf and -inf, and the mean is over the rest. Of complex numbers, both parts have theirs.
    """
    counts, means, samples = [], [], []
    for part in (tensor.real, tensor.imag) if tensor.is_complex() else (tensor,):
        flat = part.detach().cpu().reshape(-1)
        if flat.is_floating_point():
            flat = flat.double()
            finite = flat[flat.abs() < float("inf")].abs()
            counts += [int(flat.isnan().sum()), int((flat == float("inf")).sum()), int((flat == -float("inf")).sum())]
            means.append(finite.sum().item() / max(finite.numel(), 1))
        else:
            flat = flat.long()
            counts.append(flat.sum().item())
        samples += flat[:: max(flat.numel() // 16, 1)][:16].tolist()
    return list(tensor.shape), counts, means, samples


def expected_of(outputs: Mapping[str, Any]) -> tuple[Expected, ...]:
    """Return what an exported module compares its outputs with."""
    found = []
    for name, tensor in outputs.items():
        shape, counts, means, samples = summary(tensor)
        digits = 17 if tensor.dtype.itemsize // (1 + tensor.is_complex()) == 8 else 7
        rounded = tuple(_short(each, digits) for each in means), tuple(_short(each, digits) for each in samples)
        found.append(Expected(name, tuple(shape), tuple(counts), *rounded))
    return tuple(found)


def _short(number: float, digits: int) -> float:
    return number if isinstance(number, int) else float(f"{number:.{digits}g}")


def expected_text(expected: Sequence[Expected]) -> Iterator[str]:
    """Yield what the outputs held, as a table, and the function that sums up an output."""
    held = {e.name: [list(each) for each in (e.shape, e.counts, e.means, e.samples)] for e in expected}
    rows = [f"    {literal(name)}: ({', '.join(map(literal, parts))})," for name, parts in held.items()]
    comment = (
        "# What the outputs were when this file was written: shape, counts, mean magnitudes, samples; see `summary`."
    )
    yield "\n".join([comment, "EXPECTED = {", *rows, "}"])
    yield function_text(summary)


def check_text(plan: LauncherPlan, expected: Sequence[Expected], *, has_dot: bool, variants: str = "") -> Iterator[str]:
    """Yield the functions ``reference`` (where one is known), ``check``, ``main``, and the call of it.

    A kernel that ``has_dot`` multiplies float32 in TF32 on a GPU, which keeps ten bits. ``variants`` is an expression
    over ``device`` of meta-parameters, with each of which the kernel is checked as well.
    """
    if plan.grid is None and plan.launch.grid is None:
        return
    names = ", ".join(argument.name for argument in plan.given)
    if plan.launch.check:
        yield (
            f'def reference({names}):\n    """Return what the outputs are to hold."""\n    return {plan.launch.check}\n'
        )
    elif expected:
        yield from expected_text(expected)
    yield _check(plan, expected, has_dot=has_dot)
    yield _main(plan, variants)


def inputs_text(launch: RecordedLaunch) -> str:
    """Return the source of ``inputs(device, seed=0)``, which returns all arguments by name but the meta-parameters.

    Raises:
        UsageError: an argument is of a kind that cannot be made anew.
    """
    return arguments_text(given_arguments(launch), "inputs(device, seed=0)")


def arguments_text(
    given: Sequence[Argument], signature: str, *first: str, devices: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Return the source of a function that returns arguments of these layouts by name; ``first`` are its first lines.

    ``devices`` gives the expressions of devices other than ``device``, by argument.

    Raises:
        UsageError: an argument is of a kind that cannot be made anew.
    """
    lines = [*first, "generator = torch.Generator().manual_seed(seed)"]
    for argument in given:
        text = _expression(argument)
        if argument.name in devices:
            text = f"{text.removesuffix('device)')}{devices[argument.name]})"
        lines.append(f"{argument.name} = {text}")
    result = ", ".join(f'"{argument.name}": {argument.name}' for argument in given)
    body = textwrap.indent("\n".join([*lines, f"return {{{result}}}"]), "    ")
    doc = "Return arguments of the shapes and strides of a recorded launch, with random contents."
    parts = [function_text(random_tensor)]
    if any(argument.values is not None for argument in tensors_among(list(given))):
        parts.append(function_text(listed_tensor))
    return "\n\n\n".join([*parts, f'def {signature}:\n    """{doc}"""\n{body}\n'.rstrip()])


def launched(plan: LauncherPlan, more: str = "") -> str:
    """Return the call of ``launch`` on generated inputs, with ``more`` arguments."""
    grid = "" if plan.grid else f", {plan.grid_name}={plan.launch.grid}"
    return f"launch(**arguments{grid}{more})"


def held(launch: RecordedLaunch, name: str) -> tuple[str, Argument]:
    """Return the tensor that an output is among ``arguments``, as an expression, and its description."""
    base, _, index = name.partition("[")
    argument, expression = launch.argument(base), f"arguments[{literal(base)}]"
    if argument.kind == "tuple":
        argument, expression = argument.members[int(index[:-1])], f"{expression}[{index}"
    if argument.kind == "descriptor":
        return f"{expression}.base", argument.members[0]
    return expression, argument


def tolerance_over(dtypes: Iterable[str], *, has_dot: bool = False) -> float:
    """Return how far outputs may differ that come from some dtypes, as a share of the largest element.

    0 where none of them is floating-point.
    """
    unit = max((unit_named(dtype) for dtype in dtypes), default=0.0)
    return share_of_largest(unit, has_dot=has_dot) if unit else 0.0


def compared(tolerance: float, rounded: Collection[str] = ()) -> list[str]:
    """Return the lines of ``check`` that compare ``outputs`` with what they held.

    Whole numbers are to be equal, but those of the ``rounded`` outputs: they follow from floats, which another device
    rounds in another way, so that some may be off by one.
    """
    lines = _COMPARED.replace("TOLERANCE", str(tolerance))
    return lines.replace("ROUNDED", repr(set(rounded)) if rounded else "()").splitlines()


_EQUALS = '''\
    for output, value, share in zip(outputs, wanted, shares, strict=True):
        if value is None:
            continue
        value = torch.as_tensor(value, device=output.device)
        is_whole = not (output.is_floating_point() or value.is_floating_point())
        got, value = (output.long(), value.long()) if is_whole else (output.double(), value.double())
        value = value.reshape(got.shape) if value.dim() else value.expand(got.shape)
        allowed = share * value.nan_to_num(0, 0, 0).abs().max().item() if value.numel() else 0.0
        torch.testing.assert_close(got, value, rtol=0, atol=allowed, equal_nan=True)
    return "equals its reference"'''


_COMPARED = '''\
    for name, (shape, counts, means, samples) in EXPECTED.items():
        got_shape, got_counts, got_means, got = summary(outputs[name])
        assert got_shape == shape, f"{name} has the shape {got_shape}; expected {shape}"
        off = name in ROUNDED  # by so much each
        slack = TOLERANCE * (abs(counts[0]) + outputs[name].numel()) + 1 if off else 0
        are_near = all(abs(a - b) <= slack for a, b in zip(got_counts, counts, strict=True))
        assert are_near, f"{name} has the counts {got_counts}; expected {counts}"
        if not means:
            are_near = all(abs(a - b) <= TOLERANCE * abs(b) + off if off else a == b for a, b in zip(got, samples))
            assert are_near and len(got) == len(samples), f"{name} holds {got}; expected {samples}"
            continue
        wanted = torch.tensor([*means, *samples], dtype=torch.float64)
        found = torch.tensor([*got_means, *got], dtype=torch.float64)
        scale = TOLERANCE * max(*means, 1e-30)
        torch.testing.assert_close(found, wanted, rtol=TOLERANCE, atol=scale, equal_nan=True)
    return "gives what it gave when it was exported"'''


def _check(plan: LauncherPlan, expected: Sequence[Expected], *, has_dot: bool) -> str:
    outputs = [held(plan.launch, name)[1].dtype for name in plan.mutated]
    given = [argument.dtype for argument in plan.given if argument.kind == "tensor"]
    # whole numbers are exact, whatever they come from
    shares = [tolerance_over([each, *given], has_dot=has_dot) if "float" in each else 0.0 for each in outputs]
    lines = [
        "def check(device, **meta):",
        '    """Launch once, with these meta-parameters; raise AssertionError if an output is wrong."""',
    ]
    lines += ["    arguments = inputs(device)"]
    if plan.launch.check:
        lines += [
            f"    {launched(plan, ', **meta')}",
            "    wanted = reference(**arguments)  # after the launch, so that it may name an output",
            "    wanted = wanted if isinstance(wanted, tuple) else (wanted,)",
            f"    outputs = [{', '.join(held(plan.launch, name)[0] for name in plan.mutated)}]",
            f"    shares = {shares}  # of the largest element, by which others may differ",
            *_EQUALS.splitlines(),
        ]
    elif expected:
        lines += [
            f"    {launched(plan, ', **meta')}",
            f"    outputs = {{{', '.join(f'{literal(e.name)}: {held(plan.launch, e.name)[0]}' for e in expected)}}}",
            *compared(max([*shares, tolerance_over(given, has_dot=has_dot)]), _rounded_outputs(plan, given)),
        ]
    else:
        lines += [
            f"    {launched(plan, ', **meta')}",
            '    return "runs; nothing is known to compare its outputs with"',
        ]
    return "\n".join(lines)


def _rounded_outputs(plan: LauncherPlan, given: Sequence[str]) -> list[str]:
    """Return the outputs of whole numbers, where a kernel takes floats."""
    has_floats = any("float" in dtype for dtype in given)
    return [name for name in plan.mutated if has_floats and "float" not in held(plan.launch, name)[1].dtype]


_MAIN = '''\
def main():
    """Check the WHAT; measure it where there is a GPU."""
    if not torch.cuda.is_available() and not INTERPRETED:
        sys.exit("There is no GPU: set TRITON_INTERPRET=1 to check the WHAT on the CPU.")
CHECKS
    if INTERPRETED:
        print("There is no GPU in use: nothing is measured.")
        return
MEASURES


if __name__ == "__main__":
    main()
'''
_NO_ROUNDING = "Triton's interpreter cannot compute bfloat16 and float8: this needs a GPU."
_NO_LIBDEVICE = "Triton's interpreter has no libdevice: this needs a GPU."
_NO_ASSEMBLY = "Triton's interpreter runs no inline assembly: this needs a GPU."
_NO_GLUON = "Triton's interpreter runs no Gluon: this needs a GPU."


def main_text(what: str, refusal: str, checks: Sequence[str], measures: Sequence[str]) -> str:
    """Return ``main`` and the call of it, of the lines that check and those that measure on a GPU.

    ``refusal`` is why Triton's own interpreter cannot run what is checked, or "".
    """
    text = _MAIN
    if refusal:
        begin, end = text.index("    if not"), text.index("CHECKS")
        leave = f"    if INTERPRETED or not torch.cuda.is_available():\n        sys.exit({literal(refusal)})\n"
        text = text[:begin] + leave + text[end:]
    text = text.replace("WHAT", what)
    for name, lines in (("CHECKS", checks), ("MEASURES", measures)):
        text = text.replace(name, textwrap.indent("\n".join(lines), "    "), 1)
    return text


def usage_lines(what: str, measures: str, refusal: str) -> list[str]:
    """Return the lines of a module's docstring that say how it is run; ``measures`` is a verb."""
    first = [refusal] if refusal else [f"    TRITON_INTERPRET=1 python THIS_FILE    # checks the {what} on the CPU"]
    return [
        "",
        *first,
        *([""] if refusal else []),
        f"    python THIS_FILE                       # checks and {measures} it on a GPU",
    ]


def why_uninterpreted(flat: Flat, dtypes: Iterable[str]) -> str:
    """Return why Triton's own interpreter cannot run the functions of a module on such dtypes, or "".

    It keeps bfloat16 and float8 as integers, and computes with these.
    """
    used = {name for text in flat.imports.values() for name in re.split(r"[.:]", text)}
    for index, text in flat.texts.items():
        kind = flat.closure.functions[index].kind
        tree = ast.parse(f"({text})" if kind == "lambda" else text)
        used |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)} | {kind}
    constants = re.findall(r'tl\.dtype\("(\w+)"\)', " ".join(flat.constants.values()))
    if is_rounded([*used, *constants, *dtypes]):
        return _NO_ROUNDING
    reasons = {"libdevice": _NO_LIBDEVICE, "inline_asm_elementwise": _NO_ASSEMBLY, "gluon": _NO_GLUON}
    return next((reason for name, reason in reasons.items() if name in used), "")


def is_rounded(dtypes: Iterable[str]) -> bool:
    """Tell whether one of some dtypes is a float that Triton's own interpreter cannot compute."""
    return any(re.fullmatch(r"bfloat16|bf16|(float|fp)8\w*", dtype) for dtype in dtypes)


def _main(plan: LauncherPlan, variants: str) -> str:
    name = plan.name
    checks = ['device = "cpu" if INTERPRETED else "cuda"', f'print("{name}", check(device))']
    if variants:
        checks += [f"for meta in {variants}:", f'    print("{name}", meta, check(device, **meta))']
    measures = [
        "arguments = inputs(device)",
        f"time_ms = triton.testing.do_bench(lambda: {launched(plan)})",
        "tensors = [a for a in arguments.values() if isinstance(a, torch.Tensor)]",
        "moved = sum(t.numel() * t.element_size() for t in tensors)",
        f'print(f"{name} {{time_ms * 1e3:.1f}} us, {{moved / time_ms / 1e6:.0f}} GB/s if each tensor moves once")',
    ]
    return main_text("kernel", plan.refusal, checks, measures)


def _expression(argument: Argument) -> str:
    if argument.alias:
        return argument.alias
    match argument.kind:
        case "tensor":
            return _tensor_expression(argument)
        case "tuple":
            return f"({', '.join(map(_expression, argument.members))},)"
        case "descriptor":
            return descriptor_text(argument, _expression(argument.members[0]))
        case _:
            return scalar_text(argument)


def descriptor_text(argument: Argument, base: str) -> str:
    """Return the expression of a descriptor; one of Gluon has a layout."""
    layout = ""
    if argument.value is not None:
        fields = dict(argument.value)
        name = fields.pop("class")
        layout = f", gl.{name}({', '.join(f'{each}={literal(value)}' for each, value in fields.items())})"
    return f"TensorDescriptor.from_tensor({base}, {list(argument.block)}{layout})"


def _tensor_expression(argument: Argument) -> str:
    dtype = f"torch.{argument.dtype}"
    if argument.values is not None:
        return f"listed_tensor({list(argument.values)}, {argument.shape}, {dtype}, device)"
    low, high = bounds_of(argument)
    layout = f"{argument.shape}, {argument.stride}, {dtype}"
    return f"random_tensor({layout}, {literal(low)}, {literal(high)}, generator, device)"
