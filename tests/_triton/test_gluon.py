"""Kernels in Gluon, through all that takes kernels in Triton's language."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import triton

import kernellab
from kernellab._triton.tiles import layouts_in
from kernellab.errors import CompileError, LaunchError, UsageError
from kernellab.registry import recorded_version, remember
from kernellab.registry.launches_from_store import regenerated_inputs
from kernellab.store.columns import Status
from kernellab.views.graph import svg
from tests.labs import shared_lab

pytest.importorskip("triton.experimental.gluon")

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy

from tests._triton import gluon_kernels

load_async = getattr(async_copy, "async_load", None) or async_copy.async_copy_global_to_shared
STORE = "    gl.store(out + place, shifted(gl.load(x + place, mask=mask) + gl.load(y + place, mask=mask)), mask=mask)"
N = 1024
X, OUT = torch.rand(4, N), torch.zeros(4, N)


@gluon.jit
def shifted(value):
    return value + 1.0


@gluon.jit
def add(x, y, out, n, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
    place = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    mask = place < n
    gl.store(out + place, shifted(gl.load(x + place, mask=mask) + gl.load(y + place, mask=mask)), mask=mask)


@gluon.jit
def row_softmax(x, out, COLUMNS: gl.constexpr, LANES: gl.constexpr = 32):
    layout: gl.constexpr = gl.BlockedLayout([1], [LANES], [4], [0])
    place = gl.program_id(0) * COLUMNS + gl.arange(0, COLUMNS, layout=layout)
    values = gl.load(x + place)
    powers = gl.exp(values - gl.max(values, 0))
    gl.store(out + place, powers / gl.sum(powers, 0))


@gluon.jit
def through_shared(x, out, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    place = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    tile = gl.allocate_shared_memory(gl.float32, [BLOCK], shared)
    tile.store(gl.load(x + place))
    gl.store(out + place, tile.load(layout))


@gluon.jit
def copied_async(x, out, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    place = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    tile = gl.allocate_shared_memory(gl.float32, [BLOCK], shared)
    load_async(tile, x + place)
    async_copy.commit_group()
    async_copy.wait_group(0)
    gl.store(out + place, tile.load(layout))


@gluon.jit
def misspelt(x, BLOCK: gl.constexpr):
    gl.store(x, gl.lead(x))


@pytest.fixture
def fresh(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[kernellab.Lab]:
    with shared_lab(target=getattr(request, "param", None), store=tmp_path) as lab:
        yield lab


@pytest.mark.slow
def test_a_kernel_compiles_with_its_helper_from_ttgir_on(lab: kernellab.Lab) -> None:
    compiled = lab.compile(add, X, X, OUT, N, BLOCK=256, num_warps=8)
    assert list(compiled.stages) == ["ttgir", "llir", "ptx"]
    assert "test_gluon.py" in compiled.ttgir
    assert "STG" in compiled.sass
    assert (compiled.resources.threads, compiled.resources.fits) == (256, True)
    with pytest.raises(UsageError, match="has no ttir for cuda:90; it has ttgir"):
        _ = compiled.ttir


@pytest.mark.slow
def test_effects_and_graph_are_those_of_its_ttgir(lab: kernellab.Lab) -> None:
    call: Any = (add, X, X.clone(), OUT, N, 256)
    effects = lab.effects(*call)
    assert (effects.reads, effects.writes, effects.unknown) == ({"x", "y"}, {"out"}, ())
    stored = Path(__file__).read_text().splitlines().index(STORE) + 1
    assert {site.line for site in effects.sites} == {stored}
    assert "tt.load" in {operation.name for operation in lab.graph(*call).operations}
    assert svg(lab.graph(*call)).startswith("<svg")


@pytest.mark.parametrize("kernel", [through_shared, copied_async])
def test_shared_memory_is_counted_and_is_no_argument(lab: kernellab.Lab, kernel: Any) -> None:
    compiled = lab.compile(kernel, X, OUT, N)
    assert compiled.resources.shared_bytes == 4 * N
    effects = compiled.effects
    assert (effects.reads, effects.writes, effects.unknown) == ({"x"}, {"out"}, ())


@pytest.mark.slow
def test_it_compiles_for_amd(lab: kernellab.Lab) -> None:
    resources = lab.compile(row_softmax, X, OUT, N, 64, target="hip:gfx942").resources
    assert resources.scalar_registers
    assert resources.occupancy


def test_an_error_has_its_line(lab: kernellab.Lab) -> None:
    with pytest.raises(CompileError, match="lead") as caught:
        lab.compile(misspelt, X, 256)
    assert caught.value.place is not None
    assert caught.value.place.text is not None
    assert "gl.lead" in caught.value.place.text


def test_what_the_compiler_writes_of_a_layout_is_the_error_with_its_line(lab: kernellab.Lab) -> None:
    with pytest.raises(CompileError, match="Layout has 4 warps per CTA, but the context requires 8") as caught:
        lab.compile(through_shared, X, OUT, N, num_warps=8)
    place = caught.value.place
    assert place is not None
    assert place.text is not None
    assert "gl.arange(0, BLOCK, layout=layout)" in place.text
    assert "error: Result has an invalid layout" in caught.value.detail


def test_what_the_interpreter_cannot_run_is_said_in_a_sentence(lab: kernellab.Lab) -> None:
    with pytest.raises(LaunchError, match=r"^add is a kernel in Gluon, which Triton's interpreter does not run: "):
        lab.run(add, (4,), X, X, OUT, N, 256)
    with pytest.raises(LaunchError, match="launch it on a GPU"):
        lab.bind(add)[(4,)](X, X, OUT, N, 256)
    assert not OUT.any()


@pytest.mark.slow
def test_configs_are_compiled_by_a_tuning(lab: kernellab.Lab) -> None:
    configs = [triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in ((256, 4), (512, 8))]
    tuning = lab.tune(add, (4,), X, X, OUT, N, configs=configs)
    assert {row.status for row in tuning.rows} == {Status.NOT_TIMED}
    assert all(row.registers for row in tuning.rows)


def test_a_kept_kernel_is_in_gluon_in_the_next_session(tmp_path: Path) -> None:
    with shared_lab(store=tmp_path) as lab:
        label = lab.kernels.add(add).label
    with shared_lab(store=tmp_path) as lab:
        names: dict[str, Any] = {}
        lab.load(label, names)
        assert names["add"].is_gluon()
        assert lab.effects(names["add"], X, X, OUT, N, 256).writes == {"out"}


@pytest.mark.slow
def test_an_export_is_in_gluon(fresh: kernellab.Lab, tmp_path: Path) -> None:
    version = fresh.kernels.add(add)
    with fresh.launches.recording(run=False):
        fresh.kernels[version.label][(4,)](X, X, OUT, N, BLOCK=256)
    path = tmp_path / "exported.py"
    fresh.export(version.label, path)
    assert path.read_text().count("@gluon.jit") == 2
    exported = runpy.run_path(str(path))
    assert exported["add"].is_gluon()
    assert "tt.store" in fresh.compile(exported["add"], X, X, OUT, N, 256).ttgir


@pytest.mark.gpu
def test_it_launches_on_a_gpu() -> None:
    with kernellab.Lab() as lab:
        x, out = torch.rand(N, device="cuda"), torch.zeros(N, device="cuda")
        lab.bind(add)[(4,)](x, x, out, N, BLOCK=256)
        torch.testing.assert_close(out, x + x + 1)


tma = pytest.importorskip("triton.experimental.gluon.language.nvidia.hopper").tma
mbarrier = pytest.importorskip("triton.experimental.gluon.language.nvidia.hopper").mbarrier
copy_in = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
copy_out = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global


@gluon.jit
def copied_by_tma(source, to, SIZE: gl.constexpr):
    tile = gl.allocate_shared_memory(source.dtype, [SIZE, SIZE], source.layout)
    barrier = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(barrier, count=1)
    mbarrier.expect(barrier, source.block_type.nbytes)
    copy_in(source, [0, 0], barrier, tile)
    mbarrier.wait(barrier, phase=0)
    mbarrier.invalidate(barrier)
    copy_out(to, [0, 0], tile)
    tma.store_wait(0)


@pytest.mark.parametrize("target", ["cuda:90", "cuda:100"])
def test_copies_by_descriptors_are_reads_and_writes(lab: kernellab.Lab, target: str) -> None:
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    layout = gl.NVMMASharedLayout.get_default_for([64, 64], gl.float16)
    source, to = (TensorDescriptor.from_tensor(torch.zeros(64, 64).half(), [64, 64], layout) for _ in range(2))
    compiled = lab.compile(copied_by_tma, source, to, 64, target=target)
    effects = compiled.effects
    assert (effects.reads, effects.writes, effects.unknown) == ({"source"}, {"to"}, ())
    assert compiled.resources.shared_bytes >= 64 * 64 * 2
    assert "cp.async.bulk.tensor" in compiled.ptx


def described(rows: int, columns: int, block: list[int]) -> Any:
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    layout = gl.NVMMASharedLayout.get_default_for(block, gl.float16)
    return TensorDescriptor.from_tensor(torch.zeros(rows, columns).half(), block, layout)


def product_arguments() -> tuple[Any, ...]:
    a, b, c = described(256, 256, [128, 64]), described(256, 128, [64, 128]), described(256, 128, [128, 128])
    return a, b, c, 256, 128, 128, 64


ROWS = gl.BlockedLayout([1, 128], [32, 1], [4, 1], [0, 1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "target", "more", "instruction", "columns"),
    [
        ("wgmma_product", "cuda:90", (), "wgmma.mma_async", None),
        ("tcgen05_product", "cuda:100", (ROWS,), "tcgen05.mma", 128),
    ],
)
def test_products_on_tensor_cores_have_effects_resources_and_a_graph(
    lab: kernellab.Lab, kernel: str, target: str, more: tuple[Any, ...], instruction: str, columns: int | None
) -> None:
    compiled = lab.compile(getattr(gluon_kernels, kernel), *product_arguments(), *more, target=target)
    effects = compiled.effects
    assert (effects.reads, effects.writes, effects.unknown) == ({"a", "b"}, {"c"}, ())
    assert instruction in compiled.ptx
    assert compiled.resources.tensor_memory_columns == columns
    assert "<svg" in svg(compiled.graph)
    found = layouts_in(kernel, target, compiled.ttgir)
    assert found.values
    assert all(value.layout for value in found.values)


@pytest.mark.slow
def test_warps_that_do_different_things_are_regions_of_one_operation(lab: kernellab.Lab) -> None:
    given = (described(64, 256, [64, 64]), described(64, 256, [64, 64]), 4, 64)
    compiled = lab.compile(gluon_kernels.specialized, *given, target="cuda:90")
    effects, graph = compiled.effects, compiled.graph
    assert (effects.reads, effects.writes, effects.unknown) == ({"source"}, {"to"}, ())
    (split,) = (operation for operation in graph.operations if operation.name == "ttg.warp_specialize")
    assert len(split.regions) == 2
    entry = graph.blocks[graph.regions[split.regions[1]].blocks[0]]
    assert len(entry.arguments) == len(split.operands) >= 4
    drawing = svg(graph)
    assert "default warps" in drawing
    assert "warps of partition 0" in drawing


FILES = {"module": "module.py", "torch-op": "operator.py", "bundle": "bundle.zip"}


@pytest.mark.slow
@pytest.mark.parametrize("fresh", ["cuda:100"], indirect=True)
def test_exports_keep_the_layouts_of_arguments_and_of_descriptors(fresh: kernellab.Lab, tmp_path: Path) -> None:
    kernel = gluon_kernels.tcgen05_product
    version = fresh.kernels.add(kernel)
    with fresh.launches.recording(run=False) as recorder:
        fresh.bind(kernel)[lambda meta: (triton.cdiv(meta["K"], meta["BM"]),)](*product_arguments(), ROWS)
    for record in recorder.records.values():
        remember(fresh.kernels, kernel, record)
    paths = {kind: tmp_path / name for kind, name in FILES.items()}
    for kind, path in paths.items():
        fresh.export(version.label, path, kind=kind)
    module = runpy.run_path(str(paths["module"]))
    (launch,) = recorded_version(fresh.kernels.store, version).launches
    wanted = dict(zip("abc", product_arguments(), strict=False))
    for made in (module["inputs"]("cpu"), regenerated_inputs(launch, "cpu")):
        assert all(made[name].layout == each.layout for name, each in wanted.items())
    assert module["META"]["ROWS"] == ROWS
    assert fresh.compile(module[kernel.__name__], *product_arguments(), ROWS).resources.tensor_memory_columns == 128
    assert paths["torch-op"].read_text().count("gl.NVMMASharedLayout(") == 3
    names: dict[str, Any] = {}
    with kernellab.Lab(target="cuda:100", store=tmp_path / "other") as other:
        other.load(str(paths["bundle"]), names)
        assert other.effects(names[kernel.__name__], *product_arguments(), ROWS).writes == {"c"}
