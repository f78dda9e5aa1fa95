"""A captured program as text, as a picture, and as a card of both."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from kernellab.capture.program import Program
from kernellab.capture.tape import LAUNCH, Step, Tape, refs_in
from kernellab.views import sections, wording
from kernellab.views.program_diagram import picture_of, shape_words
from kernellab.views.program_drawing import picture_svg

_LINES_AT_MOST = 200
_BOXES_AT_MOST = 400


def program_text(program: Program) -> str:
    """Return what the program takes and gives, its memory, then a line for each input and step."""
    if not program.is_complete:
        return f"an incomplete program: {program.problem}"
    tape = program.tape
    lines = [f"program: {', '.join(_facts(program))}", *(f"note: {note}" for note in program.notes)]
    rows = [*_rows(tape)]
    width = min(max((len(left) for left, _ in rows), default=0), 90)
    shown = [f"  {left.ljust(width)}  {right}".rstrip() for left, right in rows[:_LINES_AT_MOST]]
    if len(rows) > _LINES_AT_MOST:
        shown.append(f"  ... {len(rows) - _LINES_AT_MOST:,} more; program.frame has all")
    gives = ", ".join(tape.output_names) or "nothing"
    return "\n".join([*lines, *shown, f"  return {gives}"])


def program_svg(program: Program) -> str:
    """Return the program as one ``<svg>`` element; as text where it is too large, or cannot be laid out."""
    picture = picture_of(program.tape)
    drawn = picture_svg(picture, "program") if len(picture.boxes) <= _BOXES_AT_MOST else None
    return drawn or f"<pre>{escape(program_text(program))}</pre>"


def program_html(program: Program) -> str:
    """Return the picture with the facts above it and the steps below."""
    if not program.is_complete:
        message = sections.message("kl-alert", f"An incomplete program: {program.problem}.")
        return sections.framed(f'<div class="kl-body">{message}</div>')
    notes = [sections.message("kl-note kl-warn", note) for note in program.notes]
    if picture_of(program.tape).is_contracted:
        words = "The picture shows kernels, inputs and outputs alone; program.frame lists every step."
        notes.append(sections.message("kl-note", words))
    steps = sections.details(
        "Steps",
        wording.plural(len(program.tape.steps), "step"),
        f"<pre>{escape(program_text(program))}</pre>",
        is_open=False,
    )
    heading = sections.header("program", _facts(program))
    return sections.framed(sections.section(heading, *notes, sections.scrolling(program_svg(program)), steps))


def _facts(program: Program) -> list[str]:
    tape, plan = program.tape, program.plan
    launches = len(tape.launches)
    facts = [
        wording.plural(len(tape.inputs), "input"),
        wording.plural(launches, "launch"),
        f"{wording.plural(len(tape.steps) - launches, 'operation')} of torch",
        wording.plural(len(tape.outputs), "output"),
    ]
    peak, whole = wording.size_words(plan.peak_bytes), wording.size_words(plan.unplanned_bytes)
    facts.append(f"memory {peak} planned, {whole} unplanned")
    return facts


def _rows(tape: Tape) -> Iterator[tuple[str, str]]:
    """Yield (what happens, what comes of it)."""
    for index in tape.inputs:
        yield f"{tape.values[index].name} = input", shape_words(tape.values[index].layout)
    for step in tape.steps:
        made = [index for index in step.results if index >= 0]
        names = ", ".join(tape.values[index].name for index in made)
        seen = [*made, *step.mutated]
        layouts = ", ".join(dict.fromkeys(shape_words(tape.values[index].layout) for index in seen))
        yield f"{names} = {_call(tape, step)}" if names else _call(tape, step), layouts


def _call(tape: Tape, step: Step) -> str:
    """Return a call as a line; ``*`` marks what it changes."""
    changed = set() if step.functional else set(step.mutated)

    def name(index: int) -> str:
        return f"*{tape.values[index].name}" if index in changed else tape.values[index].name

    if step.operation != LAUNCH or step.use is None:
        given = [*step.args, *(value for _, value in step.kwargs)]
        taken = ", ".join(name(ref.index) for value in given for ref in refs_in(value))
        return f"{step.operation.removeprefix('aten.').removesuffix('.default')}({taken})"
    grid = ", ".join(map(str, step.use.grid))
    taken = ", ".join(name(ref.index) for _, value in step.kwargs for ref in refs_in(value))
    return f"{step.use.kernel}[{grid}]({taken})"
