"""The lab: one short method per verb. It holds all state: target, workers, compiled kernels, the side table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from kernellab._triton.kernel import Kernel, jit_function
from kernellab.compile.cache import compiled_targets
from kernellab.compile.types import Compiled, CompileJob, compile_job
from kernellab.errors import UsageError
from kernellab.ir.effects import Effects, union_of, with_aliases
from kernellab.ir.graph import Graph
from kernellab.ir.layouts import Layouts
from kernellab.lab.looking_inside import LooksInside
from kernellab.lab.workspace import local_environment
from kernellab.launch.arguments import memory_of, values_of
from kernellab.launch.calls import grid_for_launch, named_arguments, variants_of
from kernellab.launch.run import Run
from kernellab.launch.verbs import verbs
from kernellab.registry import remember

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from kernellab.benchmark.comparison import Comparison
    from kernellab.benchmark.result import Benchmark
    from kernellab.capture.block import Capture
    from kernellab.capture.captured_function import CapturedFunction
    from kernellab.explain.explanation import Explanation
    from kernellab.explain.prediction import Prediction
    from kernellab.export.write import Exported
    from kernellab.timing.config import Space
    from kernellab.timing.provenance import Ceilings
    from kernellab.tune import SearchName
    from kernellab.tune.dispatch import Dispatch
    from kernellab.tune.result import Tuning
    from kernellab.tune.search import Search
    from kernellab.views.panels import Panel


@verbs
class Lab(LooksInside):
    """A place to compile, explain and run kernels.

    ``target`` is what is compiled for: ``cuda:90``, ``hip:gfx942``; None means the GPU if there is one, else
    ``cuda:90``. ``store`` is the folder of all that lasts, ``":memory:"``, or None. Processes start when needed.

    Raises:
        UnknownTarget: Triton has no backend for ``target``.
    """

    def targets(self) -> tuple[str, ...]:
        """Return the targets that the installed Triton compiles for; found by a compile for each, and cached."""
        return compiled_targets(self.compiler)

    def compile(self, kernel: Kernel, /, *args: Any, target: str | None = None, **meta: Any) -> Compiled:
        """Compile a kernel for these arguments without launching it; of an autotuned one, the first config.

        Raises:
            LaunchError, UsageError: the arguments or options do not fit the kernel.
            CompileError: the compiler refused it.
        """
        job = next(self._jobs(kernel, target, args, meta))
        with self.launches.compiling(job.closure.name):
            return replace(self.compiler.compile(job), arguments=values_of(named_arguments(kernel, args, meta)))

    def effects(self, kernel: Kernel, /, *args: Any, target: str | None = None, **meta: Any) -> Effects:
        """Return a kernel's memory effects by argument; of an autotuned one, the union over its configs."""
        effects = union_of(self.compiler.effects_of_each(tuple(self._jobs(kernel, target, args, meta))))
        memory = memory_of(named_arguments(kernel, args, meta))
        return with_aliases(effects, [(name, tensor.data_ptr()) for name, tensor in memory.items()])

    def graph(self, kernel: Kernel, /, *args: Any, target: str | None = None, **meta: Any) -> Graph:
        """Return the dataflow graph of a kernel's TTIR; of an autotuned one, that of the first config."""
        return self.compiler.graph(next(self._jobs(kernel, target, args, meta)))

    def _jobs(self, kernel: Kernel, target: str | None, args: tuple[Any, ...], meta: Any) -> Iterator[CompileJob]:
        for variant in variants_of(kernel, args, meta):
            yield compile_job(variant.function, self._parse_target(target), args, variant.meta)

    def run(
        self,
        kernel: Kernel,
        grid: Any,
        /,
        *args: Any,
        timeout_s: float = 60.0,
        interpret: bool = False,
        uninitialised: Iterable[str] = (),
        check: Any = None,
        algebra: bool = False,
        **meta: Any,
    ) -> Run:
        """Launch a kernel once and return the result.

        Without a GPU, and with ``interpret``, it runs on the CPU, where every access is checked and the contents of the
        arguments that ``uninitialised`` names count as never written. ``check`` is a reference, as for `tune`. With
        ``algebra``, floats are elements of a ring, on the CPU, and the results their bit patterns (docs/algebra.md).

        Raises:
            CheckFailed: an output differs from what ``check`` gives for the arguments as they were before the launch.
            KernellabError: it does not compile, cannot run on the target, or fails while it runs.
        """
        from kernellab.checking.check_launch import launch_once  # keeps `import kernellab` light
        from kernellab.checking.comparison import matching_text

        bound = self.bind(kernel)
        grid = grid_for_launch("lab.run", kernel, grid, args, meta)
        if algebra:
            return self._run_in_algebra(bound, grid, args, meta, timeout_s, check)
        options = {"timeout_s": timeout_s, "interpret": interpret, "uninitialised": frozenset(uninitialised)}
        with self.kernels.noting_failures():
            recorder, checks = launch_once(self.launches, bound, grid, args, meta, check, **options)
        for record in recorder.records.values():
            remember(self.kernels, kernel, record, by="run")
        return replace(recorder.last_run(bound), matches=matching_text(checks))

    def layouts(self, kernel: Kernel, /, *args: Any, target: str | None = None, **meta: Any) -> Layouts:
        """Return the layouts of a kernel's TTGIR: the warp, lane and register, or bank, of each element."""
        from kernellab._triton.tiles import layouts_in  # keeps `import kernellab` light

        compiled = self.compile(kernel, *args, target=target, **meta)
        return layouts_in(compiled.kernel, str(compiled.target), compiled.stages.get("ttgir", ""))

    def tune(
        self,
        kernel: Kernel | str | int,
        grid: Any = None,
        /,
        *args: Any,
        configs: Space | Sequence[Any] | None = None,
        timeout_s: float = 10.0,
        search: SearchName | Search = "exhaustive",
        budget_s: float | None = None,
        budget_configs: int | None = None,
        fresh: bool = False,
        check: Any = None,
        outputs: Sequence[str] | None = None,
        executor: Executor | None = None,
        devices: Sequence[int] | None = None,
        exact: bool = False,
        bitwise: bool = False,
        **meta: Any,
    ) -> Tuning:
        """Find the fastest config of a kernel for these arguments; launch it once. Stored times are used again.

        ``configs`` are those to try; None takes those of the kernel's ``@triton.autotune``, and of a kernel without it
        proposes some: block sizes, warps and stages around those of the call, which come first; ``notes`` say what
        stays and why. A kept kernel alone is tuned on new arguments like those of its latest launch. The budgets bound
        the search, in seconds or configs; ``timeout_s`` bounds each config. Without a GPU, configs are compiled, and
        compared with ``check`` on the CPU within 20 s; none is timed.
        ``search`` is a `SearchName`, such as ``descent``, or a `Search`, which has `ask` and `tell`.
        ``check``, a function of kernel parameters by name or an expression over them, returns the expected outputs: a
        tensor, a tuple in the order of the outputs, None for one that is not judged, or a dict of some. Configs that
        differ from it are ``wrong``. Without it, outputs are compared with each other: where more than half of the
        configs agree, the winner is one of these, and the others have the status ``differs``; else all count.
        ``outputs`` names the arguments that are compared, such as ``("dx",)``, where the rest is scratch. With
        ``exact``, the CPU finds configs that compute something else than the first one, not only round otherwise: they
        are ``wrong``. With ``bitwise``, the winner is of the largest class of configs with equal bits.

        ``executor`` is an `Executor` or a client of dask or ipyparallel, whose workers need kernellab and the same
        Triton. Where the lab has no GPU and they do, one of them does the whole tuning, on copies of the arguments;
        else they compile in place of the lab's own. Process pools should spawn: a fork of a process that uses CUDA can
        only compile. ``devices`` are the GPUs that measure side by side where that saves two seconds, else the first
        does alone. One that disagrees with it by more than 3 % on a config measures no other. The finalists are timed
        on the first.

        Raises:
            UsageError, LaunchError: the configs, options or arguments do not fit the kernel.
            WorkerError: the executor broke.
        """
        from kernellab.timing.launches import Launches  # keeps `import kernellab` light
        from kernellab.tune.options import Options
        from kernellab.tune.verbs import call_to_tune, tune_and_launch

        self._start_workers_for(kernel, compiling=executor is None)
        call = call_to_tune(self.session(), kernel, grid, args, meta)
        options = Options(configs, timeout_s, search, budget_s, budget_configs, fresh)
        options = replace(options, check=check, outputs=outputs, executor=executor, devices=devices)
        options = replace(options, exact=exact, bitwise=bitwise)
        launches = Launches(call.kernel, call.grid, call.args, call.meta, self.target)
        return tune_and_launch(self.session(), launches, options, local_environment)

    def tune_over(
        self,
        kernel: Kernel,
        grid: Any,
        /,
        *args: Any,
        over: Any,
        inputs: Any = None,
        configs: Space | Sequence[Any] | None = None,
        weights: Any = None,
        baseline: Any = None,
        executor: Executor | None = None,
        max_configs: int = 8,
        timeout_s: float = 10.0,
        fresh: bool = False,
        check: Any = None,
        outputs: Sequence[str] | None = None,
        **meta: Any,
    ) -> Dispatch:
        """Find a few configs for all sizes, and a rule that picks one: ``over={"M": [16, 4096], "K": [512, 8192]}``.

        ``over`` has the values of each size, of which all combinations are cases; a `Space` with a ``where``; or a list
        of dicts, one per case. ``inputs`` makes arguments by name from the sizes that it takes; without it, sizes
        replace given arguments. About a quarter of the cases' configs is measured (without a GPU, predicted), and the
        rule has ``max_configs`` at most. ``weights`` are how often a program launches each case (a list, a function of
        the sizes, a dict by tuples of sizes; those of a harvest's cases by default): then the time of the program is
        least, and `Dispatch.speedup` compares it with that of ``baseline``, a config or a function of the sizes. With
        an ``executor`` whose processes own a GPU each, whole cases go to these. The rest is as for `tune`.

        Raises:
            UsageError, LaunchError: the sizes, configs or arguments do not fit the kernel.
            WorkerError: the executor has no GPU, or broke.
        """
        self._start_workers_for(kernel, compiling=executor is None)
        call = self._user_call("tune_over", kernel, grid, args, meta)
        from kernellab.tune.dispatch.measuring import SHORT_FINALS, CaseSpec  # keeps `import kernellab` light
        from kernellab.tune.dispatch.over import tune_over

        options = replace(SHORT_FINALS, configs=configs, timeout_s=timeout_s, fresh=fresh, outputs=outputs)
        spec = CaseSpec(call.grid, call.meta, inputs, options, check)
        dispatch = tune_over(
            self.session(), call, over, spec, executor, local_environment, max_configs, weights, baseline
        )
        return replace(dispatch, exporter=self.export)

    def explore(
        self, kernel: Kernel, grid: Any, /, *args: Any, check: Any = None, target: str | None = None, **ranges: Any
    ) -> Panel:
        """Return a panel with sliders over a launch: each move compiles, runs on copies, and updates in place.

        A list is the values of a slider (``BLOCK=[64, ..., 4096]``), a tuple a range of integers (``n=(1, 10**7)``);
        without any, the kernel's constexprs suggest them. Each starts at its value in the call, or the last launch.
        ``grid_x``, ``grid_y``, ``grid_z`` are extents of the grid. ``check`` is as for `tune`; without it, outputs are
        compared with those of the first config, and nothing says which are right.

        Raises:
            UsageError: a range has no values, or the kernel has no such parameter.
        """
        from kernellab.views.panels.opening import open_panel  # loads ipywidgets

        call = self._user_call("explore", kernel, grid, args, ranges)
        return open_panel(self.session(target), call, check)

    def bench(
        self,
        kernel: Kernel | str | int,
        grid: Any = None,
        /,
        *args: Any,
        over: Any,
        inputs: Any = None,
        versus: Any = None,
        where: Any = None,
        flops: Any = None,
        bytes: Any = None,
        check: bool = False,
        rounds: int = 30,
        timeout_s: float = 60.0,
        **meta: Any,
    ) -> Benchmark:
        """Time a kernel over a sweep, against peers: ``over={"n": [...]}, versus={"torch": lambda x, y: x + y}``.

        ``inputs`` makes arguments by name from the swept names it takes; else swept values replace given arguments.
        Without grid and arguments, those of the latest recorded launch are scaled. Also swept: ``dtype``, ``config``,
        ``version``, ``num_warps``... ``versus`` has functions, kernels, ``name@version`` or (kernel, grid, meta).
        ``where`` says which points count, ``flops`` and ``bytes`` are formulas, ``check`` compares outputs on a CPU.

        Raises:
            UsageError, LaunchError: what is asked, or its first point, does not fit the kernel.
        """
        from kernellab.benchmark.setup import benchmark, spec_of  # keeps `import kernellab` light
        from kernellab.tune.verbs import best_of

        session, kernel = self.session(), kernel if isinstance(kernel, str | int) else self.bind(kernel)
        own = {"over": over, "inputs": inputs, "versus": versus, "where": where, "flops": flops, "bytes": bytes}
        own |= {"check": check, "rounds": rounds, "timeout_s": timeout_s}
        spec = spec_of(session, kernel, grid, args, {**meta, **own})
        return benchmark(session, partial(best_of, session), spec)

    def explain(
        self,
        kernel: Kernel | str | int,
        grid: Any = None,
        /,
        *args: Any,
        target: str | None = None,
        samples: bool = False,
        timeout_s: float = 60.0,
        **meta: Any,
    ) -> Explanation:
        """Explain what limits a launch, or a kept kernel's recorded one; with ``samples``, also by its profile.

        For a ``target`` that is not this machine's GPU, times are estimated from its data sheet.
        """
        from kernellab.explain.verbs import explanation_of
        from kernellab.registry.calls import call_in

        call = call_in(session := self.session(target), "explain", kernel, grid, args, meta)
        return explanation_of(session, call, timeout_s, samples=samples)

    def predict(
        self,
        kernel: Kernel | str | int,
        grid: Any = None,
        /,
        *args: Any,
        target: str | None = None,
        device: str | None = None,
        **meta: Any,
    ) -> Prediction:
        """Predict the time of a launch, or of a kept kernel's recorded one, without a GPU.

        ``device`` is a name of `kernellab.explain.devices`, such as ``"h100"``; the kernel is compiled for its target.

        Raises:
            UsageError: there is no such device, or times cannot be predicted for the target.
        """
        from kernellab.explain.verbs import device_session, prediction_of
        from kernellab.registry.calls import call_in

        session = device_session(self.session, target, device)
        return prediction_of(session, call_in(session, "predict", kernel, grid, args, meta))

    def ceilings(self, *, fresh: bool = False) -> Ceilings:
        """Return the GPU's measured ceilings; measured once per device and driver, or again if ``fresh``."""
        from kernellab.timing.provenance import ceilings_here

        return ceilings_here(self.launches, fresh=fresh)

    def compare(self, left: str | int, right: str | int | Callable[..., Any], /) -> Comparison:
        """Compare two kept kernels, or one with a function of torch, on the inputs of the latest recorded launch.

        A function takes parameters of the kernel by name, and returns its outputs. A GPU times both, in turns. Without
        one, the times of two kernels are predicted.

        Raises:
            UnknownName, UsageError: there is no such kernel or launch, or the parameters differ.
        """
        from kernellab.benchmark.comparison import compare_kernels

        return compare_kernels(self.session(), left, right)

    def export(
        self,
        kernel: str | int | Dispatch,
        /,
        to: str | Path | None = None,
        *,
        kind: str | None = None,
        others: Sequence[Dispatch | str | Path] = (),
        targets: Sequence[str] = (),
        sizes: Sequence[Mapping[str, int]] = (),
    ) -> Exported:
        """Write a kept kernel, by name, ``name@version`` or id, as a file that needs nothing of the lab.

        ``kind`` is a name in `kernellab.export.EXPORT_KINDS`, which says what each writes; without one, it is a module
        with the decorators that the kernel was launched with (``autotune``). Only kernels that this session launched
        are executed for it. Of a dispatch, ``kind`` is ``dispatch`` (a module that chooses by sizes and device),
        ``torch-op``, ``table`` (JSON; also by the suffix of ``to``), ``vllm`` (a folder of configs by size) or
        ``binaries``. ``others`` are dispatches of the same kernel for other devices, or paths of tables with such.

        ``binaries`` are compiled for ``targets``, such as ``("cuda:80", "cuda:90")``, by default those that were
        launched or tuned for, and for the specializations of the recorded launches or of the tuned cases; those of
        further ``sizes`` of a dispatch join them.

        Raises:
            UnknownName, UsageError: there is no such kernel or kind, or the kernel cannot be written so.
        """
        from kernellab.export.write import ExportContext, SessionKernel, export
        from kernellab.tune.dispatch import Dispatch
        from kernellab.tune.dispatch.exporting import BinaryRequest, export_dispatch
        from kernellab.views.cards.kernels import report_page

        if isinstance(kernel, Dispatch):
            binaries = BinaryRequest(tuple(map(self._parse_target, targets)), tuple(sizes))
            return export_dispatch(self.session(), kernel, to, kind, others, binaries)
        if others or sizes:
            name = "others" if others else "sizes"
            raise UsageError(f"{name} belongs to a dispatch; pass one, such as what tune_over returns, not a name.")
        version = self.kernels.version(kernel)
        bound = self.kernels.of_session(version)
        live = None
        if bound is not None:
            live = SessionKernel(jit_function(bound), self.compile, self.launches.device, self.compiler)
        parsed = tuple(map(self._parse_target, targets))
        context = ExportContext(self.kernels.store, self.compiler.folder, report_page, live, parsed)
        return export(context, version, to, kind)

    def export_measurements(self, kernel: str | int | None, path: str | Path, /) -> int:
        """Write the measurements of a version, of a name, or of all kernels (None) as JSON lines; return their number.

        Raises:
            UnknownName, UsageError: there is no such kernel, or the file cannot be written.
        """
        from kernellab.export.write import write_measurements

        return write_measurements(self.kernels, kernel, Path(path))

    def marking(self) -> AbstractContextManager[None]:
        """Mark each launch inside a with statement for profilers: torch's and, by NVTX, Nsight Systems."""
        from kernellab.launch.marks import mark_all_launches

        return mark_all_launches()

    def checking(
        self, *, nan: bool = True, bounds: bool = False, kernels: Iterable[str] = ()
    ) -> AbstractContextManager[None]:
        """Check each launch of this thread inside a with statement; with ``kernels``, theirs alone.

        ``nan`` is for NaN where a launch writes one and reads none. ``bounds`` is for a GPU: each launch is tried
        between redzones first, which show writes out of bounds; for reads, `run` with ``interpret=True``. The launch
        to blame raises `CheckFailed` or `OutOfBounds`, also in programs.
        """
        return self.launches.checking(nan=nan, bounds=bounds, kernels=kernels)

    @overload
    def capture(self, function: None = None, /, *, dynamic: bool = False, max_programs: int = 8) -> Capture: ...

    @overload
    def capture(
        self, function: Callable[..., Any], /, *, dynamic: bool = False, max_programs: int = 8
    ) -> CapturedFunction: ...

    def capture(
        self, function: Callable[..., Any] | None = None, /, *, dynamic: bool = False, max_programs: int = 8
    ) -> Capture | CapturedFunction:
        """Record the launches and torch operations of a with statement as a program, or those of a function.

        ``with lab.capture() as program:`` binds a `kernellab.capture.program.Program`, a graph of torch.fx. With
        ``dynamic``, sizes of tensors are symbolic in the block, and the program holds for all sizes under its guards.
        Of a ``function``, return one that runs up to ``max_programs`` programs, and captures where no guards hold.
        """
        from kernellab.capture.block import Capture

        if function is None:
            return Capture(self.session(), dynamic=dynamic)
        from kernellab.capture.captured_function import CapturedFunction  # needs torch

        return CapturedFunction(function, partial(Capture, self.session(), dynamic=dynamic), max_programs)
