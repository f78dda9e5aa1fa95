"""What single instructions are: their width, their unit, and lines that are no instruction."""

from __future__ import annotations

import pytest

from kernellab.ir.graph import Location
from kernellab.ir.instructions import InstructionKind, instruction_of, profiles_of
from kernellab.ir.lines import StageLine

PTX = [
    ("\t@%p1 ld.global.v4.b32 { %r1, %r2, %r3, %r4 }, [ %rd1 + 0 ];", InstructionKind.LOAD, 16),
    ("\tld.global.b16 %rs1, [%rd1];", InstructionKind.LOAD, 2),
    ("\tld.global.L1::evict_first.v2.b64 { %rd1, %rd2 }, [ %rd3 ];", InstructionKind.LOAD, 16),
    ("\tld.global.nc.v8.b32 { %r1 }, [ %rd3 ];", InstructionKind.LOAD, 32),
    ("\t@!%p3 st.global.b32 [ %rd4 + 0 ], { %r5 };", InstructionKind.STORE, 4),
    ("\tcp.async.cg.shared.global [ %r1 + 0 ], [ %rd2 + 0 ], 0x10, %r3;", InstructionKind.ASYNC_COPY, 16),
    ("\t@%p2 cp.async.ca.shared.global [ %r1 + 0 ], [ %rd2 + 0 ], 0x4;", InstructionKind.ASYNC_COPY, 4),
    ("\tcp.async.commit_group;", InstructionKind.OTHER, 0),
    (
        "\t@%p1 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier [%r1], [%rd1, {%r2, %r3}], [%r4];",
        InstructionKind.BULK_COPY,
        0,
    ),
    ("\tcp.async.bulk.wait_group.read 0;", InstructionKind.OTHER, 0),
    ("\tbar.sync \t0;", InstructionKind.BARRIER, 0),
    ("\tld.local.b32 %r1, [%rd1+4];", InstructionKind.SPILL, 0),
    ("\tst.local.v2.b32 [%rd1], {%r1, %r2};", InstructionKind.SPILL, 0),
    ("\tld.param.b64 \t%rd1, [k_param_0];", InstructionKind.OTHER, 0),
    ("\tld.shared.v4.b32 {%r1, %r2, %r3, %r4}, [%r5];", InstructionKind.SHARED, 0),
    ("\tatom.global.gpu.acq_rel.add.f32 %f1, [%rd1], %f2;", InstructionKind.ATOMIC, 0),
    ("\tred.global.add.f32 [%rd1], %f2;", InstructionKind.ATOMIC, 0),
    ("\tredux.sync.add.s32 %r1, %r2, -1;", InstructionKind.OTHER, 0),
]
SASS = [
    ("        /*0150*/                   LDG.E.128 R4, desc[UR4][R2.64] ;", InstructionKind.LOAD, 16),
    ("        /*0150*/              @!P0 LDG.E.U16 R4, desc[UR4][R2.64] ;", InstructionKind.LOAD, 2),
    ("        /*0150*/                   LDG.E R4, desc[UR4][R2.64] ;", InstructionKind.LOAD, 4),
    ("        /*0150*/                   STG.E.64 desc[UR4][R2.64], R4 ;", InstructionKind.STORE, 8),
    (
        "        /*0150*/                   LDGSTS.E.BYPASS.LTC128B.128 [R5], desc[UR4][R2.64] ;",
        InstructionKind.ASYNC_COPY,
        16,
    ),
    ("        /*0150*/                   LDGSTS.E [R5], desc[UR4][R2.64], P1 ;", InstructionKind.ASYNC_COPY, 4),
    ("        /*0150*/                   UTMALDG.2D [UR8], [UR4] ;", InstructionKind.BULK_COPY, 0),
    ("        /*0150*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;", InstructionKind.BARRIER, 0),
    ("        /*0150*/                   STL.64 [R1+0x8], R4 ;", InstructionKind.SPILL, 0),
    ("        /*0150*/                   LDL.LU R4, [R1+0x8] ;", InstructionKind.SPILL, 0),
    (
        "        /*0150*/                   ATOMG.E.ADD.STRONG.GPU PT, R4, desc[UR4][R2.64], R5 ;",
        InstructionKind.ATOMIC,
        0,
    ),
    ("        /*0150*/                   REDUX.SUM UR4, R5 ;", InstructionKind.OTHER, 0),
    ("        /*0150*/                   HFMA2.MMA R5, -RZ, RZ, 0, 0 ;", InstructionKind.OTHER, 0),
]
AMD = [
    ("\tglobal_load_dwordx4 v[0:3], v4, s[0:1]", InstructionKind.LOAD, 16),
    ("\tbuffer_load_ushort v0, v1, s[0:3], 0 offen", InstructionKind.LOAD, 2),
    ("\tglobal_load_b128 v[0:3], v4, s[0:1]", InstructionKind.LOAD, 16),
    ("\tbuffer_store_short v0, v1, s[0:3], 0 offen", InstructionKind.STORE, 2),
    ("\tglobal_store_byte v0, v1, s[0:1]", InstructionKind.STORE, 1),
    ("\tbuffer_store_dwordx2 v[0:1], v2, s[0:3], 0 offen", InstructionKind.STORE, 8),
    ("\tbuffer_load_dword v1, s[0:3], 0 offen lds", InstructionKind.ASYNC_COPY, 4),
    ("\tscratch_store_dword off, v1, s32", InstructionKind.SPILL, 0),
    ("\tbuffer_load_dword v1, off, s[0:3], 0 offset:4 ; 4-byte Folded Reload", InstructionKind.SPILL, 0),
    ("\ts_barrier", InstructionKind.BARRIER, 0),
    ("\tds_read_b128 v[0:3], v4", InstructionKind.SHARED, 0),
    ("\tglobal_atomic_add_f32 v0, v1, s[0:1]", InstructionKind.ATOMIC, 0),
    ("\ts_load_dwordx4 s[0:3], s[4:5], 0x0", InstructionKind.OTHER, 0),
]
LLVM = [
    ("  %5 = load <4 x i32>, ptr addrspace(1) %4, align 16", InstructionKind.LOAD, 16),
    ("  store float %5, ptr addrspace(1) %4, align 4", InstructionKind.STORE, 4),
    ("  store <8 x half> %5, ptr addrspace(3) %4, align 16", InstructionKind.SHARED, 0),
    (
        '  %6 = tail call i32 asm sideeffect "mov.u32 $0, 0x0;\\0A\\09@$2 ld.global.b32 { $0 }, [ $1 ];"',
        InstructionKind.LOAD,
        4,
    ),
    (
        "  %80 = tail call <4 x i32> @llvm.amdgcn.raw.ptr.buffer.load.v4i32(ptr addrspace(8) %77)",
        InstructionKind.LOAD,
        16,
    ),
    ("  tail call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)", InstructionKind.BARRIER, 0),
    ("  %7 = add i32 %3, 127", InstructionKind.OTHER, 0),
]
ALL = [
    (stage, *case) for stage, cases in (("ptx", PTX), ("sass", SASS), ("amdgcn", AMD), ("llir", LLVM)) for case in cases
]

UNITS = [
    ("ptx", "\twgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {%r1}, %rd1, %rd2, %p1, 1, 1, 0, 1;", "wgmma"),
    ("ptx", "\tmma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 { %r1 }, { %r2 }, { %r3 }, { %r4 };", "mma"),
    ("ptx", "\t@%p1 tcgen05.mma.cta_group::1.kind::f16 [ %r1 + 0 ], %rd1, %rd2, %r2, %p2;", "tcgen05"),
    ("sass", "        /*0150*/                   HGMMA.64x128x16.F32 R24, gdesc[UR4], R24, gsb0 ;", "wgmma"),
    ("sass", "        /*0150*/                   HMMA.16816.F32 R4, R8, R12, R4 ;", "mma"),
    ("sass", "        /*0150*/                   UTCHMMA gdesc[UR4], gdesc[UR6], tmem[UR8], tmem[UR10] ;", "tcgen05"),
    ("amdgcn", "\tv_mfma_f32_32x32x8_f16 a[0:15], v[0:1], v[2:3], a[0:15]", "mfma"),
    ("amdgcn", "\tv_wmma_f32_16x16x16_f16 v[0:7], v[8:15], v[16:23], v[0:7]", "wmma"),
    ("llir", "  %9 = tail call <16 x float> @llvm.amdgcn.mfma.f32.32x32x8f16(<4 x half> %1)", "mfma"),
    ("ttgir", "    %9 = ttng.warp_group_dot %a, %b, %c : !ttg.memdesc<128x64xf16, #shared, #smem>", "wgmma"),
]

NO_INSTRUCTIONS = [
    ("ptx", "\t.reg .b32 \t%r<5>;"),
    ("ptx", "$L__BB0_2:"),
    ("ptx", "// %bb.0:"),
    ("ptx", "{"),
    ("sass", ".L_x_3:"),
    ("sass", "\t.align\t128"),
    ("amdgcn", "\t.p2align\t8"),
    ("amdgcn", "; %bb.12:"),
    ("amdgcn", "matmul_kernel:                          ; @matmul_kernel"),
    ("llir", "define ptx_kernel void @k(ptr addrspace(1) %0) {"),
    ("llir", "}"),
    ("ttir", "module {"),
    ("ttir", "  }"),
]


@pytest.mark.parametrize(("stage", "line", "kind", "size"), ALL)
def test_an_instruction_has_its_kind_and_width(stage: str, line: str, kind: InstructionKind, size: int) -> None:
    instruction = instruction_of(stage, line)
    assert instruction is not None
    assert (instruction.kind, instruction.bytes) == (kind, size)


@pytest.mark.parametrize(("stage", "line", "unit"), UNITS)
def test_an_instruction_of_a_tensor_core_names_its_unit(stage: str, line: str, unit: str) -> None:
    instruction = instruction_of(stage, line)
    assert instruction is not None
    assert (instruction.kind, instruction.unit) == (InstructionKind.TENSOR, unit)


@pytest.mark.parametrize(("stage", "line"), NO_INSTRUCTIONS)
def test_labels_directives_and_comments_are_no_instructions(stage: str, line: str) -> None:
    assert instruction_of(stage, line) is None


def test_instructions_are_counted_by_source_line() -> None:
    first, second = Location("k.py", 7, 3), Location("k.py", 7, 9)
    lines = [
        StageLine("\tld.global.b32 %r1, [%rd1];", first),
        StageLine("\tld.global.b32 %r2, [%rd1];", second),
        StageLine("\tadd.s32 %r3, %r1, %r2;", Location("k.py", 8)),
        StageLine("$L__BB0_2:", Location("k.py", 8)),
        StageLine("\tret;", Location()),
    ]
    found = profiles_of("ptx", lines)
    assert {key: profile.instructions for key, profile in found.items()} == {
        ("k.py", 7): 2,
        ("k.py", 8): 1,
        (None, None): 1,
    }
    assert found["k.py", 7].count(InstructionKind.LOAD) == 2
    assert found["k.py", 8].notable == ()
