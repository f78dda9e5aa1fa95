"""Plain words for the compiler's messages, and a line of advice for the mistakes that beginners make.

A rule is a pattern of what Triton says, what to say instead (empty: the message as it is), and what
to do about it; both may refer to the groups of the pattern. The first rule that matches counts.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable, Mapping
from difflib import get_close_matches

_WRAPPED = re.compile(r"^\w*(?:Error|Impl|Exception)\w*\((['\"])(.*)\1\)\.?$", re.DOTALL)


# What libdevice has under the name that torch or numpy give it, for float32 and float64 alone, and tl lacks.
OF_LIBDEVICE = (
    "tanh|sinh|cosh|tan|asin|acos|atan|atan2|asinh|acosh|atanh|pow|fmod|hypot|round|trunc|rint|nearbyint|expm1|log1p|"
    "log10|exp10|cbrt|erfc|erfinv|lgamma|copysign|nextafter|ldexp"
)
_OF_LIBDEVICE = re.compile(rf"module 'triton\.language(?:\.math)?' has no attribute '({OF_LIBDEVICE})'")

_STATEMENTS = {
    "Break": "break",
    "Continue": "continue",
    "Try": "try",
    "With": "with",
    "DictComp": "a dict comprehension",
    "SetComp": "a set comprehension",
    "GeneratorExp": "a generator expression",
    "Lambda": "lambda",
    "ClassDef": "class",
    "Global": "global",
    "Yield": "yield",
    "Await": "await",
    "Raise": "raise",
    "Delete": "del",
    "Dict": "a dict",
    "Set": "a set",
    "Starred": "a starred expression",
}

RULES: Mapping[str, tuple[str, str]] = {
    r"arange's range must be a power of 2": (
        "",
        "Take the next larger power of two and mask off what is beyond the end.",
    ),
    r"arange's arguments must be of type tl\.constexpr": (
        "",
        "Block sizes are fixed at compile time: annotate the parameter, as in BLOCK: tl.constexpr.",
    ),
    r"incompatible dimensions at index (\d+): (\d+) and (\d+)": (
        r"these blocks do not broadcast: dimension \1 has \2 elements in one and \3 in the other.",
        "Give them one shape, or add a dimension with [:, None] or [None, :].",
    ),
    r"numel \((\d+)\) exceeds triton maximum tensor numel \((\d+)\)": (
        r"a block of \1 elements is too large; Triton's limit is \2.",
        "Use a smaller block and more programs, or a loop.",
    ),
    r"Cannot access global variable (\w+) from within": (
        r"the global \1 is not a constexpr.",
        r"Write \1 = tl.constexpr(...), pass it as an argument, or decorate it with @triton.jit if it is a helper.",
    ),
    _OF_LIBDEVICE.pattern: (
        r"triton.language has no function \1.",
        r"Write libdevice.\1 after from triton.language.extra import libdevice, with blocks of float32 or float64.",
    ),
    r"module 'triton\.language' has no attribute '(\w+)'": (
        r"triton.language has no function \1.",
        "Check the spelling; what torch or numpy offer is not available inside a kernel.",
    ),
    r"^(\w+) is not defined": (
        r"\1 is not defined.",
        "Assign it on every path before it is used, define it above the kernel, or pass it as an argument.",
    ),
    r"unsupported AST node type: Import": (
        "import is not supported inside a kernel.",
        "Import above the kernel; of a module, a kernel takes helpers under @triton.jit and tl.constexpr values.",
    ),
    r"unsupported AST node type: (\w+)": (
        r"\1 is not supported inside a kernel.",
        "Use if, for, while and blockwise functions such as tl.where; a mask takes the place of break and continue.",
    ),
    r"Unsupported ptr type .*? in `tl\.(\w+)`": (
        r"tl.\1 got a number where it needs an address.",
        "Pass a tensor for this argument, or add the offset to a pointer: x_ptr + offset.",
    ),
    r"^'constexpr_type' object has no attribute '(?:scalar|is_ptr|is_const)'": (
        "an address is expected here, and this is None or a constexpr.",
        "Pass a tensor for this argument, or leave the access out where there is none: if x_ptr is not None.",
    ),
    r"^'tuple_type' object has no attribute '(?:scalar|is_ptr|is_const)'": (
        "an address is expected here, and this is a tuple.",
        "Take a member of it: pair[0].",
    ),
    r"^cannot convert None of type|^'(?:NoneType|constexpr)' object has no attribute|"
    r"^unsupported operand type\(s\) for .*'NoneType'|^'NoneType' object is not": (
        "a number or a block is expected here, and this is None or a constexpr.",
        "Pass a value for this argument, or leave the operation out where there is none: if x is not None.",
    ),
    r"'tt\.int_to_ptr' op operand #0 must be 64-bit": (
        "an address has 64 bits, and this number has fewer.",
        "Triton passes a number below 2**31 as int32: write .to(tl.int64) before the cast to a pointer.",
    ),
    r"invalid operands of type pointer<(\w+)> and triton\.language\.(\w+)": (
        r"a pointer cannot be combined with \2 like this.",
        "Only whole numbers can be added to a pointer; load the value with tl.load to compute with it.",
    ),
    r"Input shapes should have M >= (\d+), N >= (\d+) and K >= (\d+)": (
        r"tl.dot needs blocks of at least \1 x \3 and \3 x \2.",
        "Use larger blocks, or tl.sum of a product for small ones.",
    ),
    r"must have equal reduction dimensions|reduction dimension": (
        "the two operands of tl.dot do not fit: the columns of the first must be the rows of the second.",
        "Transpose one with tl.trans, or load it the other way round.",
    ),
    r"type (\w+) not supported in this architecture\. The supported fp8 dtypes are (\([^)]*\))": (
        r"the target has no \1; of fp8 it has \2.",
        "Use one of those, or a newer target.",
    ),
    r"Mismatched type for (\w+) between then block \((.*)\) and else block \((.*)\)": (
        r"\1 is \2 after the one branch and \3 after the other.",
        "Give it one type and shape on both paths, or use tl.where.",
    ),
    r"Loop-carried variable (\w+) has initial type (\S+) but is re-assigned to (\S+) in loop": (
        r"\1 is \2 before the loop and \3 inside it.",
        "Start with the type that the loop computes: 0.0, or tl.zeros(shape, dtype).",
    ),
    r"cannot change total number of elements": ("", "The new shape must hold as many elements as the old one."),
    r"invalid axis (-?\d+)\. Expected (-?\d+) <= axis < (\d+)": (
        r"axis \1 does not exist: the block has \3 dimensions.",
        "Count axes from 0.",
    ),
    r"Boolean value of Tensor with more than one value is ambiguous|^'scf\.condition' op operand #0 must be 1-bit": (
        "a block has no single truth value.",
        "Use tl.where, a mask, or reduce it first, as in tl.sum(block > 0) > 0.",
    ),
    r"Did you forget to add @triton\.jit|^'NoneType' object has no attribute 'to_tensor'|^unsupported tensor index": (
        "this cannot be done with a pointer or a block inside a kernel.",
        "A pointer is not indexed: use tl.load(x_ptr + offsets) and tl.store; compute with triton.language.",
    ),
    r"^(\w+)\(\): argument .* must be Tensor, not (?:tensor|Tensor)": (
        r"\1 is a function of torch, which cannot take a block of a kernel.",
        "Use triton.language instead, such as tl.exp, tl.where or tl.maximum(x, 0).",
    ),
    r"must be real number, not tensor": (
        "a function of Python cannot take a block.",
        "Use triton.language instead, such as tl.sqrt, tl.exp or tl.log.",
    ),
    r"object of type 'tensor' has no len": (
        "a block has no len().",
        "Its size is x.shape[0]; inside a kernel, sizes are those that you gave to tl.arange.",
    ),
    r"min requires at least 2 values": (
        "min and max compare two or more values inside a kernel.",
        "To reduce a block, use tl.max(x, axis=0) or tl.min(x, axis=0).",
    ),
    r"(Value|Mask) argument cannot be block type if pointer argument is not a block": (
        "a block goes with one single address.",
        "Add a block of offsets to the pointer, as in out_ptr + offsets, or reduce the block to one number.",
    ),
    r"__setitem__ is not supported": (
        "elements of a pointer or a block cannot be assigned.",
        "Write to memory with tl.store(out_ptr + offsets, value), and choose within a block with tl.where.",
    ),
    r"'torch\.dtype' object has no attribute": (
        "this is a dtype of torch, and kernels have those of triton.language.",
        "Write tl.float16 for torch.float16, or take that of a pointer: out_ptr.dtype.element_ty.",
    ),
    r"^'tensor' object has no attribute '(\w+)'": (
        r"a block has no \1.",
        "It is not a tensor of torch; look for a function of triton.language, such as tl.sum(x, axis=0).",
    ),
    r"AST binary operator 'MatMult'|^'MatMult' object": (
        "@ is not supported inside a kernel.",
        "Use tl.dot(a, b) for blocks of two dimensions.",
    ),
    r"Only `range` and `static_range` iterators|^'\w+' object has no attribute 'func'": (
        "a loop inside a kernel runs over range or tl.static_range.",
        "A block is worked on as a whole; loop over numbers, not over its elements.",
    ),
    r"is not string$": ("print needs a text before the values.", 'Write print("x", x).'),
    r"^static_assert failed": ("", "Give it a text that says what is expected: tl.static_assert(condition, text)."),
    r"a kernel returns a value": (
        "",
        "A launch gives nothing back: pass an output tensor and write to it with tl.store.",
    ),
    r"invalid function identifier: (\w+)": (
        r"Triton accepts no \1 in a name.",
        "Name kernels and helpers with ASCII letters, digits and underscores.",
    ),
    r"Insufficient registers": ("", "Raise maxnreg, or use smaller blocks."),
    r"a compiler pass failed": (
        "",
        "Look at it with --verbose; a kernel that returns a value, and some options, do this.",
    ),
}


# What Python and torch say of a cell's own statements, and what to add to it.
_REMARKS = {
    "'function' object is not subscriptable": "A function is launched as a kernel only with @triton.jit above its def.",
    "'method' object is not subscriptable": "A kernel takes one grid: kernel[grid](...).",
    "Torch not compiled with CUDA enabled|No CUDA GPUs are available|Found no NVIDIA driver": (
        'This machine has no GPU, and needs none here: leave device="cuda" out, and launches run on the CPU.'
    ),
}


# What torch and numpy have under another name.
_NAMES_ELSEWHERE = {
    **dict.fromkeys(("matmul", "mm"), "tl.dot"),
    **dict.fromkeys(("concat", "concatenate"), "tl.cat"),
    "relu": "tl.maximum(x, 0)",
    "mean": "tl.sum(x) / n",
    "clip": "tl.clamp",
    "amax": "tl.max",
    "ones": "tl.full",
}
_METHODS_ELSEWHERE = {"astype": ".to(dtype)", "float": ".to(tl.float32)", "half": ".to(tl.float16)"}
_MISSING_NAME = re.compile(r"module '(triton\.language[\w.]*)' has no attribute '(\w+)'")
_UNKNOWN_KEYWORD = re.compile(r"^(\w+)\(\) got an unexpected keyword argument '(\w+)'")
_MISSING_METHOD = re.compile(r"^'tensor' object has no attribute '(\w+)'")
_UNDEFINED_NAME = re.compile(r"^(\w+) is not defined")
_QUESTION = re.compile(r"did you mean [^?]+\?$", re.IGNORECASE)


def _similar_name_text(text: str, names: Iterable[str]) -> str | None:
    """Return a message with a similar name for one that is unknown, or None.

    ``names`` are those of the kernel; Triton's are known where it is loaded.
    """
    language = sys.modules.get("triton.language")
    if missing := _MISSING_NAME.search(text):
        module, name = missing.groups()
        owner = "libdevice" if module.endswith("libdevice") else module.replace("triton.language", "tl")
        similar = _similar_to(name, _public_names(sys.modules.get(module)))
        return _did_you_mean(
            f"{module} has no {name}", _NAMES_ELSEWHERE.get(name) or (similar and f"{owner}.{similar}")
        )
    if missing := _MISSING_METHOD.search(text):
        similar = _similar_to(missing[1], _public_names(getattr(language, "tensor", None)))
        return _did_you_mean(
            f"a block has no {missing[1]}", _METHODS_ELSEWHERE.get(missing[1]) or (similar and f".{similar}")
        )
    if unknown := _UNKNOWN_KEYWORD.search(text):
        function = getattr(language, unknown[1], None)
        known = [] if function is None else [name for name in inspect.signature(function).parameters if name[0] != "_"]
        said = f"tl.{unknown[1]} takes no {unknown[2]}"
        return _did_you_mean(said, _similar_to(unknown[2], known, 0.5)) or (
            f"{said}; it takes {', '.join(known)}." if known else None
        )
    if undefined := _UNDEFINED_NAME.search(text):
        return _did_you_mean(undefined[0], _similar_to(undefined[1], set(names) - {undefined[1]}))
    return None


def _did_you_mean(said: str, similar: str) -> str | None:
    return f"{said}; did you mean {similar}?" if similar else None


def _similar_to(name: str, names: Iterable[str], least: float = 0.75) -> str:
    """Return the most similar name, first one with the same letters, or ""."""
    similar = get_close_matches(name, names, 3, least)
    return next((candidate for candidate in similar if sorted(candidate) == sorted(name)), next(iter(similar), ""))


def _public_names(owner: object) -> list[str]:
    return [name for name in dir(owner) if not name.startswith("_")]


def remark_on(exc: BaseException) -> str | None:
    """Return a sentence to go with an exception of the user's own Python, where one helps."""
    if isinstance(exc, AttributeError) and (question := _QUESTION.search(_similar_name_text(str(exc), ()) or "")):
        return f"D{question[0][1:]}"
    return next((remark for pattern, remark in _REMARKS.items() if re.search(pattern, str(exc))), None)


def in_plain_words(message: str, names: Iterable[str] = ()) -> str:
    """Return the compiler's message in the lab's words, with advice where there is some.

    ``names`` are those in the kernel, among which a misspelt one is looked for.
    """
    wrapped = _WRAPPED.match(message.strip())  # an exception that was passed on by its representation
    text = wrapped[2] if wrapped else message.strip()
    if _OF_LIBDEVICE.search(text) is None and (sentence := _similar_name_text(text, names)):
        return sentence
    for pattern, (said, advice) in RULES.items():
        if match := re.search(pattern, text):
            first, _, rest = (match.expand(said) if said else _sentence(text)).partition(" ")
            return f"{_STATEMENTS.get(first, first)} {rest} {match.expand(advice)}"
    return _sentence(text)


def advice_in(message: str) -> str:
    """Return the advice that `in_plain_words` gave a message at its end; "" where it has none."""
    patterns = (re.sub(r"\\\\\d", ".+?", re.escape(advice)) for _, advice in RULES.values())
    matches = (re.search(f"{pattern}$", message) for pattern in patterns)
    question = _QUESTION.search(message)
    return question[0] if question else next((match[0] for match in matches if match), "")


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."
