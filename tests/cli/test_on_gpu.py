"""With a GPU the commands launch and time on it."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Call

pytestmark = pytest.mark.gpu


def test_a_kernel_of_a_file_runs_on_the_gpu(kernellab: Call) -> None:
    found = kernellab("run", "add.py", "--json").json
    assert (found["where"], found["equals"]) == ("gpu", "reference")
    checked = kernellab("run", "add.py", "--interpret", "--json").json
    assert (checked["where"], checked["equals"]) == ("interpreter", "reference")


def test_tune_has_times_and_a_winner(kernellab: Call) -> None:
    found = kernellab("tune", "add.py", "--size", "n=2**20", "--space", "BLOCK=128,1024", "--json").json
    assert [row["status"] for row in found["rows"]] == ["ok", "ok"]
    assert found["best"]["BLOCK"] in {128, 1024}
    assert found["provenance"]["device"]
    again = kernellab("tune", "add.py", "--size", "n=2**20", "--space", "BLOCK=128,1024", "--json").json
    assert again["from_cache"] is True


def test_bench_has_a_time_for_each_size_and_peer(kernellab: Call) -> None:
    found = kernellab("bench", "add.py", "--over", "n=2**18,2**20", "--versus", "reference", "--json").json
    assert all(row["time_ms"] > 0 for row in found["rows"])
    assert [(row["n"], row["implementation"]) for row in found["rows"]] == [
        (2**18, "add_kernel"), (2**18, "reference"), (2**20, "add_kernel"), (2**20, "reference")
    ]  # fmt: skip
    assert found["ceilings"]["memory_gbps"] > 0


def test_a_write_out_of_bounds_is_an_error_that_names_the_argument(kernellab: Call) -> None:
    called = kernellab("run", "add.py", "--size", "elements=8", "--no-check", "--json")
    assert called.status == 1
    assert "out_ptr" in called.error["message"]
