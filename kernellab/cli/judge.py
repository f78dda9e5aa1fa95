"""The command `judge`: one candidate, or a folder of them, and the key that signs verdicts.

A verdict is printed as it was signed, as one line of JSON, or as a card. Exit status: 0 accepted, 1 not accepted, 2 a
wrong call, 3 the judge failed.
"""

from __future__ import annotations

import stat
import sys
from argparse import Namespace
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernellab.cli.parser import parse_assignments
from kernellab.errors import UsageError

if TYPE_CHECKING:
    from kernellab.judge.batch import JudgeFailure
    from kernellab.judge.verdict import Verdict

ACCEPTED, NOT_ACCEPTED, JUDGE_FAILED = 0, 1, 3


@dataclass(frozen=True, slots=True)
class JudgeAnswer:
    """A verdict as it is printed: ``line`` is its JSON, "" for what is text alone."""

    text: str
    line: str
    status: int


def judge_answers(args: Namespace) -> Generator[JudgeAnswer, None, None]:
    """Judge what the options name; yield each verdict as it is there, and at the end of a batch its summary.

    Raises:
        UsageError: a file is missing, or an option or the specification is wrong.
        JudgeFailed: the judge failed on the only candidate.
    """
    from kernellab.judge import VERB

    options = options_of(args)
    if args.results is not None or Path(args.candidate).is_dir():
        yield from _batch_answers(args, options)
        return
    verdict = VERB(args.spec, args.candidate, **options)
    yield JudgeAnswer(verdict.card().text(), verdict.as_json(), _status(verdict))


def options_of(args: Namespace) -> dict[str, Any]:
    """Return the options of `kernellab.judge` that a call names.

    Raises:
        UsageError: a size is not a pair, or the key cannot be used.
    """
    key = None if args.key_file is None else read_key(Path(args.key_file))
    fixed = {"time": not args.no_time, "timeout_s": args.timeout, "nonce": args.nonce, "seed": args.seed}
    sizes = [parse_assignments(text.split(","), "--sizes") for text in args.sizes]
    return {"sizes": sizes or None, "key": key, **fixed}


def read_key(path: Path) -> bytes:
    """Return the bytes of a key file, which its owner alone may read.

    Raises:
        UsageError: it cannot be read, others may read it, or it is too short.
    """
    from kernellab.judge.verdict import require_key

    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(path.stat().st_mode)
            key = file.read()
    except OSError as exc:
        raise UsageError(f"--key-file {str(path)!r} cannot be read: {exc.strerror or exc}.") from exc
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise UsageError(f"Others may read the key in {str(path)!r} (mode {mode:o}); run chmod 600 {path} first.")
    require_key(key)
    return key


def _batch_answers(args: Namespace, options: dict[str, Any]) -> Generator[JudgeAnswer, None, None]:
    from kernellab.judge.batch import candidate_files, judge_all, summary_of

    files = candidate_files(args.candidate, args.spec)
    results: list[Verdict | JudgeFailure] = []
    judged = judge_all(args.spec, files, jobs=args.jobs, results=args.results, **options)
    with closing(judged):
        _show_progress(0, len(files))
        for result in judged:
            results.append(result)
            _show_progress(None, len(files))
            yield JudgeAnswer(_line_of(result), result.as_json(), _status(result))
            _show_progress(len(results), len(files))
    _show_progress(None, len(files))
    yield JudgeAnswer(summary_of(results), "", ACCEPTED)


def _line_of(result: Verdict | JudgeFailure) -> str:
    """Return ``accepted: softmax.py  1.32x`` or ``wrong: softmax.py  reason``."""
    from kernellab.judge.batch import JudgeFailure
    from kernellab.judge.card import reason_words, speedup_words

    if isinstance(result, JudgeFailure):
        return f"error: {result.name}  {result.message}"
    words = reason_words(result.reasons[0]) if result.reasons else speedup_words(result)
    return f"{result.verdict}: {result.name}  {words}".rstrip()


def _status(result: Verdict | JudgeFailure) -> int:
    from kernellab.judge.batch import JudgeFailure

    if isinstance(result, JudgeFailure):
        return JUDGE_FAILED
    return ACCEPTED if result.is_accepted else NOT_ACCEPTED


def _show_progress(done: int | None, count: int) -> None:
    """Show on standard error how many are judged, if that is a terminal; erase the line with None."""
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K" if done is None else f"\r\x1b[K{done} of {count} judged")
        sys.stderr.flush()
