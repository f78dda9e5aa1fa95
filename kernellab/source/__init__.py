"""A kernel's closure as data: compiled by worker processes and kept in the store.

A kernel lives in a namespace full of other things (tensors, models, open files). Its closure is the part of that
namespace that its code names: helpers, constexprs, modules. Each function has its own bindings, so that two helpers
of one name, or the kernels of a factory, do not clash.
"""

from kernellab.source.formulas import formula_problem, grid_of_formula, is_formula
from kernellab.source.model import (
    CELL_PREFIX,
    CONFIG_OPTIONS,
    INTEGER_OPTIONS,
    JIT_KINDS,
    LAUNCH_FLAGS,
    LOADED,
    Autotune,
    Binding,
    Call,
    Closure,
    ConfigText,
    Constant,
    Constexpr,
    Dtype,
    Function,
    FunctionKind,
    FunctionRef,
    Helper,
    Heuristics,
    Import,
    Items,
    JitOptions,
    Members,
    Opaque,
    Wrapper,
    closure_to_jsonable,
    constant_text,
    content_keys,
    from_jsonable,
    jsonable,
    opaque_part,
    parts,
    referenced_functions,
    with_functions,
)
from kernellab.source.text import (
    docstring,
    is_installed,
    is_name,
    is_plain,
    lambda_definition,
    literal,
    parse_python,
    portable_type,
    returned_value,
)
from kernellab.source.validation import (
    DTYPE_NAMES,
    TEXT_BYTES,
    MalformedData,
    Readers,
    closure_of_json,
    parse_json,
    reading,
    record_of_json,
    require,
    require_binding,
    require_closure,
    require_type,
)
