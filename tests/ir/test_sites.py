"""Sites: the operation and line of each effect, and whether a mask or the control flow may switch it off."""

from __future__ import annotations

from pathlib import Path

import pytest
import triton
import triton.language as tl

from kernellab.ir.effects import Site, effects_of, union_of, with_aliases
from kernellab.ir.operations import Access
from tests.ir import kernels_access, kernels_branches, kernels_calls, kernels_descriptors, kernels_loops
from tests.ir.conftest import graphs_of, graphs_of_case
from tests.ir.expected import Case, expect

FORMS = pytest.mark.parametrize("form", [0, 1], ids=["raw", "optimised"])


@triton.jit
def stored(p, offs, n):
    tl.store(p + offs, 1.0, mask=offs < n)


@expect()
@triton.jit
def example(x, y, z, n, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    always = tl.load(x + offs)
    for i in range(n):
        tl.store(y + i + offs, always)
    stored(z, offs, n)
    for _ in range(4):
        tl.atomic_add(z + offs, always)


def line_of(text: str, file: str = __file__) -> int:
    return 1 + [line.strip() for line in Path(file).read_text().splitlines()].index(text)


def only_site(case: Case, form: int, argument: str, kind: Access) -> Site:
    sites = [
        each for each in effects_of(graphs_of_case(case)[form]).sites if (each.argument, each.kind) == (argument, kind)
    ]
    assert len(sites) == 1
    return sites[0]


@FORMS
def test_sites_name_operation_and_line(form: int) -> None:
    load = only_site(example, form, "x", Access.READ)
    assert (load.operation, load.line) == ("tt.load", line_of("always = tl.load(x + offs)"))
    store = only_site(example, form, "z", Access.WRITE)
    assert (store.operation, store.line) == ("tt.store", line_of("tl.store(p + offs, 1.0, mask=offs < n)"))
    add = only_site(example, form, "z", Access.ATOMIC)
    assert (add.operation, add.line) == ("tt.atomic_rmw", line_of("tl.atomic_add(z + offs, always)"))


@FORMS
def test_site_index_is_that_of_the_operation(form: int) -> None:
    graph = graphs_of_case(example)[form]
    assert all(graph.operations[site.index].name == site.operation for site in effects_of(graph).sites)


@FORMS
def test_access_outside_loops_is_neither_masked_nor_conditional(form: int) -> None:
    site = only_site(example, form, "x", Access.READ)
    assert (site.masked, site.conditional) == (False, False)


@FORMS
def test_access_in_a_loop_of_unknown_length_is_conditional(form: int) -> None:
    site = only_site(example, form, "y", Access.WRITE)
    assert (site.masked, site.conditional) == (False, True)


@FORMS
def test_access_in_a_loop_of_known_length_is_unconditional(form: int) -> None:
    site = only_site(example, form, "z", Access.ATOMIC)
    assert (site.masked, site.conditional) == (False, False)


@FORMS
def test_masked_access_in_a_helper_is_masked(form: int) -> None:
    site = only_site(example, form, "z", Access.WRITE)
    assert (site.masked, site.conditional) == (True, False)


@FORMS
def test_access_behind_an_early_return_is_conditional(form: int) -> None:
    site = only_site(kernels_branches.returns_early, form, "y", Access.WRITE)
    assert (site.masked, site.conditional) == (False, True)


@FORMS
def test_access_in_a_branch_is_conditional(form: int) -> None:
    site = only_site(kernels_branches.stores_in_one_branch_or_the_other, form, "y", Access.WRITE)
    assert (site.masked, site.conditional) == (False, True)


@FORMS
def test_access_in_the_condition_of_a_while_is_unconditional(form: int) -> None:
    effects = effects_of(graphs_of_case(kernels_loops.loads_in_the_condition_of_a_while)[form])
    assert not any(site.conditional for site in effects.sites if site.argument == "idx")


@FORMS
def test_call_in_a_branch_makes_accesses_of_the_helper_conditional(form: int) -> None:
    effects = effects_of(graphs_of_case(kernels_calls.calls_a_noinline_helper_in_a_branch)[form])
    assert all(site.conditional for site in effects.sites)


@FORMS
def test_helper_that_some_call_runs_always_is_unconditional(form: int) -> None:
    site = only_site(kernels_calls.calls_a_noinline_helper_that_stores, form, "y", Access.WRITE)
    assert not site.conditional


@FORMS
def test_descriptors_clip_like_a_mask(form: int) -> None:
    assert only_site(kernels_descriptors.copies_by_host_descriptors, form, "desc_x", Access.READ).masked


@FORMS
def test_mask_that_is_constant_true_is_no_mask(form: int) -> None:
    effects = effects_of(graphs_of_case(kernels_access.copies)[form])
    assert not any(site.masked for site in effects.sites)


def test_mutated_are_the_written_and_the_updated() -> None:
    effects = effects_of(graphs_of_case(example)[1])
    assert effects.mutated == {"y", "z"}
    assert effects.arguments == ("x", "y", "z")


@triton.jit
def differs_by_config(x, y, z, FIRST: tl.constexpr, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    if FIRST:
        tl.store(y + offs, tl.load(x + offs))
    else:
        tl.store(z + offs, tl.load(x + offs))


def test_union_over_configs_has_what_any_config_does() -> None:
    arguments = {name: value for name, value in example.arguments().items() if name in "xyz"}
    effects = [
        effects_of(graphs_of(differs_by_config, arguments, FIRST=first, B=size)[1])
        for first in (True, False)
        for size in (16, 32)
    ]
    together = union_of(effects)
    assert (together.reads, together.writes) == ({"x"}, {"y", "z"})
    assert len(together.sites) == 4
    assert together.arguments == ("x", "y", "z")


def test_arguments_that_are_one_tensor_are_aliases() -> None:
    arguments = kernels_access.adds_under_a_mask.arguments()
    arguments["out"] = arguments["x"]
    effects = effects_of(graphs_of(kernels_access.adds_under_a_mask.kernel, arguments)[1])
    memory = [(name, value.data_ptr()) for name, value in arguments.items() if hasattr(value, "data_ptr")]
    aliased = with_aliases(effects, memory)
    assert aliased.aliases == (frozenset({"x", "out"}),)
    assert (aliased.reads, aliased.writes) == ({"x", "y"}, {"out"})
