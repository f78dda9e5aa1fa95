from __future__ import annotations

import json
import linecache
import types
from typing import Any

import pytest
import triton
import triton.language as tl

from kernellab import source
from kernellab._triton.closure import closure_of
from kernellab._triton.kernel import definition
from kernellab.errors import SourceError
from kernellab.source import Constant, Constexpr, FunctionRef, Import, Members, Opaque
from tests import samples


def bindings(closure: source.Closure, name: str) -> dict[str, Any]:
    return dict(next(f for f in closure.functions if f.name == name).bindings)


def defined(text: str, file: str, **names: object) -> Any:
    """Return the namespace of ``text``, executed as if it stood in ``file``."""
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {"triton": triton, "tl": tl, "__name__": "__main__", **names}
    exec(compile(text, file, "exec"), namespace)
    return types.SimpleNamespace(**{k: v for k, v in namespace.items() if not k.startswith("__")})


KERNEL = """\
@triton.jit
def kernel(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), G)
"""


def test_helpers_and_constexprs_come_along() -> None:
    closure, _ = closure_of(samples.scale_kernel)
    assert [f.name for f in closure.functions] == ["scale_kernel", "scaled"]
    assert bindings(closure, "scale_kernel")["scaled"] == FunctionRef(1)
    assert bindings(closure, "scale_kernel")["SCALE"] == Constexpr(Constant(3))


def test_a_global_that_only_a_default_names_comes_along() -> None:
    closure, _ = closure_of(samples.scale_kernel)
    assert bindings(closure, "scaled")["SCALE"] == Constexpr(Constant(3))


def test_a_global_that_only_annotates_a_local_variable_comes_along() -> None:
    text = "@triton.jit\ndef least(width):\n    if width:\n        low: tl.constexpr = -1\n    return width\n"
    closure, _ = closure_of(defined(text, "least.py").least)
    assert bindings(closure, "least") == {"tl": Import("triton.language")}


def test_a_global_shadowed_by_a_local_variable_stays_behind() -> None:
    closure, _ = closure_of(samples.add_kernel)
    assert "x" not in bindings(closure, "add_kernel")


def test_a_module_named_in_an_annotation_is_not_imported() -> None:
    closure, _ = closure_of(samples.scale_kernel)
    assert bindings(closure, "scale_kernel")["torch"] == Members("torch", ())
    assert bindings(closure, "scale_kernel")["tl"] == Import("triton.language")


def test_kernels_of_a_factory_differ_by_their_helper() -> None:
    doubled, _ = closure_of(samples.kernel_of(samples.doubled))
    squared, _ = closure_of(samples.kernel_of(samples.squared))
    assert doubled.functions[0].text == squared.functions[0].text
    assert doubled.digest != squared.digest


def test_a_function_passed_as_argument_comes_along() -> None:
    closure, (binding,) = closure_of(samples.apply_kernel, (samples.doubled,))
    assert binding == FunctionRef(1)
    assert closure.functions[1].name == "doubled"


def test_the_text_starts_at_def_and_knows_its_line() -> None:
    closure, _ = closure_of(samples.tuned_kernel)
    entry = closure.functions[0]
    assert entry.text.startswith("def tuned_kernel(")
    assert linecache.getline(samples.__file__, entry.first_line).startswith("def tuned_kernel(")
    assert closure.decorators.startswith("@triton.autotune(")


def test_the_digest_changes_with_a_constant_and_not_with_the_position() -> None:
    at_top = closure_of(defined(KERNEL, "In[1]", G=tl.constexpr(1)).kernel)[0]
    lower = closure_of(defined("\n\n" + KERNEL, "In[2]", G=tl.constexpr(1)).kernel)[0]
    other = closure_of(defined(KERNEL, "In[3]", G=tl.constexpr(2)).kernel)[0]
    assert at_top.digest == lower.digest
    assert at_top.compile_digest != lower.compile_digest
    assert at_top.digest != other.digest


def test_running_a_cell_again_under_another_number_changes_no_digest() -> None:
    first = closure_of(defined(KERNEL, "In[11]", G=tl.constexpr(1)).kernel)[0]
    again = closure_of(defined(KERNEL, "In[12]", G=tl.constexpr(1)).kernel)[0]
    assert first.compile_digest == again.compile_digest
    assert first.label(first.functions[0].file) == "In[11]"
    assert again.label(again.functions[0].file) == "In[12]"


def test_helpers_of_one_name_from_two_cells_keep_their_own_lines() -> None:
    inner = defined("@triton.jit\ndef helper(v):\n    return v + 1\n", "In[21]").helper
    outer = defined("\n\n@triton.jit\ndef helper(v):\n    return inner(v) * 2\n", "In[22]", inner=inner).helper
    closure, _ = closure_of(outer)
    places = {(closure.label(f.file), f.first_line) for f in closure.functions}
    assert places == {("In[21]", 2), ("In[22]", 4)}


def test_the_source_is_that_of_the_definition_though_the_cell_has_changed() -> None:
    kernel = defined(KERNEL, "In[31]", G=tl.constexpr(1)).kernel
    linecache.cache["In[31]"] = (4, None, ["1/0\n"], "In[31]")
    assert closure_of(kernel)[0].functions[0].text.startswith("def kernel(")


def test_a_value_that_cannot_travel_is_named_by_its_type() -> None:
    kernel = defined(KERNEL, "In[41]", G=object()).kernel
    assert bindings(closure_of(kernel)[0], "kernel")["G"] == Opaque("builtins.object")


def test_a_jit_function_of_an_installed_package_is_imported() -> None:
    text = "@triton.jit\ndef kernel(x_ptr):\n    tl.store(x_ptr, helper(1, 2))\n"
    closure, _ = closure_of(defined(text, "In[51]", helper=tl.cdiv).kernel)
    binding = bindings(closure, "kernel")["helper"]
    assert (binding.module, binding.attribute) == ("triton.language.standard", "cdiv")


def test_recursion_ends() -> None:
    text = "@triton.jit\ndef kernel(x_ptr):\n    kernel(x_ptr)\n"
    closure, _ = closure_of(defined(text, "In[61]").kernel)
    assert bindings(closure, "kernel")["kernel"] == FunctionRef(0)


def test_a_function_without_source_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(SourceError, match="define it in a cell or in a file"):
        definition(len)


@pytest.mark.parametrize("kernel", [samples.scale_kernel, samples.tuned_kernel, samples.kernel_of(samples.doubled)])
def test_a_closure_survives_json(kernel: Any) -> None:
    closure, _ = closure_of(kernel)
    text = json.dumps(source.closure_to_jsonable(closure))
    again = source.closure_of_json(json.loads(text))
    assert again == closure
    assert again.compile_digest == closure.compile_digest


PLAIN = [1, 1.5, float("inf"), "a", b"b", None, True, (1, (2, "c")), [1], {"k": (1.25, None)}]


@pytest.mark.parametrize("value", PLAIN)
def test_plain_values_survive_json_with_their_types(value: object) -> None:
    again = source.from_jsonable(json.loads(json.dumps(source.jsonable(value))))
    assert again == value
    assert type(again) is type(value)


def test_lambdas_of_constants_on_one_line_are_told_apart() -> None:
    first, second, third = lambda meta: (132,), lambda meta, k=3: (64, 2), lambda meta: "n"
    texts = [source.lambda_definition(function)[0] for function in (first, second, third)]
    assert texts == ["lambda meta: (132,)", "lambda meta, k=3: (64, 2)", 'lambda meta: "n"']
