"""Many candidates, judged side by side: by processes of this machine, or by an executor, as in tuning.

A judge that dies, or is lost with its process, costs the verdict on its own candidate. The key stays in the process of
the caller, which signs what comes back. Each verdict is appended to a file as it is there, so that a batch that was cut
off goes on.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import pickle
import queue
import tempfile
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from kernellab.errors import JudgeFailed, KernellabError, UsageError, first_line, plural, value_text, warn_user
from kernellab.judge import VERB, failing_as_judge
from kernellab.judge.sandbox import bytes_of_candidate
from kernellab.judge.verdict import (
    SCHEMA,
    JudgeOptions,
    Verdict,
    is_signed,
    judge_options,
    require_key,
    signature_of,
    verdict_of_json,
)
from kernellab.tune.executors import RemoteCall, cluster_of, executor_of, is_missing_module
from kernellab.workers.forks_and_interrupts import ProgressCallback
from kernellab.workers.worker import Failure, Job, Worker, WorkerKind, failure_of

JUDGE_WORKER = WorkerKind("judge", preload=("torch", "kernellab.judge.judging"))
_START_S = 120.0
_LIMITS = 40  # of a candidate: its process and each launch have one limit each
_MOST_SUBMITTED = 32


@dataclass(frozen=True, slots=True)
class JudgeFailure:
    """A candidate without a verdict, since its judge failed.

    ``name``, ``specification`` and ``candidate`` are as in a `Verdict`, ``error`` and ``message`` type and text of the
    error.
    """

    name: str
    specification: str
    candidate: str
    error: str
    message: str

    def as_json(self) -> str:
        """Return the failure as one line of JSON, which has ``error`` where a verdict has ``verdict``."""
        head = {"schema": SCHEMA, "kernellab": metadata.version("kernellab"), "command": "judge"}
        digests = {"name": self.name, "specification": self.specification, "candidate": self.candidate}
        return json.dumps({**head, **digests, "error": {"type": self.error, "message": self.message}})


@dataclass(frozen=True, slots=True)
class JudgeCall:
    """One candidate to judge, with the options of the call.

    ``texts`` are specification and candidate as bytes, for a process that may lack the files; None reads these.
    """

    spec: str
    candidate: str
    options: Mapping[str, Any]
    texts: tuple[bytes, bytes] | None = None


def answer_call(call: JudgeCall, progress: ProgressCallback) -> Verdict:
    """Judge one candidate in this process, a worker."""
    if call.texts is None:
        return VERB(call.spec, call.candidate, **call.options)
    with failing_as_judge(call.candidate), tempfile.TemporaryDirectory(prefix="kernellab-judge-") as folder:
        files = []
        for part, path, text in zip(("spec", "candidate"), (call.spec, call.candidate), call.texts, strict=True):
            file = Path(folder, part, Path(path).name)
            file.parent.mkdir()
            file.write_bytes(text)
            files.append(file)
        return VERB(*files, **call.options)


def answer_remotely(message: bytes) -> bytes:
    """Judge one candidate in a process of an executor; an error comes back as data."""
    try:
        return pickle.dumps(answer_call(pickle.loads(message), lambda _: None))
    except Exception as exc:  # noqa: BLE001 - this is the loop of a worker
        return pickle.dumps(failure_of(exc))


@dataclass(slots=True)
class LocalLanes:
    """Worker processes of this machine, ``width`` of them; each judges one candidate after the other."""

    width: int
    _workers: list[Worker] = field(default_factory=list)
    _free: queue.SimpleQueue[Worker] = field(default_factory=queue.SimpleQueue)
    _threads: ThreadPoolExecutor = field(init=False)

    def __post_init__(self) -> None:
        self._threads = ThreadPoolExecutor(self.width, thread_name_prefix="judge")
        self._workers = [Worker(JUDGE_WORKER) for _ in range(self.width)]
        for worker in self._workers:
            self._free.put(worker)

    def submit(self, call: JudgeCall) -> Future[Verdict]:
        """Judge a candidate in the next free process; the future's error is a `KernellabError`."""
        return self._threads.submit(self._judge, call)

    def close(self) -> None:
        """Stop the processes, also those at work."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for worker in self._workers:
            worker.close()

    def _judge(self, call: JudgeCall) -> Verdict:
        worker = self._free.get()
        try:
            job: Job[JudgeCall, Verdict] = Job(answer_call, call, f"The judge of {Path(call.candidate).name}")
            return worker.run(job, _START_S + _LIMITS * call.options["timeout_s"])
        finally:
            self._free.put(worker)


@dataclass(slots=True)
class ExecutorLanes:
    """The processes of an executor, which stays open; they need no disk in common with this one.

    ``width`` is how many calls to submit at a time.
    """

    executor: Any
    width: int = field(init=False)

    def __post_init__(self) -> None:
        self.width = min(_MOST_SUBMITTED, len(cluster_of(self.executor).names()) + 1)
        self.executor = executor_of(self.executor)

    def submit(self, call: JudgeCall) -> Future[Verdict]:
        """Judge a candidate in some process.

        Raises:
            JudgeFailed: the executor takes no calls.
        """
        texts = (Path(call.spec).read_bytes(), bytes_of_candidate(Path(call.candidate)))
        message = pickle.dumps(replace(call, texts=texts))
        try:
            future = self.executor.submit(pickle.loads, pickle.dumps(RemoteCall(answer_remotely, message)))
        except Exception as exc:
            raise JudgeFailed(f"The executor takes no calls ({type(exc).__name__}: {exc}); is it closed?") from exc
        if not isinstance(future, Future):
            raise UsageError(f"submit() of the executor returned a {type(future).__name__}; expected a future.")
        return future

    def close(self) -> None:
        """Leave the executor open; what was not begun is cancelled by `judge_all`."""


def judge_all(
    spec: str | Path,
    candidates: str | Path | Iterable[str | Path],
    *,
    jobs: int = 1,
    executor: Any = None,
    results: str | Path | None = None,
    sizes: Sequence[Mapping[str, Any]] | None = None,
    time: bool = True,
    key: bytes | None = None,
    nonce: str = "",
    timeout_s: float = 30.0,
    seed: int | None = None,
) -> Generator[Verdict | JudgeFailure, None, None]:
    """Judge candidates by a specification, side by side, and yield each verdict as it is there.

    ``candidates`` are files, or a folder whose ``*.py`` are judged. ``jobs`` judges run at a time, each in a process;
    or those of ``executor``, as in `lab.tune`. On a machine with a GPU they run one after the other where they take
    times, since they share it. ``results`` is a file that each verdict is appended to; verdicts on the same candidate
    by the same specification and options that stand there, signed if a ``key`` is given, are not made again. All else
    is as in `kernellab.judge`.

    Raises:
        UsageError: a file is missing, the specification is wrong, or the options are.
    """
    import torch  # takes seconds

    from kernellab.judge.specification import read_specification

    if jobs < 1:
        raise UsageError(f"jobs is {jobs}; expected a positive integer.")
    if key is not None:
        require_key(key)
    with failing_as_judge(str(spec)):
        digest = read_specification(spec, sizes).digest
    question = Question(digest, judge_options(sizes, time=time, timeout_s=timeout_s), nonce, seed)
    options = {"sizes": sizes, "time": time, "nonce": nonce, "timeout_s": timeout_s, "seed": seed}
    files = candidate_files(candidates, spec)
    lanes: LocalLanes | ExecutorLanes
    if executor is not None:
        lanes = ExecutorLanes(executor)
    else:
        lanes = LocalLanes(min(1 if time and torch.cuda.is_available() else jobs, len(files)))
    return _Batch(str(spec), question, options, key, lanes).run(files, results)


def candidate_files(candidates: str | Path | Iterable[str | Path], spec: str | Path) -> list[Path]:
    """Return the files to judge: those of a list, or all ``*.py`` of a folder but the specification.

    Raises:
        UsageError: there are none, or a file is missing.
    """
    if isinstance(candidates, str | Path):
        path = Path(candidates)
        if path.is_dir():
            own = Path(spec).resolve()
            files = [file for file in sorted(path.glob("*.py")) if file.is_file() and file.resolve() != own]
            if not files:
                raise UsageError(f"The folder {str(path)!r} has no candidates; expected files such as softmax.py.")
            return files
        candidates = [path]
    files = [Path(candidate) for candidate in candidates]
    for file in files:
        if not file.is_file():
            raise UsageError(f"There is no file {value_text(str(file))}; expected a candidate, such as softmax.py.")
    if not files:
        raise UsageError("candidates is empty; expected files, or a folder of them.")
    return files


@dataclass(slots=True)
class _Batch:
    """One batch: what is asked of each candidate, and where."""

    spec: str
    question: Question
    options: Mapping[str, Any]
    key: bytes | None
    lanes: LocalLanes | ExecutorLanes

    def run(self, files: Sequence[Path], results: str | Path | None) -> Generator[Verdict | JudgeFailure, None, None]:
        """Yield the verdicts that the file has already, then the others as they come."""
        with ExitStack() as stack:
            stack.callback(self.lanes.close)
            file = None if results is None else stack.enter_context(ResultsFile(Path(results)))
            known = {} if file is None else file.answers(self.question, self.key)
            waiting: list[tuple[Path, str]] = []
            for path in files:
                digest = _digest(path)
                if answers := known.get(digest):
                    yield next((answer for answer in answers[::-1] if answer.name == path.name), answers[-1])
                else:
                    waiting.append((path, digest))
            running: dict[Future[Verdict], tuple[Path, str]] = {}
            stack.callback(lambda: [future.cancel() for future in running])
            waiting.reverse()
            while waiting or running:
                while waiting and len(running) < self.lanes.width:
                    self._submit(waiting.pop(), running)
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    result = self._result(future, *running.pop(future))
                    if file is not None:
                        file.append(result.as_json())
                    yield result

    def _submit(self, candidate: tuple[Path, str], running: dict[Future[Verdict], tuple[Path, str]]) -> None:
        try:
            future = self.lanes.submit(JudgeCall(self.spec, str(candidate[0]), self.options))
        except (KernellabError, OSError) as exc:
            if isinstance(exc, UsageError):
                raise
            future = Future()
            future.set_exception(exc)
        running[future] = candidate

    def _result(self, future: Future[Verdict], path: Path, digest: str) -> Verdict | JudgeFailure:
        specification = self.question.specification
        lost = CancelledError() if future.cancelled() else future.exception()
        try:
            if lost is not None:
                raise _failure_of_lost(lost)
            verdict = _verdict_in(future.result())
            if (verdict.candidate, verdict.specification) != (digest, specification):
                raise JudgeFailed("The file changed while it was judged.")
        except KernellabError as exc:
            return JudgeFailure(path.name, specification, digest, type(exc).__name__, exc.message)
        return verdict if self.key is None else replace(verdict, signature=signature_of(verdict, self.key))


def _verdict_in(answer: Any) -> Verdict:
    """Return the verdict of a local process, or of the bytes of a remote one."""
    if isinstance(answer, bytes):
        answer = pickle.loads(answer)
    if isinstance(answer, Failure):
        raise answer.exception()
    if not isinstance(answer, Verdict):
        raise JudgeFailed(f"The executor returned a {type(answer).__name__}; expected one verdict.")
    return answer


def _failure_of_lost(exc: BaseException) -> KernellabError:
    """Return the error of a call that came back without an answer; executors lose calls in ways of their own."""
    if isinstance(exc, KernellabError):
        return exc
    if is_missing_module(exc):
        return JudgeFailed(f"A process of the executor cannot import what it needs ({exc}): install kernellab there.")
    return JudgeFailed(f"The process of the judge was lost ({type(exc).__name__}: {first_line(exc)}).")


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(bytes_of_candidate(path)).hexdigest()
    except OSError:
        return ""


def summary_of(results: Sequence[Verdict | JudgeFailure]) -> str:
    """Return the outcome of a batch in a sentence: ``12 candidates: 9 accepted, 2 wrong, 1 not judged.``"""
    counts = Counter(result.verdict if isinstance(result, Verdict) else "not judged" for result in results)
    return f"{plural(len(results), 'candidate')}: {', '.join(f'{count} {word}' for word, count in counts.items())}."


@dataclass(frozen=True, slots=True)
class Question:
    """The call behind a verdict: specification, options and nonce; ``seed`` is None where any will do."""

    specification: str
    options: JudgeOptions
    nonce: str
    seed: int | None

    def is_answered_by(self, verdict: Verdict) -> bool:
        """Whether a verdict is of the same specification and call."""
        own = self.specification, self.options, self.nonce
        return own == (verdict.specification, verdict.options, verdict.nonce) and self.seed in (None, verdict.seed)


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
            self.__exit__()
            raise UsageError(f"Another judge writes {self.path}; name another file with --results.") from exc
        except OSError as exc:
            self.__exit__()
            raise UsageError(f"{self.path} cannot be written: {exc.strerror or exc}.") from exc
        return self

    def __exit__(self, *raised: object) -> None:
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
