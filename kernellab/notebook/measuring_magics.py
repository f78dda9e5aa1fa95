"""The line magics that tune, time, explain, predict and look inside a launch. Each parses, calls and returns."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from IPython.core.magic import line_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments

from kernellab.errors import UsageError
from kernellab.notebook.expressions import (
    evaluate,
    evaluate_named,
    evaluate_option,
    key_of_text,
    launch_of_text,
    launch_or_kernel,
    parse_options,
)
from kernellab.notebook.magics import LabMagics
from kernellab.tune import SEARCHES

if TYPE_CHECKING:
    from kernellab.benchmark.result import Benchmark
    from kernellab.explain.explanation import Explanation
    from kernellab.explain.prediction import Prediction
    from kernellab.inside.timeline import Timeline
    from kernellab.inside.values import Values
    from kernellab.lab import Lab
    from kernellab.tune.dispatch.result import Dispatch
    from kernellab.tune.result import Tuning


@magics_class
class MeasuringMagics(LabMagics):
    """``%triton_tune`` and the other magics of one launch, or of many."""

    @no_var_expand
    @magic_arguments()
    @argument("--configs", default="None", help="A list of triton.Config or a Space, by name; or how many to try.")
    @argument("--limit", type=int, help="The most configs to measure.")
    @argument(
        "--search", choices=SEARCHES, default="exhaustive", help="How configs are chosen (by default exhaustive)."
    )
    @argument("--timeout", type=float, default=10.0, help="Seconds after which a config is stopped (10).")
    @argument("--budget", type=float, help="Time budget in seconds; then the best so far wins.")
    @argument("--check", help='The expected outputs: --check "torch.softmax(x, 1)".')
    @argument("--outputs", help="The arguments that are compared, where others are scratch: --outputs dx,dw.")
    @argument("--devices", help="The GPUs that measure, by number: --devices 0,1.")
    @argument("--fresh", action="store_true", help="Measure again instead of using stored times.")
    @argument("--over", action="append", help='Tune over sizes: --over "M=[16, 4096]", once for each size.')
    @argument(
        "--inputs", help='With --over, what makes the arguments: --inputs "lambda M: dict(x=torch.rand(M), M=M)".'
    )
    @argument("--weights", help='With --over, the launches of each case: --weights "lambda M: 100 if M == 16 else 1".')
    @argument("--baseline", help="With --weights, the config before, which the program is compared with.")
    @argument("--max-configs", type=int, default=8, help="With --over, how many configs the rule may have (8).")
    @argument(
        "launch",
        nargs=argparse.REMAINDER,
        help="kernel[grid](arguments), a kernel that was launched, or with --inputs kernel[grid]",
    )
    @line_magic
    def triton_tune(self, line: str) -> Tuning | Dispatch:
        """Find the fastest config of a kernel and launch it once: ``%triton_tune softmax[grid](x, out, n)``.

        A kernel that was launched needs no arguments, one without configs gets some proposed: ``%triton_tune softmax``.
        With ``--over``, find a few configs for all sizes and a rule that picks one, and launch none.
        """
        options, names = parse_options(self.triton_tune, "%triton_tune", line), self.shell.user_ns
        if options.over:
            return _tune_over(self.lab, options, names)
        text, own = " ".join(options.launch), _tune_options(options, names)
        if "[" not in text and len(options.launch) == 1:
            return self.lab.tune(key_of_text(text), **own)
        launch = launch_of_text(text, names)
        return self.lab.tune(launch.kernel, launch.grid, *launch.args, **{**launch.meta, **own})

    @no_var_expand
    @magic_arguments()
    @argument("launch", nargs="*", help="kernel[grid](arguments), kernel[grid] with --inputs, or a kept kernel alone.")
    @argument("--over", action="append", help='Sizes to sweep: --over "n=[2**i for i in range(10, 20)]".')
    @argument("--versus", action="append", help='Implementations to compare with: --versus "torch=lambda x: x + 1".')
    @argument("--inputs", help='What makes the arguments: --inputs "lambda n: dict(x=torch.rand(n), n=n)".')
    @argument("--where", help='Condition on the points: --where "m * n < 2**28".')
    @argument("--flops", help='The FLOPs of a launch: --flops "lambda m, n, k: 2 * m * n * k".')
    @argument("--bytes", help='The bytes that a launch transfers: --bytes "lambda n: 8 * n".')
    @argument("--rounds", type=int, default=30, help="Timed launches of each implementation per point (30).")
    @argument("--timeout", type=float, default=60.0, help="Seconds after which a first launch is stopped (60).")
    @argument("--check", action="store_true", help="Without a GPU, compare the outputs on the CPU.")
    @line_magic
    def triton_bench(self, line: str) -> Benchmark:
        """Time a kernel over a sweep, against peers: %triton_bench add[grid](x, y, out, n) --over "n=[1024, 2048]"."""
        options, names = parse_options(self.triton_bench, "%triton_bench", line), self.shell.user_ns
        launch = launch_or_kernel(" ".join(options.launch), names)
        if not options.over:
            raise UsageError(
                '--over is missing: a benchmark needs sizes to sweep, such as --over "n=[1024, 2048]", or '
                '--over "num_warps=[4, 8]" for one size.'
            )
        over, versus = evaluate_named(options.over, "--over", names), evaluate_named(options.versus, "--versus", names)
        texts = {name: getattr(options, name) for name in ("inputs", "flops", "bytes")}
        formulas = {name: evaluate_option(text, f"--{name}", names) for name, text in texts.items()}
        own = {"where": options.where, "rounds": options.rounds, "timeout_s": options.timeout, "check": options.check}
        keywords = {**launch.meta, **formulas, **own, "over": over, "versus": versus}
        return self.lab.bench(launch.kernel, launch.grid, *launch.args, **keywords)

    @no_var_expand
    @magic_arguments()
    @argument("--samples", action="store_true", help="Sample stalls on the GPU, and use them.")
    @argument("--timeout", type=float, default=60.0, help="Seconds after which a launch is stopped (60).")
    @argument("launch", nargs=argparse.REMAINDER, help="kernel[grid](arguments), or a kernel that was launched.")
    @line_magic
    def triton_why(self, line: str) -> Explanation:
        """Say what limits a launch and what to change: %triton_why softmax, or %triton_why softmax[grid](x, out, n)."""
        options = parse_options(self.triton_why, "%triton_why", line)
        own = {"samples": options.samples, "timeout_s": options.timeout}
        return self._of_launch(self.lab.explain, options.launch, "%triton_why --samples softmax", own)

    @no_var_expand
    @magic_arguments()
    @argument("--device", help="The GPU to predict for, such as h100, a100-40 or rtx4090.")
    @argument("launch", nargs=argparse.REMAINDER, help="kernel[grid](arguments), or a kernel that was launched.")
    @line_magic
    def triton_predict(self, line: str) -> Prediction:
        """Predict the time of a launch without a GPU: %triton_predict --device h100 softmax[grid](x, out, n)."""
        options = parse_options(self.triton_predict, "%triton_predict", line)
        example = "%triton_predict --device h100 softmax"
        return self._of_launch(self.lab.predict, options.launch, example, {"device": options.device})

    @no_var_expand
    @magic_arguments()
    @argument("--program", help="The program, by its id on up to three axes: --program 3,0 (the first).")
    @argument("--line", action="append", type=int, help="A line to record, once for each (all).")
    @argument("--timeout", type=float, default=60.0, help="Seconds after which the program is stopped (60).")
    @argument("launch", nargs="*", help="kernel[grid](arguments), or a kernel that was launched.")
    @line_magic
    def triton_values(self, line: str) -> Values:
        """Show what each line of a kernel holds in one program: %triton_values softmax --program 3 --line 12."""
        options = parse_options(self.triton_values, "%triton_values", line)
        program = _numbers(options.program or "0", "--program", "the id of a program, such as 3,0")
        own = {"program": tuple(program), "lines": options.line, "timeout_s": options.timeout}
        return self._of_launch(self.lab.values, options.launch, "%triton_values --program 3 softmax", own)

    @no_var_expand
    @magic_arguments()
    @argument("--line", action="append", type=int, help="A line where a part begins that is timed, once for each.")
    @argument("--timeout", type=float, default=60.0, help="Seconds after which a launch is stopped (60).")
    @argument("launch", nargs="*", help="kernel[grid](arguments), or a kernel that was launched.")
    @line_magic
    def triton_timeline(self, line: str) -> Timeline:
        """Show where and when each program of a launch runs on the GPU: %triton_timeline softmax --line 12."""
        options = parse_options(self.triton_timeline, "%triton_timeline", line)
        own = {"lines": options.line, "timeout_s": options.timeout}
        return self._of_launch(self.lab.timeline, options.launch, "%triton_timeline softmax", own)


def _tune_over(lab: Lab, options: Any, names: Mapping[str, Any]) -> Dispatch:
    """Tune over sizes, by the options of ``%triton_tune``."""
    launch = launch_or_kernel(" ".join(options.launch), names)
    tune_options = _tune_options(options, names)
    own = {name: tune_options[name] for name in ("configs", "timeout_s", "check", "outputs", "fresh")}
    own |= {"over": evaluate_named(options.over, "--over", names), "max_configs": options.max_configs}
    for name in ("inputs", "weights", "baseline"):
        own[name] = evaluate_option(getattr(options, name), f"--{name}", names)
    return lab.tune_over(launch.kernel, launch.grid, *launch.args, **{**launch.meta, **own})


def _tune_options(options: Any, names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of `Lab.tune`, evaluated in the user's namespace."""
    from kernellab.checking.reference import check_in  # needs Triton

    how = "--configs \"[triton.Config({'BLOCK': 64})]\""
    configs, limit = evaluate(options.configs, options.configs, names, "--configs", how), options.limit
    if isinstance(configs, int):
        if configs < 1:
            raise UsageError(f"--configs is {configs}; expected how many to try, a list of triton.Config, or a Space.")
        configs, limit = None, configs
    devices = None if options.devices is None else _numbers(options.devices, "--devices", "GPU numbers, such as 0,1")
    return {
        "configs": configs,
        "budget_configs": limit,
        "search": options.search,
        "timeout_s": options.timeout,
        "budget_s": options.budget,
        "check": None if options.check is None else check_in(options.check, names),
        "outputs": None if options.outputs is None else tuple(filter(None, options.outputs.split(","))),
        "devices": devices,
        "fresh": options.fresh,
    }


def _numbers(text: str, option: str, expected: str) -> list[int]:
    """The numbers of a list such as ``0,1``."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as exc:
        raise UsageError(f"{option} is {text!r}; expected {expected}.") from exc
