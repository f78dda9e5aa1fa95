"""Launches from binaries after the first one: the cached ones leave what an uncached one would."""

from __future__ import annotations

import dataclasses
import math
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from triton.tools.tensor_descriptor import TensorDescriptor as TritonDescriptor

import kernellab
from kernellab.export.binary_launch import argument_form, packing_of
from kernellab.export.binary_loader import BinaryKernel, Dtype, TensorDescriptor, argument_key
from tests import samples
from tests.export.binary_cases import described
from tests.export.cuda_library import CudaLibrary, use_library
from tests.export.test_binaries import added, export, loaded, mixed_arguments, run_mixed, table
from tests.labs import lab_fixture

SIZES = (8, 8, 8, 4, 8, 8)  # of the parameters of add_kernel, in bytes
lab = lab_fixture("cuda:90")


@pytest.fixture(scope="module")
def folder(lab: kernellab.Lab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("add_kernel")
    export(lab, path, samples.add_kernel, (4,), "add_kernel", **added())
    return path


def adding(folder: Path, library: CudaLibrary) -> Any:
    kernel = loaded(folder, "add_kernel").add_kernel
    use_library(kernel, library)
    return kernel


def expected(arguments: dict[str, Any]) -> list[bytes]:
    addresses = [arguments[name].data_ptr() for name in ("x_ptr", "y_ptr", "out_ptr")]
    return [
        *(struct.pack("<Q", address) for address in addresses),
        struct.pack("<i", arguments["n"]),
        bytes(8),
        bytes(8),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("is_cuda", [False, True])
def test_each_launch_has_its_own_arguments_grid_and_stream(
    folder: Path, is_cuda: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = CudaLibrary(next_sizes=SIZES, refused=("cuPointerGetAttribute",) * is_cuda)
    kernel = adding(folder, library)
    streams = iter(range(1, 9))
    kernel.driver.current_stream = lambda device: next(streams)
    monkeypatch.setattr(torch.Tensor, "is_cuda", is_cuda)
    calls = [{**added(), "n": n} for n in (1000, 1001, 40, -7)]
    for number, arguments in enumerate(calls, 1):
        kernel[(number,)](**arguments)
    assert [launch["parameters"] for launch in library.launches] == [expected(arguments) for arguments in calls]
    assert [launch["grid"][0] for launch in library.launches] == [1, 2, 3, 4]
    assert [launch["stream"] for launch in library.launches] == [1, 2, 3, 4]
    assert len(library.images) == 1


class PinnedLibrary(CudaLibrary):
    """The GPU sees memory of the host 4096 bytes further."""

    def cuPointerGetAttribute(self, value: Any, attribute: int, address: Any) -> int:  # noqa: N802 - the driver's name
        value._obj.value = address.value + 4096
        return 0


@pytest.mark.slow
def test_memory_of_the_host_is_passed_by_its_address_on_the_gpu_in_each_launch(folder: Path) -> None:
    library = PinnedLibrary(next_sizes=SIZES)
    kernel = adding(folder, library)
    calls = [added(), added()]
    for arguments in calls:
        kernel[(4,)](**arguments)
    addresses = [struct.unpack("<Q", launch["parameters"][0])[0] for launch in library.launches]
    assert addresses == [arguments["x_ptr"].data_ptr() + 4096 for arguments in calls]


@pytest.mark.slow
def test_after_a_launch_another_specialization_still_goes_to_triton(folder: Path) -> None:
    library, calls = CudaLibrary(next_sizes=SIZES), list[dict[str, Any]]()
    kernel = adding(folder, library)
    kernel.triton_kernel = {(4,): lambda **named: calls.append(named)}
    odd = torch.rand(1001)[1:]
    others: list[dict[str, Any]] = [
        {"n": 1008},
        {"n": 1},
        {"n": 2**31},
        {"n": 1000.0},
        {"x_ptr": odd},
        {"out_ptr": odd},
        {"y_ptr": torch.rand(1000, dtype=torch.float64)},
        {"BLOCK": 256.0},
        {"BLOCK": 512},
        {"num_warps": 8},
    ]
    for other in others:
        kernel[(4,)](**added())
        kernel[(4,)](**{**added(), **other})
    assert len(calls) == len(library.launches) == len(others)
    for call, other in zip(calls, others, strict=True):
        assert all(call[name] is value for name, value in other.items())


@pytest.mark.slow
def test_only_the_first_launch_of_a_specialization_looks_for_its_binary(folder: Path) -> None:
    library, asked = CudaLibrary(next_sizes=SIZES), list[int]()
    kernel = adding(folder, library)

    def target(device: int) -> str:
        asked.append(device)
        return "cuda:90"

    kernel.driver.target = target
    for n in (1000, 1001, 40):
        arguments = added(n)
        kernel[(4,)](**arguments)
        kernel[(4,)](*arguments.values())
        kernel[lambda meta: (meta["BLOCK"],)](**arguments)
    assert len(asked) == 1
    for _ in range(2):
        kernel[(4,)](**added(), num_warps=4)
        kernel[(4,)](**{**added(), "n": -5})
    assert len(asked) == 3
    assert len(library.launches) == 13


@dataclass
class MeetingLibrary(CudaLibrary):
    """Launches wait for each other before their parameters are read, where ``barrier`` is set."""

    barrier: threading.Barrier | None = None

    def cuLaunchKernelEx(self, *arguments: Any) -> int:  # noqa: N802 - the driver's name
        if self.barrier is not None:
            self.barrier.wait()
        return super().cuLaunchKernelEx(*arguments)


@pytest.mark.slow
def test_launches_at_the_same_time_share_no_parameters(folder: Path) -> None:
    library = MeetingLibrary(next_sizes=SIZES)
    kernel = adding(folder, library)
    calls = [added(n) for n in (1001, 1002, 1003)]
    kernel[(4,)](**calls[0])
    library.barrier = threading.Barrier(2, timeout=30)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda arguments: kernel[(4,)](**arguments), calls[1:]))
    assert sorted(launch["parameters"] for launch in library.launches) == sorted(map(expected, calls))


@pytest.mark.slow
def test_each_device_has_its_own_function_and_stream(folder: Path) -> None:
    library = CudaLibrary(next_sizes=SIZES)
    kernel = adding(folder, library)
    current = [0]
    kernel.driver.current_device, kernel.driver.current_stream = (lambda: current[0]), (lambda device: 10 + device)
    kernel.driver.target = lambda device: "cuda:100" if device == 2 else "cuda:90"
    calls = list[Any]()
    kernel.triton_kernel = {(4,): lambda **named: calls.append(named)}
    for device in (0, 0, 1, 1, 0, 2):
        current[0] = device
        kernel[(4,)](**added())
    assert [(launch["function"], launch["stream"]) for launch in library.launches] == [
        *((1, 10), (1, 10), (2, 11), (2, 11), (1, 10))
    ]
    assert len(calls) == 1


@dataclass
class ContextLibrary(CudaLibrary):
    """A thread has no context until one is set, and launches fail without; ``code`` is that of the others."""

    own: threading.local = field(default_factory=threading.local)
    calls: int = 0
    code: int = 0

    def cuCtxGetCurrent(self, context: Any) -> int:  # noqa: N802 - the driver's name
        context._obj.value = getattr(self.own, "context", None)
        return 0

    def cuCtxSetCurrent(self, context: Any) -> int:  # noqa: N802 - the driver's name
        self.own.context = context.value
        return 0

    def cuLaunchKernelEx(self, *arguments: Any) -> int:  # noqa: N802 - the driver's name
        self.calls += 1
        code = self.code if hasattr(self.own, "context") else 201
        return code or super().cuLaunchKernelEx(*arguments)


@pytest.mark.slow
def test_a_thread_without_a_context_gets_the_one_of_its_device(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = ContextLibrary(next_sizes=SIZES)
    kernel = adding(folder, library)
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)  # so that no address is asked of the driver
    kernel[(4,)](**added())
    with ThreadPoolExecutor(1) as pool:
        for _ in range(2):
            pool.submit(lambda: kernel[(4,)](**added())).result()
    assert (len(library.launches), library.calls) == (3, 4)


@pytest.mark.slow
def test_a_launch_that_fails_is_not_repeated_and_the_next_one_works(folder: Path) -> None:
    library = ContextLibrary(next_sizes=SIZES)
    kernel = adding(folder, library)
    kernel[(4,)](**added())
    library.code = 222
    with pytest.raises(RuntimeError, match="CUDA error in cuLaunchKernelEx: the provided PTX"):
        kernel[(4,)](**added())
    library.code = 0
    arguments = added()
    kernel[(4,)](**arguments)
    assert library.launches[-1]["parameters"] == expected(arguments)
    assert library.calls == 3


@pytest.mark.slow
def test_numbers_that_the_parameter_cannot_hold_are_those_of_c(lab: kernellab.Lab, tmp_path: Path) -> None:
    module: ModuleType = run_mixed(lab, tmp_path)
    (entry,) = table(tmp_path, "mixed")["binaries"]
    library = CudaLibrary(next_sizes=tuple(entry["parameter_bytes"]))
    use_library(module.mixed, library)
    given = {**mixed_arguments(), "DTYPE": module.Dtype("fp32"), "BLOCK": 64}
    for scale, step in ((1e300, -1), (-math.inf, 2**63 + 5), (0.1, 3)):
        module.mixed[(1,)](**{**given, "scale": scale, "step": step, "pair": (torch.rand(64), 9)})
    numbers = [(launch["parameters"][5], launch["parameters"][6]) for launch in library.launches]
    pairs = [(math.inf, -1), (-math.inf, 5 - 2**63), (0.1, 3)]
    assert numbers == [(struct.pack("<f", scale), struct.pack("<q", step)) for scale, step in pairs]
    assert {launch["parameters"][1] for launch in library.launches} == {struct.pack("<i", 9)}


@pytest.mark.slow
def test_a_tensor_map_is_encoded_once_for_each_address_and_shape(lab: kernellab.Lab, tmp_path: Path) -> None:
    bases = [torch.rand(16, 64, dtype=torch.float16) for _ in range(2)]
    arguments = {"out_ptr": torch.zeros(64), "BLOCK": 32}
    whole = [TensorDescriptor.from_tensor(base, [16, 32]) for base in bases]
    module = export(
        lab,
        tmp_path,
        described,
        (2,),
        "described",
        source=TritonDescriptor.from_tensor(bases[0], [16, 32]),
        **arguments,
    )
    (entry,) = table(tmp_path, "described")["binaries"]
    library = CudaLibrary(next_sizes=tuple(entry["parameter_bytes"]))
    use_library(module.described, library)
    half = TensorDescriptor(bases[0], [8, 64], [64, 1], [16, 32])
    filled = dataclasses.replace(half, padding="nan")
    for descriptor in (*whole, half, filled) * 2:
        module.described[(2,)](descriptor, **arguments)
    assert [(address, shape) for _, _, address, shape, *_ in library.maps] == [
        *((base.data_ptr(), (64, 16)) for base in bases),
        *((bases[0].data_ptr(), (64, 8)) for _ in range(2)),
    ]
    assert [padding for *_, padding in library.maps] == [0, 0, 0, 1]
    assert [struct.unpack("<i", launch["parameters"][1])[0] for launch in library.launches] == [16, 16, 8, 8] * 2


class Memory:
    """What has an address and a dtype without being a tensor."""

    dtype = torch.float32

    def data_ptr(self) -> int:
        return 32


BASE = torch.zeros(16, 64)
VALUES: list[Any] = [
    *(0, 1, 2, 16, 17, -1, -16, 2**31 - 1, 2**31, 2**31 + 16, 2**63, 2**63 + 16, True, False, None),
    *(0.0, -0.0, 1.0, 1.5, math.nan, "1", "fp16", Dtype("fp16"), (), (1,), (1.0,), (16, 17), (True, None)),
    *(torch.zeros(9), torch.zeros(9)[1:], torch.zeros(9, dtype=torch.int32), torch.zeros(0), Memory()),
    *(TensorDescriptor.from_tensor(BASE, [16, 32]), TensorDescriptor.from_tensor(BASE, [16, 16])),
    *(TensorDescriptor.from_tensor(BASE.half(), [16, 32]), (BASE, 1), (BASE, 2)),
]
FORMS = ("tensor", "optional", "descriptor", "integer", "typed", "plain", "annotated", "other", "constant")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("specialize", [False, True])
@pytest.mark.parametrize("align", [False, True])
def test_calls_of_one_cached_launch_have_one_specialization(form: str, specialize: bool, align: bool) -> None:
    annotation = {"typed": "i64", "annotated": "fp64"}.get(form)
    flags = {"is_constexpr": form == "constant", "specialize": specialize, "align": align, "is_const": False}
    parameters = [{"name": name, "type": annotation, **flags} for name in ("type", "b")]
    kernel = BinaryKernel("k", "", "", {}, interprets=False)
    calls = list[tuple[Any, tuple[Any, ...]]]()

    def prepare(grid: Any, call: Any, values: dict[str, Any], options: dict[str, Any]) -> None:
        calls.append((call, (*map(argument_key, values.values(), parameters),)))

    kernel.driver.current_device = lambda: 0
    vars(kernel).update(manifest={"parameters": parameters}, forms=[form, form], _prepare=prepare)
    for value in VALUES:
        for other in VALUES:
            kernel[(1,)](value, other)
    specializations: dict[Any, set[Any]] = {}
    for call, keys in calls:
        specializations.setdefault(call, set()).add(keys)
    assert len(calls) == len(VALUES) ** 2
    assert len(specializations) > 1
    assert all(len(keys) == 1 for call, keys in specializations.items() if call is not None)


def test_a_parameter_is_read_by_the_fastest_form_that_all_binaries_allow() -> None:
    flags = {"is_constexpr": False, "specialize": True, "align": True, "type": None}
    none, one = ("constexpr", "None"), ("constexpr", "1")
    pointer, number = ("*fp32", True), ("i32", False)
    rows: list[tuple[str, list[Any]]] = [
        ("tensor", [pointer, ("*fp16", False)]),
        ("optional", [pointer, none]),
        ("integer", [number, one, ("i64", True)]),
        ("plain", [("fp32", False), ("u1", False), none]),
        ("descriptor", [("tensordesc<fp16[16, 32]>", False)]),
        ("other", [pointer, number]),
        ("other", [number, none]),
        ("other", [(pointer, number)]),
        ("other", [()]),
    ]
    assert [argument_form(flags, keys) for _, keys in rows] == [form for form, _ in rows]
    assert argument_form({**flags, "type": "i64"}, [("i64", True)]) == "typed"
    assert argument_form({**flags, "type": "u1"}, [("u1", False)]) == "annotated"
    assert argument_form({**flags, "is_constexpr": True}, [one]) == "constant"


def test_an_absent_tensor_takes_no_parameter() -> None:
    binary = {"parameter_bytes": [4, 8, 8], "scratch_bytes": [0, 128]}
    keys = [("constexpr", "None"), ("i32", False)]
    packing = packing_of(binary, keys, ["bias", "n"], ["optional", "integer"])
    assert packing.expressions == ["n", "0", "_kl_scratch1.data_ptr()"]
    assert packing.offsets == [0, 8, 16]
