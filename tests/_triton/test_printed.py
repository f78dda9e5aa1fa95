"""Reading the printed form: attributes, labels, locations of every kind."""

from __future__ import annotations

import pytest

from kernellab._triton.printed import attributes_of, read_printed
from kernellab.ir.graph import Location
from kernellab.ir.lines import LocationTable

FILE = "/home/user/kernels.py"
TABLE = LocationTable(
    {
        "#loc": f'"{FILE}":3:1',
        "#loc1": "unknown",
        "#loc2": f'"{FILE}":7:9',
        "#loc3": '"offs"(#loc2)',
        "#loc4": "callsite(#loc2 at #loc)",
        "#loc5": "callsite(#loc2 at #loc4)",
        "#loc6": "fused[#loc1, #loc3]",
        "#loc7": "callsite(#loc1 at #loc3)",
    }
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("unknown", Location()),
        ("#loc", Location(FILE, 3, 1)),
        (f'"{FILE}":4:5', Location(FILE, 4, 5)),
        (f'"{FILE}":4:5 to :9', Location(FILE, 4, 5)),
        ("#loc3", Location(FILE, 7, 9, "offs")),
        ('"name"', Location(name="name")),
        ('"p"(#loc3)', Location(FILE, 7, 9, "p")),
        ("#loc4", Location(FILE, 7, 9, None, Location(FILE, 3, 1))),
        ("#loc5", Location(FILE, 7, 9, None, Location(FILE, 7, 9, None, Location(FILE, 3, 1)))),
        ("#loc6", Location(FILE, 7, 9, "offs")),
        ("#loc7", Location(FILE, 7, 9, "offs")),
        ('fused<"why">[#loc, #loc2]', Location(FILE, 3, 1)),
        ("#loc99", Location()),
    ],
)
def test_location_is_read(text: str, expected: Location) -> None:
    assert TABLE.resolve(text) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("%0 = arith.constant 128 : i32", {"value": "128"}),
        ("%true = arith.constant true", {"value": "true"}),
        ("%c = arith.constant dense<0.0> : tensor<8xf32>", {"value": "dense<0.0>"}),
        ("%0 = arith.cmpi slt, %a, %b : i32", {"predicate": "slt"}),
        ("%0 = tt.get_program_id x : i32", {"axis": "x"}),
        ("%0 = tt.make_range {end = 8 : i32, start = 0 : i32} : t", {"end": "8 : i32", "start": "0 : i32"}),
        (
            "%0 = tt.load %p, %m cacheModifier = cg {isVolatile = true} : t",
            {"cacheModifier": "cg", "isVolatile": "true"},
        ),
        (
            "%0 = tt.atomic_rmw fadd, relaxed, gpu, %p, %v, %m : (a, b, c) -> d",
            {"atomic_rmw_op": "fadd", "sem": "relaxed", "scope": "gpu"},
        ),
        ("%0 = tt.call @mod.helper__Pfp32(%p) : (t) -> t", {"callee": "mod.helper__Pfp32"}),
        ('%0 = tt.call @"sum__(1,)cNone"(%p) : (t) -> t', {"callee": "sum__(1,)cNone"}),
        (
            r'%0 = tt.elementwise_inline_asm "{\0A ld \22x\22 \\;}" {constraints = "=r,r", pure = true} %a : t -> t',
            {"asm_string": '{\n ld "x" \\;}', "constraints": '"=r,r"', "pure": "true"},
        ),
        ('tt.print " } , {a = 1} " {hex = false} : %0 : t', {"prefix": " } , {a = 1} ", "hex": "false"}),
        ("tt.store %p, %v {boundaryCheck = array<i32: 0, 1>} : t", {"boundaryCheck": "array<i32: 0, 1>"}),
        ("%0 = tt.thing {flag, other = #x<a, b>} : t", {"flag": "unit", "other": "#x<a, b>"}),
    ],
)
def test_attributes_are_read(line: str, expected: dict[str, str]) -> None:
    (operation,) = read_printed(f"module {{\n  {line} loc(#loc)\n}}").operations
    assert dict(attributes_of(operation)) == expected


def test_regions_and_labels_are_read() -> None:
    text = """
    module {
      tt.func public @k(%x: i32) {
        %0 = scf.if %c -> (i32) {
          scf.yield %x : i32 loc(#loc)
        } else {
          scf.yield %x : i32 loc(#loc)
        } loc(#loc2)
        cf.cond_br %c, ^bb1, ^bb2(%x : i32) loc(#loc)
      ^bb1:  // pred: ^bb0
        tt.return loc(#loc)
      ^bb2(%1: i32 loc("n"(#loc))):  // pred: ^bb0
        %2 = "tt.reduce"(%0) <{axis = 0 : i32}> ({
        ^bb0(%a: f32 loc(unknown), %b: f32 loc(unknown)):
          tt.reduce.return %a : f32 loc(#loc)
        }) : (t) -> f32 loc(#loc)
        tt.return loc(#loc)
      } loc(#loc)
    } loc(#loc)
    """
    operations = read_printed(text).operations
    assert [(each.name, each.depth) for each in operations] == [
        ("tt.func", 1),
        ("scf.if", 2),
        ("scf.yield", 3),
        ("scf.yield", 3),
        ("cf.cond_br", 2),
        ("tt.return", 2),
        ("tt.reduce", 2),
        ("tt.reduce.return", 3),
        ("tt.return", 2),
    ]
    assert operations[0].labels == [["bb1", "bb2"]]
    assert operations[1].labels == [[], []]
    assert operations[4].successors == ("bb1", "bb2")
    assert operations[6].labels == [["bb0"]]
    assert dict(attributes_of(operations[6])) == {"axis": "0 : i32"}
