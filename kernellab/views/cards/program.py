"""A captured program as text, as a picture, and as a card of both."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from html import escape

from kernellab.capture.program import Program
from kernellab.capture.tape import COPY, LAUNCH, WINDOW, Step, Tape, TensorLayout, refs_in
from kernellab.errors import plural
from kernellab.views import elements
from kernellab.views.blocks import WARNING, Block, Card, Drawing, Fold, Heading, Message, Section, text_only
from kernellab.views.cards.card import in_frame
from kernellab.views.graph.diagram import ArrowKind, BoxKind, Diagram, Edge, Node
from kernellab.views.graph.drawing import picture

_LINES_AT_MOST = 200


def program_card(program: Program) -> Card:
    """Return the picture, with the facts above it and the steps below."""
    if not program.is_complete:
        words = f"incomplete program: {program.problem}"
        alert = Message(f"An {words}.", "kl-alert", in_text=False)
        return Card([Section(None, [alert, text_only([f"an {words}"])])])
    lines, count = _step_lines(program.tape), plural(len(program.tape.steps), "step")
    steps = Drawing(lambda: f"<pre>{escape(chr(10).join(lines))}</pre>", lambda _: lines)
    blocks: list[Block] = [
        *(Message(note, WARNING, prefix="note: ") for note in program.notes),
        Drawing(lambda: _picture(program)),
        Fold("Steps", [steps], count),
    ]
    facts = _facts(program)
    title = text_only([f"program: {', '.join(facts)}"])
    return Card([Section(Heading("program", facts, in_text=False), [title, *blocks])])


def _picture(program: Program) -> str:
    words = "The picture shows kernels, inputs and outputs alone; program.frame lists every step."
    diagram = program_diagram(program.tape)
    note = Message(words).html() if diagram.is_contracted else ""
    return f"{note}\n{in_frame(picture(diagram))}"


def _step_lines(tape: Tape) -> list[str]:
    """Return a line for each input and step: what happens, and the layouts of what comes of it."""
    rows = [*_rows(tape)]
    width = min(max((len(left) for left, _ in rows), default=0), 90)
    shown = [f"  {left.ljust(width)}  {right}".rstrip() for left, right in rows[:_LINES_AT_MOST]]
    if len(rows) > _LINES_AT_MOST:
        shown.append(f"  ... {len(rows) - _LINES_AT_MOST:,} more; program.frame has all")
    return [*shown, f"  return {', '.join(tape.output_names) or 'nothing'}"]


def _facts(program: Program) -> list[str]:
    tape, plan = program.tape, program.plan
    launches = len(tape.launches)
    facts = [
        plural(len(tape.inputs), "input"),
        plural(launches, "launch"),
        f"{plural(len(tape.steps) - launches, 'operation')} of torch",
        plural(len(tape.outputs), "output"),
    ]
    peak, whole = elements.size_words(plan.peak_bytes), elements.size_words(plan.unplanned_bytes)
    return [*facts, f"memory {peak} planned, {whole} unplanned"]


def _rows(tape: Tape) -> Iterator[tuple[str, str]]:
    for index in tape.inputs:
        yield f"{tape.values[index].name} = input", shape_words(tape.values[index].layout)
    for step in tape.steps:
        results = [index for index in step.results if index >= 0]
        names = ", ".join(tape.values[index].name for index in results)
        seen = [*results, *step.mutated]
        layouts = ", ".join(dict.fromkeys(shape_words(tape.values[index].layout) for index in seen))
        yield f"{names} = {_call(tape, step)}" if names else _call(tape, step), layouts


def _call(tape: Tape, step: Step) -> str:
    """Return a call as a line; ``*`` marks what it changes."""
    changed = set() if step.functional else set(step.mutated)

    def name(index: int) -> str:
        return f"*{tape.values[index].name}" if index in changed else tape.values[index].name

    if step.operation != LAUNCH or step.use is None:
        arguments = [*step.args, *(value for _, value in step.kwargs)]
        names = ", ".join(name(ref.index) for value in arguments for ref in refs_in(value))
        return f"{step.operation.removeprefix('aten.').removesuffix('.default')}({names})"
    grid = ", ".join(map(str, step.use.grid))
    names = ", ".join(name(ref.index) for _, value in step.kwargs for ref in refs_in(value))
    return f"{step.use.kernel}[{grid}]({names})"


EMPTY = ("aten.empty", "aten.new_empty")
_VIEWS = (
    "view _unsafe_view reshape _reshape_alias transpose permute t expand slice select unsqueeze squeeze detach alias "
    "as_strided split chunk narrow unbind diagonal"
)
VIEWS = frozenset(f"aten.{name}" for name in _VIEWS.split())
AT_MOST = 120  # boxes; above that, kernels and what goes in and out are drawn alone


def program_diagram(tape: Tape) -> Diagram:
    """Return the diagram of a program: kernels, operations, and the tensors between them, as text on the arrows.

    A tensor that a step changes is drawn once more after that step, so that arrows show what each step really reads.
    Of a long program, the diagram has its kernels with what goes in and out.
    """
    builder = _DiagramBuilder(tape)
    for number, step in enumerate(tape.steps):
        builder.add(number, step)
    whole = _prune(builder.diagram())
    return whole if len(whole.nodes) <= AT_MOST else _contract(whole)


def shape_words(layout: TensorLayout) -> str:
    """Return dtype and shape: ``f32[4, 100, 32]``."""
    short = layout.dtype.replace("float", "f").replace("uint", "u").replace("int", "i")
    return f"{short}[{', '.join(map(str, layout.shape))}]"


@dataclass(slots=True)
class _DiagramBuilder:
    """Boxes and arrows so far: ``newest`` box of each storage, box ``of`` each value."""

    tape: Tape
    boxes: list[Node] = field(default_factory=list)
    arrows: list[Edge] = field(default_factory=list)
    of: dict[int, str] = field(default_factory=dict)
    newest: dict[int, tuple[int, str]] = field(default_factory=dict)  # (step, box)
    step_of: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for index in (*self.tape.inputs, *(index for index, _ in self.tape.constants)):
            kind = BoxKind.ARGUMENT if index in self.tape.inputs else BoxKind.TENSOR
            self._tensor(index, f"v{index}", kind)

    def add(self, number: int, step: Step) -> None:
        if step.operation.startswith(EMPTY):
            return
        read = [index for index in _read(step) if self._source(index)]
        results = [index for index in step.results if index >= 0]
        if step.operation == WINDOW or ".".join(step.operation.split(".")[:2]) in VIEWS:
            for index in results:
                name = self.tape.values[index].name
                words = _name(step) if name.strip("_").startswith(_name(step)) else f"{name} = {_name(step)}"
                self._tensor(index, f"v{index}", BoxKind.TENSOR, words)
                self.arrows += [Edge(self._source(i), f"v{index}", ArrowKind.VALUE, "") for i in read]
                self.step_of[index] = number
            return
        box = f"s{number}"
        self.boxes.append(_step_box(box, step))
        self.arrows += [Edge(self._source(index), box, ArrowKind.VALUE, "") for index in read]
        for index in results:
            self._tensor(index, f"v{index}", BoxKind.TENSOR)
            self.step_of[index] = number
            self.arrows.append(Edge(box, f"v{index}", ArrowKind.VALUE, ""))
        for index in () if step.functional else step.mutated:
            label = f"v{index}.{number}"
            self._tensor(index, label, BoxKind.TENSOR)
            self.newest[self.tape.values[index].storage] = (number, label)
            self.arrows.append(Edge(box, label, ArrowKind.CHANGE, ""))

    def diagram(self) -> Diagram:
        """Return the picture, with the boxes that hold the outputs marked."""
        outputs = zip(self.tape.output_names, self.tape.outputs, strict=True)
        names = {self._source(index): name for name, index in outputs}
        for at, box in enumerate(self.boxes):
            if box.id in names and box.kind is BoxKind.TENSOR:
                self.boxes[at] = replace(box, kind=BoxKind.OUTPUT, lines=(names[box.id], *box.lines[1:]))
        return Diagram("program", tuple(self.boxes), tuple(dict.fromkeys(self.arrows)))

    def _source(self, index: int) -> str:
        """Return the box of the current content of a value, or "" where nothing was written to it."""
        number, label = self.newest.get(self.tape.values[index].storage, (-1, ""))
        return label if number > self.step_of.get(index, -1) or index not in self.of else self.of[index]

    def _tensor(self, index: int, box: str, kind: BoxKind, words: str = "") -> None:
        value = self.tape.values[index]
        name = words or value.name
        tip = f"{value.name}: {value.layout.dtype}, shape {value.layout.shape}, strides {value.layout.stride}, "
        tip += f"{value.layout.size_bytes:,} bytes"
        self.boxes.append(Node(box, (name, shape_words(value.layout)), kind, tip))
        self.of[index] = box


def _read(step: Step) -> Iterator[int]:
    """Yield the values that a step reads; for a kernel, by its effects."""
    use = step.use
    if use is None:
        yield from step.operands
        return
    for name, value in step.kwargs:
        members = {name: value}
        if isinstance(value, tuple):
            members = {f"{name}[{at}]": part for at, part in enumerate(value)}
        for member, part in members.items():
            if not use.complete or any(known == member or known.startswith(f"{member}[") for known in use.read):
                yield from (ref.index for ref in refs_in(part))


def _name(step: Step) -> str:
    if step.operation in (WINDOW, COPY):
        return {WINDOW: "view", COPY: "copy"}[step.operation]
    ending = "_" if step.mutated and not step.results else ""
    return step.operation.split(".")[1].removeprefix("_unsafe").strip("_") + ending


def _step_box(box: str, step: Step) -> Node:
    use = step.use
    if use is None:
        return Node(box, (_name(step),), BoxKind.COMPUTE, f"{step.operation}\n{step.place}".strip())
    grid = f"grid {' x '.join(map(str, use.grid))}"
    constants = ", ".join(f"{n}={v!r}" for n, v in use.options)
    ids = f"kernel {use.kernel_id}, constants {use.constants_id}, launch {use.launch_id}"
    changed = f"changes {', '.join(sorted(use.mutated)) or 'nothing'}"
    tip = "\n".join(part for part in (f"{use.kernel}, {grid}", ids, changed, constants, step.place) if part)
    return Node(box, (use.kernel, grid), BoxKind.KERNEL, tip)


def _prune(diagram: Diagram) -> Diagram:
    """Drop boxes and arrows that lead nowhere."""
    boxes, arrows = diagram.nodes, diagram.edges
    while True:
        tails = {arrow.tail for arrow in arrows}
        kept = tuple(b for b in boxes if b.id in tails or b.kind in (BoxKind.KERNEL, BoxKind.OUTPUT, BoxKind.ARGUMENT))
        if len(kept) == len(boxes):
            return Diagram(diagram.title, boxes, arrows)
        ids = {box.id for box in kept}
        boxes, arrows = kept, tuple(arrow for arrow in arrows if arrow.head in ids)


def _contract(diagram: Diagram) -> Diagram:
    """Keep kernels, inputs and outputs, with an arrow for each path between two of them."""
    kept = {box.id for box in diagram.nodes if box.kind in (BoxKind.KERNEL, BoxKind.ARGUMENT, BoxKind.OUTPUT)}
    following = defaultdict(list)
    for arrow in diagram.edges:
        following[arrow.tail].append(arrow.head)
    arrows = []
    for start in (box.id for box in diagram.nodes if box.id in kept):
        todo, seen = list(following[start]), set[str]()
        while todo:
            box = todo.pop()
            if box not in seen:
                seen.add(box)
                if box in kept:
                    arrows.append(Edge(start, box, ArrowKind.VALUE, ""))
                else:
                    todo += following[box]
    nodes = tuple(box for box in diagram.nodes if box.id in kept)
    return Diagram(diagram.title, nodes, tuple(arrows), is_contracted=True)
