"""What cannot be traced or is not known is said, by the name of the operation; the rest stays exact."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernellab.errors import EffectsError
from kernellab.ir.dataflow import STRUCTURED
from kernellab.ir.effects import effects_of
from kernellab.ir.graph import Graph
from kernellab.ir.operations import FLOWS, FOREIGN_CODE, MEMORY, SILENT, TERMINATORS, Access, flow_of, foreign_accesses
from tests.ir import kernels_access, kernels_address, kernels_calls, kernels_unknown
from tests.ir.conftest import graphs_of_case
from tests.ir.expected import all_cases


def renamed(graph: Graph, old: str, new: str) -> Graph:
    """Return ``graph`` with one operation's name changed everywhere."""
    operations = tuple(replace(each, name=new) if each.name == old else each for each in graph.operations)
    return replace(graph, operations=operations)


def test_unknown_operation_is_named_with_the_arguments_that_flow_into_it() -> None:
    graph = renamed(graphs_of_case(kernels_access.copies)[1], "tt.load", "tt.load_from_the_future")
    effects = effects_of(graph)
    (unknown,) = effects.unknown
    assert (unknown.kind, unknown.operation, unknown.arguments) == (None, "tt.load_from_the_future", {"x"})
    assert "not in the tables" in unknown.reason
    assert (effects.reads, effects.writes) == (frozenset(), {"y"})


def test_unknown_operation_on_a_pointer_makes_later_accesses_unknown() -> None:
    graph = renamed(graphs_of_case(kernels_address.bumps_a_pointer_step_by_step)[0], "tt.addptr", "tt.jump")
    effects = effects_of(graph)
    assert effects.sites == ()
    assert {each.operation for each in effects.unknown} == {"tt.jump", "tt.load", "tt.store"}


def test_unknown_operation_without_addresses_blames_no_argument() -> None:
    graph = renamed(graphs_of_case(kernels_access.stores_its_program_id)[1], "tt.get_num_programs", "tt.moon_phase")
    effects = effects_of(graph)
    (unknown,) = effects.unknown
    assert (unknown.operation, unknown.arguments) == ("tt.moon_phase", frozenset())
    assert effects.writes == {"y"}


def test_call_to_a_function_without_body_is_unknown() -> None:
    graph = graphs_of_case(kernels_calls.calls_a_noinline_helper_that_stores)[1]
    calls = tuple(
        replace(each, attributes=(("callee", "elsewhere"),)) if each.name == "tt.call" else each
        for each in graph.operations
    )
    effects = effects_of(replace(graph, operations=calls))
    assert [(each.operation, each.arguments) for each in effects.unknown] == [("tt.call", {"y"})]


def test_untraceable_store_says_why_and_where() -> None:
    for graph in graphs_of_case(kernels_unknown.scrambles_an_address):
        (unknown,) = effects_of(graph).unknown
        assert (unknown.kind, unknown.operation, unknown.arguments) == (Access.WRITE, "tt.store", {"y"})
        assert "arith.shrsi" in unknown.reason
        assert unknown.line is not None


def test_address_from_memory_says_that_no_argument_names_it() -> None:
    for graph in graphs_of_case(kernels_unknown.stores_where_a_table_says):
        (unknown,) = effects_of(graph).unknown
        assert "derives from no argument" in unknown.reason


def test_address_from_memory_says_what_holds_it() -> None:
    for graph in graphs_of_case(kernels_unknown.follows_two_tables):
        effects = effects_of(graph)
        assert effects.through == {"table"}
        assert effects.reached_through(Access.READ) == {"table"}
        assert [each.is_nested for each in effects.unknown] == [False, True]
        assert (effects.reads, effects.is_followed, effects.lost) == ({"table"}, True, None)


def test_address_that_was_computed_from_memory_is_lost() -> None:
    for graph in graphs_of_case(kernels_unknown.widens_an_address_from_a_table):
        effects = effects_of(graph)
        (unknown,) = effects.unknown
        assert (unknown.through, unknown.is_lost, effects.is_followed) == (frozenset(), True, False)
        assert (
            effects.lost
            == f"the address of tt.store in line {unknown.line} cannot be followed to the memory that it is in"
        )


def test_address_that_was_computed_from_an_argument_is_not_lost() -> None:
    for graph in graphs_of_case(kernels_unknown.scrambles_an_address):
        effects = effects_of(graph)
        assert (effects.through, effects.lost) == (frozenset(), None)


def test_recursion_is_refused_by_name() -> None:
    graph = graphs_of_case(kernels_calls.nests_noinline_helpers)[1]
    inner = next(function.name for function in graph.functions if "store_one_apart" in function.name)
    outer = next(function.name for function in graph.functions if "copy_scalar_apart" in function.name)
    operations = tuple(
        replace(each, attributes=(("callee", outer),)) if ("callee", inner) in each.attributes else each
        for each in graph.operations
    )
    with pytest.raises(EffectsError, match=r"calls itself.*copy_scalar_apart") as caught:
        effects_of(replace(graph, operations=operations))
    assert caught.value.place is not None


@pytest.mark.slow
def test_every_operation_of_the_suite_stands_in_a_table() -> None:
    known = {*FLOWS, *MEMORY, *FOREIGN_CODE, *SILENT, *TERMINATORS, *STRUCTURED, "tt.call", "tt.split"}
    for case in all_cases():
        for graph in graphs_of_case(case):
            names = {operation.name for operation in graph.operations}
            assert all(name in known or flow_of(name) is not None for name in names), names - known


READ, WRITE = Access.READ, Access.WRITE


@pytest.mark.parametrize(
    ("assembly", "pure", "expected"),
    [
        ("add.f32 $0, $1, $1;", True, ()),
        ("mov.u64 $0, $1;", True, ()),
        ("{\n\tld.global.f32 $0, [$1];\n}", True, (READ,)),
        ("\nld.global.nc.v4.f32 {$0}, [$1];", True, (READ,)),
        ("st.global.f32 [$1], $2;", True, (WRITE,)),
        ("atom.global.add.f32 $0, [$1], $2;", False, (READ, WRITE)),
        ("red.global.add.f32 [$1], $2;", False, (READ, WRITE)),
        ("ld.volatile.global.f32 $0, [$1];", False, (READ,)),
        ("ld.global.f32 $0, [$1]; st.global.f32 [$1], $0;", False, (READ, WRITE)),
        ("mov.u32 $0, %clock;", False, (READ, WRITE)),
        ("cp.async.ca.shared.global [$1], [$2], 16;", True, (WRITE,)),
        ("global_load_dword $0, $1, off", True, (READ,)),
        ("global_store_dword $1, $2, off", True, (WRITE,)),
        ("buffer_atomic_add_f32 $1, $2", False, (READ, WRITE)),
        (None, True, (READ,)),
        (None, False, (READ, WRITE)),
    ],
)
def test_assembly_is_looked_through(assembly: str | None, pure: bool, expected: tuple[Access, ...]) -> None:
    assert foreign_accesses(assembly, pure=pure) == expected
