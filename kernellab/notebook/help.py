"""The help: ``%triton`` lists what there is, ``%triton_help WORD`` shows the page of a word.

Words are magics, verbs, results, options, causes, statuses, columns and kinds of export. All that a page says comes
from the docstrings, the parsers and the tables of these.
"""

from __future__ import annotations

import argparse
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, wraps
from html import escape
from importlib import import_module
from typing import Any

from IPython.core.magic import line_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments

from kernellab.display import Drawable
from kernellab.errors import UsageError
from kernellab.export import EXPORT_KINDS
from kernellab.notebook.expressions import parse_options
from kernellab.notebook.magics import LabMagics, StoreMagics, TritonMagics
from kernellab.notebook.measuring_magics import MeasuringMagics
from kernellab.notebook.topics import NEEDS_GPU, TOPICS
from kernellab.views.blocks import WIDTH, Block, Card, Drawing, Heading, PlainText, Section, html_table
from kernellab.views.elements import text_html

_PACKAGE = import_module("kernellab")  # for its list of public names, whatever rooms they are from
_MEANING = re.compile(r"``([\w ]+)``: ([^.]+)\.")


@dataclass(frozen=True, slots=True)
class Magic:
    """A magic: ``%%triton`` or ``%triton_ls``, the function behind it, and its parser where it has one."""

    label: str
    function: Callable[..., Any]
    parser: argparse.ArgumentParser | None

    @property
    def name(self) -> str:
        """The name without percent signs."""
        return self.label.lstrip("%")

    @property
    def text(self) -> str:
        """The docstring."""
        own = self.parser.description if self.parser else self.function.__doc__
        return inspect.cleandoc(own or "")

    @property
    def usage(self) -> str:
        """The line of arguments and options: ``%triton_tag [--remove] kernel [tags ...]``."""
        if self.parser is None:
            return self.label
        words = " ".join(self.parser.format_usage().split()).partition("%")[2].lstrip("%")
        return self.label[: self.label.count("%")] + words

    @property
    def parameters(self) -> list[argparse.Action]:
        """Its arguments, then its options."""
        actions = [] if self.parser is None else self.parser._actions
        return sorted((a for a in actions if a.help != argparse.SUPPRESS), key=lambda a: bool(a.option_strings))


@magics_class
class HelpMagics(LabMagics):
    """``%triton_help`` and ``%triton``."""

    @magic_arguments()
    @argument("word", nargs="?", default="", help="A magic, a verb of the lab, an option, a result, a cause, a status.")
    @line_magic
    def triton_help(self, line: str) -> Card:
        """List what the lab can do, or show the page of a word: %triton_help tune."""
        word = line.split() and parse_options(self.triton_help, "%triton_help", f'"{line.strip()}"').word
        return page_of(word) if word else overview()

    @line_magic("triton")
    def triton_overview(self, line: str) -> Card:
        """List what the lab can do; ``%triton tune`` is short for ``%triton_help tune``."""
        page: Card = self.triton_help(line)
        return page


MAGICS = (TritonMagics, StoreMagics, MeasuringMagics, HelpMagics)


@cache
def magics() -> tuple[Magic, ...]:
    """Return every magic that the extension registers, cell magics first."""
    magics = list[Magic]()
    for kind, sign in (("cell", "%%"), ("line", "%")):
        for family in MAGICS:
            for name, attribute in family.magics[kind].items():
                function = getattr(family, attribute) if isinstance(attribute, str) else attribute
                magics.append(Magic(sign + name, function, getattr(function, "parser", None)))
    return tuple(magics)


def overview() -> Card:
    """Return the list of magics and verbs by task, with a line and an example each."""
    lead = (
        "In the examples, add_kernel, grid and the arguments are your own; lab comes from `import kernellab` and "
        "`lab = kernellab.current_lab()`. "
        "%triton_help tune shows a page; so does any other word of this list, an option (--check) or a cause."
    )
    blocks: list[Block] = [_paragraph(lead)]
    for purpose, examples in TOPICS.items():
        blocks.append(_topic(purpose, [(name, summary_of(name), example) for name, example in examples.items()]))
    return Card([Section(Heading("kernellab", ["what you can do"]), blocks)])


def page_of(word: str) -> Card:
    """Return the page of a word.

    Raises:
        UsageError: the word is unknown; it names similar ones.
    """
    sections = [*_sections(word)]
    if sections:
        return Card(sections, WIDTH)
    plain = word.lstrip("%-").lower()
    stem = re.sub(r"(?<=\w{4})(ing|ed|es|e|s)$", "", plain)  # coalescing is coalesced
    named = [known for known in words() if stem and stem in known][:2]
    close = list(dict.fromkeys([*get_close_matches(plain, words(), 3, 0.75), *named, *_verbs_about(stem)]))[:4]
    advice = f"did you mean {' or '.join(close)}? " if close else ""
    raise UsageError(f"No help on {word!r}; {advice}%triton lists what there is.")


def with_help(label: str, function: Callable[..., Any], prepare: Callable[[], None]) -> Callable[..., Any]:
    """Return the function of a magic, such that ``--help`` at either end of its line shows its page.

    ``prepare`` is called before either.
    """

    @wraps(function)
    def run(line: str, *cell: str) -> Any:
        __tracebackhide__ = True
        prepare()
        words = line.split()
        is_asked = words == ["-h"] or "--help" in (*words[:1], *words[-1:])
        return page_of(label) if is_asked else function(line, *cell)

    return run


def _verbs_about(word: str) -> Iterator[str]:
    """Yield the names with a word in their purpose, summary or example."""
    for purpose, examples in TOPICS.items() if word else ():
        for name, example in examples.items():
            if re.search(rf"\b{re.escape(word)}", f"{purpose} {summary_of(name)} {example}", re.IGNORECASE):
                yield short_name(name)


@cache
def words() -> tuple[str, ...]:
    """Return the words that have a page, in their shortest form."""
    own = [short_name(name) for examples in TOPICS.values() for name in examples]
    results = [name for name in _PACKAGE.__all__ if name[0].isupper()]
    names = (name for magic in magics() for action in magic.parameters for name in action.option_strings)
    options = [name.lstrip("-") for name in names if name.startswith("--")]
    return tuple(dict.fromkeys((*own, *results, *options, *_plain_words())))


def short_name(name: str) -> str:
    """Return a name without its percent signs and prefix: ``tune`` of ``%triton_tune`` and ``lab.tune``."""
    return re.sub(r"^(%+triton_|%+|--?|lab\.|kernellab\.|Lab\.|result\.|triton_)", "", name.strip())


def summary_of(name: str) -> str:
    """Return the first sentence on a magic, a verb or a function, without an example that follows a colon."""
    magic = next((magic for magic in magics() if magic.label == name), None)
    text = inspect.getdoc(member_of(name)) or "" if magic is None else magic.text
    sentence = re.split(r": [`%]|;|\.(?:\s|$)", " ".join(text.split()), maxsplit=1)[0].rstrip(".")
    return f"{sentence}{' (needs a GPU)' if name in NEEDS_GPU else ''}."


def member_of(name: str) -> Any:
    """Return the method behind ``lab.tune`` or ``result.plot``, or the member of the package."""
    owner, _, own = name.partition(".")
    return getattr({"lab": _PACKAGE.Lab, "result": Drawable}.get(owner, _PACKAGE), own)


def spelling_of(action: argparse.Action) -> str:
    """Return an argument as a user writes it: ``--timeout TIMEOUT``, ``tags ...``."""
    if not action.option_strings:
        return f"{action.dest} ..." if action.nargs in {"+", "*", argparse.REMAINDER} else action.dest
    choices = "" if action.choices is None else "|".join(action.choices)
    value = "" if action.nargs == 0 else f" {choices or action.metavar or action.dest.upper()}"
    return ", ".join(f"{option}{value}" for option in action.option_strings)


def help_of(action: argparse.Action) -> str:
    """Return the meaning of an argument."""
    return (action.help or "").replace("%%", "%")


def _sections(word: str) -> Iterator[Section]:
    """Yield a section for each magic, verb, result, option and other word of this name; a prefix says which."""
    own, prefix = short_name(word), re.match(r"%|triton_|--?|lab\.|", word)
    kind = {"triton_": "%", "--": "-"}.get(prefix[0], prefix[0]) if prefix else ""
    if kind in {"", "%"}:
        yield from (_magic_section(magic) for magic in magics() if short_name(magic.label) == own)
    names = [name for examples in TOPICS.values() for name in examples if not name.startswith("%")]
    if kind in {"", "lab."}:
        yield from (_verb_section(name) for name in names if short_name(name) == own)
    if kind == "" and own in _PACKAGE.__all__ and own[0].isupper() and f"kernellab.{own}" not in names:
        yield _result_section(own)
    options = ((magic.label, action) for magic in magics() for action in magic.parameters)
    taking = [(label, a) for label, a in options if own in {name.lstrip("-") for name in a.option_strings}]
    if taking and kind in {"", "-"}:
        table = _table([(f"{label} {spelling_of(action)}", help_of(action)) for label, action in taking])
        yield Section(Heading(f"--{own}" if len(own) > 1 else f"-{own}", ["option"]), [table])
    if kind == "":
        for fact, text in _plain_words().get(own, {}).items():
            yield Section(Heading(own, [fact]), [_paragraph(text)])


def _magic_section(magic: Magic) -> Section:
    rows = [(spelling_of(action), help_of(action)) for action in magic.parameters]
    returned = inspect.signature(magic.function).return_annotation
    gives = [] if returned in {"None", "str", "Card"} else _result_classes(returned)
    blocks = [_paragraph(magic.text), PlainText(_broken(magic.usage)), *([_table(rows)] if rows else []), *gives]
    kind = "cell magic" if magic.label.startswith("%%") else "line magic"
    return Section(Heading(magic.label, [kind]), [*blocks, *_example(magic.label)])


def _verb_section(name: str) -> Section:
    member = member_of(name)
    signature = inspect.signature(member)
    parameters = [p.replace(annotation=p.empty) for p in signature.parameters.values() if p.name != "self"]
    call = f"{name}{signature.replace(parameters=parameters, return_annotation=signature.empty)}"
    facts = ["needs a GPU"] if name in NEEDS_GPU else []
    text = [_paragraph(part) for part in re.split(r"\n\s*\n", inspect.getdoc(member) or "")]
    gives = _result_classes(str(signature.return_annotation)) if name.startswith("lab.") else []
    return Section(Heading(name, facts), [PlainText(_broken(call)), *text, *gives, *_example(name)])


def _result_classes(annotation: str) -> list[Block]:
    """Return a paragraph on each result class that an annotation names, with its fields."""
    kinds = [getattr(_PACKAGE, name) for name in re.findall(r"\w+", annotation) if name in _PACKAGE.__all__]
    return [_paragraph(f"Returns a {kind.__name__}: {', '.join(_fields(kind))}.") for kind in kinds]


def _result_section(name: str) -> Section:
    kind = getattr(_PACKAGE, name)
    text = [_paragraph(part) for part in re.split(r"\n\s*\n", inspect.getdoc(kind) or "")]
    return Section(Heading(name, ["result"]), [*text, _paragraph(f"It has {', '.join(_fields(kind))}.")])


def _fields(kind: type) -> list[str]:
    fields = [*getattr(kind, "__dataclass_fields__", {}), *dir(kind)]
    return [f".{name}" for name in dict.fromkeys(fields) if not name.startswith("_")]


def _example(name: str) -> list[Block]:
    examples = [table[name] for table in TOPICS.values() if name in table]
    return [_paragraph("Example:"), PlainText(examples[0])] if examples else []


@cache
def _plain_words() -> Mapping[str, Mapping[str, str]]:
    """Return causes, statuses, columns and kinds of export by name, each with what it is and its meaning."""
    from kernellab.explain.explanation import RULES  # needs Triton
    from kernellab.registry.listing import VersionStatus
    from kernellab.store.columns import OUTCOME_COLUMNS, Status

    kinds = {
        "cause of lost time": {str(cause): inspect.getdoc(rule) or "" for cause, rule in RULES.items()},
        "status of a config": dict(_MEANING.findall(" ".join((Status.__doc__ or "").split()))),
        "status of a kept kernel": dict(_MEANING.findall(" ".join((VersionStatus.__doc__ or "").split()))),
        "column of Tuning.frame": {name: column.meaning for name, column in OUTCOME_COLUMNS.items()},
        "kind of export": EXPORT_KINDS,
    }
    pages: dict[str, dict[str, str]] = {}
    for kind, meanings in kinds.items():
        for name, meaning in meanings.items():
            pages.setdefault(name, {})[kind] = f"{meaning[0].upper()}{meaning[1:].rstrip('.')}."
    return pages


def _paragraph(text: str) -> Block:
    """Return a text as a block."""
    plain = " ".join(text.split())
    return Drawing(lambda: f"<p>{text_html(plain)}</p>", lambda width: _wrap_lines(plain, min(width, WIDTH)))


def _table(rows: Sequence[tuple[str, str]]) -> Block:
    """Return two columns: a spelling and its meaning."""
    wide = min(max(len(spelling) for spelling, _ in rows), 34) + 2

    def lines(width: int) -> list[str]:
        return [line for spelling, meaning in rows for line in _hanging(spelling, meaning, wide, min(width, WIDTH))]

    html = [f"<tr><th scope='row'><code>{escape(a)}</code></th><td>{escape(b)}</td></tr>" for a, b in rows]
    return Drawing(lambda: html_table(html, style="kl-help"), lines)


def _topic(purpose: str, rows: Sequence[tuple[str, str, str]]) -> Block:
    """Return the names of a task, each with its summary and its example below that."""
    lines, cells = ["", purpose], list[str]()
    for name, summary, example in rows:
        lines += _hanging(f"  {name}", summary, 26, WIDTH)
        lines += [f"{'':26}{line}" for line in example.splitlines()]
        code = "<br>".join(escape(example).splitlines())
        head = f"<tr><th scope='row'><code>{escape(name)}</code></th>"
        cells.append(f"{head}<td>{text_html(summary)}<br><code>{code}</code></td></tr>")
    html = f"<h4>{escape(purpose)}</h4>{html_table(cells, style='kl-help')}"
    return Drawing(lambda: html, lambda _: lines)


def _hanging(head: str, text: str, indent: int, width: int) -> list[str]:
    """Return a text next to its head, wrapped in a column of its own; below the head where that is too long."""
    lines = _wrap_lines(text, width - indent)
    first = [f"{head:{indent}}{lines.pop(0)}".rstrip()] if len(head) < indent else [head]
    return [*first, *(" " * indent + line for line in lines)]


def _broken(call: str) -> str:
    return "\n".join(textwrap.wrap(call, WIDTH, subsequent_indent="    ", break_on_hyphens=False))


def _wrap_lines(text: str, width: int) -> list[str]:
    return textwrap.wrap(text.replace("``", "`"), max(width, 20), break_on_hyphens=False) or [""]
