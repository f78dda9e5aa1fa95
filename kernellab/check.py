"""Comparing what a kernel wrote with a reference, computed in higher precision where that is possible."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from kernellab.errors import UsageError
from kernellab.report import Check, Difference

# Relative and absolute tolerance by dtype: those of torch.testing.assert_close, which allows for one rounding of the
# result; reduced-precision types get twice that, because a kernel also rounds on the way.
# https://docs.pytorch.org/docs/stable/testing.html
_TOLERANCES = {
    "torch.float64": (1e-7, 1e-7),
    "torch.float32": (1.3e-5, 1e-5),
    "torch.float16": (2e-3, 2e-3),
    "torch.bfloat16": (3.2e-2, 3.2e-2),
}
_FLOAT8 = (0.15, 0.15)
_DIFFERENCES_AT_MOST = 3
_MAP_ROWS, _MAP_COLUMNS = 24, 48
_WIDENED_ELEMENTS_AT_MOST = 1 << 28


def widened(expression: str, namespace: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the namespace with the floating-point tensors that the expression names in float64.

    None where there are none that gain by it, or too many elements.
    """
    import torch  # keeps `import kernellab` light

    names = {node.id for node in ast.walk(ast.parse(expression.strip(), mode="eval")) if isinstance(node, ast.Name)}
    narrow = {
        name: value
        for name in names
        if isinstance(value := namespace.get(name), torch.Tensor)
        and value.is_floating_point()
        and value.dtype != torch.float64
    }
    if not narrow or sum(tensor.numel() for tensor in narrow.values()) > _WIDENED_ELEMENTS_AT_MOST:
        return None
    return {**namespace, **{name: tensor.detach().double() for name, tensor in narrow.items()}}


def tolerance_of(dtype: Any) -> tuple[float, float]:
    """Return the relative and absolute tolerance of outputs of a torch dtype; integers have to agree exactly."""
    if not (dtype.is_floating_point or dtype.is_complex):
        return 0.0, 0.0
    return _TOLERANCES.get(str(dtype), _FLOAT8)


def compare(
    expression: str, reference: Any, outputs: dict[str, Any], unwritten: Mapping[str, Any] | None = None
) -> list[Check]:
    """Compare the outputs of a kernel with a reference tensor, or with a tuple of them in the order of the outputs.

    An output whose reference is None is not compared.

    ``unwritten`` holds masks of the elements that the kernel never wrote, by argument. Such an element is wrong unless
    it holds the reference's value and all of them hold the same: then the output was filled beforehand.

    Raises:
        UsageError: the reference is not one tensor per output, or a shape differs.
    """
    references = tuple(reference) if isinstance(reference, tuple | list) else (reference,)
    if len(references) != len(outputs) or all(each is None for each in references):
        names = ", ".join(outputs) or "nothing"
        raise UsageError(
            f"--check {expression!r} gives {len(references)} values and the kernel writes {names}; "
            "give one value per written argument, as a tuple in their order, None for one that is not to be compared."
        )
    return [
        _compared(expression, name, got, want, (unwritten or {}).get(name))
        for (name, got), want in zip(outputs.items(), references, strict=True)
        if want is not None
    ]


def _compared(expression: str, name: str, got: Any, want: Any, unwritten: Any) -> Check:
    import torch

    want = torch.as_tensor(want, device=got.device)
    if want.numel() != got.numel():
        raise UsageError(f"--check {expression!r} has the shape {tuple(want.shape)} and {name} has {tuple(got.shape)}.")
    relative, absolute = tolerance_of(got.dtype)
    a, b = got.detach().double().flatten(), want.detach().double().flatten()
    difference = (a - b).abs()
    # beside an infinity everything would be close
    close = (difference <= absolute + relative * b.abs()) & a.isfinite() & b.isfinite()
    same = close | (a == b) | (a.isnan() & b.isnan())
    unlike = ~same
    missing = _missing(a, unwritten)
    if missing is not None:
        same &= ~missing
    wrong = int((~same).sum())
    finite = difference[difference.isfinite()]
    largest = float(finite.max()) if finite.numel() else 0.0
    if bool((~difference.isfinite() & ~same).any()):
        largest = float("inf")
    scale = float(b[b.isfinite()].abs().max()) if bool(b.isfinite().any()) else 0.0
    return Check(
        expression=expression,
        argument=name,
        equal=wrong == 0,
        max_error=largest,
        tolerance=absolute + relative * scale,
        mismatched=wrong,
        elements=got.numel(),
        never_written=0 if missing is None else int(missing.sum()),
        differences=_differences(unlike, a, b, tuple(got.shape)),
        extent=_extent(~same, tuple(got.shape)) if wrong else (),
        heat=_heat(~same, tuple(got.shape)) if wrong else (),
        rounded_to=_rounded_to(got, want) if wrong else "",
    )


def _rounded_to(got: Any, want: Any) -> str:
    """Return the dtype of an output that holds whole numbers only beside a reference that does not, else ""."""
    rounds = not (got.dtype.is_floating_point or got.dtype.is_complex) and want.dtype.is_floating_point
    return str(got.dtype).removeprefix("torch.") if rounds else ""


def _missing(values: Any, unwritten: Any) -> Any:
    """Return the mask of elements that were not written and had not been filled with one value either."""
    if unwritten is None or not bool(unwritten.any()):
        return None
    mask = unwritten.flatten()
    held = values[mask]
    was_filled = held.numel() < values.numel() and bool((held == held[0]).all())
    return None if was_filled else mask


def _differences(wrong: Any, got: Any, want: Any, shape: tuple[int, ...]) -> tuple[Difference, ...]:
    import torch

    first = wrong.nonzero().flatten()[:_DIFFERENCES_AT_MOST]
    places = torch.stack(torch.unravel_index(first, shape), -1).tolist() if shape else [[]] * len(first)
    values = zip(places, got[first].tolist(), want[first].tolist(), strict=True)
    return tuple(Difference(tuple(place), a, b) for place, a, b in values)


def _extent(wrong: Any, shape: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Return the first and last wrong index along each dimension."""
    if not shape:
        return ()
    places = wrong.view(shape).nonzero()
    return tuple(zip(places.amin(0).tolist(), places.amax(0).tolist(), strict=True))


def _heat(wrong: Any, shape: tuple[int, ...]) -> tuple[tuple[float, ...], ...]:
    """Return the share of wrong elements in each cell of a coarse grid over a matrix; empty for other shapes."""
    import torch

    sizes = [size for size in shape if size > 1]
    if len(sizes) != 2:
        return ()
    cells = (min(sizes[0], _MAP_ROWS), min(sizes[1], _MAP_COLUMNS))
    matrix = wrong.view(1, 1, *sizes).float()
    shares = torch.nn.functional.adaptive_avg_pool2d(matrix, cells)[0, 0]
    return tuple(tuple(row) for row in shares.tolist())
