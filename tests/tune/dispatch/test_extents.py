"""The number of programs as a product of sizes over blocks, read off grids."""

from __future__ import annotations

from itertools import product
from math import prod

from kernellab.launch.calls import Grid3
from kernellab.timing.config import Config
from kernellab.tune.dispatch.rule import SeenGrid, Term, programs_formula
from kernellab.tune.dispatch.table import terms_of

SIZES = [{"M": 16, "N": 4096, "K": 512}, {"M": 1000, "N": 64, "K": 4096}, {"M": 777, "N": 3333, "K": 64}]
CONFIGS = [Config.of({"BM": m, "BN": n, "BK": 32}) for m, n in product((16, 64, 128), (32, 128))]


def seen(grid: object) -> list[SeenGrid]:
    found = []
    for sizes, config in product(SIZES, CONFIGS):
        extents: Grid3 = grid(sizes, config.values)  # type: ignore[operator]
        found.append(SeenGrid(sizes, config, extents))
    return found


def cdiv(size: int, block: int) -> int:
    return -(-size // block)


def programs(grid: object) -> list[int] | None:
    formula = programs_formula(seen(grid))
    if formula is None:
        return None
    return [prod(extent.value(each.sizes) for extent in formula.extents(each.config)) for each in seen(grid)]


def test_tiles_in_one_axis_are_a_product_of_sizes_over_blocks() -> None:
    grids = seen(lambda s, c: (cdiv(s["M"], c["BM"]) * cdiv(s["N"], c["BN"]), 1, 1))
    formula = programs_formula(grids)
    assert formula is not None
    assert set(formula.factors) == {("M", "BM"), ("N", "BN")}
    assert formula.sizes == {"M", "N"}


def test_axes_are_multiplied() -> None:
    def grid(s: dict[str, int], c: dict[str, int]) -> Grid3:
        return cdiv(s["M"], c["BM"]), cdiv(s["N"], c["BN"]), 4

    assert programs(grid) == [prod(each.grid) for each in seen(grid)]


def test_rows_are_programs_without_a_block() -> None:
    formula = programs_formula(seen(lambda s, c: (s["M"], 1, 1)))
    assert formula is not None
    assert formula.factors == (("M", 1),)


def test_a_persistent_kernel_has_tiles_and_a_limit() -> None:
    formula = programs_formula(seen(lambda s, c: (min(132, cdiv(s["M"], c["BM"]) * cdiv(s["N"], c["BN"])), 1, 1)))
    assert formula is not None
    assert formula.at_most == 132
    assert set(formula.factors) == {("M", "BM"), ("N", "BN")}


def test_an_axis_may_be_a_parameter_of_the_config() -> None:
    grids = seen(lambda s, c: (cdiv(s["M"], c["BM"]), c["BN"], 1))
    formula = programs_formula(grids)
    assert formula is not None
    assert set(formula.factors) == {("M", "BM"), ("", "BN")}
    assert all(formula.matches(each) for each in grids)
    assert not any(formula.matches(each) for each in seen(lambda s, c: (cdiv(s["M"], c["BM"]), 3, 1)))


def test_what_is_no_such_product_has_no_formula() -> None:
    assert programs_formula(seen(lambda s, c: (s["M"] % 7 + c["BN"], 1, 1))) is None
    assert programs_formula([]) is None


def test_a_size_that_is_odd_in_some_cases_alone_has_terms_of_its_own() -> None:
    formula = programs_formula(seen(lambda s, c: (cdiv(s["M"], c["BM"]), cdiv(s["N"], c["BN"]), 1)))
    aligned = terms_of([{"M": 16, "N": 32, "K": 64}, {"M": 48, "N": 64, "K": 32}], formula)
    mixed = terms_of([{"M": 16, "N": 32, "K": 64}, {"M": 48, "N": 77, "K": 32}], formula)
    assert not any(term.odd for term in aligned)
    assert mixed == (*aligned, Term("wave", ("K",), "N"), Term("round", ("K",), "N"))
    assert not any(term.odd for term in terms_of([{"M": 16, "N": 77, "K": 64}], formula))
