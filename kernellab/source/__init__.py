"""A kernel with all that its source uses, as data: what a worker process compiles and what the store keeps.

A kernel lives in a namespace full of other things (tensors, models, open files). Its closure is the part of that
namespace that its code names: helpers, constexprs, modules. Each function keeps its own bindings, so that two helpers
of one name, or the kernels of a factory, do not meet.
"""

from kernellab.source.collect import closure_of, definition, is_cell_file, is_installed, is_plain, plain_bindings
from kernellab.source.model import (
    CELL_PREFIX,
    SCHEMA,
    Autotune,
    Binding,
    Closure,
    ConfigText,
    Constant,
    Constexpr,
    Dtype,
    Function,
    FunctionKind,
    FunctionRef,
    Heuristics,
    Import,
    JitOptions,
    Members,
    Opaque,
    Wrapper,
    closure_from_jsonable,
    closure_to_jsonable,
    from_jsonable,
    jsonable,
)
from kernellab.source.wrapping import decorated_closure_of

__all__ = [
    "CELL_PREFIX",
    "SCHEMA",
    "Autotune",
    "Binding",
    "Closure",
    "ConfigText",
    "Constant",
    "Constexpr",
    "Dtype",
    "Function",
    "FunctionKind",
    "FunctionRef",
    "Heuristics",
    "Import",
    "JitOptions",
    "Members",
    "Opaque",
    "Wrapper",
    "closure_from_jsonable",
    "closure_of",
    "closure_to_jsonable",
    "decorated_closure_of",
    "definition",
    "from_jsonable",
    "is_cell_file",
    "is_installed",
    "is_plain",
    "jsonable",
    "plain_bindings",
]
