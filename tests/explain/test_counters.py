from __future__ import annotations

from pathlib import Path

import pytest

from kernellab.explain.profilers import METRICS, command, counters_from, values_of

PRINTED = """\
==PROF== Connected to process 4242
checks passed
==PROF== Disconnected from process 4242
"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","4242","k","dram__throughput.avg.pct_of_peak_sustained_elapsed","%","80.5"
"0","4242","k","dram__bytes_read.sum","byte","1,000,000"
"0","4242","k","dram__bytes_write.sum","byte","500,000"
"0","4242","k","sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_elapsed","%","n/a"
"0","4242","k","gpu__time_duration.sum","ns","12,500"
"1","4242","k","dram__throughput.avg.pct_of_peak_sustained_elapsed","%","84.5"
"1","4242","k","sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed","%","12"
"""


def test_values_are_read_by_metric_and_launch() -> None:
    values = values_of(PRINTED)
    assert values["dram__bytes_read.sum"] == [1e6]
    assert values["dram__throughput.avg.pct_of_peak_sustained_elapsed"] == [80.5, 84.5]
    assert "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_elapsed" not in values


def test_counters_are_shares_of_what_the_hardware_can_do() -> None:
    counters = counters_from(values_of(PRINTED))
    assert counters.dram == pytest.approx(0.825)
    assert counters.tensor == pytest.approx(0.12)
    assert counters.l2 is None
    assert counters.dram_bytes == 1_500_000
    assert counters.seconds == pytest.approx(12.5e-6)


@pytest.mark.parametrize("text", ["", "==ERROR== ERR_NVGPUCTRPERM", '"ID","Metric Name"\n"0"'])
def test_what_holds_no_metric_has_no_values(text: str) -> None:
    assert values_of(text) == {}


def test_the_kernel_is_named_exactly_and_the_clocks_stay() -> None:
    line = command("ncu", Path("again.py"), "a.b")
    assert "regex:^(a\\.b)$" in line
    assert line[line.index("--clock-control") + 1] == "none"
    assert line[line.index("--metrics") + 1].split(",") == list(METRICS)
    assert line[-1] == "again.py"
