"""What the command line takes, as an `argparse` parser; a wrong call is a `UsageError`."""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from kernellab import __version__
from kernellab.compile import STAGES
from kernellab.errors import UsageError
from kernellab.export import EXPORT_KINDS, kinds_help
from kernellab.tune import SEARCHES

_PAIR = re.compile(r"[^\W\d]\w*=[^=]")
FORM = "FILE.py::KERNEL"
TESTED = "tested with triton 3.6.0 and 3.9.0, torch 2.11 and 2.13"
_N = TypeVar("_N", int, float)


class _Parser(argparse.ArgumentParser):
    """Raises where `argparse` would write to standard error and exit."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}; see {self.prog} --help.")


class _Version(argparse.Action):
    """Prints the versions as one line; that of `argparse` breaks it."""

    def __call__(self, parser: argparse.ArgumentParser, *rest: object) -> None:
        print(version_text())
        parser.exit()


_ONE = "the file and the kernel in it; a file with one kernel needs no name"


def parser() -> argparse.ArgumentParser:
    """Return the parser; ``command`` of its result is a name in `kernellab.cli.kept.COMMANDS` or those of ``verbs``."""
    top = _Parser(
        prog="kernellab",
        description="A lab for Triton kernels. FILE.py defines a kernel and a function arguments(**sizes) that "
        "returns (grid, args, meta), or it was exported by kernellab.",
        epilog="Exit status: 0; 1: the kernel or its file failed, or judge did not accept it; 2: wrong call; 3: judge "
        "itself failed, or bench --against did not decide; 130: interrupted.",
    )
    top.add_argument("--version", action=_Version, nargs=0, help="print the versions, and which were tested")
    commands = top.add_subparsers(required=True, metavar="COMMAND", dest="command", parser_class=_Parser)
    compiled = _of_file(commands, "compile", "compile for a target: resources, effects, stages")
    compiled.add_argument("--stage", choices=STAGES, help="print the text of this stage")
    _of_file(commands, "effects", "print the memory effects on each argument")
    run = _of_file(commands, "run", "launch once, compare with the file's reference(), and keep the kernel")
    _add_check(run)
    run.add_argument("--interpret", action="store_true", help="run on the CPU, where every access is checked")
    _add_timeout(run, 60.0, "of the launch")
    _add_measuring(commands)
    _add_judge(commands)
    _add_keeping(commands)
    return top


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Parse the words of a call.

    Raises:
        UsageError: they are not a call; of a second NAME=V behind an option, it says how to repeat the option.
    """
    top = parser()
    args, rest = top.parse_known_args(words)
    if rest:
        top.error(f"unrecognized arguments: {' '.join(rest)}{_repetition(words, rest)}")
    return args


def _repetition(words: Sequence[str], rest: Sequence[str]) -> str:
    """Return the right spelling of NAME=V that follow the NAME=V of an option, or ""."""
    before = list(words[: words.index(rest[0])])
    option, _, first = before.pop().partition("=") if before and before[-1].startswith("--") else ("", "", "")
    if not first and len(before) > 1:
        option, first = before[-2:]
    if not option.startswith("--") or not all(map(_PAIR.match, (first, *rest))):
        return ""
    return f"; give {option} once for each: {' '.join(f'{option} {pair}' for pair in (first, *rest))}"


def version_text() -> str:
    """Return the versions of the lab, Triton and torch, and with which of these it was tested."""
    versions = " and ".join(f"{name} {_version_of(name)}" for name in ("triton", "torch"))
    return f"kernellab {__version__}, with {versions}; {TESTED}"


def _version_of(name: str) -> str:
    from importlib import metadata  # takes a third of the start

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def _add_measuring(commands: Any) -> None:
    _of_file(commands, "traffic", "count sectors and wavefronts of each memory access; needs no GPU")
    explain = _of_file(commands, "explain", "say what limits a launch and what to change", f"{_ONE}; or a kept NAME")
    explain.add_argument("--fresh", action="store_true", help="explain again what was explained before")
    explain.add_argument("--samples", action="store_true", help="add a profile of stall reasons by line; needs a GPU")
    _add_timeout(explain, 60.0, "of a launch")
    predict = _of_file(commands, "predict", "predict the time of a launch; needs no GPU", f"{_ONE}; or a kept NAME")
    predict.add_argument("--device", help="the GPU to predict for, such as h100, a100-40 or rtx4090")
    tune = _of_file(commands, "tune", "find the fastest config", f"{_ONE}; or a kept NAME")
    values = (
        "values of a constexpr or option to try; repeatable; default: those of @triton.autotune, else some proposed"
    )
    _add_repeatable(tune, "--space", "NAME=V,V", values)
    tune.add_argument("--where", help='which combinations to try: --where "BLOCK >= 32 * num_warps"')
    tune.add_argument("--search", default="exhaustive", help=f"{', '.join(SEARCHES[:-1])} or {SEARCHES[-1]}")
    tune.add_argument("--limit", type=_count, metavar="N", help="the most configs to measure")
    tune.add_argument("--budget", type=_positive, metavar="SECONDS", help="limit of the search")
    tune.add_argument("--fresh", action="store_true", help="measure again what the store has")
    _add_check(tune)
    _add_timeout(tune, 10.0, "of a config")
    bench = _of_file(commands, "bench", "time a kernel over a sweep, vs others")
    swept = "values of a size of arguments(), a constexpr or an option; repeatable"
    _add_repeatable(bench, "--over", "NAME=V,V", swept)
    _add_repeatable(bench, "--versus", "NAME", "a function or kernel of the file to compare with; repeatable")
    checked = "without a GPU, compare the outputs on the CPU; with --against, other outputs fail"
    bench.add_argument("--check", action="store_true", help=checked)
    bench.add_argument("--rounds", type=_count, help="rounds of timing (30)")
    _add_timeout(bench, 60.0, "of a point")
    _add_gate(bench)


def _add_gate(bench: argparse.ArgumentParser) -> None:
    words = (
        "Exit status with --against: 0 within the gate; 1 slower or, with --check, other outputs; 3 undecided within"
    )
    bench.epilog = f"{words} the budget or, without a GPU, suspect."
    gate = bench.add_argument_group("comparing with an earlier revision, in turns on one GPU")
    gate.add_argument("--against", metavar="REV", help="a commit, another FILE[::KERNEL], or PACKAGE==VERSION")
    gate.add_argument("--gate", type=_share, metavar="SHARE", help="the slowdown that is allowed (3%%)")
    gate.add_argument("--budget", type=_positive, metavar="SECONDS", help="limit of the rounds (10)")
    gate.add_argument("--scheduler", metavar="ADDRESS", help="time on a worker of dask, such as tcp://host:8786")
    gate.add_argument("--summary", metavar="FILE", help="also write the result as Markdown")
    gate.add_argument("--step-summary", action="store_true", help="also append it to $GITHUB_STEP_SUMMARY")
    gate.add_argument("--junit", metavar="FILE", help="also write the result as JUnit XML")


def _add_judge(commands: Any) -> None:
    judge = commands.add_parser(
        "judge",
        help="judge a candidate's kernels by a specification",
        description="Judge a candidate's kernels by a specification.",
        epilog="Exit status: 0: accepted; 1: not accepted; 2: wrong call; 3: the judge failed; 130: interrupted.",
    )
    add = judge.add_argument
    add("spec", metavar="SPEC.py", help="the specification: reference(), inputs(), sizes")
    add("candidate", metavar="CANDIDATE.py", help="the file with solve(); of a folder, all *.py are judged")
    add("--json", action="store_true", help="print each verdict as one line of JSON")
    add("--verbose", action="store_true", help="print the full message behind an error")
    _add_repeatable(judge, "--sizes", "NAME=V,NAME=V", "sizes instead of those of the specification; repeatable")
    add("--no-time", action="store_true", help="take no times, even with a GPU")
    _add_timeout(judge, 30.0, "of the candidate's process, and of each launch")
    add("--key-file", metavar="FILE", help="sign verdicts with the bytes of this file (16 or more)")
    add("--nonce", default="", metavar="TEXT", help="a text of yours that the verdict repeats")
    add("--seed", type=_seed, metavar="N", help="repeat the inputs of the verdict with this seed")
    add("--jobs", type=_count, default=1, metavar="N", help="judge N candidates of a folder at a time (1)")
    add("--results", metavar="FILE", help="append each verdict to this file of JSON lines; skip those that it has")


def _add_keeping(commands: Any) -> None:
    listing = _command(commands, "ls", "list the kept kernels")
    listing.add_argument("search", nargs="?", default="", help="a part of name, tags, notes or source")
    listing.add_argument("--name", metavar="PATTERN", help="names such as 'softmax*'")
    listing.add_argument("--status", help="launched, run, compiled, failed, helper or 'never launched'")
    listing.add_argument("--notebook", metavar="PART", help="a part of the name of the notebook that defined them")
    listing.add_argument("--since", help="used since then: a date, or how long ago, such as 7d")
    listing.add_argument("--all", dest="every", action="store_true", help="show all, not the latest 20")
    merged = _command(commands, "merge", "import kernels and measurements of another store, and list conflicts")
    merged.add_argument("path", metavar="PATH", help="the folder of a store, its file, or exported measurements")
    words = "list launches that became slower or faster with another version of Triton, driver or kernel"
    changed = _command(commands, "regressions", words)
    changed.add_argument("kernel", nargs="?", help="a kept kernel, in all its versions; default: all kernels")
    changed.add_argument("--since", metavar="WHEN", help="ignore earlier changes: 2026-11-22, or 7d, 12h, 2w ago")
    changed.add_argument("--margin", type=float, default=0.03, help="least relative difference of the medians (0.03)")
    _add_upgrade(commands)
    _add_harvest(commands)
    words = "write a kernel as a file that does not need kernellab"
    add = _of_file(commands, "export", words, f"{_ONE}; or a kept NAME").add_argument
    add("--as", dest="kind", choices=EXPORT_KINDS, help=f"kind of file. {kinds_help()}")
    path = "path of the file; default: NAME with the ending of the kind, where only an earlier export is replaced"
    add("-o", "--output", metavar="PATH", help=path)
    add("--targets", nargs="+", default=(), metavar="TARGET", help="compile binaries for these: cuda:80 cuda:90")
    lab = commands.add_parser("lab", help="open JupyterLab with a first notebook")
    lab.add_argument(
        "path", nargs="?", default=".", help="the folder or path of the notebook; an existing one is opened as it is"
    )
    lab.add_argument("--no-browser", action="store_true", help="only print the address of JupyterLab")
    demo = commands.add_parser("demo", help="execute the quickstart notebook and write it as an HTML page")
    demo.add_argument("notebook", nargs="?", default="notebooks/01_quickstart.ipynb")
    demo.add_argument("--page", default="build/quickstart.html")


def _add_upgrade(commands: Any) -> None:
    words = "compare the stored winners under the installed Triton with what was kept of them; needs no GPU"
    epilog = "Exit status: 1 where a winner is suspect or fails."
    add = _command(commands, "upgrade", words, epilog, names_store=True).add_argument
    add("--from", dest="from_version", metavar="VERSION", help="winners of this version of Triton")
    python = "a Python with the earlier Triton: what was not kept, and where the stages part"
    add("--python", metavar="PATH", help=python)
    add("--summary", metavar="FILE", help="also write the table as a page: FILE.md or FILE.html")
    add("--no-time", action="store_true", help="take no times, even with a GPU")


def _add_harvest(commands: Any) -> None:
    words = "run a program and list the Triton kernels that it launches, with their shares of the time"
    epilog = "Exit status: that of the program; what it prints goes to stderr."
    add = _command(commands, "harvest", words, epilog).add_argument
    add("-m", dest="is_module", action="store_true", help="PROGRAM is the name of a module")
    add("--inductor", action="store_true", help="also the kernels that torch.compile writes")
    add("-o", "--output", metavar="PATH", help="also write it as .json (to merge), .csv or .html; {pid} is the process")
    add("program", metavar="SCRIPT.py", help="the script, or with -m the module")
    add("arguments", nargs=argparse.REMAINDER, metavar="ARGS", help="its arguments")


def _of_file(commands: Any, name: str, words: str, what: str = _ONE) -> argparse.ArgumentParser:
    added = _command(commands, name, words)
    added.add_argument("kernel", metavar=FORM, help=what)
    _add_repeatable(added, "--size", "NAME=V", "a size for arguments(); repeatable")
    meta = "a constexpr or option (num_warps), instead of that of arguments(); repeatable"
    _add_repeatable(added, "--meta", "NAME=V", meta)
    added.add_argument(
        "--target", help="compile for this: cuda:90, hip:gfx942, or a model such as h100; else the GPU, or cuda:90"
    )
    return added


def _command(
    commands: Any, name: str, words: str, epilog: str = "", *, names_store: bool = False
) -> argparse.ArgumentParser:
    added: argparse.ArgumentParser = commands.add_parser(
        name, help=words, description=f"{words[:1].upper()}{words[1:]}.", epilog=epilog or None
    )
    add = added.add_argument
    if names_store:
        own = "the folder of kept kernels; default: your own"
        add("store", metavar="STORE", nargs="?", type=_existing_store, help=own)
    else:
        add("--store", help="the folder of kept kernels, or :memory:")
    add("--json", action="store_true", help="answer with one JSON object")
    add("--verbose", action="store_true", help="print the full message behind an error")
    return added


def _add_repeatable(added: argparse.ArgumentParser, option: str, metavar: str, words: str) -> None:
    added.add_argument(option, action="append", default=[], metavar=metavar, help=words)


def _add_check(added: argparse.ArgumentParser) -> None:
    which = added.add_mutually_exclusive_group()
    which.add_argument("--check", metavar="EXPR", help="a reference over kernel parameters, instead of reference()")
    which.add_argument("--no-check", action="store_true", help="skip the reference")


def _add_timeout(added: argparse.ArgumentParser, seconds: float, of: str) -> None:
    added.add_argument(
        "--timeout", type=_positive, default=seconds, metavar="SECONDS", help=f"limit {of} ({seconds:g})"
    )


def parse_assignments(texts: Sequence[str], option: str) -> dict[str, Any]:
    """Parse ``NAME=V`` into values by name.

    Raises:
        UsageError: a text is something else.
    """
    return {name: value_of(value) for name, value in _pairs(texts, option, "4096")}


def parse_lists(texts: Sequence[str], option: str) -> dict[str, tuple[Any, ...]]:
    """Parse ``NAME=V,V`` into lists of values by name.

    Raises:
        UsageError: a text is something else.
    """
    lists = {name: values.split(",") for name, values in _pairs(texts, option, "1024,4096")}
    for name, values in lists.items():
        if not all(value.strip() for value in values):
            raise UsageError(f"{option} {name}={','.join(values)}: a value is missing between its commas.")
    return {name: tuple(map(value_of, values)) for name, values in lists.items()}


def _pairs(texts: Sequence[str], option: str, example: str) -> list[tuple[str, str]]:
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name.isidentifier() or not value:
            raise UsageError(f"{option} {text!r}: expected NAME=VALUE, such as {option} n={example}.")
        if name in pairs:
            raise UsageError(f"{option} names {name} twice; give {option} {name}={pairs[name]}, or {name}={value}.")
        pairs[name] = value
    return list(pairs.items())


def value_of(text: str) -> Any:
    """Return the value of a text: a literal, ``2**20``, or the text itself."""
    power = re.fullmatch(r"\s*(\d{1,4})\*\*(\d{1,3})\s*", text)
    if power:
        return int(power[1]) ** int(power[2])
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError):
        return text.strip()


def _existing_store(text: str) -> str:
    """The folder of a store that is there: of a misspelt one, nothing would be compared, and nothing suspect."""
    from kernellab.store.database import FILE

    folder = Path(text).expanduser().absolute()
    if not (folder / FILE).is_file():
        raise argparse.ArgumentTypeError(f"{text!r} holds no kept kernels; expected a folder with {FILE}")
    return str(folder)


def _reader(convert: Callable[[str], _N], allows: Callable[[_N], bool], expected: str) -> Callable[[str], _N]:
    """The ``type`` of an option with a number: it converts the text, and refuses a value that is not allowed."""

    def read(text: str) -> _N:
        with suppress(ValueError):
            if allows(value := convert(text)):
                return value
        raise argparse.ArgumentTypeError(f"it is {text!r}, and expected is {expected}")

    return read


def _share_of(text: str) -> float:
    return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)


_positive = _reader(float, lambda value: value > 0, "a positive number, such as 2.5")
_count = _reader(int, lambda value: value > 0, "a positive integer, such as 30")
_share = _reader(_share_of, lambda value: 0 <= value < 1, "a share, such as 3% or 0.03")
_seed = _reader(int, lambda value: 0 <= value < 1 << 63, "an integer from 0 to 2**63 - 1")
