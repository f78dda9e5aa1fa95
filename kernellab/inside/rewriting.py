"""The text of a kernel that also stores its values: names after each assignment, accesses, parameters and returns.

A program writes its entries to a region of one buffer, in the order of execution, so that loops of unknown length and
branches need no layout: each entry begins with the number of its site, its type and its shape. Entries without a value
mark the begin of loops, iterations and calls. Helpers are entered through twins, which get the region and the number of
the call; a helper that is passed as a value, as to ``tl.reduce``, stays as it is.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum

from kernellab.inside.device_texts import ATOMICS, with_device_functions
from kernellab.source import Binding, Closure, Function, FunctionRef, Helper, Import, Members
from kernellab.source.edits import FunctionEdits, edits_of
from kernellab.source.sites import Site, statements_with_sites

BUFFER = "kl_buffer"
ENTRY_WORDS, REGION_HEAD = 8, 3
_REGION = "kl_log"
_RESULT = "kl_result"
_ACCESSES = frozenset({"load", "store", "atomic_cas", *(f"atomic_{name}" for name in ATOMICS)})
_OF_BLOCK_POINTERS = frozenset({"boundary_check", "padding_option", None})  # None is ``**options``


class LogEvent(StrEnum):
    """The meaning of an entry."""

    ARGUMENT = "argument"
    ENTER = "enter"
    CALL = "call"
    LEAVE = "leave"
    LOOP = "loop"
    ITERATION = "iteration"
    END_LOOP = "end of a loop"
    PARAMETER = "parameter"
    ASSIGNMENT = "assignment"
    LOOP_VARIABLE = "loop variable"
    RETURN = "return"
    LOAD = "load"
    STORE = "store"
    ATOMIC = "atomic"


_OF_DESCRIPTORS = {
    "load": LogEvent.LOAD,
    "gather": LogEvent.LOAD,
    "store": LogEvent.STORE,
    "scatter": LogEvent.STORE,
    **{f"atomic_{name}": LogEvent.ATOMIC for name in ATOMICS if name != "xchg"},
}


@dataclass(frozen=True, slots=True)
class LogSite:
    """A place of the text that writes entries. ``statement`` numbers the statement around it, within all functions.

    ``argument`` is the descriptor among the kernel's parameters that an access goes through. With ``is_cast``, the
    statement assigns a load that it only casts.
    """

    event: LogEvent
    function: str
    file: str
    line: int
    name: str | None = None
    reads: tuple[str, ...] = ()
    statement: int = 0
    argument: str | None = None
    is_cast: bool = False


@dataclass(frozen=True, slots=True)
class LoggingKernel:
    """A kernel that writes its values; ``sites`` are numbered from 1. ``slots`` programs have regions of some words.

    ``passed`` are the helpers that are passed as values, as to ``tl.reduce``, whose lines write nothing.
    """

    closure: Closure
    sites: tuple[LogSite, ...]
    slots: int
    region_words: int
    passed: tuple[str, ...] = ()

    @property
    def buffer_words(self) -> int:
        """The int64 of its buffer: program numbers, regions, and a short one for all other programs."""
        return self.slots + self.slots * self.region_words + REGION_HEAD


def logging_kernel(closure: Closure, lines: Collection[int] | None, programs: int, region_words: int) -> LoggingKernel:
    """The kernel with its helpers rewritten to write the values of some lines, or of all.

    Raises:
        SourceError: the text of the kernel cannot be rewritten.
    """
    slots = 1 << max(0, programs - 1).bit_length()
    rewriter = _Rewriter(closure, lines)
    text = rewriter.kernel_text(f"{_REGION} = kl_open({BUFFER}, {slots}, {region_words})")
    twins: list[Function] = []
    while len(twins) < len(rewriter.twins):
        index = list(rewriter.twins)[len(twins)]
        twins.append(rewriter.twin(index))
    rewritten = with_device_functions(closure, {0: text}, twins)
    return LoggingKernel(rewritten, tuple(rewriter.sites), slots, region_words, tuple(sorted(rewriter.passed)))


@dataclass(slots=True)
class _Rewriter:
    closure: Closure
    lines: Collection[int] | None
    sites: list[LogSite] = field(default_factory=list)
    twins: dict[int, str] = field(default_factory=dict)
    statements: int = 0
    passed: set[str] = field(default_factory=set)

    def kernel_text(self, begin: str) -> str:
        kernel = self.closure.functions[0]
        edits = edits_of(kernel.text)
        body = _Body(self, kernel, edits, is_kernel=True)
        edits.add_parameter(BUFFER)
        edits.before(edits.body[0], "; ".join((begin, *body.arguments())))
        body.rewrite(edits.body)
        return edits.result()

    def twin(self, index: int) -> Function:
        """The rewritten copy of a helper, with the region and the number of the call as first parameters."""
        helper = self.closure.functions[index]
        edits = edits_of(helper.text)
        body = _Body(self, helper, edits, is_kernel=False)
        edits.rename(self.twins[index])
        edits.add_parameter(f"{_REGION}, kl_call")
        edits.before(edits.body[0], "; ".join(body.entry()))
        body.rewrite(edits.body)
        if not _always_returns(edits.body):
            edits.after(edits.body[-1], body.note(LogEvent.LEAVE, edits.body[-1]))
        return replace(helper, name=self.twins[index], text=edits.result())

    def twin_name(self, index: int) -> str:
        """The name of the twin of a helper, which is written later."""
        return self.twins.setdefault(index, f"kl_twin{index}_{self.closure.functions[index].name}")

    def add(self, site: LogSite) -> int:
        """The number of a new site."""
        self.sites.append(site)
        return len(self.sites)

    def is_asked(self, line: int) -> bool:
        """Whether values of a line are to be written."""
        return self.lines is None or line in self.lines


@dataclass(slots=True)
class _Body:
    """The statements of one function, while they are rewritten."""

    owner: _Rewriter
    function: Function
    edits: FunctionEdits
    is_kernel: bool
    _sites: dict[int, Site] = field(init=False)

    def __post_init__(self) -> None:
        pairs = statements_with_sites(self.edits.definition, self.function.first_line - 1)
        self._sites = {id(statement): site for statement, site in pairs}

    def arguments(self) -> Iterator[str]:
        """The statements that write the addresses of a kernel's arguments."""
        for name in self._parameters():
            yield f"kl_keep({_REGION}, {name}, {self._add(LogEvent.ARGUMENT, self.edits.definition, name)})"

    def entry(self) -> Iterator[str]:
        """The statements at the begin of a helper: its call, and its parameters."""
        definition = self.edits.definition
        yield f"kl_enter({_REGION}, {self._add(LogEvent.ENTER, definition)}, kl_call)"
        if self.owner.is_asked(self._line(definition)):
            for name in self._parameters():
                yield f"kl_keep({_REGION}, {name}, {self._add(LogEvent.PARAMETER, definition, name)})"

    def _parameters(self) -> list[str]:
        arguments = self.edits.definition.args
        return [part.arg for part in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]

    def note(self, event: LogEvent, node: ast.stmt) -> str:
        """A statement that writes an entry without a value."""
        return f"kl_note({_REGION}, {self._add(event, node)})"

    def rewrite(self, block: list[ast.stmt]) -> None:
        """Add entries to the statements of a block, and of the blocks in it."""
        for statement in block:
            self.owner.statements += 1
            if isinstance(statement, ast.For | ast.While):
                self._rewrite_loop(statement)
            elif isinstance(statement, ast.Return):
                self._rewrite_return(statement)
            else:
                self._rewrite_plain(statement)

    def _rewrite_loop(self, loop: ast.For | ast.While) -> None:
        self.edits.before(loop, self.note(LogEvent.LOOP, loop))
        self._rewrite_calls(loop.iter if isinstance(loop, ast.For) else loop.test, loop)
        names = list(self._keeps(loop, LogEvent.LOOP_VARIABLE)) if id(loop) in self._sites else []
        iterate = f"kl_iterate({_REGION}, {self._add(LogEvent.ITERATION, loop)})"
        self.edits.before(loop.body[0], "; ".join((iterate, *names)))
        self.rewrite(loop.body)
        self.rewrite(loop.orelse)
        self.edits.after(loop, self.note(LogEvent.END_LOOP, loop))

    def _rewrite_return(self, statement: ast.Return) -> None:
        if self.is_kernel:
            return
        leave = self.note(LogEvent.LEAVE, statement)
        if statement.value is None:
            self.edits.before(statement, leave)
            return
        self.edits.replace(statement.lineno, statement.col_offset, "return", f"{_RESULT} =")
        self._rewrite_calls(statement.value, statement)
        keep = []
        if self.owner.is_asked(self._line(statement)):
            site = self._add(LogEvent.RETURN, statement, "return", self._sites[id(statement)].reads)
            keep = list(_keep_calls(_RESULT, site, statement.value))
        self.edits.after(statement, "; ".join((*keep, leave, f"return {_RESULT}")))

    def _rewrite_plain(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.If):
            self._rewrite_calls(statement.test, statement)
            self.rewrite(statement.body)
            self.rewrite(statement.orelse)
            return
        if isinstance(statement, ast.FunctionDef | ast.With | ast.Try):
            return
        named = _assigned_call(statement)
        is_load = named is not None and self._is_load(named[1])
        self._rewrite_calls(statement, statement, named if is_load else None)
        if id(statement) in self._sites and not (is_load and named is not None and self._asks_call(named[1])):
            for keep in self._keeps(statement, LogEvent.ASSIGNMENT):
                self.edits.after(statement, keep)

    def _keeps(self, statement: ast.stmt, event: LogEvent) -> Iterator[str]:
        site = self._sites[id(statement)]
        value = getattr(statement, "value", None) if len(site.names) == 1 else None
        is_cast = event is LogEvent.ASSIGNMENT and value is not None and self._is_cast_load(value)
        for name in site.names if self.owner.is_asked(site.line) else ():
            number = self._add(event, statement, name, site.reads, is_cast=is_cast)
            yield from _keep_calls(name, number, value)

    def _is_cast_load(self, value: ast.expr) -> bool:
        """Whether an expression is a load followed by ``.to``, which keeps a load of the same type."""
        is_cast = False
        while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "to":
            value, is_cast = value.func.value, True
        return is_cast and isinstance(value, ast.Call) and self._is_load(value)

    def _rewrite_calls(self, node: ast.AST, statement: ast.stmt, named: tuple[str, ast.Call] | None = None) -> None:
        """Let the accesses and the calls of helpers in an expression write entries."""
        calls = [part for part in ast.walk(node) if isinstance(part, ast.Call)]
        values = [part for call in calls for part in (*call.args, *(keyword.value for keyword in call.keywords))]
        self.owner.passed |= {
            self.owner.closure.functions[index].name
            for part in values
            if isinstance(part, ast.Name | ast.Attribute) and (index := self._helper(part)) is not None
        }
        for call in sorted(calls, key=lambda part: (part.lineno, part.col_offset, -(part.end_col_offset or 0))):
            access, helper = self._access(call), self._helper(call.func)
            if access is not None and self._asks_call(call):
                name = named[0] if named is not None and named[1] is call else None
                event = LogEvent(access) if access in ("load", "store") else LogEvent.ATOMIC
                reads = self._sites[id(statement)].reads if id(statement) in self._sites else ()
                number = self._add(event, statement, name, reads, line=self._line(call))
                self._redirect(call, f"kl_{access}", number)
            elif (descriptor := self._descriptor(call)) is not None and self._asks_call(call):
                self._redirect_descriptor(call, descriptor, statement, named)
            elif helper is not None:
                self._redirect(call, self.owner.twin_name(helper), self._add(LogEvent.CALL, statement))

    def _descriptor(self, call: ast.Call) -> ast.expr | None:
        """The descriptor of a call of one of its methods that access memory."""
        function = call.func
        if not isinstance(function, ast.Attribute) or function.attr not in _OF_DESCRIPTORS or call.keywords:
            return None
        is_variable = isinstance(function.value, ast.Name) and self._binding(function.value.id) is None
        return function.value if is_variable else None

    def _redirect_descriptor(
        self, call: ast.Call, descriptor: ast.expr, statement: ast.stmt, named: tuple[str, ast.Call] | None
    ) -> None:
        assert isinstance(call.func, ast.Attribute)
        assert isinstance(descriptor, ast.Name)
        name = named[0] if named is not None and named[1] is call else None
        reads = self._sites[id(statement)].reads if id(statement) in self._sites else ()
        argument = descriptor.id if self.is_kernel and descriptor.id in self._parameters() else None
        number = self._add(_OF_DESCRIPTORS[call.func.attr], statement, name, reads, self._line(call), argument)
        self.edits.replace_callee(call, f"kl_descriptor_{call.func.attr}")
        self.edits.add_arguments(call, f"{_REGION}, {number}, {descriptor.id}")

    def _redirect(self, call: ast.Call, name: str, number: int) -> None:
        self.edits.replace_callee(call, name)
        self.edits.add_arguments(call, f"{_REGION}, {number}")

    def _is_load(self, call: ast.Call) -> bool:
        descriptor = self._descriptor(call)
        if descriptor is not None:
            return isinstance(call.func, ast.Attribute) and _OF_DESCRIPTORS[call.func.attr] is LogEvent.LOAD
        return self._access(call) == "load"

    def _asks_call(self, call: ast.Call) -> bool:
        return self.owner.is_asked(self._line(call))

    def _access(self, call: ast.Call) -> str | None:
        """The access of Triton's language that a call is, by its name; None also where its arguments are not plain."""
        function, options = call.func, {keyword.arg for keyword in call.keywords}
        if options & _OF_BLOCK_POINTERS or any(isinstance(part, ast.Starred) for part in call.args):
            return None
        if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
            binding = self._binding(function.value.id)
            is_language = isinstance(binding, Import) and _is_language(binding.module) and not binding.attribute
            return function.attr if is_language and function.attr in _ACCESSES else None
        binding = self._binding(function.id) if isinstance(function, ast.Name) else None
        is_access = isinstance(binding, Import) and _is_language(binding.module) and binding.attribute in _ACCESSES
        return binding.attribute if is_access and isinstance(binding, Import) else None

    def _helper(self, expression: ast.expr) -> int | None:
        """The index of the jit function of the closure that an expression names."""
        binding = self._resolve(expression)
        reference = binding.function if isinstance(binding, Helper) else binding
        if not isinstance(reference, FunctionRef) or self.owner.closure.functions[reference.index].kind != "jit":
            return None
        return reference.index

    def _resolve(self, function: ast.expr) -> Binding | None:
        if isinstance(function, ast.Name):
            return self._binding(function.id)
        if isinstance(function, ast.Attribute):
            owner = self._resolve(function.value)
            return dict(owner.members).get(function.attr) if isinstance(owner, Members) else None
        return None

    def _binding(self, name: str) -> Binding | None:
        return dict(self.function.bindings).get(name)

    def _line(self, node: ast.stmt | ast.expr) -> int:
        return node.lineno + self.function.first_line - 1

    def _add(
        self,
        event: LogEvent,
        node: ast.stmt,
        name: str | None = None,
        reads: tuple[str, ...] = (),
        line: int | None = None,
        argument: str | None = None,
        *,
        is_cast: bool = False,
    ) -> int:
        file, line = self.owner.closure.label(self.function.file), self._line(node) if line is None else line
        site = LogSite(event, self.function.name, file, line, name, reads, self.owner.statements, argument, is_cast)
        return self.owner.add(site)


def _keep_calls(name: str, site: int, value: ast.expr | None) -> Iterator[str]:
    """The calls that write a name; those of a tuple in the text go by member, since the interpreter has Python's."""
    if isinstance(value, ast.Tuple) and not any(isinstance(part, ast.Starred) for part in value.elts):
        yield from (f"kl_keep_one({_REGION}, {name}[{at}], {site}, {at + 1})" for at in range(len(value.elts)))
    else:
        yield f"kl_keep({_REGION}, {name}, {site})"


def _is_language(module: str) -> bool:
    return module in ("triton.language", "triton.language.core")


def _assigned_call(statement: ast.stmt) -> tuple[str, ast.Call] | None:
    """The name and the call of a statement that assigns the result of a call alone to one name."""
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    target = statement.target if isinstance(statement, ast.AnnAssign) else targets[0] if len(targets) == 1 else None
    value = getattr(statement, "value", None)
    return (target.id, value) if isinstance(target, ast.Name) and isinstance(value, ast.Call) else None


def _always_returns(block: list[ast.stmt]) -> bool:
    """Whether no execution reaches the end of a block."""
    last = block[-1]
    if isinstance(last, ast.If):
        return bool(last.orelse) and _always_returns(last.body) and _always_returns(last.orelse)
    return isinstance(last, ast.Return)
