"""PTX as data: what of the text is an instruction, an operand, a label, a parameter."""

from __future__ import annotations

import pytest

from kernellab.errors import UsageError
from kernellab.ir.ptx import Address, Immediate, Register, Symbol, Vector, ptx_kernel, split_operands

TEXT = """
.version 8.7
.target sm_90a
.extern .shared .align 16 .b8 global_smem[];
.shared .align 8 .b8 table[24];
.visible .entry kernel(
	.param .u64 .ptr .global .align 1 kernel_param_0,
	.param .u32 kernel_param_1,
	.param .align 64 .b8 kernel_param_2[128]
)
.reqntid 128
{
	.reg .pred 	%p<3>;
	.loc	1 7 3
	ld.param.b64 	%rd1, [kernel_param_0];
	setp.lt.s32 	%p1|%p2, %r1, -4;
	@!%p1 bra 	$L__BB0_2;
	// begin inline asm
	@%p2 ld.global.v2.b32 { %r2, %r3 }, [ %rd1 + 16 ];
	// end inline asm
	{
		.reg .pred complete;
		waitLoop:
		mbarrier.try_wait.parity.shared::cta.b64 complete, [%r5], %r6;
		@!complete bra.uni waitLoop;
	}
$L__BB0_2:
	.loc	1 8 3
	mov.b32 	%r4, 0f3F800000;
	cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd2, {%r1, %r2}], [%r3];
	ret;
}
	.file	1 "/home/kernel.py"
"""


def test_parameters_threads_and_variables_are_read() -> None:
    kernel = ptx_kernel(TEXT)
    assert kernel.name == "kernel"
    assert kernel.threads == 128
    assert [(each.size_bytes, each.is_pointer) for each in kernel.parameters] == [(8, True), (4, False), (128, False)]
    assert kernel.variables == (("global_smem", 0), ("table", 24))


def test_instructions_have_operands_guards_and_lines() -> None:
    instructions = list(ptx_kernel(TEXT).instructions)
    load, compare, branch, wide, *_ = instructions
    assert load.operands == (Register("%rd1"), Address(Symbol("kernel_param_0")))
    assert compare.operands[0] == Vector((Register("%p1"), Register("%p2")))
    assert compare.operands[2] == Immediate(-4)
    assert (branch.guard, branch.negated) == (Register("%p1"), True)
    assert wide.opcode == "ld.global.v2.b32"
    assert wide.operands == (Vector((Register("%r2"), Register("%r3"))), Address(Register("%rd1"), 16))
    assert [each.location.line for each in instructions] == [7] * 6 + [8] * 3
    assert load.location.file == "/home/kernel.py"
    assert instructions[-3].operands[1] == Immediate(0x3F800000)
    box = instructions[-2].operands[0]
    assert box == Address(Register("%rd2"), 0, (Vector((Register("%r1"), Register("%r2"))),))


def test_labels_and_branches_part_the_blocks() -> None:
    kernel = ptx_kernel(TEXT)
    assert [[each.name for each in block] for block in kernel.blocks] == [
        ["ld", "setp", "bra"],
        ["ld"],
        ["mbarrier", "bra"],
        ["mov", "cp", "ret"],
        [],
    ]
    assert kernel.labels["$L__BB0_2"] == 3


def test_names_in_braces_are_their_own() -> None:
    twice = TEXT.replace("\t.loc\t1 8 3\n", "\t{ .reg .pred complete; waitLoop: @!complete bra.uni waitLoop; }\n")
    kernel = ptx_kernel(twice)
    targets = [each.operands[0] for each in kernel.instructions if each.opcode == "bra.uni"]
    assert len(set(targets)) == 2
    assert {kernel.labels[each.name] for each in targets if isinstance(each, Register)} == {2, 3}


def test_a_label_below_its_branch_is_found_in_its_braces() -> None:
    forward = "\t{ .reg .pred done; @!done bra.uni skip; bar.sync 0; skip: bar.sync 1; }\n"
    kernel = ptx_kernel(TEXT.replace("\t.loc\t1 8 3\n", forward + forward))
    targets = [each.operands[0] for each in kernel.instructions if each.opcode == "bra.uni"][1:]
    assert [kernel.labels[each.name] for each in targets if isinstance(each, Symbol)] == [5, 7]


def test_operands_are_parted_outside_of_brackets() -> None:
    assert split_operands("{%r1, %r2}, [%rd1, {%r3, %r4}], 5") == ["{%r1, %r2}", "[%rd1, {%r3, %r4}]", "5"]


def test_text_without_a_kernel_is_refused() -> None:
    with pytest.raises(UsageError, match="no kernel"):
        ptx_kernel(".version 8.7\n.func helper() { ret; }\n")
