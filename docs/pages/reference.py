"""The reference: which objects are public, on which page. mkdocstrings writes them from their docstrings."""

from __future__ import annotations

import importlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Chapter:
    """A page of the reference."""

    file: str
    title: str
    lead: str
    objects: tuple[str, ...]


CHAPTERS = (
    Chapter(
        "lab",
        "Lab",
        "The lab has one method per verb and holds all state. `%load_ext kernellab` makes one for the notebook, "
        "which `kernellab.current_lab()` returns.",
        ("kernellab.lab.Lab", "kernellab.current_lab"),
    ),
    Chapter(
        "compiled",
        "Compiling",
        "What `lab.compile` gives, and what can be compiled for.",
        (
            "kernellab.compile.types.Compiled",
            "kernellab.compile.types.CompiledDiff",
            "kernellab.compile.types.Resources",
            "kernellab.compile.types.Parameter",
            "kernellab.target",
        ),
    ),
    Chapter(
        "effects",
        "Effects and graph",
        "What `lab.effects` and `lab.graph` give.",
        ("kernellab.ir.effects", "kernellab.ir.operations.Access", "kernellab.ir.graph", "kernellab.views.graph"),
    ),
    Chapter(
        "layouts",
        "Layouts",
        "What `lab.layouts` gives: who holds each element of a tile, in registers, shared and tensor memory.",
        ("kernellab._triton.tiles.gluon_tile", "kernellab.ir.layouts"),
    ),
    Chapter(
        "run",
        "Running",
        "What `lab.run` and a cell give.",
        (
            "kernellab.launch.run.Run",
            "kernellab.launch.run.Finding",
            "kernellab.launch.run.FindingKind",
            "kernellab.launch.run.Severity",
            "kernellab.views.report",
        ),
    ),
    Chapter(
        "tune",
        "Tuning",
        "What `lab.tune` takes and gives.",
        (
            "kernellab.tune.result.Tuning",
            "kernellab.tune.result.Agreement",
            "kernellab.tune.result.Row",
            "kernellab.tune.result.Status",
            "kernellab.timing.config.Config",
            "kernellab.timing.config.Space",
            "kernellab.tune.search.Search",
            "kernellab.tune.search.Exhaustive",
            "kernellab.tune.search.Random",
            "kernellab.tune.search.CoordinateDescent",
            "kernellab.tune.search.OptunaSearch",
            "kernellab.tune.search.optuna_search",
        ),
    ),
    Chapter(
        "dispatch",
        "Tuning over sizes",
        "What `lab.tune_over` gives: one decision for all sizes.",
        (
            "kernellab.tune.dispatch.result.Dispatch",
            "kernellab.tune.dispatch.result.Regret",
            "kernellab.tune.dispatch.rule.Rule",
            "kernellab.tune.dispatch.config_files",
        ),
    ),
    Chapter(
        "explain",
        "Why a launch takes its time",
        "What `lab.explain`, `lab.predict`, `lab.traffic` and `lab.profile` give.",
        (
            "kernellab.explain.explanation",
            "kernellab.explain.prediction",
            "kernellab.explain.devices",
            "kernellab.explain.causes.PerformanceFinding",
            "kernellab.explain.causes.Cause",
            "kernellab.explain.traffic.result",
            "kernellab.explain.profile",
        ),
    ),
    Chapter(
        "inside",
        "Look inside a launch",
        "What `lab.values`, `lab.first_difference`, `lab.equivalent` and `lab.timeline` give.",
        (
            "kernellab.inside.values.Values",
            "kernellab.launch.recorded_values.RecordedValue",
            "kernellab.launch.recorded_values.Summary",
            "kernellab.inside.first_difference.FirstDifference",
            "kernellab.inside.equivalence.Equivalence",
            "kernellab.inside.equivalence.OutputEquality",
            "kernellab.inside.timeline.Timeline",
        ),
    ),
    Chapter(
        "bench",
        "Benchmarks",
        "What `lab.bench` and `lab.ceilings` give.",
        (
            "kernellab.benchmark.result.Benchmark",
            "kernellab.benchmark.result.BenchmarkRow",
            "kernellab.benchmark.result.Clocks",
            "kernellab.timing.provenance.Ceilings",
            "kernellab.benchmark.baselines.Baseline",
            "kernellab.benchmark.baselines.BaselineComparison",
        ),
    ),
    Chapter(
        "explore",
        "Sliders",
        "What `lab.explore` gives: a panel over a launch.",
        ("kernellab.views.panels.Panel",),
    ),
    Chapter(
        "capture",
        "Captured programs",
        "What `lab.capture` records, as a block or as a function's decorator.",
        (
            "kernellab.capture.block.Capture",
            "kernellab.capture.captured_function.CapturedFunction",
            "kernellab.capture.program.Program",
            "kernellab.capture.plan",
        ),
    ),
    Chapter(
        "judge",
        "The judge",
        "What `kernellab.judge` takes and gives, and batches of candidates.",
        (
            "kernellab.judge.judging.judge",
            "kernellab.judge.verdict",
            "kernellab.judge.batch.judge_all",
            "kernellab.judge.batch.JudgeFailure",
        ),
    ),
    Chapter(
        "workloads",
        "Configs and grids",
        "What is worth trying, by kind of kernel.",
        ("kernellab.tune.workloads", "kernellab.launch.calls"),
    ),
    Chapter(
        "kept",
        "Keeping and comparing",
        "`lab.kernels` and what lists, loads and compares give.",
        (
            "kernellab.registry.kernels.Registry",
            "kernellab.registry.listing",
            "kernellab.store.content",
            "kernellab.benchmark.comparison.Comparison",
            "kernellab.benchmark.comparison.Timing",
            "kernellab.export.merging.Merged",
            "kernellab.export.merging.MergedRow",
            "kernellab.export.merging.Conflict",
            "kernellab.registry.regressions.Regressions",
            "kernellab.registry.regressions.ChangedTime",
            "kernellab.registry.regressions.TimeChange",
            "kernellab.harvest.result.Harvest",
            "kernellab.harvest.record",
            "kernellab.upgrade.result.Upgrade",
            "kernellab.upgrade.result.UpgradeRow",
            "kernellab.upgrade.result.UpgradeOutcome",
            "kernellab.upgrade.result.RepeatedTiming",
            "kernellab.upgrade.comparison",
            "kernellab.upgrade.gate_result",
            "kernellab.timing.gate",
            "kernellab.store.snapshots",
        ),
    ),
    Chapter(
        "export",
        "Exporting",
        "What `lab.export` and `lab.frame` give, and DataFrames as files.",
        (
            "kernellab.export.write.Exported",
            "kernellab.registry.history_frames.frame",
            "kernellab.export.frames.save_frame",
            "kernellab.export.frames.read_frame",
        ),
    ),
    Chapter(
        "results",
        "Figures and files",
        "What every result of the lab has: figures, a page, files.",
        ("kernellab.display.Drawable", "kernellab.display.Savable"),
    ),
    Chapter(
        "views",
        "Views",
        "Results as text, HTML and widgets, apart from a notebook.",
        (
            "kernellab.views.widgets",
            "kernellab.views.widgets",
            "kernellab.views.explorers",
        ),
    ),
)


def pages() -> dict[str, str]:
    """Return the pages of the reference by path."""
    return {f"reference/{chapter.file}.md": _page(chapter) for chapter in CHAPTERS}


def documented() -> set[str]:
    """Return the dotted names that the reference has a heading for, members of modules and classes included."""
    found = set()
    for chapter in CHAPTERS:
        for name in chapter.objects:
            found |= {name, *(f"{name}.{member}" for member in _members(name))}
    return found


def resolve(name: str) -> object:
    """Return the object of a dotted name."""
    module, _, rest = name.rpartition(".")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return getattr(resolve(module), rest)


def link(name: str, text: str) -> str:
    """Return a link to an object, or its bare name where the reference leaves it out."""
    return f"[`{text}`][{name}]" if name in documented() else f"`{text}`"


def _members(name: str) -> list[str]:
    return [member for member in dir(resolve(name)) if not member.startswith("_")]


def _page(chapter: Chapter) -> str:
    parts = [f"# {chapter.title}", chapter.lead]
    for name in chapter.objects:
        is_module = type(resolve(name)).__name__ == "module"
        options = (
            "\n    options:\n      show_root_heading: false\n      show_root_toc_entry: false" if is_module else ""
        )
        parts.append(f"::: {name}{options}")
    return "\n\n".join(parts) + "\n"
