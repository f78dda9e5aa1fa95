"""Every kernel of tests/compile/failures.py: what its error says, where it points, and that it takes four lines."""

from __future__ import annotations

import pytest
import torch
import triton
from packaging.version import Version

import kernellab
from kernellab.advice import OF_LIBDEVICE
from kernellab.errors import CompileError
from tests.compile import failures

SAID = {
    "range_not_power_of_two": ("must be a power of 2", "next larger power of two", "tl.arange(0, 100)"),
    "range_not_constant": ("must be of type tl.constexpr", "BLOCK: tl.constexpr", "tl.arange(0, n)"),
    "shapes_do_not_broadcast": ("dimension 0 has 32 elements in one and 64", "[:, None]", "tl.store("),
    "shapes_of_operands_differ": ("dimension 0 has 32 elements in one and 64", "[:, None]", "tl.load("),
    "tensor_too_large": ("2097152 elements is too large", "a smaller block", "tl.arange(0, 2097152)"),
    "undefined_name": ("nothing_of_that_name is not defined", "pass it as an argument", "nothing_of_that_name"),
    "misspelt_function": ("triton.language has no arrange", "did you mean tl.arange?", "tl.arrange"),
    "misspelt_keyword": ("tl.load takes no msk", "did you mean mask?", "msk=n > 0"),
    "misspelt_variable": ("ofsets is not defined", "did you mean offsets?", "ofsets"),
    "method_of_torch": ("a block has no astype", "did you mean .to(dtype)?", ".astype("),
    "name_of_torch": ("triton.language has no relu", "did you mean tl.maximum(x, 0)?", "tl.relu"),
    "global_not_constexpr": ("PLAIN_GLOBAL is not a constexpr", "PLAIN_GLOBAL = tl.constexpr", "PLAIN_GLOBAL"),
    "function_of_libdevice": ("has no function tanh", "libdevice.tanh after from triton", "tl.tanh(x)"),
    "calls_plain_python": ("the global plain_function", "decorate it with @triton.jit", "plain_function"),
    "context_manager": ("open is not defined", "pass it as an argument", "open("),
    "list_comprehension": ("a dict comprehension is not supported", "blockwise", "{i: i for i in range(4)}"),
    "break_in_loop": ("break is not supported inside a kernel", "a mask takes the place of break", "break"),
    "try_statement": ("try is not supported inside a kernel", "blockwise", "try:"),
    "loads_a_value": ("tl.load got a number where it needs an address", "Pass a tensor", "tl.load(n)"),
    "multiplies_a_pointer": ("a pointer cannot be combined with int32", "Only whole numbers", "x_ptr * 2"),
    "float_offset": ("a pointer cannot be combined with float32", "Only whole numbers", "x_ptr + 1.5"),
    "dot_too_small": ("tl.dot needs blocks of at least", "larger blocks", "tl.dot(a, a)"),
    "dot_shapes_differ": ("operands of tl.dot do not fit", "Transpose", "tl.dot(a, b)"),
    "block_not_constexpr": ("must be of type tl.constexpr", "BLOCK: tl.constexpr", "tl.arange(0, BLOCK)"),
    "dtype_not_supported": ("the target has no fp8e4nv", "newer target", ".to(tl.float8e4nv)"),
    "static_assertion": ("BLOCK must be at least 64", "", "tl.static_assert"),
    "types_of_branches_differ": ("value is fp32 after the one branch", "use tl.where", "if n > 1:"),
    "loop_variable_changes_type": ("total is int32 before the loop and fp32", "0.0", "for _ in range(n)"),
    "wrong_argument_count": ("load()", "", "tl.load("),
    "mask_of_wrong_type": ("dimension 0 has 32 elements in one and 16", "[:, None]", "tl.store("),
    "returns_a_value": ("a kernel returns a value", "tl.store", "return 3"),
    "reshape_to_other_size": ("cannot change total number of elements", "as many elements", "tl.reshape("),
    "reduce_on_missing_axis": ("axis 2 does not exist: the block has 1 dimensions", "from 0", "tl.sum("),
    "condition_is_a_block": ("a block has no single truth value", "tl.where", "if tl.load("),
    "loads_none": ("this is None or a constexpr", "Pass a tensor", "tl.load(absent)"),
    "loop_until_a_block": ("a block has no single truth value", "tl.where", "while value > 0:"),
    "indexes_a_pointer": ("cannot be done with a pointer", "A pointer is not indexed", "x_ptr[1]"),
    "asserts_without_a_text": ("static_assert failed", "tl.static_assert(condition, text)", "tl.static_assert"),
    "imports_inside": ("import is not supported inside a kernel", "above the kernel", "import math"),
    "address_of_few_bits": ("an address has 64 bits", ".to(tl.int64)", "n.to(tl.pointer_type"),
    "stores_to_none": ("this is None or a constexpr", "Pass a tensor", "tl.store(None, 1.0)"),
    "stores_to_a_tuple": ("an address is expected here, and this is a tuple", "pair[0]", "tl.store((x_ptr"),
    "adds_none": ("this is None or a constexpr", "Pass a value", "x_ptr + None"),
    "takes_the_root_of_none": ("this is None or a constexpr", "Pass a value", "tl.sqrt(None)"),
    "branch_defines_a_name": ("late is not defined", "on every path", "late"),
}
FIXED_IN = {"returns_a_value": Version("3.7")}


@pytest.mark.parametrize("name", SAID)
def test_a_mistake_is_named_with_its_line_and_advice(lab: kernellab.Lab, name: str) -> None:
    if name in FIXED_IN and Version(triton.__version__) >= FIXED_IN[name]:
        pytest.skip("this Triton compiles it")
    kernel = getattr(failures, name)
    arguments = {"x_ptr": torch.zeros(64), "n": 7, "BLOCK": 32}
    given = {key: value for key, value in arguments.items() if key in kernel.arg_names}
    target = "cuda:80" if name == "dtype_not_supported" else "cuda:90"
    with pytest.raises(CompileError) as caught:
        lab.compile(kernel, **given, target=target)
    said, advice, line = SAID[name]
    what, where, source, caret = caught.value.lines()
    assert what.startswith(f"CompileError: {name} does not compile for {target}: ")
    assert said in what
    assert advice in what
    assert where.startswith(f"  {failures.__file__}, line ")
    assert line in source
    assert caret.strip() == "^"


def test_what_advice_calls_a_function_of_libdevice_is_one_and_no_function_of_triton() -> None:
    from triton.language.extra import libdevice

    for name in OF_LIBDEVICE.split("|"):
        assert hasattr(libdevice, name)
        assert not hasattr(triton.language, name)
