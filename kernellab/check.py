"""Comparing what a kernel wrote with a reference."""

from __future__ import annotations

from typing import Any

from kernellab.errors import UsageError
from kernellab.report import Check

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


def compare(expression: str, reference: Any, outputs: dict[str, Any]) -> list[Check]:
    """Compare the outputs of a kernel with a reference tensor, or with a tuple of them in the order of the outputs.

    Raises:
        UsageError: the reference is not one tensor per output, or a shape differs.
    """
    references = tuple(reference) if isinstance(reference, tuple | list) else (reference,)
    if len(references) != len(outputs):
        names = ", ".join(outputs) or "nothing"
        raise UsageError(
            f"--check {expression!r} gives {len(references)} values and the kernel writes {names}; "
            "give one value per written argument, as a tuple in the order of the arguments."
        )
    return [
        _compared(expression, name, got, want) for (name, got), want in zip(outputs.items(), references, strict=True)
    ]


def _compared(expression: str, name: str, got: Any, want: Any) -> Check:
    import torch  # keeps `import kernellab` light

    want = torch.as_tensor(want, device=got.device)
    if want.numel() != got.numel():
        raise UsageError(f"--check {expression!r} has the shape {tuple(want.shape)} and {name} has {tuple(got.shape)}.")
    exact = not (got.is_floating_point() or got.is_complex())
    relative, absolute = (0.0, 0.0) if exact else _TOLERANCES.get(str(got.dtype), _FLOAT8)
    a, b = got.detach().double().flatten(), want.detach().double().flatten()
    difference = (a - b).abs()
    allowed = absolute + relative * b.abs()
    close = (difference <= allowed) & a.isfinite() & b.isfinite()  # beside an infinity everything would be close
    same = close | (a == b) | (a.isnan() & b.isnan())
    wrong = int((~same).sum())
    finite = difference[difference.isfinite()]
    largest = float(finite.max()) if finite.numel() else 0.0
    if bool((~difference.isfinite() & ~same).any()):
        largest = float("inf")
    scale = float(b[b.isfinite()].abs().max()) if bool(b.isfinite().any()) else 0.0
    return Check(expression, name, wrong == 0, largest, absolute + relative * scale, wrong, got.numel())
