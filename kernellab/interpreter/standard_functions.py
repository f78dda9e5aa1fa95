"""Functions of Triton's language that are written in Triton, such as ``tl.sum``, for an interpreter worker.

They are interpreted where ``TRITON_INTERPRET=1`` stands when their modules are imported, else compiled. A worker that a
server forked has them from the server, which also forks workers that compile.
"""

from __future__ import annotations

import importlib

import triton.language as tl
from triton.runtime.interpreter import InterpretedFunction

_WRITTEN_IN_TRITON = ("triton.language.standard", "triton.language.random")


def interpret_standard_functions() -> None:
    """Import the functions anew if they are compiled ones; methods of tensors follow."""
    if isinstance(tl.cdiv, InterpretedFunction):
        return
    for name in _WRITTEN_IN_TRITON:
        members = vars(importlib.reload(importlib.import_module(name)))
        functions = {name: member for name, member in members.items() if isinstance(member, InterpretedFunction)}
        vars(tl).update({name: function for name, function in functions.items() if name in vars(tl)})
