"""What machine code keeps of the accesses of PTX."""

from __future__ import annotations

from kernellab.explain.traffic.assembler import assembled_kernel, known_zeros
from kernellab.ir.ptx import PtxInstruction, ptx_kernel

HEADER = """
.visible .entry kernel(
	.param .u64 .ptr .global .align 1 kernel_param_0
)
.reqntid 128
{
	ld.param.b64 %rd1, [kernel_param_0];
	mov.u32 %r1, %tid.x;
	shl.b32 %r2, %r1, 4;
	mov.b32 %r3, global_smem;
	add.s32 %r4, %r3, %r2;
	shl.b32 %r5, %r1, 2;
"""


def loads(body: str) -> list[PtxInstruction]:
    kernel = assembled_kernel(ptx_kernel(HEADER + body + "\n\tret;\n}\n"))
    return [each for each in kernel.instructions if each.name == "ld" and "param" not in each.parts]


def names(body: str) -> list[str]:
    return [each.opcode for each in loads(body)]


def test_a_repeated_load_is_left_out_unless_something_is_written_between() -> None:
    twice = "ld.global.b32 %r8, [%rd1];\nBETWEEN\nld.global.b32 %r9, [%rd1];\nst.global.v2.b32 [%rd1], {%r8, %r9};"
    assert len(loads(twice.replace("BETWEEN", ""))) == 1
    assert len(loads(twice.replace("BETWEEN", "st.global.b32 [%rd1+8], %r1;"))) == 2
    assert len(loads(twice.replace("BETWEEN", "bar.sync 0;"))) == 2
    assert len(loads(twice.replace("BETWEEN", "add.s64 %rd1, %rd1, 4;"))) == 2
    for kept in ("volatile.global", "relaxed.gpu.global", "acquire.gpu.global", "mmio.relaxed.sys.global"):
        assert len(loads(twice.replace("ld.global", f"ld.{kept}").replace("BETWEEN", ""))) == 2
    part = twice.replace("b32 %r8", "v4.b32 {%r8, %r11, %r12, %r13}").replace("[%rd1];\nst", "[%rd1+8];\nst")
    assert names(part.replace("BETWEEN", "")) == ["ld.global.v4.b32"]
    assert len(loads(twice.replace("b32 %r9, [%rd1]", "b32 %r9, [%rd1+4]").replace("BETWEEN", ""))) == 2


def test_neighbours_in_shared_memory_are_loaded_together() -> None:
    words = [f"ld.shared.b32 %r1{i}, [%r4+{4 * i}];" for i in range(4)]
    assert names("\n".join(words)) == ["ld.shared.v4.b32"]
    assert names("\n".join(reversed(words))) == ["ld.shared.v4.b32"]
    assert names("\n".join(words[:2])) == ["ld.shared.v2.b32"]
    assert names("\n".join(words[1:3])) == ["ld.shared.b32"] * 2
    assert names(f"{words[0]}\nbar.sync 0;\n{words[1]}") == ["ld.shared.b32"] * 2
    assert names("\n".join(words).replace("%r4", "%r5")) == ["ld.shared.b32"] * 4  # not known to be aligned


def test_the_last_loads_are_those_of_the_threads_that_store() -> None:
    tail = "bar.sync 0;\nld.shared.b32 %r8, [%r4];\nsetp.eq.b32 %p1, %r1, 0;\nMIDDLE@%p1 st.global.b32 [%rd1], %r8;"
    (load,) = loads(tail.replace("MIDDLE", ""))
    assert load.guard is not None
    assert load.guard.name == "%p1"
    (load,) = loads(tail.replace("MIDDLE", "st.global.b32 [%rd1+4], %r1;\n"))
    assert load.guard is None
    (load,) = loads(tail.replace("MIDDLE", "cvt.u64.u32 %rd1, %r8;\n"))
    assert load.guard is None


def test_alignment_is_what_the_code_tells() -> None:
    body = "and.b32 %r6, %r1, 96;\nor.b32 %r7, %r6, %r2;\nmad.lo.s32 %r8, %r1, 8, %r6;\nsub.s32 %r9, %r2, 4;\n"
    zeros = known_zeros(ptx_kernel(HEADER + body + "ret;\n}\n"))
    assert {name: zeros.get(name, 0) for name in ("%r1", "%r2", "%r4", "%r6", "%r7", "%r8", "%r9")} == {
        "%r1": 0,
        "%r2": 4,
        "%r4": 4,
        "%r6": 5,
        "%r7": 4,
        "%r8": 3,
        "%r9": 2,
    }
