"""The table of contents of the help: magics and verbs of the lab by task, an example each.

What each does is the first sentence of its docstring. A test runs every example, in the order of the table, and
compares the names with those that there are.
"""

from __future__ import annotations

from collections.abc import Mapping

LAUNCH = "add_kernel[grid](x, y, out, n, BLOCK=256)"
_CALL = "add_kernel, grid, x, y, out, n, BLOCK=256"
_COMPILED = "add_kernel, x, y, out, n, BLOCK=256"
_CONFIGS = "\"[triton.Config({'BLOCK': size}) for size in (128, 256)]\""

TOPICS: Mapping[str, Mapping[str, str]] = {
    "Run and check a kernel": {
        "%%triton": f'%%triton --check "x + y"\n{LAUNCH}',
        "lab.run": f"lab.run({_CALL}).changed",
        "lab.checking": f"with lab.checking(nan=True): {LAUNCH}",
        "lab.capture": f"with lab.capture() as program: {LAUNCH}",
    },
    "Compile it and look inside": {
        "lab.compile": f"lab.compile({_COMPILED}).ptx",
        "lab.effects": f"lab.effects({_COMPILED}).writes",
        "lab.graph": f"lab.graph({_COMPILED})",
        "lab.layouts": f"lab.layouts({_COMPILED})",
        "%triton_target": "%triton_target cuda:90",
        "lab.targets": "lab.targets()",
        "lab.use_target": 'lab.use_target("cuda:90")',
        "kernellab.graph_view": f"kernellab.graph_view(lab.graph({_COMPILED}))",
        "kernellab.explorer": f"kernellab.explorer(lab.compile({_COMPILED}))",
    },
    "Look inside a launch": {
        "%triton_values": "%triton_values add_kernel --program 1",
        "lab.values": f'lab.values({_CALL})["offsets"]',
        "kernellab.values_view": f"kernellab.values_view(lab.values({_CALL}))",
        "lab.first_difference": f'lab.first_difference(add_kernel, "float64", {_CALL.removeprefix("add_kernel, ")})',
        "lab.equivalent": "lab.equivalent(add_kernel, lambda x_ptr, y_ptr: x_ptr + y_ptr, "
        f"{_CALL.removeprefix('add_kernel, ')})",
        "%triton_timeline": "%triton_timeline add_kernel",
        "lab.timeline": f"lab.timeline({_CALL}).frame",
    },
    "See why it is slow": {
        "%triton_why": "%triton_why add_kernel",
        "lab.explain": f"lab.explain({_CALL}).bound",
        "%triton_predict": "%triton_predict --device h100 add_kernel",
        "lab.predict": f'lab.predict({_CALL}, device="h100").time_ms',
        "lab.traffic": f"lab.traffic({_CALL}).frame",
        "lab.profile": f"lab.profile({_CALL}).frame",
        "lab.ceilings": "lab.ceilings()",
        "lab.marking": f"with lab.marking(): {LAUNCH}",
    },
    "Tune it": {
        "%triton_tune": "%triton_tune --limit 4 add_kernel",
        "lab.tune": f"lab.tune(add_kernel, grid, x, y, out, n, configs={_CONFIGS[1:-1]}).best",
        "lab.tune_over": "lab.tune_over(add_kernel, grid, x, y, out, n, "
        f'over={{"n": [64, 300]}}, configs={_CONFIGS[1:-1]}).rule',
        "lab.explore": "lab.explore(add_kernel, grid, x, y, out, n, BLOCK=[128, 256])",
    },
    "Benchmark it": {
        "%triton_bench": f'%triton_bench {LAUNCH} --over "n=[64, 300]"',
        "lab.bench": f'lab.bench({_CALL}, over={{"n": [64, 300]}}).frame',
        "kernellab.save_frame": f'kernellab.save_frame(lab.traffic({_CALL}).frame, "traffic.json")',
        "kernellab.read_frame": 'kernellab.read_frame("traffic.json")',
    },
    "Draw and save a result": {
        "result.plot": f"lab.traffic({_CALL}).plot(dark=True)",
        "result.save": f'lab.traffic({_CALL}).save("traffic.csv")',
        "result.to_html": f"lab.traffic({_CALL}).to_html()",
    },
    "Find and compare what is kept": {
        "%triton_ls": "%triton_ls add",
        "%triton_load": "%triton_load add_kernel@1",
        "%triton_diff": "%triton_diff add_kernel@1 add_kernel@2",
        "%triton_tag": '%triton_tag add_kernel@1 good --note "the first that worked"',
        "%triton_rm": "%triton_rm add_kernel@2",
        "lab.load": 'lab.load("add_kernel@1", globals())',
        "lab.compare": 'lab.compare("add_kernel", lambda x_ptr, y_ptr: x_ptr + y_ptr)',
        "lab.frame": 'lab.frame("launches")',
        "lab.regressions": 'lab.regressions(since="7d")',
        "lab.upgrade": "lab.upgrade()",
        "lab.gate": f"lab.gate({_CALL}, against=add_kernel)",
        "lab.harvest": "with lab.harvest() as seen: add_kernel[grid](x, y, out, n, BLOCK=256)",
        "lab.harvest_on": "lab.harvest_on(client, train_step)",
    },
    "Export and share it": {
        "%triton_export": "%triton_export add_kernel --to add_kernel.py",
        "lab.export": 'lab.export("add_kernel", "add_kernel.html", kind="report")',
        "lab.export_measurements": 'lab.export_measurements("add_kernel", "measurements.jsonl")',
        "%triton_merge": "%triton_merge measurements.jsonl",
        "lab.merge": 'lab.merge("measurements.jsonl")',
    },
    "Lab and help": {
        "%triton_help": "%triton_help tune",
        "%triton": "%triton",
        "kernellab.current_lab": "lab = kernellab.current_lab()",
        "kernellab.Lab": 'with kernellab.Lab(target="cuda:90", store=":memory:") as other: print(other)',
        "lab.bind": "lab.bind(add_kernel)",
        "lab.start": "lab.start(wait=True)",
        "lab.compiling_for": f'with lab.compiling_for("cuda:80"): {LAUNCH}',
        "lab.tidy": "lab.tidy()",
        "lab.close": "lab.close()",
    },
}

NEEDS_GPU = frozenset({"lab.profile", "%triton_timeline", "lab.timeline", "lab.ceilings"})
