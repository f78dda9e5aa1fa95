from __future__ import annotations

from collections.abc import Callable

from kernellab.ir.graph import Location
from kernellab.ir.lines import StageLine, stage_lines
from kernellab.report import KernelReport
from kernellab.views.card import card_html
from kernellab.views.places import SourceText
from kernellab.views.stage_table import stage_table
from tests.views.reports import cell_of

Reports = Callable[..., KernelReport]
LIBRARY = "/site-packages/triton/language/standard.py"


def placed(lines: tuple[StageLine, ...]) -> dict[str, tuple[str | None, int | None]]:
    return {line.text.strip(): (line.place.file, line.place.line) for line in lines if line.text.strip()}


def test_ttir_loses_its_locations_and_keeps_the_lines(report: Reports) -> None:
    kernel = report("softmax")
    lines = stage_lines("ttir", kernel.compiled.ttir)
    assert not [line for line in lines if "loc(" in line.text or line.text.startswith("#loc")]
    own = {line.place.line for line in lines if line.place.file == kernel.file}
    written = {
        kernel.first_line + index
        for index, text in enumerate(kernel.source.splitlines())
        if "tl.load" in text or "tl.sum" in text or "tl.store" in text
    }
    assert written <= own


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


def test_numbers_stand_beside_their_lines_though_html_drops_a_newline() -> None:
    lines = (StageLine("", Location()), StageLine("mov", Location("In[5]", 7)), StageLine("add", Location("x.py", 2)))
    html = stage_table(lines, SourceText("In[5]", {7: "x = <1>"}))
    left, right = (part.split(">", 1)[1] for part in html.split("</pre>")[:2])
    assert left.split(">")[-1].split("\n") == ["", "", "7", "x.py:2"]
    assert right.count("\n") == 3
    assert 'title="line 7: x = &lt;1&gt;"' in right


def test_the_card_shows_the_stage_with_source_lines(report: Reports) -> None:
    kernel = report("add")
    html = card_html(cell_of(kernel, show="ttir"), graphs=False)
    stage = html[html.index("TTIR") :]
    assert "tt.func" in stage
    assert "loc(" not in stage
    number = next(kernel.first_line + at for at, text in enumerate(kernel.source.splitlines()) if "tl.store(" in text)
    assert f'title="line {number}: tl.store(' in stage
