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
from kernellab.source import JIT_KINDS, Binding, Closure, Function, FunctionRef, Helper, Import, Members
from kernellab.source.edits import FunctionEdits, assigned_call, assigned_values, edits_of, members, statements_of
from kernellab.source.sites import Site, statements_with_sites

BUFFER = "kl_buffer"
ENTRY_WORDS, REGION_HEAD = 8, 3
_REGION = "kl_log"
_RESULT = "kl_result"
_ACCESSES = frozenset({"load", "store", "atomic_cas", *(f"atomic_{name}" for name in ATOMICS)})
_LANGUAGE = frozenset({"triton.language", "triton.language.core", "triton.experimental.gluon.language"})
_UNCHANGED = frozenset({"to", "cast", "broadcast_to", "multiple_of", "max_contiguous", "max_constancy"})
_OF_BLOCK_POINTERS = frozenset({"boundary_check", "padding_option"})


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
_FUNCTIONS_OF_DESCRIPTORS = {"load_tensor_descriptor": "load", "store_tensor_descriptor": "store"}


@dataclass(frozen=True, slots=True)
class LogSite:
    """A place of the text that writes entries. ``statement`` numbers the statement around it, within all functions.

    ``argument`` is the parameter of the kernel that an access through a descriptor reaches. ``loads`` are the numbers
    of the loads whose value an assignment may keep as it is, as where it casts one to the type that it has.
    """

    event: LogEvent
    function: str
    file: str
    line: int
    name: str | None = None
    reads: tuple[str, ...] = ()
    statement: int = 0
    argument: str | None = None
    loads: tuple[int, ...] = ()
    number: int = 0


@dataclass(frozen=True, slots=True)
class LoggingKernel:
    """A kernel that writes its values; ``sites`` are numbered from 1. ``slots`` programs have regions of some words.

    ``passed`` are the helpers that are passed as values, as to ``tl.reduce``, whose lines write nothing. ``blocks`` are
    the lines with accesses through block pointers, which write no addresses and masks.
    """

    closure: Closure
    sites: tuple[LogSite, ...]
    slots: int
    region_words: int
    passed: tuple[str, ...] = ()
    blocks: tuple[int, ...] = ()

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
    gaps = tuple(sorted(rewriter.passed)), tuple(sorted(rewriter.blocks))
    return LoggingKernel(rewritten, tuple(rewriter.sites), slots, region_words, *gaps)


@dataclass(slots=True)
class _Rewriter:
    closure: Closure
    lines: Collection[int] | None
    sites: list[LogSite] = field(default_factory=list)
    twins: dict[int, str] = field(default_factory=dict)
    statements: int = 0
    passed: set[str] = field(default_factory=set)
    blocks: set[int] = field(default_factory=set)

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
        self.sites.append(replace(site, number=len(self.sites) + 1))
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
    _loads: dict[int, int] = field(default_factory=dict)

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
        yield f"kl_note({_REGION}, {self._add(LogEvent.ENTER, definition)}, kl_call)"
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
            keep = [f"kl_keep({_REGION}, {_RESULT}, {site})"]
            if isinstance(statement.value, ast.Tuple):
                parts = range(len(statement.value.elts))
                keep = [f"kl_keep_one({_REGION}, {_RESULT}[{at}], {site}, {at + 1})" for at in parts]
        self.edits.after(statement, "; ".join((*keep, leave, f"return {_RESULT}")))

    def _rewrite_plain(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.If):
            self._rewrite_calls(statement.test, statement)
            self.rewrite(statement.body)
            self.rewrite(statement.orelse)
            return
        if isinstance(statement, ast.FunctionDef | ast.With | ast.Try):
            return
        named = assigned_call(statement)
        is_load = named is not None and self._is_load(named[1])
        self._rewrite_calls(statement, statement, named if is_load else None)
        if id(statement) in self._sites and not (is_load and named is not None and self._asks_call(named[1])):
            for keep in self._keeps(statement, LogEvent.ASSIGNMENT):
                self.edits.after(statement, keep)

    def _keeps(self, statement: ast.stmt, event: LogEvent) -> Iterator[str]:
        """The calls that write the names of a statement, those of a tuple in the text by member."""
        site = self._sites[id(statement)]
        values = assigned_values(statement) if event is LogEvent.ASSIGNMENT else {}
        for name in site.names if self.owner.is_asked(site.line) else ():
            for member, value in members(name, values.get(name)):
                loads = () if value is None else tuple(self._unchanged_loads(value))
                number = self._add(event, statement, member, site.reads, loads=loads)
                yield f"kl_keep({_REGION}, {member}, {number})"

    def _unchanged_loads(self, value: ast.expr) -> Iterator[int]:
        """The sites of the loads that an expression may return as they are: one that is chosen, or cast to its type."""
        if isinstance(value, ast.IfExp):
            yield from self._unchanged_loads(value.body)
            yield from self._unchanged_loads(value.orelse)
        elif isinstance(value, ast.NamedExpr):
            yield from self._unchanged_loads(value.value)
        elif isinstance(value, ast.Call) and id(value) in self._loads:
            yield self._loads[id(value)]
        elif isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _UNCHANGED:
            is_method = not isinstance(value.func.value, ast.Name) or self._binding(value.func.value.id) is None
            operand = value.func.value if is_method else next(iter(value.args), None)
            if operand is not None:
                yield from self._unchanged_loads(operand)

    def _rewrite_calls(self, node: ast.AST, statement: ast.stmt, named: tuple[str, ast.Call] | None = None) -> None:
        """Let the accesses and the calls of helpers in an expression write entries."""
        calls = [part for part in ast.walk(node) if isinstance(part, ast.Call)]
        callees = {id(call.func) for call in calls}
        self.owner.passed |= {
            self.owner.closure.functions[index].name
            for part in ast.walk(node)
            if isinstance(part, ast.Name | ast.Attribute)
            and id(part) not in callees
            and (index := self._helper(part)) is not None
        }
        for call in sorted(calls, key=lambda part: (part.lineno, part.col_offset, -(part.end_col_offset or 0))):
            access, helper = self._access(call), self._helper(call.func)
            if access is not None and self._asks_call(call):
                name = named[0] if named is not None and named[1] is call else None
                event = LogEvent(access) if access in ("load", "store") else LogEvent.ATOMIC
                reads = self._sites[id(statement)].reads if id(statement) in self._sites else ()
                number = self._add(event, statement, name, reads, line=self._line(call))
                self._note_load(call, number)
                is_block = not _OF_BLOCK_POINTERS.isdisjoint(keyword.arg for keyword in call.keywords)
                self.owner.blocks |= {self._line(call)} if is_block else set()
                self._redirect(call, f"kl_{access}_block" if is_block else f"kl_{access}", number)
            elif (descriptor := self._descriptor(call)) is not None and self._asks_call(call):
                name = named[0] if named is not None and named[1] is call else None
                self._redirect_descriptor(call, *descriptor, statement, name)
            elif helper is not None:
                self._redirect(call, self.owner.twin_name(helper), self._add(LogEvent.CALL, statement))

    def _descriptor(self, call: ast.Call) -> tuple[str, ast.expr] | None:
        """The access through a descriptor that a call is, and the descriptor: of its methods, or by a function.

        In Gluon, what has such methods lies in shared or tensor memory.
        """
        if self.function.kind == "gluon":
            return None
        name, operand = self._language_name(call.func), next(iter(call.args), None)
        if name in _FUNCTIONS_OF_DESCRIPTORS:
            is_plain = isinstance(operand, ast.Name) and not call.keywords
            return (_FUNCTIONS_OF_DESCRIPTORS[name], operand) if is_plain and operand is not None else None
        function = call.func
        if not isinstance(function, ast.Attribute) or function.attr not in _OF_DESCRIPTORS or call.keywords:
            return None
        is_variable = isinstance(function.value, ast.Name) and self._binding(function.value.id) is None
        return (function.attr, function.value) if is_variable else None

    def _redirect_descriptor(
        self, call: ast.Call, access: str, descriptor: ast.expr, statement: ast.stmt, name: str | None
    ) -> None:
        assert isinstance(descriptor, ast.Name)
        reads = self._sites[id(statement)].reads if id(statement) in self._sites else ()
        argument = self._described_argument(descriptor.id)
        number = self._add(_OF_DESCRIPTORS[access], statement, name, reads, self._line(call), argument)
        self._note_load(call, number)
        self.edits.replace_callee(call, f"kl_descriptor_{access}")
        is_method = isinstance(call.func, ast.Attribute) and call.func.value is descriptor
        self.edits.add_arguments(call, f"{_REGION}, {number}" + (f", {descriptor.id}" if is_method else ""))

    def _described_argument(self, name: str) -> str | None:
        """The kernel's parameter that a descriptor is, or that it was built on in the kernel."""
        if not self.is_kernel or name in self._parameters():
            return name if self.is_kernel else None
        assigned = [assigned_values(statement).get(name) for statement in statements_of(self.edits.body)]
        bases = {self._base(value) for value in assigned if value is not None}
        return bases.pop() if len(bases) == 1 else None

    def _base(self, value: ast.expr) -> str | None:
        """The parameter that an expression builds a descriptor on."""
        is_descriptor = isinstance(value, ast.Call) and self._language_name(value.func) == "make_tensor_descriptor"
        if not is_descriptor or not isinstance(value, ast.Call):
            return None
        base = next(iter(value.args), None) or next((k.value for k in value.keywords if k.arg == "base"), None)
        return base.id if isinstance(base, ast.Name) and base.id in self._parameters() else None

    def _redirect(self, call: ast.Call, name: str, number: int) -> None:
        self.edits.replace_callee(call, name)
        self.edits.add_arguments(call, f"{_REGION}, {number}")

    def _note_load(self, call: ast.Call, number: int) -> None:
        if self._is_load(call):
            self._loads[id(call)] = number

    def _is_load(self, call: ast.Call) -> bool:
        descriptor = self._descriptor(call)
        if descriptor is not None:
            return _OF_DESCRIPTORS[descriptor[0]] is LogEvent.LOAD
        return self._access(call) == "load"

    def _asks_call(self, call: ast.Call) -> bool:
        return self.owner.is_asked(self._line(call))

    def _access(self, call: ast.Call) -> str | None:
        """The access of Triton's language that a call is, by its name."""
        name = self._language_name(call.func)
        return name if name in _ACCESSES else None

    def _language_name(self, function: ast.expr) -> str | None:
        """The name of a function of Triton's language, None for another one."""
        is_member = isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name)
        owner = function.value if isinstance(function, ast.Attribute) else function
        binding = self._binding(owner.id) if isinstance(owner, ast.Name) else None
        if not isinstance(binding, Import) or binding.module not in _LANGUAGE:
            return None
        if isinstance(function, ast.Attribute):
            return function.attr if is_member and not binding.attribute else None
        return binding.attribute

    def _helper(self, expression: ast.expr) -> int | None:
        """The index of the jit function of the closure that an expression names."""
        binding = self._resolve(expression)
        reference = binding.function if isinstance(binding, Helper) else binding
        if (
            not isinstance(reference, FunctionRef)
            or self.owner.closure.functions[reference.index].kind not in JIT_KINDS
        ):
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
        loads: tuple[int, ...] = (),
    ) -> int:
        file, line = self.owner.closure.label(self.function.file), self._line(node) if line is None else line
        site = LogSite(event, self.function.name, file, line, name, reads, self.owner.statements, argument, loads)
        return self.owner.add(site)


def _always_returns(block: list[ast.stmt]) -> bool:
    """Whether no execution reaches the end of a block."""
    last = block[-1]
    if isinstance(last, ast.If):
        return bool(last.orelse) and _always_returns(last.body) and _always_returns(last.orelse)
    return isinstance(last, ast.Return)
