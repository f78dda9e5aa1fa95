"""Where the lines of each stage come from."""

from __future__ import annotations

from kernellab.ir.graph import Location, calls_of
from kernellab.ir.instructions import hint_of_ptx
from kernellab.ir.lines import StageLine, stage_lines

LIBRARY = "/site-packages/triton/language/standard.py"


def placed(lines: tuple[StageLine, ...]) -> dict[str, tuple[str | None, int | None]]:
    return {line.text.strip(): (line.place.file, line.place.line) for line in lines if line.text.strip()}


def calling(lines: tuple[StageLine, ...]) -> dict[str, list[int | None]]:
    """Return the lines that called each line, from the inside out."""
    return {line.text.strip(): [call.line for call in calls_of(line.place)] for line in lines if line.text.strip()}


def test_ptx_lines_inlined_from_the_library_belong_to_the_caller() -> None:
    text = f"""
.visible .entry k(
{{
\t.loc\t1 7 0                           // In[5]:7:0
\tmov.u32 \t%r1, %ctaid.x;
\t.loc\t2 216 16, function_name $L__info_string0, inlined_at 1 9 3 // standard.py:216:16
$L__tmp3:
\tshfl.sync.bfly.b32 \t%r2, %r1, 16, 31, -1;
\t.loc\t2 196 12, function_name $L__info_string0, inlined_at 2 216 16 // standard.py:196:12
\tmax.f32 \t%r3, %r2, %r1;
}}
\t.file\t1 "In[5]"
\t.file\t2 "{LIBRARY}"
\t.section\t.debug_abbrev
\t{{
.b8 1
"""
    found = placed(stage_lines("ptx", text))
    assert found["mov.u32 \t%r1, %ctaid.x;"] == ("In[5]", 7)
    assert found["shfl.sync.bfly.b32 \t%r2, %r1, 16, 31, -1;"] == ("In[5]", 9)
    assert found["max.f32 \t%r3, %r2, %r1;"] == ("In[5]", 9)
    assert not [line for line in found if ".loc" in line or ".b8" in line or "tmp3" in line]


def test_amd_lines_inlined_from_the_library_belong_to_the_caller() -> None:
    text = f"""
\t.file\t1 "/home" "kernels.py"
\t.loc\t1 13 0                          ; kernels.py:13:0
\ts_load_dword s0, s[4:5], 0x0
\t.file\t2 "{LIBRARY.rpartition("/")[0]}" "standard.py"
\t.loc\t2 196 12                        ; standard.py:196:12 @[ standard.py:216:16 @[ kernels.py:18:32 ] ]
\tv_max_f32_e32 v1, v1, v2
"""
    found = placed(stage_lines("amdgcn", text))
    assert found["s_load_dword s0, s[4:5], 0x0"] == ("/home/kernels.py", 13)
    assert found["v_max_f32_e32 v1, v1, v2"] == ("/home/kernels.py", 18)


def test_llvm_lines_follow_the_debug_metadata() -> None:
    text = f"""
define ptx_kernel void @k() !dbg !4 {{
  %1 = add i32 1, 2, !dbg !10
  %2 = add i32 %1, 2, !dbg !11
}}
!1 = !DIFile(filename: "kernels.py", directory: "/home")
!2 = !DIFile(filename: "standard.py", directory: "{LIBRARY.rpartition("/")[0]}")
!4 = distinct !DISubprogram(name: "k", scope: !1, file: !1, line: 3, unit: !0)
!5 = distinct !DILexicalBlockFile(scope: !4, file: !2, discriminator: 0)
!10 = !DILocation(line: 7, column: 3, scope: !4)
!11 = !DILocation(line: 216, column: 16, scope: !5, inlinedAt: !10)
"""
    found = placed(stage_lines("llir", text))
    assert found["%1 = add i32 1, 2"] == ("/home/kernels.py", 7)
    assert found["%2 = add i32 %1, 2"] == ("/home/kernels.py", 7)
    assert not [line for line in found if line.startswith("!")]


def test_sass_lines_of_the_library_claim_no_line() -> None:
    text = f"""
\t//## File "In[5]", line 7
        /*0000*/                   LDC R1, c[0x0][0x28] ;
\t//## File "{LIBRARY}", line 216
        /*0010*/                   SHFL.BFLY PT, R13, R12, 0x2, 0x1f ;
"""
    found = placed(stage_lines("sass", text))
    assert found["/*0000*/                   LDC R1, c[0x0][0x28] ;"] == ("In[5]", 7)
    assert found["/*0010*/                   SHFL.BFLY PT, R13, R12, 0x2, 0x1f ;"] == (None, None)


def test_a_name_a_call_and_fused_places_of_mlir_give_the_innermost_line() -> None:
    text = """#loc = loc("In[5]":3:0)
module {
  tt.func public @k(%x: !tt.ptr<f32> loc("x"(#loc))) {
    %0 = tt.get_program_id x : i32 loc(#loc4)
    %offs = arith.addi %0, %0 : i32 loc(#loc5)
    %y = arith.muli %0, %0 : i32 loc(#loc6)
    tt.return loc(#loc7)
  } loc(#loc)
} loc(#loc)
#loc1 = loc("In[5]":7:12)
#loc2 = loc("helpers.py":40:3)
#loc4 = loc(callsite(#loc2 at #loc1))
#loc5 = loc("offs"(#loc1))
#loc6 = loc(fused[#loc1, #loc2])
#loc7 = loc(unknown)
"""
    lines = stage_lines("ttir", text)
    found = placed(lines)
    assert found["%0 = tt.get_program_id x : i32"] == ("helpers.py", 40)
    assert calling(lines)["%0 = tt.get_program_id x : i32"] == [7]
    assert found["%offs = arith.addi %0, %0 : i32"] == ("In[5]", 7)
    assert found["%y = arith.muli %0, %0 : i32"] == ("In[5]", 7)
    assert found["tt.return"] == (None, None)
    assert "tt.func public @k(%x: !tt.ptr<f32>) {" in found


def test_two_calls_of_one_helper_in_ptx_are_told_apart() -> None:
    text = f"""
\t.loc\t2 216 16, function_name $L__info_string0, inlined_at 1 9 3
\tmov.u32 \t%r1, 1;
\t.loc\t2 196 12, function_name $L__info_string0, inlined_at 2 216 16
\tmov.u32 \t%r2, 2;
\t.loc\t2 216 16, function_name $L__info_string0, inlined_at 1 12 3
\tmov.u32 \t%r3, 3;
\t.loc\t2 196 12, function_name $L__info_string0, inlined_at 2 216 16
\tmov.u32 \t%r4, 4;
\t.file\t1 "In[5]"
\t.file\t2 "{LIBRARY}"
"""
    found = placed(stage_lines("ptx", text))
    assert [found[f"mov.u32 \t%r{n}, {n};"][1] for n in (1, 2, 3, 4)] == [9, 9, 12, 12]


def test_a_users_helper_keeps_its_own_line_and_tells_the_call() -> None:
    text = """
\t.loc\t1 15 24, function_name $L__info_string0, inlined_at 1 37 22 // k.py:15:24
\tshl.b32 \t%r72, %r71, 3;
\t.file\t1 "/home/k.py"
"""
    lines = stage_lines("ptx", text)
    assert placed(lines)["shl.b32 \t%r72, %r71, 3;"] == ("/home/k.py", 15)
    assert calling(lines)["shl.b32 \t%r72, %r71, 3;"] == [37]


def test_comments_of_ptx_tell_the_calls_where_its_attributes_do_not() -> None:
    text = f"""
\t.loc\t2 170 27                        // standard.py:170:27 @[ standard.py:191:40 @[ k.py:18:38 ] ]
\tadd.f32 \t%f1, %f2, %f3;
\t.file\t1 "/home/k.py"
\t.file\t2 "{LIBRARY}"
"""
    assert placed(stage_lines("ptx", text))["add.f32 \t%f1, %f2, %f3;"] == ("/home/k.py", 18)


def test_line_zero_is_no_line() -> None:
    text = '\t.loc\t1 0 45\n\tmov.u32 \t%r1, 1;\n\t.file\t1 "k.py"\n'
    assert placed(stage_lines("ptx", text))["mov.u32 \t%r1, 1;"] == (None, None)


def test_sass_follows_the_calls_that_nvdisasm_tells() -> None:
    text = f"""
\t//## File "{LIBRARY}", line 196 inlined at "{LIBRARY}", line 216
\t//## File "{LIBRARY}", line 216 inlined at "/home/k.py", line 18
\t//## File "/home/k.py", line 18
        /*0010*/                   FADD R1, R2, R3 ;
\t//## File "/home/k.py", line 20
        /*0020*/                   EXIT ;
"""
    found = placed(stage_lines("sass", text))
    assert found["/*0010*/                   FADD R1, R2, R3 ;"] == ("/home/k.py", 18)
    assert found["/*0020*/                   EXIT ;"] == ("/home/k.py", 20)


def test_sass_without_calls_takes_them_from_ptx_where_they_are_certain() -> None:
    ptx = f"""
\t.loc\t2 196 12                        // standard.py:196:12 @[ k.py:18:32 ]
\tadd.f32 \t%f1, %f2, %f3;
\t.loc\t2 300 12                        // standard.py:300:12 @[ k.py:18:32 ]
\tmul.f32 \t%f1, %f2, %f3;
\t.loc\t2 300 12                        // standard.py:300:12 @[ k.py:21:32 ]
\tmul.f32 \t%f1, %f2, %f3;
\t.file\t1 "/home/k.py"
\t.file\t2 "{LIBRARY}"
"""
    sass = f"""
\t//## File "{LIBRARY}", line 196
        /*0010*/                   FADD R1, R2, R3 ;
\t//## File "{LIBRARY}", line 300
        /*0020*/                   FMUL R1, R2, R3 ;
"""
    found = placed(stage_lines("sass", sass, hint_of_ptx(ptx)))
    assert found["/*0010*/                   FADD R1, R2, R3 ;"] == ("/home/k.py", 18)
    assert found["/*0020*/                   FMUL R1, R2, R3 ;"] == (None, None)


def test_what_is_no_stage_has_lines_without_places() -> None:
    assert stage_lines("source", "a\nb") == (StageLine("a", Location()), StageLine("b", Location()))


INLINE = """
\t.loc\t1 10 9
\t// begin inline asm
\t.loc\t1 10 9
\tmov.u32 %r1, 0x0;
\t.loc\t1 11 9
\tmov.u32 %r2, 0x0;
\t.loc\t1 12 9
\t@%p1 ld.global.v2.b32 { %r1, %r2 }, [ %rd1 + 0 ];
\t// end inline asm
\tadd.s32 \t%r9, %r1, %r2;
\t.loc\t1 12 5
\tmul.lo.s32 \t%r8, %r1, %r2;
\t.loc\t1 13 5
\tsub.s32 \t%r7, %r1, %r2;
\t.file\t1 "k.py"
"""


def test_inline_assembly_of_several_lines_stands_on_one_source_line() -> None:
    found = placed(stage_lines("ptx", INLINE))
    assert found["mov.u32 %r2, 0x0;"] == ("k.py", 10)
    assert found["@%p1 ld.global.v2.b32 { %r1, %r2 }, [ %rd1 + 0 ];"] == ("k.py", 10)
    assert found["add.s32 \t%r9, %r1, %r2;"] == ("k.py", 10)
    assert found["mul.lo.s32 \t%r8, %r1, %r2;"] == ("k.py", 12)


def test_sass_of_inline_assembly_goes_to_the_line_that_ptx_knows() -> None:
    sass = """
\t//## File "k.py", line 12
        /*0010*/                   LDG.E.64 R2, desc[UR4][R2.64] ;
        /*0020*/                   IMAD R8, R2, R3, RZ ;
\t//## File "k.py", line 11
        /*0030*/                   MOV R2, RZ ;
\t//## File "k.py", line 13
        /*0040*/                   IADD3 R7, R2, -R3, RZ ;
"""
    found = [line.place.line for line in stage_lines("sass", sass, hint_of_ptx(INLINE)) if "/*00" in line.text]
    assert found == [10, 12, 10, 13]


def test_a_kind_that_ptx_has_on_one_line_only_is_of_that_line_in_sass() -> None:
    ptx = """
\t.loc\t1 44 5
\tadd.s32 %r1, %r1, 1;
\t.loc\t1 47 9
\twgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%r1}, %rd1, %rd2, %p1, 1, 1, 0, 1;
\t.file\t1 "k.py"
"""
    sass = """
\t//## File "k.py", line 44
        /*0010*/                   HGMMA.64x64x16.F32 R24, gdesc[UR4], R24, gsb0 ;
        /*0020*/                   VIADD R1, R1, 0x1 ;
"""
    found = [line.place.line for line in stage_lines("sass", sass, hint_of_ptx(ptx)) if "/*00" in line.text]
    assert found == [47, 44]
