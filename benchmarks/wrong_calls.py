"""Random wrong calls of the public verbs and magics, counted: python benchmarks/wrong_calls.py [COUNT] [SEED]."""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import torch
import triton

import kernellab

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests import samples
from tests.launch.wrong_calls import Outcome, outcomes, outcomes_of_magics


def counted(what: str, found: Iterable[Outcome]) -> str:
    """Return how many calls were fine, told what is wrong, or failed raw, which are printed."""
    kinds: Counter[str] = Counter()
    for each in found:
        kinds[each.kind] += 1
        if each.kind == "raw":
            print(each.call, each.trace, sep="\n", file=sys.stderr)
    return f"{what}: {kinds.total()} calls, {kinds['told']} told, {kinds['fine']} fine after all, {kinds['raw']} raw"


def main() -> None:
    """Print the counts."""
    from IPython.core.interactiveshell import InteractiveShell

    warnings.simplefilter("ignore")
    count, seed = (int(argument) for argument in (*sys.argv[1:], "1000", "1")[:2])
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ["KERNELLAB_STORE"] = f"{folder}/store"
        shell = InteractiveShell.instance()
        shell.run_line_magic("load_ext", "kernellab")
        lab = kernellab.current_lab()
        bound = lab.bind(samples.add_kernel)
        shell.user_ns.update(x=torch.rand(64), torch=torch, triton=triton, add_kernel=bound)
        lab.kernels.add(bound)
        print(counted("verbs", outcomes(lab, Path(folder), count, seed)))
        print(counted("magics", outcomes_of_magics(shell, count, seed)))
        shell.run_line_magic("unload_ext", "kernellab")
        os.chdir(Path(__file__).parent)


if __name__ == "__main__":
    main()
