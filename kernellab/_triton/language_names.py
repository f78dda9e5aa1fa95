"""The names of Triton's language: what a kernel may reach from Triton's modules, and which attributes its values have.

Triton's modules import Python's (``tl.core.builtins``, ``tl.core.inspect``), and its values lead to the host
(``tensor.handle``, ``function.fn``). So a name counts as one of the language only if it is a jit function, a builtin, a
class, a dtype or a number of these modules; attributes of values are listed one by one.
"""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass
from functools import lru_cache
from types import FunctionType, ModuleType
from typing import Any, Literal

import triton
import triton.language as tl
from triton.runtime.jit import JITCallable

NameKind = Literal["module", "jit", "builtin", "class", "type", "value"]
"""Kinds of names: a ``class`` may be called, a ``type`` only named; a ``value`` is a dtype, a number or a constexpr."""

_LANGUAGES = ("triton.language", "triton.experimental.gluon.language")
_OUTER: dict[str, frozenset[str]] = {
    "triton": frozenset({"language", "experimental", "cdiv", "next_power_of_2"}),
    "triton.experimental": frozenset({"gluon"}),
    "triton.experimental.gluon": frozenset({"language"}),
}
_OF_THE_COMPILER = ("triton.language.semantic", "triton.experimental.gluon.language._semantic")
_STANDARD = frozenset({"triton.language.standard", "triton.experimental.gluon.language._standard"})
_LIBRARY_STUBS = "triton.language.extra.libdevice"
_ASSEMBLY = frozenset({"inline_asm_elementwise"})
_FOREIGN_CODE = frozenset({"extern_elementwise"})  # takes the path of a library
_CONSTRUCTIBLE = frozenset({"condition", "constexpr", "range", "slice", "static_range", "tuple"})
_PLAIN_FUNCTIONS = frozenset({"get_int_dtype"})  # of numbers, which sorts by hand use
_ENUM_MEMBERS = frozenset({"NONE", "ALL"})  # of tl.PropagateNan
_LAYOUT_FACTORIES = frozenset({"get_default_for", "with_identity_for"})

MESSAGE_FUNCTIONS = frozenset({"static_print", "static_assert", "device_print", "device_assert"})
"""The functions whose arguments may be f-strings."""

_TENSOR = """
    T abs advance argmax argmin associative_scan atomic_add atomic_and atomic_cas atomic_load atomic_max atomic_min
    atomic_or atomic_poll atomic_store atomic_xchg atomic_xor broadcast_to cast cdiv ceil cos cumprod cumsum dtype erf
    exp exp2 expand_dims flip floor gather histogram item log log2 logical_and logical_or max min numel permute ravel
    reduce reduce_or reshape rsqrt shape sigmoid sin softmax sort split sqrt sqrt_rn store sum to trans type view
    xor_sum
"""
_DTYPE = """
    address_space const element_ty exponent_bias fp_mantissa_width get_block_shapes get_int_max_value get_int_min_value
    int_bitwidth int_signedness is_bf16 is_block is_bool is_const is_dtype is_floating is_fp16 is_fp32 is_fp64 is_fp8
    is_fp8e4b15 is_fp8e4b8 is_fp8e4nv is_fp8e5 is_fp8e5b16 is_int is_int1 is_int16 is_int32 is_int64 is_int8
    is_int_signed is_int_unsigned is_ptr is_standard_floating is_uint16 is_uint32 is_uint64 is_uint8 is_void kind name
    nbytes primitive_bitwidth scalar with_element_ty
"""
_DESCRIPTOR = "block_shape block_type load scatter strides value"
_GLUON = """
    alignment atomic_scatter_add atomic_scatter_and atomic_scatter_max atomic_scatter_min atomic_scatter_or
    atomic_scatter_xchg atomic_scatter_xor block block_bases cache_modifier cga_layout col_stride cta_split_num dim
    element_bitwidth eviction_policy fp4_padded fraction get_reg_layout index instr_shape interval_padding_pairs
    is_canceled k_width l1 l2 l2_prefetch_size lane_bases layout load_max load_min max_phase multicta nbytes_per_cta
    num_groups num_partitions offset_bases operand_index order parent partition_dim partition_layout per_phase primary
    program_id rank reg_bases reinterpret secondary size_per_thread slice swizzle_byte_width threads_per_warp
    tiles_per_warp transposed two_ctas vec version warp_bases warps_per_cta
"""
VALUE_ATTRIBUTES = frozenset(f"{_TENSOR} {_DTYPE} {_DESCRIPTOR} {_GLUON}".split())
"""The attributes of tensors, dtypes, constexprs, descriptors and layouts that a kernel may name.

None of them is an array, a handle, a function of the host or a module, in the compiler or in the interpreter.
"""

_REFUSED = """
    FP_TYPES KIND OTHER_TYPES SIGNEDNESS SINT_TYPES STANDARD_FP_TYPES UINT_TYPES base_cls block_rep_order cache_key_part
    codegen_name cols fields format_hardware_view format_tensor_view get_default_for handle hash_attrs label mangle
    priority rows shape_type strides_type to_ir verify with_identity_for
"""
REFUSED_ATTRIBUTES = frozenset(_REFUSED.split())
"""Further public attributes of these: handles, what compiles or prints them, tables of the compiler."""


@dataclass(frozen=True, slots=True)
class LanguageName:
    """A name of the language: its kind, and how many of the attributes asked for lead to it."""

    kind: NameKind
    used: int


@dataclass(frozen=True, slots=True)
class OutsideLanguage:
    """Why a name is none of the language: the rule, and the rest of a sentence about the name."""

    rule: Literal["host_code", "inline_assembly", "outside_library"]
    reason: str


@lru_cache(maxsize=4096)
def language_name(module: str, attributes: tuple[str, ...]) -> LanguageName | OutsideLanguage:
    """Look up a chain of attributes of one of Triton's modules, up to the first that is not a module.

    Nothing but modules of Triton's languages is imported for it. The process must not run the interpreter, which
    replaces the functions of the language.
    """
    if not _is_reachable(module):
        return OutsideLanguage("outside_library", "is not of Triton's language")
    try:
        current: Any = importlib.import_module(module)
    except ImportError:
        return OutsideLanguage("outside_library", f"is not in Triton {triton.__version__}")
    for used, name in enumerate(attributes, start=1):
        if name in _ASSEMBLY:
            return OutsideLanguage("inline_assembly", "inserts assembly, which is not checked")
        owner = current.__name__
        if _starts_with(f"{owner}.{name}", _OF_THE_COMPILER):  # an attribute only once the compiler is loaded
            return OutsideLanguage("host_code", "is a module of Python, or of the compiler")
        current = getattr(current, name, None)
        if current is None or (owner in _OUTER and name not in _OUTER[owner]):
            return OutsideLanguage("outside_library", "is not of Triton's language")
        if not isinstance(current, ModuleType):
            return _member(current, name, attributes[used:], used)
        if name.startswith("_") or not _is_reachable(current.__name__):
            return OutsideLanguage("host_code", "is a module of Python, or of the compiler")
    return LanguageName("module", len(attributes))


def _is_reachable(module: str) -> bool:
    """Whether kernels may name a module: those of the languages, and those on the way to them."""
    return module in _OUTER or (_is_of_language(module) and not _starts_with(module, _OF_THE_COMPILER))


def _is_of_language(module: object) -> bool:
    return isinstance(module, str) and _starts_with(module, _LANGUAGES)


def _starts_with(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def _member(value: Any, name: str, rest: tuple[str, ...], used: int) -> LanguageName | OutsideLanguage:
    """Classify what a module of the language holds as ``name``; ``rest`` are the attributes behind it."""
    if isinstance(value, JITCallable):
        home = value.fn.__module__
        is_public = not name.startswith("_") or home in _STANDARD  # such as _log2, which sorts by hand use
        if is_public and (_is_of_language(home) or home in {"triton", "triton._utils"}):
            return LanguageName("jit", used)
    if name.startswith("_"):
        return OutsideLanguage("host_code", "is private to Triton")
    if name in _FOREIGN_CODE:
        return OutsideLanguage("host_code", "calls code of a library")
    if isinstance(value, type):
        return _class(value, name, rest, used)
    if isinstance(value, tl.dtype | tl.constexpr | bool | int | float):
        return LanguageName("value", used)
    home = getattr(value, "__module__", None)
    is_known = tl.core.is_builtin(value) or home == _LIBRARY_STUBS or name in _PLAIN_FUNCTIONS
    if is_known and isinstance(value, FunctionType) and _is_of_language(home):
        return LanguageName("builtin", used)
    return OutsideLanguage("host_code", "is a Python object, not of Triton's language")


def _class(value: Any, name: str, rest: tuple[str, ...], used: int) -> LanguageName | OutsideLanguage:
    if value is getattr(tl, "PropagateNan", None):
        return LanguageName("value", used + 1) if rest and rest[0] in _ENUM_MEMBERS else LanguageName("type", used)
    if not _is_of_language(value.__module__) or _starts_with(value.__module__, _OF_THE_COMPILER):
        return OutsideLanguage("host_code", "is a class of Python, not of Triton's language")
    if rest and rest[0] in _LAYOUT_FACTORIES and isinstance(getattr(value, rest[0], None), JITCallable):
        return LanguageName("jit", used + 1)
    is_value = issubclass(value, tl.core.base_value)  # one made by hand would hold any object as its handle
    return LanguageName("class" if not is_value or name in _CONSTRUCTIBLE else "type", used)
