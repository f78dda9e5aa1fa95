"""Binaries for some targets with a loader, launched through a stand-in for the CUDA driver."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import struct
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

import kernellab
from kernellab._triton.specialize import parameter_flags
from kernellab.compile.types import compile_job
from kernellab.errors import UsageError
from kernellab.export import binary_driver
from kernellab.export.binaries import BinaryVariant, argument_keys, kernel_files
from kernellab.export.binary_loader import argument_key
from kernellab.registry import recorded_version
from kernellab.target import parse_target
from tests import samples
from tests.export.binary_cases import described, staged
from tests.export.cuda_library import CudaLibrary, use_library
from tests.labs import lab_fixture
from tests.tune.dispatch.test_exporting import of_rows


@triton.heuristics({"EVEN": lambda arguments: triton.cdiv(arguments["n"], 2) * 2 == arguments["n"]})
@triton.jit
def mixed(pair, flag, x_ptr, n, scale, step: tl.int64, DTYPE: tl.constexpr, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n).to(DTYPE) * scale + tl.load(pair[0] + offsets * step)
    if flag and EVEN:
        x += pair[1]
    tl.store(x_ptr + offsets, x, mask=offsets < n)


lab = lab_fixture("cuda:90")


def loaded(folder: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"{folder.name}_{name}", folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def export(lab: kernellab.Lab, folder: Path, kernel: Any, grid: Any, name: str, **more: Any) -> ModuleType:
    """Launch a kernel once, export its binaries, and load them."""
    options = {key: more.pop(key) for key in ("targets",) if key in more}
    version = lab.kernels.add(kernel, name=name)
    lab.run(kernel, grid, **more)
    lab.export(version.label, folder, kind="binaries", **options)
    return loaded(folder, name)


def table(folder: Path, name: str) -> dict[str, Any]:
    return dict(json.loads((folder / f"{name}.json").read_text()))


def added(n: int = 1000) -> dict[str, Any]:
    return {"x_ptr": torch.rand(n), "y_ptr": torch.rand(n), "out_ptr": torch.zeros(n), "n": n, "BLOCK": 256}


def mixed_arguments() -> dict[str, Any]:
    x = torch.rand(64)
    return {
        "pair": (torch.rand(64), 5),
        "flag": True,
        "x_ptr": x,
        "n": 64,
        "scale": 0.5,
        "step": 1,
        "DTYPE": tl.float32,
    }


def run_mixed(lab: kernellab.Lab, folder: Path) -> ModuleType:
    return export(lab, folder, mixed, (1,), "mixed", **mixed_arguments(), BLOCK=64)


@pytest.mark.slow
def test_the_folder_has_a_cubin_for_each_target_with_its_digest_and_launch_parameters(
    lab: kernellab.Lab, tmp_path: Path
) -> None:
    export(lab, tmp_path, samples.add_kernel, (4,), "add_kernel", targets=("cuda:80", "cuda:90"), **added())
    entries = table(tmp_path, "add_kernel")["binaries"]
    assert [entry["target"] for entry in entries] == ["cuda:80", "cuda:90"]
    for entry in entries:
        image = (tmp_path / entry["file"]).read_bytes()
        assert image.startswith(b"\x7fELF")
        assert hashlib.sha256(image).hexdigest() == entry["sha256"]
        assert entry["arguments"][0] == ["*fp32", True]
        assert entry["arguments"][3:] == [["i32", False], ["constexpr", "256"]]
        assert (entry["symbol"], entry["num_warps"], entry["parameter_bytes"]) == ("add_kernel", 4, [8, 8, 8, 4, 8, 8])
    text = (tmp_path / "add_kernel.py").read_text()
    assert "kernellab" not in text.replace("Exported by kernellab", "")
    assert "libdevice" not in (tmp_path / "add_kernel.json").read_text()


@pytest.mark.slow
def test_arguments_are_packed_as_the_kernel_takes_them(lab: kernellab.Lab, tmp_path: Path) -> None:
    module = run_mixed(lab, tmp_path)
    (entry,) = table(tmp_path, "mixed")["binaries"]
    library = CudaLibrary(next_sizes=tuple(entry["parameter_bytes"]))
    use_library(module.mixed, library)
    given = {**mixed_arguments(), "DTYPE": module.Dtype("fp32")}
    module.mixed[lambda meta: (meta["n"] // meta["BLOCK"], 2)](**given, BLOCK=64)
    (launch,) = library.launches
    assert (launch["grid"], launch["block"], launch["stream"]) == ((1, 2, 1), (128, 1, 1), 7)
    addresses = [struct.pack("<Q", tensor.data_ptr()) for tensor in (given["pair"][0], given["x_ptr"])]
    first, x = addresses
    assert launch["parameters"] == [
        *(first, struct.pack("<i", 5), b"\1", x, struct.pack("<i", 64), struct.pack("<f", 0.5), struct.pack("<q", 1)),
        *(bytes(8), bytes(8)),  # scratch that it does not use
    ]
    assert library.images == [(tmp_path / entry["file"]).read_bytes()]


@pytest.mark.slow
def test_a_binary_is_loaded_once_and_an_empty_grid_launches_nothing(lab: kernellab.Lab, tmp_path: Path) -> None:
    module = export(lab, tmp_path, samples.add_kernel, (4,), "add_kernel", **added())
    library = CudaLibrary(next_sizes=(8, 8, 8, 4, 8, 8))
    use_library(module.add_kernel, library)
    for grid in ((4,), 4, (4, 0)):
        module.add_kernel[grid](**added())
    assert [launch["grid"] for launch in library.launches] == [(4, 1, 1), (4, 1, 1)]
    assert library.symbols == [b"add_kernel"]


@pytest.mark.slow
def test_what_the_folder_lacks_goes_to_triton(lab: kernellab.Lab, tmp_path: Path) -> None:
    module = export(lab, tmp_path, samples.add_kernel, (4,), "add_kernel", **added())
    library, calls = CudaLibrary(next_sizes=(8, 8, 8, 4, 8, 8)), list[Any]()
    use_library(module.add_kernel, library)
    module.add_kernel.triton_kernel = {(4,): lambda **named: calls.append(named)}
    module.add_kernel[(4,)](**added(1008))  # 16 divides it
    module.add_kernel[(4,)](**{**added(), "x_ptr": torch.rand(1001)[1:]})
    module.add_kernel[(4,)](**added(), num_warps=8)
    module.add_kernel.driver.target = lambda device: "cuda:100"
    module.add_kernel[(4,)](**added())
    assert len(calls) == 4
    assert calls[2]["num_warps"] == 8
    assert not library.launches
    use_library(module.add_kernel, library)
    module.add_kernel[(4,)](**added(), num_warps=4, num_stages=3)  # the defaults
    assert (len(calls), len(library.launches)) == (4, 1)


@pytest.mark.slow
def test_a_changed_file_another_triton_and_a_refusal_of_the_driver_are_named(
    lab: kernellab.Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = export(lab, tmp_path, samples.add_kernel, (4,), "add_kernel", **added())
    use_library(module.add_kernel, CudaLibrary(refused=("cuModuleLoadData",)))
    with pytest.raises(RuntimeError, match="CUDA error in cuModuleLoadData: the provided PTX was compiled"):
        module.launch(*list(added().values())[:2], 1000, grid=(4,))
    cubin = next(tmp_path.glob("*.cubin"))
    content = cubin.read_bytes()
    cubin.write_bytes(content[:-1])
    with pytest.raises(RuntimeError, match=r"\.cubin is not the file that add_kernel was exported with"):
        _ = loaded(tmp_path, "add_kernel").add_kernel.manifest
    cubin.unlink()
    with pytest.raises(RuntimeError, match=r"\.cubin, a file of the exported add_kernel, cannot be read"):
        _ = loaded(tmp_path, "add_kernel").add_kernel.manifest
    cubin.write_bytes(content)
    monkeypatch.setattr(triton, "__version__", "3.4.1")
    again = loaded(tmp_path, "add_kernel").add_kernel
    with pytest.raises(RuntimeError, match=r"Triton 3\.4\.1 is installed"):
        _ = again.manifest
    again.accepted.add("3.4.1")
    assert again.manifest["kernel"] == "add_kernel"


def variants_of(
    lab: kernellab.Lab, folder: Path, kernel: Any, options: list[dict[str, Any]], **more: Any
) -> ModuleType:
    """Export the binaries of a kernel with each of several options, and load them."""
    name = kernel.__name__
    version = lab.kernels.add(kernel, name=name)
    lab.run(kernel, (1,), **more)
    recorded = recorded_version(lab.kernels.store, lab.kernels.version(version.label))
    jobs = [compile_job(kernel, parse_target("cuda:90"), (), {**more, **own}) for own in options]
    variants = [BinaryVariant(job, own) for job, own in zip(jobs, options, strict=True)]
    for file, content in kernel_files(recorded, kernel, variants, lab.compiler).files.items():
        (folder / file).write_bytes(content)
    return loaded(folder, name)


@pytest.mark.slow
def test_clusters_cooperative_grids_and_dependent_launches_are_asked_of_the_driver(
    lab: kernellab.Lab, tmp_path: Path
) -> None:
    options = {"num_ctas": 2, "launch_pdl": True, "launch_cooperative_grid": True}
    module = variants_of(lab, tmp_path, samples.add_kernel, [options, {"num_ctas": 16}], **added())
    library = CudaLibrary(next_sizes=(8, 8, 8, 4, 8, 8))
    use_library(module.add_kernel, library)
    module.add_kernel[(3,)](**added(), **options)
    module.add_kernel[(3,)](**added(), num_ctas=16)
    clustered, largest = library.launches
    assert clustered["grid"] == (6, 1, 1)
    assert [number for number, *_ in clustered["attributes"]] == [6, 2, 4, 5]
    assert [attribute[1:] for attribute in largest["attributes"]] == [(16, 1, 1), (1, 0, 0)]
    assert library.attributes == [(14, 1)]  # a cluster that is not portable


@pytest.mark.slow
def test_more_than_48_kilobytes_of_shared_memory_are_asked_of_the_driver(lab: kernellab.Lab, tmp_path: Path) -> None:
    arguments = {"a_ptr": torch.rand(128, 512, dtype=torch.float16), "out_ptr": torch.zeros(128, 128), "BLOCK": 128}
    module = variants_of(lab, tmp_path, staged, [{}], **arguments)
    library = CudaLibrary()
    use_library(module.staged, library)
    module.staged[(1,)](**arguments)
    assert library.launches[0]["shared_bytes"] > 48 << 10
    assert library.attributes == [(8, (227 << 10) - 1024)]


@pytest.mark.slow
def test_a_descriptor_becomes_a_tensor_map_or_its_parts(lab: kernellab.Lab, tmp_path: Path) -> None:
    base = torch.rand(16, 64, dtype=torch.float16)
    arguments = {"source": TensorDescriptor.from_tensor(base, [16, 32]), "out_ptr": torch.zeros(64), "BLOCK": 32}
    module = export(lab, tmp_path, described, (2,), "described", targets=("cuda:80", "cuda:90"), **arguments)
    own = module.TensorDescriptor.from_tensor(base, [16, 32])
    entries = {entry["target"]: entry for entry in table(tmp_path, "described")["binaries"]}
    for target, entry in entries.items():
        library = CudaLibrary(next_sizes=tuple(entry["parameter_bytes"]))
        use_library(module.described, library, target)
        module.described[(2,)](own, arguments["out_ptr"], 32)
        module.described[(2,)](**arguments)  # Triton's own class
        first, second = library.launches
        assert first["parameters"] == second["parameters"]
        if target == "cuda:80":
            layout = [struct.pack("<q", number) for number in (16, 64, 64, 1)]
            assert first["parameters"][:5] == [struct.pack("<Q", base.data_ptr()), *layout]
        else:
            kind, rank, address, shape, steps, box, *_ = library.maps[0]
            assert (kind, rank, address) == (6, 2, base.data_ptr())
            assert (shape, steps[0], box) == ((64, 16), 128, (32, 16))
            assert first["parameters"][0] == b"\xff" * 10 + b"\xdf" + b"\xff" * 117


@pytest.mark.slow
def test_a_dispatch_launches_the_config_of_its_sizes_and_further_sizes_get_binaries(
    lab: kernellab.Lab, tmp_path: Path
) -> None:
    exported = of_rows(exporter=lab.export).export(tmp_path, kind="binaries", sizes=[{"M": 4, "N": 250}])
    assert exported.kind == "binaries"
    entries = table(tmp_path, "scale_rows")["binaries"]
    columns = [(entry["arguments"][4][1], entry["arguments"][5][1]) for entry in entries]
    assert sorted(set(columns)) == sorted((n, block) for n in ("128", "512", "250") for block in ("64", "256"))
    module = loaded(tmp_path, "scale_rows")
    library = CudaLibrary(next_sizes=(8, 8, 4, 4, 8, 8))
    use_library(module.scale_rows, library)
    module.launch(torch.rand(4, 512), 2.0, 4, 512)
    module.launch(torch.rand(8, 512), 2.0, 8, 512)
    assert [launch["block"][0] for launch in library.launches] == [256, 128]
    with pytest.raises(UsageError, match="expected values of M, N"):
        of_rows(exporter=lab.export).export(tmp_path, kind="binaries", sizes=[{"M": 4}])
    with pytest.raises(UsageError, match="are those of kind='binaries'"):
        of_rows(exporter=lab.export).export(tmp_path / "rows.py", targets=["cuda:80"])


WITHOUT_TRITON = """\
import sys
sys.modules |= {"triton": None, "kernellab": None}  # whose import raises ImportError
sys.path[:0] = sys.argv[1:]
import torch, mixed
from cuda_library import CudaLibrary, use_library
library = CudaLibrary(next_sizes=tuple(mixed.mixed.manifest["binaries"][0]["parameter_bytes"]))
use_library(mixed.mixed, library)
x, y = torch.rand(64), torch.rand(64)
mixed.launch((y, 5), True, x, 64, 0.5, 1, grid=(1,))
print(len(library.launches), [name for name, module in sys.modules.items() if module and name.startswith("triton")])
try:
    mixed.launch((y, 5), True, x, 63, 0.5, 1, grid=(1,))
except RuntimeError as exc:
    print(exc)
"""


@pytest.mark.slow
def test_a_process_without_triton_launches_binaries_and_says_what_is_missing(
    lab: kernellab.Lab, tmp_path: Path
) -> None:
    run_mixed(lab, tmp_path)
    command = [sys.executable, "-I", "-c", WITHOUT_TRITON, str(tmp_path), str(Path(__file__).parent)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    first, second = result.stdout.splitlines()
    assert first == "1 []"
    assert second.startswith("mixed has no binary for cuda:90 with pair: (*fp32 divisible by 16, i32), flag: u1")
    assert "n: i32," in second
    assert "Triton is not installed" in second


@triton.jit(do_not_specialize=["free"], do_not_specialize_on_alignment=["loose"])
def many(a, b: tl.const, c, free, loose, wide: tl.int64, real: tl.float64, pair, K: tl.constexpr, L: tl.constexpr):
    pass


VALUES: list[Any] = [0, 1, 16, 17, -16, 2**31, 2**63, True, 1.5, None, torch.zeros(9), torch.zeros(9)[1:]]
CONSTANTS: list[Any] = [1, 1.0, True, None, "text", tl.float16, (1, 2.0), tl.constexpr(4)]


@pytest.mark.parametrize("number", range(len(VALUES)))
def test_the_keys_of_a_launch_are_those_of_tritons_specialization(number: int) -> None:
    value, other = VALUES[number], VALUES[(number + 5) % len(VALUES)]
    size = value if type(value) is int and value < 2**63 else 3
    first = {"a": value, "b": torch.zeros(3, dtype=torch.bfloat16), "c": other, "free": value, "loose": other}
    constants = {"K": CONSTANTS[number % len(CONSTANTS)], "L": CONSTANTS[(number + 3) % len(CONSTANTS)]}
    arguments = {**first, "wide": size, "real": 2.0, "pair": (value, other, 7), **constants}
    job = compile_job(many, parse_target("cuda:90"), (), arguments)
    flags = parameter_flags(many)
    keys = [argument_key(arguments[parameter["name"]], parameter) for parameter in flags]
    assert json.dumps(keys) == json.dumps(argument_keys(job))


def test_what_the_loader_cannot_launch_is_refused(lab: kernellab.Lab, tmp_path: Path) -> None:
    version = lab.kernels.add(samples.add_kernel, name="add_again")
    lab.run(samples.add_kernel, (4,), **added())
    with pytest.raises(UsageError, match="cubins, which hip:gfx942 does not run"):
        lab.export(version.label, tmp_path, kind="binaries", targets=("hip:gfx942",))
    with pytest.raises(UsageError, match="targets= are those of kind='binaries'"):
        lab.export(version.label, tmp_path / "a.py", targets=("cuda:80",))
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="is a file; binaries need a folder"):
        lab.export(version.label, tmp_path / "file", kind="binaries")


HEADER_NAMES = {
    "_MAX_DYNAMIC_SHARED": "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES",
    "_STATIC_SHARED": "CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES",
    "_NON_PORTABLE_CLUSTER": "CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED",
    "_SHARED_OPTIN": "CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
    "_DEVICE_POINTER": "CU_POINTER_ATTRIBUTE_DEVICE_POINTER",
    "_COOPERATIVE": "CU_LAUNCH_ATTRIBUTE_COOPERATIVE",
    "_CLUSTER_DIMENSION": "CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION",
    "_CLUSTER_POLICY": "CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE",
    "_PROGRAMMATIC": "CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION",
    "_SPREAD": "CU_CLUSTER_SCHEDULING_POLICY_SPREAD",
    "_PREFER_SHARED": "CU_FUNC_CACHE_PREFER_SHARED",
}


def test_the_numbers_of_the_driver_are_those_of_its_header() -> None:
    header = Path(triton.__file__).parent / "backends/nvidia/include/cuda.h"
    numbers = dict(re.findall(r"\b(CU_\w+)\s*=\s*(0x\w+|\d+)", header.read_text()))
    for name, of_header in HEADER_NAMES.items():
        assert getattr(binary_driver, name) == int(numbers[of_header], 0), name
