"""Batches: a line for each candidate, which is not judged again; what fails costs itself alone."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from kernellab.errors import JudgeFailed, UsageError
from kernellab.judge import failing_as_judge
from kernellab.judge.batch import JudgeCall, JudgeFailure, ResultsFile, answer_call, judge_all, summary_of
from kernellab.judge.verdict import Decision, Verdict, is_signed
from tests.judge.executors import JudgingExecutor, accept
from tests.judge.files import ADDER, ADDITION
from tests.judge.verdicts import KEY

NAMES = ("a.py", "b.py", "c.py")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a specification next to three candidates, and a file that is none."""
    (tmp_path / "spec.py").write_text(ADDITION)
    (tmp_path / "notes.txt").write_text("no candidate")
    for name in NAMES:
        (tmp_path / name).write_text(f"# {name}\n{ADDER}")
    return tmp_path


def batch(folder: Path, executor: JudgingExecutor, **options: Any) -> list[Verdict | JudgeFailure]:
    options = {"results": folder / "results.jsonl", **options}
    return list(judge_all(folder / "spec.py", folder, executor=executor, **options))


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]


def test_every_candidate_of_a_folder_is_judged_and_has_a_line(folder: Path) -> None:
    executor = JudgingExecutor()
    results = batch(folder, executor)
    assert sorted(executor.judged) == [*NAMES]
    assert [result.as_json() for result in results] == (folder / "results.jsonl").read_text().splitlines()
    assert {line["verdict"] for line in lines(folder)} == {"accepted"}
    assert summary_of(results) == "3 candidates: 3 accepted."


def test_a_line_is_in_the_file_when_its_verdict_comes(folder: Path) -> None:
    for count, _ in enumerate(
        judge_all(folder / "spec.py", folder, executor=JudgingExecutor(), results=folder / "r"), 1
    ):
        assert (folder / "r").read_text().count("\n") == count


def test_what_the_file_has_is_not_judged_again(folder: Path) -> None:
    first = batch(folder, JudgingExecutor())
    executor = JudgingExecutor()
    again = batch(folder, executor)
    assert executor.judged == []
    assert sorted(map(repr, again)) == sorted(map(repr, first))
    assert {result.name for result in again} == {*NAMES}
    assert len(lines(folder)) == 3


def test_a_changed_candidate_is_judged_again(folder: Path) -> None:
    batch(folder, JudgingExecutor())
    (folder / "b.py").write_text("another")
    executor = JudgingExecutor()
    batch(folder, executor)
    assert executor.judged == ["b.py"]


@pytest.mark.parametrize(
    "options",
    [{"nonce": "other"}, {"sizes": [{"n": 5}]}, {"time": False}, {"timeout_s": 5.0}, {"seed": 4}],
    ids=lambda options: next(iter(options)),
)
def test_another_question_is_asked_anew(folder: Path, options: dict[str, Any]) -> None:
    batch(folder, JudgingExecutor())
    for expected in ([*NAMES], []):
        executor = JudgingExecutor()
        batch(folder, executor, **options)
        assert sorted(executor.judged) == expected


def test_another_specification_is_asked_anew(folder: Path) -> None:
    batch(folder, JudgingExecutor())
    (folder / "spec.py").write_text(f"{ADDITION}\n# changed\n")
    executor = JudgingExecutor()
    batch(folder, executor)
    assert sorted(executor.judged) == [*NAMES]


def test_with_a_key_lines_that_it_did_not_sign_do_not_count(folder: Path) -> None:
    batch(folder, JudgingExecutor())
    executor = JudgingExecutor()
    results = batch(folder, executor, key=KEY)
    assert sorted(executor.judged) == [*NAMES]
    assert all(is_signed(result.as_json(), KEY) for result in results)
    file = folder / "results.jsonl"
    file.write_text("".join(f"{result.as_json()}\n" for result in results).replace('"accepted"', '"wrong"', 1))
    executor = JudgingExecutor()
    batch(folder, executor, key=KEY)
    assert executor.judged == [results[0].name]


def test_the_key_stays_here(folder: Path) -> None:
    executor = JudgingExecutor()
    batch(folder, executor, key=KEY)
    assert len(executor.messages) == 3
    assert not any(KEY in message or KEY.hex().encode() in message for message in executor.messages)


def test_half_a_line_at_the_end_is_cut_off_and_judged_again(folder: Path) -> None:
    batch(folder, JudgingExecutor())
    file = folder / "results.jsonl"
    whole = file.read_text()
    last = json.loads(whole.splitlines()[-1])["name"]
    for left in (1, 40):
        file.write_text(whole[:-left])
        executor = JudgingExecutor()
        batch(folder, executor)
        assert executor.judged == [last]
        assert len(lines(folder)) == 3


def test_a_line_that_is_damaged_is_named_and_judged_again(folder: Path) -> None:
    batch(folder, JudgingExecutor())
    file = folder / "results.jsonl"
    first, *rest = file.read_text().splitlines()
    file.write_text("\n".join([first.replace('"nonce"', '"once"'), *rest, ""]))
    executor = JudgingExecutor()
    with pytest.warns(UserWarning, match=r"results\.jsonl, line 1 is left aside"):
        batch(folder, executor)
    assert executor.judged == [json.loads(first)["name"]]


def test_a_judge_that_fails_costs_its_candidate_alone_and_is_asked_again(folder: Path) -> None:
    def fail(call: JudgeCall) -> Verdict:
        if call.candidate.endswith("a.py"):
            raise JudgeFailed("The judge failed on a.py: no memory")
        if call.candidate.endswith("b.py"):
            raise OSError("process gone")
        return accept(call)

    results = {result.name: result for result in batch(folder, JudgingExecutor(fail))}
    assert isinstance(results["c.py"], Verdict)
    errors = {line["name"]: line["error"] for line in lines(folder) if "error" in line}
    assert errors["a.py"] == {"type": "JudgeFailed", "message": "The judge failed on a.py: no memory"}
    assert errors["b.py"]["message"] == "The process of the judge was lost (OSError: process gone)."
    assert summary_of([*results.values()]) == "3 candidates: 2 not judged, 1 accepted."
    executor = JudgingExecutor()
    batch(folder, executor)
    assert sorted(executor.judged) == ["a.py", "b.py"]


def test_a_verdict_on_another_file_does_not_count(folder: Path) -> None:
    def swap(call: JudgeCall) -> Verdict:
        return replace(accept(call), candidate="0" * 64)

    results = batch(folder, JudgingExecutor(swap))
    assert {type(result) for result in results} == {JudgeFailure}
    assert "changed while it was judged" in lines(folder)[0]["error"]["message"]


def test_copies_of_a_candidate_have_a_line_each_and_their_names(folder: Path) -> None:
    (folder / "b.py").write_bytes((folder / "a.py").read_bytes())
    batch(folder, JudgingExecutor())
    executor = JudgingExecutor()
    assert sorted(result.name for result in batch(folder, executor)) == [*NAMES]
    assert executor.judged == []


def test_a_file_has_one_writer(folder: Path) -> None:
    with (
        ResultsFile(folder / "results.jsonl"),
        pytest.raises(UsageError, match=r"Another judge writes .*results\.jsonl"),
    ):
        batch(folder, JudgingExecutor())
    assert len(batch(folder, JudgingExecutor())) == 3


def test_wrong_calls_are_refused_before_anything_is_judged(folder: Path) -> None:
    executor = JudgingExecutor()
    (folder / "empty").mkdir()
    (folder / "half.py").write_text("def inputs(generator):\n    return {}\n")
    for spec, candidates, options, message in (
        ("spec.py", "empty", {}, "The folder .*empty' has no candidates; expected files such as"),
        ("spec.py", "missing.py", {}, "There is no file .*missing.py'"),
        ("missing.py", ".", {}, "missing.py"),
        ("half.py", ".", {}, r"half\.py defines no function reference\(\*\*inputs\)"),
        ("spec.py", ".", {"jobs": 0}, "jobs is 0; expected a positive integer"),
        ("spec.py", ".", {"key": b"short"}, "The key has 5 bytes"),
        ("spec.py", ".", {"sizes": [{"m": 3}]}, "n"),
        ("spec.py", ".", {"results": folder}, "cannot be written"),
    ):
        with pytest.raises(UsageError, match=message):
            list(judge_all(folder / spec, folder / candidates, executor=executor, **options))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="candidates is empty"):
        list(judge_all(folder / "spec.py", [], executor=executor))
    with pytest.raises(UsageError, match="executor is 5; expected"):
        list(judge_all(folder / "spec.py", folder, executor=5))
    assert executor.judged == []


def test_what_the_system_refuses_the_judge_is_said_with_what_to_do(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = str(folder / "gone")
    monkeypatch.setattr(tempfile, "tempdir", gone)
    call = JudgeCall("spec.py", "candidate.py", {}, texts=(b"", b""))
    with pytest.raises(JudgeFailed) as caught:
        answer_call(call, lambda message: None)
    start, end = "The judge failed on candidate.py: No such file or directory (", "). Correct that, then try again."
    assert str(caught.value).startswith(f"{start}{gone}")
    assert str(caught.value).endswith(end)
    sentence = r"No space left on device\. Free space on that disk, then try again\.$"
    with pytest.raises(JudgeFailed, match=sentence), failing_as_judge("candidate.py"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_specification_that_exits_is_a_failure_of_the_judge(folder: Path) -> None:
    (folder / "spec.py").write_text("import sys\nsys.exit(0)\n")
    with pytest.raises(JudgeFailed, match="SystemExit"):
        batch(folder, JudgingExecutor())


@pytest.fixture
def three_kinds(folder: Path) -> Iterator[Path]:
    """The folder with a right, a wrong and an endless candidate."""
    (folder / "b.py").write_text(ADDER.replace("+ tl.load(y", "- tl.load(y"))
    (folder / "c.py").write_text("import threading\nthreading.Event().wait()\n")
    return folder


@pytest.mark.slow
def test_processes_judge_side_by_side_and_an_endless_candidate_costs_its_limit(three_kinds: Path) -> None:
    judged = judge_all(three_kinds / "spec.py", three_kinds, jobs=2, time=False, timeout_s=8.0, key=KEY)
    results = {result.name: result for result in judged}
    assert {name: getattr(result, "verdict", result) for name, result in results.items()} == {
        "a.py": "accepted",
        "b.py": "wrong",
        "c.py": "refused",
    }
    assert all(is_signed(result.as_json(), KEY) for result in results.values())


@pytest.mark.slow
def test_a_judge_that_dies_costs_its_candidate_alone(folder: Path) -> None:
    dies_once = f"""
import os, pathlib
flag = pathlib.Path({str(folder / "flag")!r})
if flag.exists():
    flag.unlink()
    os._exit(3)
"""
    (folder / "spec.py").write_text(ADDITION + dies_once)
    judged = judge_all(folder / "spec.py", folder, time=False, sizes=[{"n": 64}])
    (folder / "flag").touch()
    results = list(judged)
    assert sorted(type(result).__name__ for result in results) == ["JudgeFailure", "Verdict", "Verdict"]
    (failure,) = [result for result in results if isinstance(result, JudgeFailure)]
    assert failure.error == "WorkerDied"
    assert "exit status 3" in failure.message


@pytest.mark.slow
def test_an_executor_of_processes_judges_without_the_files(folder: Path) -> None:
    with ProcessPoolExecutor(1, get_context("spawn")) as executor:
        judged = judge_all(folder / "spec.py", [folder / "a.py"], executor=executor, time=False, sizes=[{"n": 64}])
        (verdict,) = judged
    assert isinstance(verdict, Verdict)
    assert (verdict.decision, verdict.name) == (Decision.ACCEPTED, "a.py")


@pytest.mark.slow
def test_a_batch_that_is_killed_goes_on_where_it_was(folder: Path) -> None:
    words = [sys.executable, "-m", "kernellab", "judge", "spec.py", ".", "--no-time", "--sizes", "n=64"]
    words += ["--results", "results.jsonl", "--json"]
    with subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, text=True) as batch_process:
        assert batch_process.stdout is not None
        first = json.loads(batch_process.stdout.readline())
        os.kill(batch_process.pid, signal.SIGKILL)
    before = len(lines(folder))
    assert 1 <= before <= 2
    assert lines(folder)[0] == first
    executor = JudgingExecutor()
    results = batch(folder, executor, time=False, sizes=[{"n": 64}])
    assert {result.name for result in results} == {*NAMES}
    assert len(executor.judged) == 3 - before
    assert first["name"] not in executor.judged
    assert [line["name"] for line in lines(folder)].count(first["name"]) == 1
    assert len(lines(folder)) == 3
