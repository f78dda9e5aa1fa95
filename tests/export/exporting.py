"""Exporting kernels in tests, and running the files in an interpreter that knows nothing of the lab."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import kernellab
from tests.alone import run_alone
from tests.kernels.case import Case

RUNNER = """\
import runpy, sys
for file in sys.argv[2:]:
    module = runpy.run_path(file, run_name=sys.argv[1])
    if "opcheck" in module:
        module["opcheck"]("cpu" if module["INTERPRETED"] else "cuda")
        print(file, "passes opcheck")
assert not [name for name in sys.modules if name.startswith(("kernellab", "tests"))]
"""


def export_case(lab: kernellab.Lab, case: Case, path: Path, kind: str = "module", device: str = "cpu") -> str:
    """Launch a case, write its kernel, and return the text of the file."""
    version = lab.kernels.add(case.kernel, name=case.name.replace("-", "_"))
    lab.run(case.kernel, case.grid, **case.fresh_arguments(device), **case.meta)
    lab.export(version.label, path, kind=kind)
    return path.read_text()


def run_files(*files: Path, interpret: bool = True, name: str = "__main__") -> subprocess.CompletedProcess[str]:
    """Run files one after the other, in one process without the lab."""
    if interpret:
        return run_alone(RUNNER, name, *map(str, files), folder=files[0].parent)
    environment = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "TRITON_INTERPRET"}}
    command = [sys.executable, "-c", RUNNER, name, *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True, cwd=files[0].parent, env=environment, check=False)
