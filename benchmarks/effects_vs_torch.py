"""PyTorch's analysis of Triton kernels beside ours, on the suite of kernels with known effects.

PyTorch tells tensors that are read and tensors that are written, and knows no "unknown"; where its analysis fails it
reports every tensor. What is compared is therefore the set of tensors that a kernel may change. An answer is

- exact: the set is right; for a kernel that stores where no argument points, it says that it does not know;
- loose: it names tensors that are never changed (or says that it does not know, of a kernel that is known);
- unsafe: it leaves out a tensor that is changed, or is silent about a store to an unknown address;
- failed: it raised.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver
from triton.tools.tensor_descriptor import TensorDescriptor

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
RESULT = ROOT / "benchmarks" / "results" / "effects_vs_torch.txt"
OUTCOMES = ("exact", "loose", "unsafe", "failed")


class OfflineDriver:
    """What PyTorch's analysis asks of a driver."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int | None = None) -> int:
        return 0


def torch_answer(case: Any) -> frozenset[str]:
    """Return the parameters whose tensors PyTorch reports as written, tuple members under their tuple's name.

    A host descriptor goes in as PyTorch takes it: its tensor, and its block shape beside.
    """
    from torch._higher_order_ops.triton_kernel_wrap import identify_accessed_tensors

    from tests.ir.expected import unwrapped

    function = unwrapped(case.kernel)
    given = {**defaults(function), **case.arguments(), **case.constants()}
    descriptors = {name: value for name, value in given.items() if isinstance(value, TensorDescriptor)}
    blocks = {name: ("stable", (value.block_shape,)) for name, value in descriptors.items()}
    given.update({name: value.base for name, value in descriptors.items()})
    accessed = identify_accessed_tensors(function, given, blocks).read_writes
    return frozenset(each.name for each in accessed.writes)


def defaults(function: Any) -> dict[str, Any]:
    return {each.name: each.default for each in function.params if each.has_default}


def outcome(answer: Callable[[], tuple[frozenset[str], bool]], changed: frozenset[str], unknown: bool) -> str:
    """Judge an answer: the changed tensors, and whether it says that there may be others."""
    try:
        found, open_ended = answer()
    except Exception as error:
        logging.getLogger(__name__).debug("failed", exc_info=error)
        return "failed"
    if (changed - found or unknown) and not open_ended:
        return "unsafe"
    return "exact" if found == changed and open_ended == unknown else "loose"


def judged(case: Any) -> Iterator[str]:
    """Yield the outcome of our analysis and of PyTorch's."""
    from kernellab.ir.effects import effects_of
    from tests.ir.conftest import graphs_of_case

    changed = frozenset(name for kind, name in case.facts if kind != "read")
    unknown = bool(case.unknown - {"tt.load"})

    def ours() -> tuple[frozenset[str], bool]:
        effects = effects_of(graphs_of_case(case)[1])
        return effects.mutated, any(each.kind != "read" for each in effects.unknown)

    def theirs() -> tuple[frozenset[str], bool]:
        return torch_answer(case), False

    by_parameter = frozenset(name.partition("[")[0] for name in changed)
    yield outcome(ours, changed, unknown)
    yield outcome(theirs, by_parameter, unknown)


def main() -> None:
    from tests.ir.expected import all_cases

    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    driver.set_active(OfflineDriver())
    cases = all_cases()
    rows = [(case.name, *judged(case)) for case in cases]
    counts = [Counter(row[position] for row in rows) for position in (1, 2)]
    text = f"{len(cases)} kernels; Triton {triton.__version__}, PyTorch {torch.__version__}\n\n"
    text += f"{'':8}{'ours':>9}{'PyTorch':>9}\n"
    text += "".join(f"{name:8}{counts[0][name]:9}{counts[1][name]:9}\n" for name in OUTCOMES)
    text += "\nwhere they differ, or neither is exact:\n"
    text += "".join(
        f"{name:56}{ours:>8}{theirs:>9}\n" for name, ours, theirs in rows if (ours, theirs) != ("exact", "exact")
    )
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(text, encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
