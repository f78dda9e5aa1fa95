"""``kernellab bench FILE.py::KERNEL --against REV``: without a GPU, the compiles of two revisions are compared."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from docs.pages.json_schema import GATE, HEAD
from tests.cli.conftest import ADD, Call
from tests.tune.cluster.cpu_device import cpu_environment, session_here
from tests.tune.cluster.dask_client import dask_client
from tests.upgrade.test_revisions import git

SCATTERED = ADD.replace("tl.arange(0, BLOCK)\n", "tl.arange(0, BLOCK) * 17 % BLOCK\n").replace("x_ptr + y", "x_ptr - y")
GATED = ("bench", "add.py", "--size", "n=2**16", "--against")


@pytest.mark.slow
def test_a_commit_is_compared_and_the_result_is_written(kernellab: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    git(Path(), "init", "-q")
    git(Path(), "add", "add.py")
    git(Path(), "commit", "-qm", "one")
    Path("add.py").write_text(SCATTERED)
    Path("step.md").write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "step.md")
    called = kernellab(*GATED, "HEAD", "--summary", "gate.md", "--step-summary", "--junit", "gate.xml", "--json")
    assert called.status == 3
    assert list(called.json) == [field.name for field in (*HEAD, *GATE)]
    assert (called.json["verdict"], called.json["margin"], called.json["ratio"]) == ("suspect", 0.03, None)
    assert any("bytes wide per thread" in reason for reason in called.json["reasons"])
    assert called.json["earlier"].startswith("add_kernel of HEAD (")
    summary = Path("gate.md").read_text()
    assert "| revision | predicted |" in summary
    assert Path("step.md").read_text() == f"before\n{summary}"
    suite = ElementTree.parse("gate.xml").getroot()
    assert (suite.get("errors"), suite.get("failures")) == ("1", "0")
    assert "Suspect" in str(suite.find("testcase/error").get("message"))  # type: ignore[union-attr]


@pytest.mark.slow
def test_other_outputs_fail_a_checked_gate_and_every_report_says_so(kernellab: Call) -> None:
    Path("old.py").write_text(ADD.replace("+ tl.load", "+ 512 + tl.load"))
    found = kernellab(
        *GATED, "old.py", "--check", "--gate", "5%", "--summary", "gate.md", "--junit", "gate.xml", "--json"
    )
    words = "out_ptr differs from that of add_kernel of old.py in 65,536 of 65,536 elements, by up to 512"
    assert (found.status, found.json["verdict"], found.json["difference"]) == (1, "different", words)
    assert found.json["summary"].startswith(f"Outputs differ: {words}; no reason to expect a slowdown; not timed")
    heading = Path("gate.md").read_text().splitlines()[0]
    assert "Outputs differ: out\\_ptr differs" in heading
    assert "by up to 512" in heading
    suite = ElementTree.parse("gate.xml").getroot()
    assert (suite.get("errors"), suite.get("failures")) == ("0", "1")
    assert words in str(suite.find("testcase/failure").get("message"))  # type: ignore[union-attr]


@pytest.mark.slow
def test_a_gate_passes_equal_outputs_and_compares_none_unless_asked(kernellab: Call) -> None:
    Path("old.py").write_text(ADD.replace("+ tl.load", "* 3 * tl.load"))
    for checked in (kernellab(*GATED, "add.py", "--check"), kernellab(*GATED, "old.py")):
        assert checked.status == 0
        assert "No reason to expect a slowdown" in checked.out
        assert "Outputs differ" not in checked.out


@pytest.mark.slow
def test_a_checked_gate_is_undecided_where_a_revision_fails_on_the_cpu(kernellab: Call) -> None:
    Path("old.py").write_text(ADD.replace("tl.load(x_ptr + offsets", "tl.load(x_ptr - offsets - 1"))
    found = kernellab(*GATED, "old.py", "--check", "--json")
    assert (found.status, found.json["verdict"], found.json["difference"]) == (3, "undecided", "")
    assert found.json["summary"].startswith("Undecided, as the outputs were not compared; ")
    assert any(note.startswith("outputs not compared: add_kernel of old.py fails") for note in found.json["notes"])


@pytest.mark.slow
def test_an_earlier_revision_has_its_own_name_and_parameters(kernellab: Call) -> None:
    text = ADD.replace("add_kernel", "add_v1").replace(", n, BLOCK", ", BLOCK").replace("out, n)", "out)")
    Path("old.py").write_text(text.replace("offsets < n", "offsets < 1024"))
    found = kernellab("bench", "add.py", "--size", "n=1024", "--against", "old.py::add_v1", "--check", "--json").json
    assert (found["verdict"], found["difference"], found["notes"]) == ("within", "", [])
    assert found["earlier"] == "add_v1 of old.py::add_v1"


@pytest.mark.slow
def test_a_file_without_arguments_is_launched_as_the_later(kernellab: Call) -> None:
    Path("old.py").write_text(ADD.partition("def arguments")[0])
    assert kernellab(*GATED, "old.py", "--json").json["verdict"] == "within"


@pytest.mark.slow
def test_wrong_calls_say_what_to_do(kernellab: Call) -> None:
    Path("broken.py").write_text("import nothing_of_that_name\n")
    Path("other.py").write_text(ADD.replace("add_kernel", "other_kernel"))
    wrong = {
        ("add.py", "--against", "nowhere"): (2, "is in no git repository; expected a commit, such as HEAD~1; a file"),
        ("add.py", "--against", "other.py"): (2, "other.py: "),
        ("add.py", "--against", "broken.py"): (1, "broken.py: "),
        ("add.py", "--against", "add.py", "--over", "n=1,2"): (2, "--over cannot be used with --against: --size"),
        ("add.py", "--against", "add.py", "--versus", "reference"): (2, "--versus cannot be used with --against"),
        ("add.py", "--against", "add.py", "--rounds", "3"): (2, "--budget SECONDS"),
        ("add.py", "--against", "add.py", "--gate", "3x"): (2, "expected is a share, such as 3% or 0.03"),
        ("add.py", "--against", "add.py", "--step-summary"): (2, "GITHUB_STEP_SUMMARY is not set"),
        ("add.py", "--against", "add.py", "--junit", "no/folder.xml"): (2, "--junit 'no/folder.xml' cannot be written"),
        ("add.py", "--scheduler", "tcp://host:1"): (2, "--scheduler belongs to --against"),
        ("add.py", "--summary", "x.md"): (2, "--summary belongs to --against"),
        ("add.py", "--gate", "0%"): (2, "--gate belongs to --against"),
    }
    for words, (status, message) in wrong.items():
        called = kernellab("bench", *words)
        assert (called.status, message in called.err) == (status, True), (words, called.err)


@pytest.mark.exhaustive
def test_both_run_on_a_worker_of_a_scheduler_that_lacks_the_file(
    kernellab: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("old.py").write_text(ADD.replace("+ tl.load", "* 3 * tl.load"))
    with dask_client(1) as client:
        scheduler = ("--scheduler", client.scheduler.address)
        refused = kernellab(*GATED, "old.py", *scheduler)
        assert (refused.status, "No process of the executor owns a GPU" in refused.err) == (3, True)
        monkeypatch.setattr("kernellab.lab.workspace.local_environment", cpu_environment)
        monkeypatch.setattr("kernellab.lab.workspace.local_session", session_here)
        called = kernellab(*GATED, "old.py", *scheduler, "--check", "--json").json
        assert (called["verdict"], called["earlier"]) == ("different", "add_kernel of old.py")
        assert called["difference"].startswith("out_ptr differs from that of add_kernel of old.py in ")
        (worker,) = client.nthreads()
        assert f"measured by {worker}" in called["notes"]


@pytest.mark.slow
def test_a_scheduler_that_does_not_answer_is_named(kernellab: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr("kernellab.cli.gate._CONNECT_S", 1)
    called = kernellab(*GATED, "add.py", "--scheduler", "tcp://127.0.0.1:9")
    assert (called.status, "--scheduler tcp://127.0.0.1:9 does not answer" in called.err) == (2, True)
