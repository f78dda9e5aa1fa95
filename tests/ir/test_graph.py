"""Reading a module: operations, values, blocks, regions, functions, locations, names."""

from __future__ import annotations

from pathlib import Path

import pytest
import triton
import triton.language as tl

from kernellab._triton.mlir import flattened_parameters
from kernellab.errors import UsageError
from kernellab.ir.effects import effects_from_json, effects_of, effects_to_json
from kernellab.ir.graph import graph_from_json, graph_to_json
from tests.alone import run_with_lab
from tests.ir import kernels_branches, kernels_calls, kernels_loops
from tests.ir.conftest import ROOT, graphs_of_case
from tests.ir.expected import TRITON, Case, all_cases, default_argument, expect
from tests.tables import every

pytestmark = pytest.mark.filterwarnings("ignore:.*make_block_ptr is deprecated.*:UserWarning")

CASES = all_cases()


@expect()
@triton.jit
def example(x, y, n, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    if n == 0:
        return
    for i in range(n):
        value = tl.load(x + offs)
        tl.store(y + i + offs, value, mask=offs < n)


LINES = {line.strip(): number for number, line in enumerate(Path(__file__).read_text().splitlines(), 1)}


@pytest.mark.parametrize("case", CASES[::6], ids=lambda case: case.name)
def test_indices_are_positions_and_references_agree(case: Case) -> None:
    for graph in graphs_of_case(case):
        for rows in (graph.operations, graph.values, graph.blocks, graph.regions):
            assert [row.index for row in rows] == list(range(len(rows)))
        for operation in graph.operations:
            assert operation.index in graph.blocks[operation.block].operations
            assert all(graph.values[result].operation == operation.index for result in operation.results)
            assert all(graph.regions[region].owner == operation.index for region in operation.regions)
            assert all(
                graph.blocks[each].region == graph.blocks[operation.block].region for each in operation.successors
            )
        for block in graph.blocks:
            assert block.index in graph.regions[block.region].blocks
            assert all(graph.values[argument].block == block.index for argument in block.arguments)


@pytest.mark.parametrize("case", CASES[::6], ids=lambda case: case.name)
def test_json_gives_the_same_graph_back(case: Case) -> None:
    for graph in graphs_of_case(case):
        text = graph_to_json(graph)
        assert graph_from_json(text) == graph
        assert graph_to_json(graph_from_json(text)) == text


@pytest.mark.slow
@pytest.mark.parametrize("case", every(5, CASES), ids=lambda case: case.name)
def test_json_gives_the_same_effects_back(case: Case) -> None:
    for graph in graphs_of_case(case):
        effects = effects_of(graph)
        assert effects_from_json(effects_to_json(effects)) == effects


def test_json_of_another_schema_is_refused() -> None:
    with pytest.raises(UsageError, match="schema 0"):
        graph_from_json('{"schema": 0}')
    with pytest.raises(UsageError, match="not a graph"):
        graph_from_json("nothing")


@pytest.mark.slow
def test_graph_is_the_same_in_another_process() -> None:
    script = (
        "from tests.ir.conftest import graphs_of_case\n"
        "from tests.ir.kernels_loops import rotates_three_pointers as case\n"
        "from kernellab.ir.graph import graph_to_json\n"
        "print(graph_to_json(graphs_of_case(case)[1]))\n"
    )
    done = run_with_lab(script, folder=ROOT)
    here = graph_to_json(graphs_of_case(kernels_loops.rotates_three_pointers)[1])
    assert done.stdout.strip() == here, done.stderr


def test_early_return_has_blocks_with_successors() -> None:
    for graph in graphs_of_case(example):
        blocks = [graph.blocks[each] for each in graph.regions[graph.kernel.region].blocks]
        branch = next(each for each in graph.operations if each.name == "cf.cond_br")
        assert len(branch.successors) == 2
        assert graph.blocks[branch.block].successors == branch.successors
        assert all(graph.blocks[each] in blocks for each in branch.successors)


def test_branch_arguments_are_values_of_the_block() -> None:
    graph = graphs_of_case(kernels_branches.returns_early_after_choosing)[0]
    assert all(graph.values[each].operation is None for block in graph.blocks for each in block.arguments)


def test_operations_know_file_line_and_variable() -> None:
    for graph in graphs_of_case(example):
        load = next(each for each in graph.operations if each.name == "tt.load")
        assert load.location.file == __file__
        assert load.location.line == LINES["value = tl.load(x + offs)"]
        assert graph.values[load.results[0]].name == "value"
        store = next(each for each in graph.operations if each.name == "tt.store")
        assert store.location.line == LINES["tl.store(y + i + offs, value, mask=offs < n)"]


def test_inlined_operation_knows_its_caller() -> None:
    graph = graphs_of_case(kernels_calls.nests_helpers)[1]
    store = next(each for each in graph.operations if each.name == "tt.store")
    lines = Path(kernels_calls.__file__).read_text().splitlines()
    assert store.location.caller is not None
    assert store.location.caller.caller is not None
    assert store.location.line is not None
    assert store.location.caller.line is not None
    assert store.location.caller.caller.line is not None
    assert lines[store.location.line - 1].strip() == "tl.store(p + offs, value)"
    assert lines[store.location.caller.line - 1].strip().startswith("store_value(sink, offs")
    assert lines[store.location.caller.caller.line - 1].strip().startswith("copy_through(x, y")


def test_values_have_shape_element_and_pointer() -> None:
    graph = graphs_of_case(example)[1]
    pointer = graph.values[graph.kernel.arguments[0]]
    assert (pointer.type, pointer.shape, pointer.element, pointer.is_pointer) == (
        "!tt.ptr<f32>",
        (),
        "!tt.ptr<f32>",
        True,
    )
    address = graph.values[next(each for each in graph.operations if each.name == "tt.load").operands[0]]
    assert (address.shape, address.element, address.is_pointer) == ((16,), "!tt.ptr<f32>", True)
    loaded = graph.values[next(each for each in graph.operations if each.name == "tt.load").results[0]]
    assert (loaded.shape, loaded.element, loaded.is_pointer) == ((16,), "f32", False)


def test_attributes_that_matter_are_kept() -> None:
    raw = graphs_of_case(kernels_calls.calls_a_noinline_helper_that_stores)[0]
    call = next(each for each in raw.operations if each.name == "tt.call")
    assert dict(call.attributes)["callee"] in {function.name for function in raw.functions}
    optimised = graphs_of_case(example)[1]
    compare = next(each for each in optimised.operations if each.name == "arith.cmpi")
    assert dict(compare.attributes)["predicate"] in {"eq", "ne", "slt", "sgt"}
    constants = [dict(each.attributes)["value"] for each in optimised.operations if each.name == "arith.constant"]
    assert "0" in constants


def test_functions_are_told_apart() -> None:
    raw, optimised = graphs_of_case(kernels_calls.nests_noinline_helpers)
    assert raw.kernel.name == optimised.kernel.name == "nests_noinline_helpers"
    assert [function.is_kernel for function in optimised.functions] == [True, False, False]
    assert [function.noinline for function in optimised.functions] == [False, True, True]


def test_signatures_are_flattened() -> None:
    signature = {"x": "*fp32", "B": "constexpr", "pair": ("*fp32", "constexpr", ("i32", "*i8")), "n": "i32"}
    assert flattened_parameters(signature) == (
        ("x", "*fp32"),
        ("pair[0]", "*fp32"),
        ("pair[2][0]", "i32"),
        ("pair[2][1]", "*i8"),
        ("n", "i32"),
    )


@pytest.mark.parametrize("target", ["cuda:80", "cuda:90", "cuda:100", "hip:gfx942"])
def test_descriptor_arguments_keep_their_name_on_every_target(target: str) -> None:
    case = next(each for each in CASES if each.name == "loads_by_descriptor_and_stores_by_pointer")
    for graph in graphs_of_case(case, target):
        names = graph.kernel.parameters
        assert names[0] == "n"
        assert names[-1] == "y"
        assert set(names[1:-2]) == {"desc_x"}
        effects = effects_of(graph)
        assert (effects.reads, effects.writes) == ({"desc_x"}, {"y"})
        assert set(effects.arguments) == {"desc_x", "y"}


def test_tuples_of_descriptors_keep_their_names_where_descriptors_become_pointers() -> None:
    case = next(each for each in CASES if each.name == "gets_descriptors_in_a_tuple")
    for graph in graphs_of_case(case, "cuda:80"):
        effects = effects_of(graph)
        assert (effects.reads, effects.writes) == ({"pair[0]"}, {"pair[1]"})


def test_default_arguments_are_fresh() -> None:
    assert default_argument("x") is not default_argument("x")
    assert TRITON >= (3, 6)
