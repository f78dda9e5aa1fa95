"""The file of a batch: a verdict a line, appended as each is there, so that a batch that was cut off goes on."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from kernellab.errors import JudgeFailed, UsageError, warn_user
from kernellab.judge.verdict import JudgeOptions, Verdict, is_signed, verdict_of_json


@dataclass(frozen=True, slots=True)
class Question:
    """The call behind a verdict: specification, options and nonce; ``seed`` is None where any will do."""

    specification: str
    options: JudgeOptions
    nonce: str
    seed: int | None

    def is_answered_by(self, verdict: Verdict) -> bool:
        """Whether a verdict is of the same specification and call."""
        same = (verdict.specification, verdict.options, verdict.nonce) == (
            self.specification,
            self.options,
            self.nonce,
        )
        return same and self.seed in (None, verdict.seed)


@dataclass(slots=True)
class ResultsFile:
    """A file of JSON lines that one batch at a time appends to; use it in a with statement."""

    path: Path
    _descriptor: int = field(default=-1, init=False)

    def __enter__(self) -> ResultsFile:
        """Open and lock the file, and cut off half a line at its end, which a power cut leaves.

        Raises:
            UsageError: it cannot be written, or another batch writes it.
        """
        try:
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            content = self.path.read_bytes()
            if not content.endswith(b"\n"):
                os.ftruncate(self._descriptor, content.rfind(b"\n") + 1)
        except BlockingIOError as exc:
            self.__exit__(None, None, None)
            raise UsageError(f"Another judge writes {self.path}; name another file with --results.") from exc
        except OSError as exc:
            self.__exit__(None, None, None)
            raise UsageError(f"{self.path} cannot be written: {exc.strerror or exc}.") from exc
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file, which unlocks it."""
        if self._descriptor >= 0:
            with suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = -1

    def append(self, line: str) -> None:
        """Write a line, and wait until the disk has it.

        Raises:
            JudgeFailed: there is no room, or the disk is gone.
        """
        data = memoryview(f"{line}\n".encode())
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
            os.fsync(self._descriptor)
        except OSError as exc:
            raise JudgeFailed(f"{self.path} cannot be written: {exc.strerror or exc}.") from exc

    def answers(self, question: Question, key: bytes | None) -> dict[str, list[Verdict]]:
        """Return the verdicts that answer a question, by the digest of the candidate, the latest last.

        With a key, those that it did not sign do not count. A line that is neither a verdict nor an error is warned of.
        """
        answers: dict[str, list[Verdict]] = {}
        for line, verdict in self._verdicts():
            if question.is_answered_by(verdict) and (key is None or is_signed(line, key)):
                answers.setdefault(verdict.candidate, []).append(verdict)
        return answers

    def _verdicts(self) -> Iterator[tuple[str, Verdict]]:
        text = self.path.read_text(encoding="utf-8", errors="replace")
        for number, line in enumerate(text.split("\n"), 1):
            if not line.strip() or '"error": {' in line:
                continue
            try:
                yield line, verdict_of_json(line)
            except ValueError as exc:
                warn_user(f"{self.path}, line {number} is left aside: {exc}.")
