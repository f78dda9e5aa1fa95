"""The line magic that benchmarks a kernel."""

from __future__ import annotations

from typing import Any

from IPython.core.magic import Magics, line_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments

from kernellab.benchmark.result import Benchmark
from kernellab.lab import Lab
from kernellab.notebook.expressions import expression, launch_or_kernel, named
from kernellab.notebook.parsing import parsed


@magics_class
class BenchMagics(Magics):  # type: ignore[misc]
    """``%triton_bench``."""

    def __init__(self, shell: Any, lab: Lab) -> None:
        super().__init__(shell)
        self.lab = lab

    @no_var_expand
    @magic_arguments()
    @argument("launch", nargs="*", help="kernel[grid](arguments), kernel[grid] with --inputs, or a kept kernel alone.")
    @argument("--over", action="append", help='What is swept: --over "n=[2**i for i in range(10, 20)]".')
    @argument("--versus", action="append", help='Peers by name: --versus "torch=lambda x: x + 1".')
    @argument("--inputs", help='What makes the arguments: --inputs "lambda n: dict(x=torch.rand(n), n=n)".')
    @argument("--where", help='Which points are taken: --where "m * n < 2**28".')
    @argument("--flops", help='What a launch computes: --flops "lambda m, n, k: 2 * m * n * k".')
    @argument("--bytes", help='What a launch moves: --bytes "lambda n: 8 * n".')
    @argument("--rounds", type=int, default=30, help="How often each implementation is timed at a point (30).")
    @argument("--timeout", type=float, default=60.0, help="Seconds after which a first launch is stopped (60).")
    @argument("--check", action="store_true", help="Without a GPU, compare the outputs on the CPU.")
    @line_magic
    def triton_bench(self, line: str) -> Benchmark:
        """Time a kernel over a sweep, beside peers: %triton_bench add[grid](x, y, out, n) --over "n=[1024, 2048]"."""
        given, names = parsed(self.triton_bench, "%triton_bench", line), self.shell.user_ns
        launch = launch_or_kernel(" ".join(given.launch), names)
        over, versus = named(given.over, "--over", names), named(given.versus, "--versus", names)
        texts = {name: getattr(given, name) for name in ("inputs", "flops", "bytes")}
        formulas = {name: expression(text, f"--{name}", names) for name, text in texts.items()}
        own = {"where": given.where, "rounds": given.rounds, "timeout_s": given.timeout, "check": given.check}
        asked = {**launch.meta, **formulas, **own, "over": over, "versus": versus}
        return self.lab.bench(launch.kernel, launch.grid, *launch.args, **asked)
