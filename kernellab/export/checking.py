"""The self-check of an exported module: generated inputs, a summary of the outputs, and a benchmark on a GPU."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from kernellab.checking.tolerance import share_of_largest, unit_named
from kernellab.export.flatten import FlatModule, function_text
from kernellab.export.launcher import LauncherPlan, scalar_text
from kernellab.registry.launches_from_store import (
    bounds_of,
    given_arguments,
    listed_tensor,
    random_tensor,
    tensors_among,
)
from kernellab.source import literal
from kernellab.store import Argument, RecordedLaunch


@dataclass(frozen=True, slots=True)
class OutputSummary:
    """The recorded summary of one output; see `summary`."""

    name: str
    shape: tuple[int, ...]
    counts: tuple[int, ...]
    means: tuple[float, ...]
    samples: tuple[float, ...]


def summary(tensor: Any) -> tuple[list[int], list[int], list[float], list[float]]:
    """Summarize an output for comparison: shape, counts, mean magnitudes, evenly spaced samples.

    Integers: the count is their sum modulo 2**64, there is no mean, and all is exact. Floats: the counts are those of
    NaN, inf and -inf, and the mean is over the rest. Complex numbers: real and imaginary parts apart.
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


def summarize_outputs(outputs: Mapping[str, Any]) -> tuple[OutputSummary, ...]:
    """Return the summaries of the outputs that an exported module is checked against."""
    summaries = []
    for name, tensor in outputs.items():
        shape, counts, means, samples = summary(tensor)
        digits = 17 if tensor.dtype.itemsize // (1 + tensor.is_complex()) == 8 else 7
        rounded = (tuple(_round_to_digits(n, digits) for n in numbers) for numbers in (means, samples))
        summaries.append(OutputSummary(name, tuple(shape), tuple(counts), *rounded))
    return tuple(summaries)


def _round_to_digits(number: float, digits: int) -> float:
    return number if isinstance(number, int) else float(f"{number:.{digits}g}")


def expected_text(expected: Sequence[OutputSummary]) -> Iterator[str]:
    """Yield the source of the table ``EXPECTED`` and of `summary`."""
    figures = {e.name: [list(figures) for figures in (e.shape, e.counts, e.means, e.samples)] for e in expected}
    rows = [f"    {literal(name)}: ({', '.join(map(literal, parts))})," for name, parts in figures.items()]
    what = "shape, counts, mean magnitudes, samples; see `summary`."
    yield "\n".join([f"# What the outputs were when this file was written: {what}", "EXPECTED = {", *rows, "}"])
    yield function_text(summary)


def check_text(
    plan: LauncherPlan, expected: Sequence[OutputSummary], *, has_dot: bool, variants: str = ""
) -> Iterator[str]:
    """Yield the functions ``reference`` (where one is known), ``check``, ``main``, and the call of it.

    With ``has_dot``, a GPU multiplies float32 in TF32, which keeps ten bits. ``variants`` is an expression over
    ``device``: a list of meta-parameters to check the kernel with as well.
    """
    if plan.grid is None and plan.launch.grid is None:
        return
    names = ", ".join(argument.name for argument in plan.parameters)
    if plan.launch.check:
        yield (f'def reference({names}):\n    """Return the expected outputs."""\n    return {plan.launch.check}\n')
    elif expected:
        yield from expected_text(expected)
    yield _check_source(plan, expected, has_dot=has_dot)
    yield _main_source(plan, variants)


def inputs_text(launch: RecordedLaunch) -> str:
    """Return the source of ``inputs(device, seed=0)``, which returns all arguments by name but the meta-parameters.

    Raises:
        UsageError: an argument is of a kind that cannot be generated.
    """
    return arguments_text(given_arguments(launch), "inputs(device, seed=0)")


def arguments_text(
    arguments: Sequence[Argument], signature: str, *first: str, devices: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Return the source of a function that returns arguments of these layouts by name; ``first`` are its first lines.

    ``devices`` gives the expressions of devices other than ``device``, by argument.

    Raises:
        UsageError: an argument is of a kind that cannot be generated.
    """
    lines = [*first, "generator = torch.Generator().manual_seed(seed)"]
    for argument in arguments:
        text = _argument_expression(argument)
        if argument.name in devices:
            text = f"{text.removesuffix('device)')}{devices[argument.name]})"
        lines.append(f"{argument.name} = {text}")
    result = ", ".join(f'"{argument.name}": {argument.name}' for argument in arguments)
    body = textwrap.indent("\n".join([*lines, f"return {{{result}}}"]), "    ")
    doc = "Return arguments of the shapes and strides of a recorded launch, with random contents."
    parts = [function_text(random_tensor)]
    if any(argument.values is not None for argument in tensors_among(arguments)):
        parts.append(function_text(listed_tensor))
    return "\n\n\n".join([*parts, f'def {signature}:\n    """{doc}"""\n{body}\n'.rstrip()])


def launch_call(plan: LauncherPlan, more: str = "") -> str:
    """Return the call of ``launch`` on generated inputs, with ``more`` arguments."""
    grid = "" if plan.grid else f", {plan.grid_name}={plan.launch.grid}"
    return f"launch(**arguments{grid}{more})"


def output_expression(launch: RecordedLaunch, name: str) -> tuple[str, Argument]:
    """Return the expression of an output tensor, over ``arguments``, and its description."""
    base, _, index = name.partition("[")
    argument, expression = launch.argument(base), f"arguments[{literal(base)}]"
    if argument.kind == "tuple":
        argument, expression = argument.members[int(index[:-1])], f"{expression}[{index}"
    if argument.kind == "descriptor":
        return f"{expression}.base", argument.members[0]
    return expression, argument


def tolerance_over(dtypes: Iterable[str], *, has_dot: bool = False) -> float:
    """Return the tolerance of outputs computed from these dtypes, as a share of the largest element.

    0 where none of them is floating-point.
    """
    unit = max((unit_named(dtype) for dtype in dtypes), default=0.0)
    return share_of_largest(unit, has_dot=has_dot) if unit else 0.0


def comparison_lines(tolerance: float, rounded: Collection[str] = ()) -> list[str]:
    """Return the lines of ``check`` that compare ``outputs`` with `EXPECTED`.

    Integers must be equal, except in ``rounded`` outputs: these are computed from floats, which devices round
    differently, so some may be off by one.
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
    return "outputs match those at export"'''


def _check_source(plan: LauncherPlan, expected: Sequence[OutputSummary], *, has_dot: bool) -> str:
    outputs = [output_expression(plan.launch, name)[1].dtype for name in plan.mutated]
    dtypes = [argument.dtype for argument in plan.parameters if argument.kind == "tensor"]
    # integers are exact, whatever they are computed from
    shares = [tolerance_over([dtype, *dtypes], has_dot=has_dot) if "float" in dtype else 0.0 for dtype in outputs]
    lines = [
        "def check(device, **meta):",
        '    """Launch once, with these meta-parameters; raise AssertionError if an output is wrong."""',
        "    arguments = inputs(device)",
        f"    {launch_call(plan, ', **meta')}",
    ]
    if plan.launch.check:
        lines += [
            *_reference_lines(plan),
            "    wanted = wanted if isinstance(wanted, tuple) else (wanted,)",
            f"    outputs = [{', '.join(output_expression(plan.launch, name)[0] for name in plan.mutated)}]",
            f"    shares = {shares}  # of the largest element, by which others may differ",
            *_EQUALS.splitlines(),
        ]
    elif expected:
        named = [(e.name, output_expression(plan.launch, e.name)[0]) for e in expected]
        lines += [
            f"    outputs = {{{', '.join(f'{literal(name)}: {text}' for name, text in named)}}}",
            *comparison_lines(max([*shares, tolerance_over(dtypes, has_dot=has_dot)]), _rounded_outputs(plan, dtypes)),
        ]
    else:
        lines += ['    return "runs; no expected outputs are recorded"']
    return "\n".join(lines)


def _reference_lines(plan: LauncherPlan) -> Iterator[str]:
    """Yield the lines that compute the reference, from the values of updated arguments before the launch."""
    updated = [a.name for a in plan.parameters if any(tensor.is_updated for tensor in tensors_among([a]))]
    if not updated:
        yield "    wanted = reference(**arguments)  # after the launch, so that it may name an output"
        return
    yield "    before = inputs(device)  # the launch changes what it reads of these"
    yield f"    before = {{name: before[name] for name in {updated}}}"
    yield "    wanted = reference(**{**arguments, **before})  # other outputs as they are after the launch"


def _rounded_outputs(plan: LauncherPlan, dtypes: Sequence[str]) -> list[str]:
    if not any("float" in dtype for dtype in dtypes):
        return []
    return [name for name in plan.mutated if "float" not in output_expression(plan.launch, name)[1].dtype]


_MAIN = '''\
def main():
    """Check the WHAT; measure it where there is a GPU."""
    if not torch.cuda.is_available() and not INTERPRETED:
        sys.exit("There is no GPU: set TRITON_INTERPRET=1 to check the WHAT on the CPU.")
CHECKS
    if INTERPRETED:
        print("No GPU in use: not timed.")
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
    """Return ``main`` and its call, from the lines that check and those that measure on a GPU.

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
    """Return the usage lines of a module's docstring; ``measures`` is a verb."""
    first = [refusal, ""] if refusal else [f"    TRITON_INTERPRET=1 python THIS_FILE    # checks the {what} on the CPU"]
    return ["", *first, f"    python THIS_FILE                       # checks and {measures} it on a GPU"]


def why_uninterpreted(flat: FlatModule, dtypes: Iterable[str]) -> str:
    """Return why Triton's own interpreter cannot run the functions of a module on such dtypes, or "".

    It stores bfloat16 and float8 as integers, and computes with those.
    """
    used = {name for text in flat.imports.values() for name in re.split(r"[.:]", text)}
    for index, text in flat.texts.items():
        kind = flat.closure.functions[index].kind
        tree = ast.parse(f"({text})" if kind == "lambda" else text)
        used |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)} | {kind}
    constants = re.findall(r'tl\.dtype\("(\w+)"\)', " ".join(flat.constants.values()))
    # The floats that Triton's own interpreter cannot compute.
    if any(re.fullmatch(r"bfloat16|bf16|(float|fp)8\w*", dtype) for dtype in (*used, *constants, *dtypes)):
        return _NO_ROUNDING
    reasons = {"libdevice": _NO_LIBDEVICE, "inline_asm_elementwise": _NO_ASSEMBLY, "gluon": _NO_GLUON}
    return next((reason for name, reason in reasons.items() if name in used), "")


def _main_source(plan: LauncherPlan, variants: str) -> str:
    name = plan.name
    checks = ['device = "cpu" if INTERPRETED else "cuda"', f'print("{name}", check(device))']
    if variants:
        checks += [f"for meta in {variants}:", f'    print("{name}", meta, check(device, **meta))']
    measures = [
        "arguments = inputs(device)",
        f"time_ms = triton.testing.do_bench(lambda: {launch_call(plan)})",
        "tensors = [a for a in arguments.values() if isinstance(a, torch.Tensor)]",
        "moved = sum(t.numel() * t.element_size() for t in tensors)",
        f'print(f"{name} {{time_ms * 1e3:.1f}} us, {{moved / time_ms / 1e6:.0f}} GB/s if each tensor moves once")',
    ]
    return main_text("kernel", plan.refusal, checks, measures)


def _argument_expression(argument: Argument) -> str:
    if argument.alias:
        return argument.alias
    match argument.kind:
        case "tensor":
            return _tensor_expression(argument)
        case "tuple":
            return f"({', '.join(map(_argument_expression, argument.members))},)"
        case "descriptor":
            return descriptor_text(argument, _argument_expression(argument.members[0]))
        case _:
            return scalar_text(argument)


def descriptor_text(argument: Argument, base: str) -> str:
    """Return the expression of a descriptor; one of Gluon has a layout."""
    layout = ""
    if argument.value is not None:
        fields = dict(argument.value)
        name = fields.pop("class")
        layout = f", gl.{name}({', '.join(f'{field}={literal(value)}' for field, value in fields.items())})"
    return f"TensorDescriptor.from_tensor({base}, {list(argument.block)}{layout})"


def _tensor_expression(argument: Argument) -> str:
    dtype = f"torch.{argument.dtype}"
    if argument.values is not None:
        return f"listed_tensor({list(argument.values)}, {argument.shape}, {dtype}, device)"
    low, high = bounds_of(argument)
    layout = f"{argument.shape}, {argument.stride}, {dtype}"
    return f"random_tensor({layout}, {literal(low)}, {literal(high)}, generator, device)"
