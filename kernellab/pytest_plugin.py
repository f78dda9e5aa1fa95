"""The pytest plugin: the fixtures `lab`, `kernel_bench` and `kernel_gate`; unused, they import nothing heavy."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kernellab.errors import RunError

if TYPE_CHECKING:
    from kernellab import Benchmark, Lab
    from kernellab._triton.kernel import Kernel
    from kernellab.benchmark.baselines import Baseline, BaselineComparison
    from kernellab.launch.calls import UserCall
    from kernellab.upgrade.gate_result import GateResult

_PROPERTY = "kernellab"
_GATE_PROPERTY = "kernellab_gate"
_MARGIN = 0.05  # that of kernellab.benchmark.baselines, which is not imported for a test suite that needs none


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--kernellab-update`` and ``--kernellab-margin``, and the option of the same name in a file."""
    group = parser.getgroup("kernellab", "baselines of Triton kernels")
    group.addoption("--kernellab-update", action="store_true", help="write baselines instead of comparing with them")
    words = f"relative slowdown vs the baseline that is allowed, beyond noise ({_MARGIN:g})"
    group.addoption("--kernellab-margin", type=float, metavar="SHARE", help=words)
    parser.addini("kernellab_margin", words, default=str(_MARGIN))


@pytest.fixture(scope="session")
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A `kernellab.Lab` for the session, which keeps compiled kernels in pytest's cache folder."""
    from kernellab import Lab

    cache = getattr(request.config, "cache", None)
    with Lab(store=":memory:" if cache is None else cache.mkdir("kernellab")) as opened:
        yield opened


@pytest.fixture
def kernel_bench(request: pytest.FixtureRequest, lab: Lab) -> KernelBench:
    """Compares a launch with its stored baseline: ``kernel_bench(kernel, grid, args, baseline="main", **meta)``."""
    return KernelBench(lab, request.node, request.config)


@pytest.fixture
def kernel_gate(request: pytest.FixtureRequest, lab: Lab) -> KernelGate:
    """Compares a launch with an earlier revision, in turns: ``kernel_gate(kernel, grid, args, against="HEAD~1")``."""
    return KernelGate(lab, request.node)


class KernelGate:
    """Compares launches of one test with those of earlier revisions of their kernels."""

    def __init__(self, lab: Lab, test: pytest.Item) -> None:
        self._lab, self._test = lab, test

    def __call__(
        self,
        kernel: Kernel,
        grid: Any,
        args: tuple[Any, ...] | list[Any] | Mapping[str, Any],
        against: Any,
        *,
        margin: float = 0.03,
        budget_s: float = 10.0,
        timeout_s: float = 60.0,
        **meta: Any,
    ) -> GateResult:
        """Time ``kernel`` on ``args``, a tuple or a dict by name, in turns with an earlier revision of it.

        ``against`` is a commit (``"HEAD~1"``), a file, or ``"PACKAGE==VERSION"``, where the kernel's file is looked
        up; or what `Lab.gate` takes: a kernel, or (kernel, grid, values by name). Without a GPU, compiles are compared.
        With ``check=True``, the outputs have to agree, too.

        Raises:
            pytest.fail.Exception: it is slower by more than ``margin``, or that is undecided or, without a GPU, likely;
                or it was checked, and its outputs differ or could not be compared.
            KernellabError: there is no such revision, or one of the two does not compile, or fails.
        """
        from kernellab._triton.kernel import jit_function
        from kernellab.upgrade.revisions import earlier_file, import_kernel

        __tracebackhide__ = True
        named, positional = (dict(args), ()) if isinstance(args, Mapping) else ({}, tuple(args))
        options = {"margin": margin, "budget_s": budget_s, "timeout_s": timeout_s, **named, **meta}
        if isinstance(against, str):
            function = jit_function(kernel)
            name = str(function.__name__)
            with earlier_file(Path(function.fn.__code__.co_filename), against) as earlier:
                options["names"] = (f"{earlier.kernel or name} of {earlier.label}", name)
                result = self._lab.gate(kernel, grid, *positional, against=import_kernel(earlier, name), **options)
        else:
            result = self._lab.gate(kernel, grid, *positional, against=against, **options)
        self._test.user_properties.append((_GATE_PROPERTY, f"{self._test.name}: {result.text}"))
        if result.status:
            pytest.fail(str(result), pytrace=False)
        return result


class KernelBench:
    """Launches kernels of one test, and compares each with its baseline on the same device."""

    def __init__(self, lab: Lab, test: pytest.Item, config: pytest.Config) -> None:
        self._lab, self._test, self._config = lab, test, config
        self._name = test.nodeid.partition("::")[2]
        self._seen: set[str] = set()

    def __call__(
        self,
        kernel: Kernel,
        grid: Any,
        args: tuple[Any, ...] | list[Any] | Mapping[str, Any],
        baseline: str = "main",
        *,
        check: Any = None,
        margin: float | None = None,
        rounds: int = 30,
        timeout_s: float = 60.0,
        **meta: Any,
    ) -> BaselineComparison:
        """Launch ``kernel`` once on ``args``, a tuple or a dict by name, and compare it with its ``baseline``.

        With a GPU it is timed as well. ``check`` is a reference, as for `Lab.run`; ``margin`` the share by which it may
        be slower. Two launches of one test need two names. After it, the tensors hold what the launch left.

        Raises:
            pytest.fail.Exception: it is worse than its baseline or differs from it, or there is none.
            KernellabError: it does not compile, cannot be launched, or fails its check.
        """
        from kernellab.benchmark.baselines import BaselineComparison, BaselineFile, compare_with_baseline
        from kernellab.launch.calls import UserCall
        from kernellab.views.cards.kernels import baseline_text

        __tracebackhide__ = True
        if baseline in self._seen:
            pytest.fail(f"This test has a baseline {baseline!r} already; name this one: baseline='...'.", pytrace=False)
        self._seen.add(baseline)
        named, positional = (dict(args), ()) if isinstance(args, Mapping) else ({}, tuple(args))
        options = {"check": check, "rounds": rounds, "timeout_s": timeout_s}
        now = _measure(self._lab, UserCall(kernel, grid, positional, {**named, **meta}), options)
        file = BaselineFile(self._test.path.with_name(f"{self._test.path.stem}.baselines.json"))
        if self._config.getoption("--kernellab-update"):
            file.put(self._name, baseline, now)
            comparison = BaselineComparison(baseline, now, None)
            self._add_row(comparison)
            return comparison
        before = file.get(self._name, baseline, now.device)
        if before is None:
            pytest.fail(
                f"{file.path.name} has no baseline {baseline!r} of {self._name} on {now.device}; "
                "pytest --kernellab-update writes it.",
                pytrace=False,
            )
        comparison = compare_with_baseline(baseline, before, now, self._margin(margin))
        self._add_row(comparison)
        if comparison.failures:
            pytest.fail(f"{baseline_text(comparison)}\nIf intended, run pytest --kernellab-update.", pytrace=False)
        return comparison

    def _add_row(self, comparison: BaselineComparison) -> None:
        """Leave the row for the summary; a worker of pytest-xdist sends it along with the report."""
        from kernellab.views.cards.kernels import baseline_cells

        self._test.user_properties.append((_PROPERTY, json.dumps(baseline_cells(comparison, self._name))))

    def _margin(self, margin: float | None) -> float:
        if margin is not None:
            return margin
        option = self._config.getoption("--kernellab-margin")
        try:
            return float(self._config.getini("kernellab_margin")) if option is None else float(option)
        except ValueError:
            text = self._config.getini("kernellab_margin")
            raise pytest.UsageError(f"kernellab_margin is {text!r}; expected a share, such as {_MARGIN:g}.") from None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table of all comparisons with baselines, and a line for each with an earlier revision."""
    reports = [report for group in terminalreporter.stats.values() for report in group]
    calls = [report for report in reports if getattr(report, "when", None) == "call"]
    properties = [pair for report in calls for pair in report.user_properties]
    rows = [tuple(json.loads(str(value))) for key, value in properties if key == _PROPERTY]
    gates = [str(value) for key, value in properties if key == _GATE_PROPERTY]
    if rows:
        from kernellab.views.cards.kernels import baseline_lines

        terminalreporter.write_sep("=", "kernels vs their baselines")
        for line in baseline_lines(rows):
            terminalreporter.write_line(line)
    if gates:
        terminalreporter.write_sep("=", "kernels vs earlier revisions")
        for line in gates:
            terminalreporter.write_line(line)


def _measure(lab: Lab, call: UserCall, options: Mapping[str, Any]) -> Baseline:
    """Return a launch as a baseline: timed where there is a GPU for it, then launched once on the arguments."""
    from kernellab._triton.kernel import parameter_names
    from kernellab.benchmark.baselines import EFFECTS, RESOURCES, Baseline, samples_of, tolerance_of
    from kernellab.launch.arguments import memory_of

    kernel, args, named = call.kernel, call.args, call.meta
    compiled = lab.compile(kernel, *args, **named)
    timed = _time(lab, call, options)
    effects, needs = compiled.effects, (compiled.resources if timed is None else timed.rows[0])
    tensors = memory_of({**dict(zip(parameter_names(kernel), args, strict=False)), **named})
    before = samples_of({name: tensor for name, tensor in tensors.items() if name in effects.reads | effects.atomics})
    run = lab.run(kernel, call.grid, *args, timeout_s=options["timeout_s"], check=options["check"], **named)
    written = {name: tensor for name, tensor in tensors.items() if name in effects.mutated}
    target = str(compiled.target)
    of_device: dict[str, Any] = {
        "device": f"no GPU, {target}",
        **{name: metadata.version(name) for name in ("triton", "torch")},
    }
    of_device |= {name: getattr(needs, name) for name in RESOURCES}
    of_device |= {name: tuple(sorted(getattr(effects, name))) for name in EFFECTS}
    if timed is not None:
        row, facts = timed.rows[0], timed.provenance
        of_device |= {"device": facts["device"], "driver": facts["driver"]}
        of_device |= {name: getattr(row, name) for name in ("time_ms", "low_ms", "high_ms", "samples")}
    return Baseline(
        kernel=run.kernel,
        target=target,
        grid=run.grid,
        inputs=before,
        outputs=samples_of(written),
        tolerance=tolerance_of(tensors, has_dot="tt.dot" in compiled.ttir),
        **of_device,
    )


def _time(lab: Lab, call: UserCall, options: Mapping[str, Any]) -> Benchmark | None:
    """Return the benchmark of one launch, or None where there is no GPU to time it.

    Raises:
        RunError: it fails where it is timed.
    """
    if lab.launches.is_offline():
        return None
    own = {name: options[name] for name in ("rounds", "timeout_s")}
    over = {"num_warps": (None,)}  # one point: what the kernel is launched with anyway
    benchmark = lab.bench(call.kernel, call.grid, *call.args, over=over, **own, **call.meta)
    row = benchmark.rows[0]
    if row.time_ms is None and row.status != "not_timed":
        raise RunError(f"{benchmark.kernel} was not timed: {row.reason}.", kernel=benchmark.kernel)
    return None if row.time_ms is None else benchmark
