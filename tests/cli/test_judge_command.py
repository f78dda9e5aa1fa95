"""The command `judge`: its statuses, its lines, its wrong calls in sentences."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kernellab import cli
from kernellab.errors import JudgeFailed, LaunchError, WorkerDied
from kernellab.judge.batch import judge_all
from kernellab.judge.verdict import Verdict, is_signed, verdict_of_json
from tests.cli.conftest import Call
from tests.judge.executors import JudgingExecutor, accept
from tests.judge.files import ADDER, ADDITION
from tests.judge.verdicts import ACCEPTED, KEY, WRONG

JUDGE = ("judge", "spec.py", "candidate.py")


class Judge:
    """Stands in for the judge: answers with ``answer``, or raises it, and keeps the options of the call."""

    def __init__(self) -> None:
        self.answer: Verdict | BaseException = ACCEPTED
        self.options: dict[str, Any] = {}

    def __call__(self, spec: str, candidate: str, **options: Any) -> Verdict:
        self.options = options
        print("printed by a specification")
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


@pytest.fixture
def judge(kernellab: Call, monkeypatch: pytest.MonkeyPatch) -> Judge:
    """A judge in whose folder a specification and a candidate lie."""
    Path("spec.py").write_text(ADDITION)
    Path("candidate.py").write_text(ADDER)
    judge = Judge()
    module = ModuleType("kernellab.judge.judging")
    module.judge = judge  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "kernellab.judge.judging", module)
    return judge


@pytest.fixture
def key_file() -> Path:
    """A key file that its owner alone may read."""
    path = Path("key")
    path.write_bytes(KEY)
    path.chmod(0o600)
    return path


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (ACCEPTED, 0),
        (WRONG, 1),
        (JudgeFailed("no memory"), 3),
        (WorkerDied("The interpreter died."), 3),
        (LaunchError("of a reference that launches"), 3),
        (RuntimeError("a fault of the judge"), 3),
        (SystemExit(0), 3),
        (MemoryError(), 3),
        (KeyboardInterrupt(), 130),
    ],
    ids=lambda value: type(value).__name__,
)
def test_only_an_accepted_candidate_has_status_0(
    kernellab: Call, judge: Judge, answer: Verdict | BaseException, status: int
) -> None:
    judge.answer = answer
    assert kernellab(*JUDGE).status == status
    called = kernellab(*JUDGE, "--json")
    assert called.status == status
    assert (called.json.get("verdict") == "accepted") is (status == 0)


def test_a_fault_before_the_judge_begins_is_one_of_the_judge(kernellab: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise NameError("a module cannot be imported")

    monkeypatch.setitem(cli._WITHOUT_STORE, "judge", fail)
    assert kernellab(*JUDGE).status == 3


def test_json_is_one_line_that_the_key_has_signed(kernellab: Call, judge: Judge, key_file: Path) -> None:
    called = kernellab(*JUDGE, "--json", "--key-file", str(key_file))
    (line,) = called.out.splitlines()
    assert is_signed(line, KEY)
    assert not is_signed(line.replace("1.32", "1.42"), KEY)
    assert verdict_of_json(line).decision is ACCEPTED.decision
    assert "printed by a specification" in called.err


def test_text_has_the_reasons_with_their_place_and_trial_and_what_was_tried(kernellab: Call, judge: Judge) -> None:
    judge.answer = WRONG
    lines = kernellab(*JUDGE).out.splitlines()
    assert lines[0].startswith("wrong: soft<max>.py")
    assert "[values; soft<max>.py, line 12; n=1000, m=7, normal, seed 7]" in lines[1]
    assert lines[2].split() == ["sizes", "inputs", "seed", "device", "outcome"]
    judge.answer = ACCEPTED
    assert "12.5 us" in kernellab(*JUDGE).out
    assert "speedup 1.32x (1.3 - 1.34)" in kernellab(*JUDGE).out


def test_options_reach_the_judge_and_stand_in_the_verdict(kernellab: Call, judge: Judge) -> None:
    words = ("--sizes", "n=4,m=5", "--sizes", "n=2**3", "--no-time", "--timeout", "5", "--nonce", "abc", "--seed", "9")
    found = kernellab(*JUDGE, *words, "--json").json
    expected = {"sizes": [{"n": 4, "m": 5}, {"n": 8}], "time": False, "timeout_s": 5.0}
    assert found["options"] == expected
    assert {**expected, "nonce": "abc", "seed": 9, "lab": None} == judge.options


def test_without_options_the_specification_has_its_sizes(kernellab: Call, judge: Judge) -> None:
    found = kernellab(*JUDGE, "--json").json
    assert found["options"] == {"sizes": None, "time": True, "timeout_s": 30.0}
    assert judge.options["seed"] is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("judge", "spec.py"), "the following arguments are required: CANDIDATE.py"),
        ((*JUDGE, "--sizes", "n"), "--sizes 'n': expected NAME=VALUE"),
        ((*JUDGE, "--sizes", "n=1,n=2"), "--sizes names n twice"),
        ((*JUDGE, "--timeout", "0"), "expected is a positive number"),
        ((*JUDGE, "--seed", "-1"), "expected is an integer from 0"),
        ((*JUDGE, "--jobs", "0"), "expected is a positive integer"),
        ((*JUDGE, "--target", "cuda:90"), "unrecognized arguments: --target"),
        ((*JUDGE, "--key-file", "nowhere"), "--key-file 'nowhere' cannot be read: No such file"),
        ((*JUDGE, "--key-file", "open_key"), "Others may read the key in 'open_key' (mode 644); run chmod 600"),
        ((*JUDGE, "--key-file", "short_key"), "The key has 5 bytes; expected at least 16"),
    ],
)
def test_a_wrong_call_is_a_sentence_and_status_2(
    kernellab: Call, judge: Judge, words: tuple[str, ...], message: str
) -> None:
    for name, content, mode in (("open_key", KEY, 0o644), ("short_key", b"short", 0o600)):
        Path(name).write_bytes(content)
        Path(name).chmod(mode)
    called = kernellab(*words)
    assert called.status == cli.WRONG_CALL
    assert message in called.err
    assert called.out == ""
    assert kernellab(*words, "--json").error["type"] == "UsageError"
    assert judge.options == {}


@pytest.fixture
def batch(kernellab: Call) -> Callable[..., Any]:
    """Judge a folder of two candidates by an executor, into a file; ``wrong`` names one that is refused."""
    Path("spec.py").write_text(ADDITION)
    Path("folder").mkdir()
    for name in ("a.py", "b.py"):
        Path("folder", name).write_text(f"# {name}\n{ADDER}")

    def judged(wrong: str = "", **options: Any) -> None:
        def answer(call: Any) -> Verdict:
            verdict = accept(call)
            return (
                replace(verdict, decision=WRONG.decision, reasons=WRONG.reasons) if wrong == verdict.name else verdict
            )

        options = {"results": "results.jsonl", "time": False, **options}
        assert list(judge_all("spec.py", "folder", executor=JudgingExecutor(answer), **options))

    return judged


BATCH = ("judge", "spec.py", "folder", "--no-time", "--results", "results.jsonl")


def test_a_batch_prints_what_its_file_has_with_a_summary(kernellab: Call, batch: Callable[..., Any]) -> None:
    batch()
    called = kernellab(*BATCH)
    assert called.status == 0
    assert called.out.splitlines() == ["accepted: a.py", "accepted: b.py", "2 candidates: 2 accepted."]
    lines = kernellab(*BATCH, "--json").out.splitlines()
    assert [json.loads(line)["name"] for line in lines] == ["a.py", "b.py"]
    assert sorted(lines) == sorted(Path("results.jsonl").read_text().splitlines())


def test_a_batch_with_a_wrong_candidate_has_status_1(kernellab: Call, batch: Callable[..., Any]) -> None:
    batch(wrong="a.py")
    called = kernellab(*BATCH)
    assert called.status == 1
    assert called.out.startswith("wrong: a.py  output is wrong in 3 of 7,000 elements")
    assert called.out.endswith("2 candidates: 1 wrong, 1 accepted.\n")


def test_wrong_calls_of_a_batch(kernellab: Call, batch: Callable[..., Any]) -> None:
    Path("empty").mkdir()
    Path("half.py").write_text("def inputs(generator):\n    return {}\n")
    for words, message in (
        (("judge", "spec.py", "empty"), "The folder 'empty' has no candidates"),
        (("judge", "nowhere.py", "folder"), "nowhere.py"),
        (("judge", "half.py", "folder"), "half.py defines no function reference(**inputs)."),
        (("judge", "spec.py", "folder", "--sizes", "k=5"), "n"),
    ):
        called = kernellab(*words)
        assert (called.status, called.out) == (cli.WRONG_CALL, "")
        assert message in called.err


@pytest.mark.slow
def test_a_judge_that_dies_in_a_batch_has_status_3(kernellab: Call, batch: Callable[..., Any]) -> None:
    Path("spec.py").write_text(f"{ADDITION}\nimport os, pathlib\nif pathlib.Path('flag').exists():\n    os._exit(0)\n")
    assert list(judge_all("spec.py", "folder", executor=JudgingExecutor(), results="results.jsonl", time=False))
    Path("folder", "b.py").write_text("changed")
    words = [sys.executable, "-c", _DIES, *BATCH, "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stderr
    accepted, failed = map(json.loads, done.stdout.splitlines())
    assert accepted["verdict"] == "accepted"
    assert failed["error"]["type"] == "WorkerDied"


_DIES = """
import pathlib, sys
from kernellab import cli
from kernellab.judge import specification
read = specification.read_specification
def read_and_plant(*args):
    try:
        return read(*args)
    finally:
        pathlib.Path("flag").touch()
specification.read_specification = read_and_plant
sys.exit(cli.main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_a_reader_that_leaves_ends_with_the_status_of_a_failure(kernellab: Call, batch: Callable[..., Any]) -> None:
    batch()
    read, write = os.pipe()
    os.close(read)
    words = [sys.executable, "-m", "kernellab", *BATCH, "--json"]
    done = subprocess.run(words, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (3, "")


@pytest.mark.slow
def test_a_candidate_is_judged_from_the_command_line(kernellab: Call) -> None:
    Path("spec.py").write_text(ADDITION)
    Path("candidate.py").write_text(ADDER)
    words = ("--no-time", "--sizes", "n=100", "--json")
    assert kernellab(*JUDGE, *words).json["verdict"] == "accepted"
    Path("candidate.py").write_text(ADDER.replace("+ tl.load(y", "- tl.load(y"))
    called = kernellab(*JUDGE, *words)
    assert (called.status, called.json["verdict"]) == (1, "wrong")
