"""The picture of a program before it is laid out: kernels, operations, and the tensors between them.

A tensor that a step changes is drawn once more after that step, so that arrows tell what each step really reads.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kernellab.capture.tape import COPY, WINDOW, KernelUse, Layout, Step, Tape, refs_in

EMPTY = ("aten.empty", "aten.new_empty")
VIEWS = frozenset(
    f"aten.{name}"
    for name in (
        *(
            "view",
            "_unsafe_view",
            "reshape",
            "_reshape_alias",
            "transpose",
            "permute",
            "t",
            "expand",
            "slice",
            "select",
        ),
        *("unsqueeze", "squeeze", "detach", "alias", "as_strided", "split", "chunk", "narrow", "unbind", "diagonal"),
    )
)
AT_MOST = 120  # boxes; above that, kernels and what goes in and out are drawn alone


class Role(StrEnum):
    """What a box stands for. A tensor and a view are text on an arrow, all others have an outline."""

    INPUT = "input"
    OUTPUT = "output"
    KERNEL = "kernel"
    OPERATION = "operation"
    TENSOR = "tensor"


@dataclass(frozen=True, slots=True)
class Box:
    id: str
    role: Role
    lines: tuple[str, ...]
    tip: str


@dataclass(frozen=True, slots=True)
class Arrow:
    """An arrow; ``changes`` tells that its tail writes into memory that was there already."""

    tail: str
    head: str
    changes: bool = False


@dataclass(frozen=True, slots=True)
class Picture:
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    is_contracted: bool = False


def picture_of(tape: Tape) -> Picture:
    """Return the picture of a program; of a long one, its kernels with what goes in and out."""
    drawn = _Drawn(tape)
    for number, step in enumerate(tape.steps):
        drawn.add(number, step)
    whole = _pruned(drawn.finished())
    return whole if len(whole.boxes) <= AT_MOST else _contracted(whole)


def shape_words(layout: Layout) -> str:
    """Return dtype and shape: ``f32[4, 100, 32]``."""
    short = layout.dtype.replace("float", "f").replace("uint", "u").replace("bf", "bf").replace("int", "i")
    return f"{short}[{', '.join(map(str, layout.shape))}]"


@dataclass(slots=True)
class _Drawn:
    """Boxes and arrows so far; ``newest`` gives what a storage was changed into last, ``of`` the box of a value."""

    tape: Tape
    boxes: list[Box] = field(default_factory=list)
    arrows: list[Arrow] = field(default_factory=list)
    of: dict[int, str] = field(default_factory=dict)
    newest: dict[int, tuple[int, str]] = field(default_factory=dict)  # (step, box)
    made: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for index in (*self.tape.inputs, *(index for index, _ in self.tape.constants)):
            role = Role.INPUT if index in self.tape.inputs else Role.TENSOR
            self._tensor(index, f"v{index}", role)

    def add(self, number: int, step: Step) -> None:
        if step.operation.startswith(EMPTY):
            return
        read = [index for index in _read(step) if self._source(index)]
        made = [index for index in step.results if index >= 0]
        if _is_view(step):
            for index in made:
                name = self.tape.values[index].name
                words = _name(step) if name.strip("_").startswith(_name(step)) else f"{name} = {_name(step)}"
                self._tensor(index, f"v{index}", Role.TENSOR, words)
                self.arrows += [Arrow(self._source(i), f"v{index}") for i in read]
                self.made[index] = number
            return
        box = f"s{number}"
        self.boxes.append(_step_box(box, step))
        self.arrows += [Arrow(self._source(index), box) for index in read]
        changed = () if step.functional else step.mutated
        for index in made:
            self._tensor(index, f"v{index}", Role.TENSOR)
            self.made[index] = number
            self.arrows.append(Arrow(box, f"v{index}", changes=False))
        for index in changed:
            label = f"v{index}.{number}"
            self._tensor(index, label, Role.TENSOR)
            self.newest[self.tape.values[index].storage] = (number, label)
            self.arrows.append(Arrow(box, label, changes=True))

    def finished(self) -> Picture:
        """Return the picture, with the boxes that hold the outputs marked."""
        ends = {
            self._source(index): name for name, index in zip(self.tape.output_names, self.tape.outputs, strict=True)
        }
        boxes = [
            Box(box.id, Role.OUTPUT, (ends[box.id], *box.lines[1:]), box.tip)
            if box.id in ends and box.role is Role.TENSOR
            else box
            for box in self.boxes
        ]
        return Picture(tuple(boxes), tuple(dict.fromkeys(self.arrows)))

    def _source(self, index: int) -> str:
        """Return the box that holds what a value is now, or "" where nothing was written to it."""
        number, label = self.newest.get(self.tape.values[index].storage, (-1, ""))
        return label if number > self.made.get(index, -1) or index not in self.of else self.of[index]

    def _tensor(self, index: int, box: str, role: Role, words: str = "") -> None:
        value = self.tape.values[index]
        name = words or value.name
        tip = f"{value.name}: {value.layout.dtype}, shape {value.layout.shape}, strides {value.layout.stride}, "
        tip += f"{value.layout.size_bytes:,} bytes"
        self.boxes.append(Box(box, role, (name, shape_words(value.layout)), tip))
        self.of[index] = box


def _read(step: Step) -> Iterator[int]:
    """Yield the values whose contents a step reads; a kernel tells by its effects."""
    use = step.use
    if use is None:
        yield from step.taken
        return
    for name, value in step.kwargs:
        if not use.complete or any(known.split("[")[0] == name for known in use.read):
            yield from (ref.index for ref in refs_in(value) if _reads(use, name, value, ref.index))


def _reads(use: KernelUse, name: str, value: Any, index: int) -> bool:
    """Tell whether a kernel reads a value of an argument, which is one of several where that is a tuple."""
    if not isinstance(value, tuple) or not use.complete:
        return True
    return any(f"{name}[{i}]" in use.read for i, v in enumerate(value) for ref in refs_in(v) if ref.index == index)


def _is_view(step: Step) -> bool:
    return step.operation == WINDOW or ".".join(step.operation.split(".")[:2]) in VIEWS


def _name(step: Step) -> str:
    if step.operation in (WINDOW, COPY):
        return {WINDOW: "view", COPY: "copy"}[step.operation]
    return step.operation.split(".")[1].removeprefix("_unsafe").strip("_") + (
        "_" if step.mutated and not step.results else ""
    )


def _step_box(box: str, step: Step) -> Box:
    use = step.use
    if use is None:
        return Box(box, Role.OPERATION, (_name(step),), f"{step.operation}\n{step.place}".strip())
    grid = f"grid {' x '.join(map(str, use.grid))}"
    constants = ", ".join(f"{n}={v!r}" for n, v in use.options)
    ids = f"kernel {use.kernel_id}, constants {use.constants_id}, launch {use.launch_id}"
    changed = f"changes {', '.join(sorted(use.mutated)) or 'nothing'}"
    tip = "\n".join(part for part in (f"{use.kernel}, {grid}", ids, changed, constants, step.place) if part)
    return Box(box, Role.KERNEL, (use.kernel, grid), tip)


def _pruned(picture: Picture) -> Picture:
    """Return a picture without what leads nowhere."""
    boxes, arrows = picture.boxes, picture.arrows
    while True:
        tails = {arrow.tail for arrow in arrows}
        kept = tuple(b for b in boxes if b.id in tails or b.role in (Role.KERNEL, Role.OUTPUT, Role.INPUT))
        if len(kept) == len(boxes):
            return Picture(boxes, arrows)
        ids = {box.id for box in kept}
        boxes, arrows = kept, tuple(arrow for arrow in arrows if arrow.head in ids)


def _contracted(picture: Picture) -> Picture:
    """Return the kernels, inputs and outputs of a picture, with an arrow where something leads from one to another."""
    kept = {box.id for box in picture.boxes if box.role in (Role.KERNEL, Role.INPUT, Role.OUTPUT)}
    following = defaultdict(list)
    for arrow in picture.arrows:
        following[arrow.tail].append(arrow.head)
    arrows = []
    for start in (box.id for box in picture.boxes if box.id in kept):
        todo, seen = list(following[start]), set[str]()
        while todo:
            box = todo.pop()
            if box not in seen:
                seen.add(box)
                if box in kept:
                    arrows.append(Arrow(start, box))
                else:
                    todo += following[box]
    return Picture(tuple(box for box in picture.boxes if box.id in kept), tuple(arrows), is_contracted=True)
