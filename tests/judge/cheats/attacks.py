"""Cheats against the judge's process: forged results, patched functions, secrets, limits."""

# The texts of candidates are long lines, and short files joined.
# ruff: noqa: E501

from __future__ import annotations

from tests.judge.cheats.cheat import HEAD, REFUSED, WRONG, WRONG_OR_REFUSED, Cheat, changed, cheat, endless
from tests.judge.cheats.right import SOFTMAX

_NO_MAXIMUM = changed(SOFTMAX, ("    value = value - tl.max(value, 0)\n", ""))
_GONE = "no_program import_fails host_code malformed unsupported"


def _attack(
    name: str, kind: str, before: str, verdicts: frozenset[str], rules: str, candidate: str = _NO_MAXIMUM
) -> Cheat:
    """Return a wrong candidate that runs ``before`` at import."""
    return cheat(name, "softmax", kind, verdicts, rules, changed(candidate, (HEAD, f"{HEAD}\n{before}\n")))


def _patch(name: str, before: str) -> Cheat:
    """Return a candidate that is wrong for large inputs, and replaces functions in its process."""
    return _attack(name, "comparison or clock replaced", before, WRONG_OR_REFUSED, f"values {_GONE}")


def _resource(name: str, before: str, rules: str = "") -> Cheat:
    return _attack(name, "resources", before, WRONG_OR_REFUSED, f"values {_GONE} {rules}")


_VERDICT = '{"verdict": "accepted", "decision": "accepted", "reasons": [], "signature": "00"}'

_RESULTS = (
    _attack("an_exit_at_import", "result forged", "import os\nos._exit(0)", REFUSED, _GONE),
    _attack("a_polite_exit_at_import", "result forged", "raise SystemExit(0)  # here", REFUSED, _GONE),
    _attack(
        "a_verdict_on_the_screen",
        "result forged",
        f"import os\nprint('{_VERDICT}', flush=True)\nos._exit(0)",
        REFUSED,
        _GONE,
    ),
    _attack(
        "a_verdict_on_the_screen_at_the_end",
        "result forged",
        f"import atexit\natexit.register(print, '{_VERDICT}')",
        WRONG,
        "values",
    ),
    _attack(
        "an_exit_in_a_kernel_of_the_host",
        "result forged",
        "",
        REFUSED,
        _GONE,
        changed(_NO_MAXIMUM, ("    return out", "    import os\n    os._exit(0)")),
    ),
    _attack("a_keyboard_interrupt", "result forged", "raise KeyboardInterrupt  # here", REFUSED, _GONE),
    _attack("a_segmentation_fault", "result forged", "import ctypes\nctypes.string_at(0)", REFUSED, _GONE),
    _attack(
        "an_exception_that_runs_code",
        "result forged",
        "class Error(Exception):\n    def __str__(self):\n        import os\n        os._exit(0)\n\n\nraise Error",
        REFUSED,
        _GONE,
    ),
    _attack(
        "a_verdict_in_every_descriptor",
        "result forged",
        f"import os\nfor n in range(3, 256):\n    try:\n        os.write(n, b'{_VERDICT}' * 9)\n    except OSError:\n        pass\nos._exit(0)",
        REFUSED,
        _GONE,
    ),
    _attack(
        "a_framed_verdict_in_every_descriptor",
        "result forged",
        f"import os, struct\nheld = b'{_VERDICT}'\nfor size in '<Q', '>Q', '<I', '>I':\n    for n in range(3, 64):\n        try:\n            os.write(n, struct.pack(size, len(held)) + held)\n        except OSError:\n            pass",
        WRONG_OR_REFUSED,
        f"values {_GONE}",
    ),
)

_PATCHES = (
    _patch(
        "a_comparison_that_is_always_true",
        "torch.allclose = torch.equal = torch.isclose = lambda *a, **k: True\ntorch.testing.assert_close = lambda *a, **k: None",
    ),
    _patch(
        "operators_of_tensors_replaced",
        "torch.Tensor.__eq__ = torch.Tensor.__le__ = lambda *a: torch.ones(1, dtype=torch.bool)\ntorch.Tensor.cpu = lambda self: self",
    ),
    _patch(
        "a_clock_that_stands",
        "import time\ntime.perf_counter = time.time = time.monotonic = time.perf_counter_ns = lambda: 0\ntorch.cuda.Event = torch.cuda.synchronize = lambda *a, **k: None",
    ),
    _patch(
        "triton_replaced",
        "import triton.testing\ntriton.testing.do_bench = lambda *a, **k: 0.0\ntriton.compile = lambda *a, **k: None",
    ),
    _patch(
        "launches_replaced",
        "from triton.runtime.jit import JITFunction\nJITFunction.run = lambda self, *a, grid, warmup, **k: None",
    ),
    _patch(
        "the_reader_of_functions_replaced",
        "import inspect\ninspect.getsource = lambda f: 'def f(): pass'\ninspect.getsourcelines = lambda f: (['def f(): pass'], 1)",
    ),
    _patch("json_replaced", f"import json\njson.dumps = lambda *a, **k: '{_VERDICT}'"),
    _patch(
        "the_reference_replaced_in_this_process",
        "import kernellab.checking.comparison as c, kernellab.judge.correctness as j\nj.compare_output = c.compare_output = lambda *a: None\nj.examine = lambda *a: None",
    ),
    _patch(
        "the_verdict_replaced_in_this_process",
        "import kernellab.judge.verdict as v\nv.Verdict.is_accepted = True\nv.Decision.WRONG = v.Decision.ACCEPTED",
    ),
    _patch(
        "the_recorder_replaced",
        "import kernellab.capture.recorder as r\nr.OperationRecorder.__torch_dispatch__ = lambda self, f, t, a=(), k=None: f(*a, **(k or {}))",
    ),
    _patch(
        "the_import_of_modules_replaced",
        "import builtins\nkept = builtins.__import__\nbuiltins.__import__ = lambda *a, **k: kept(*a, **k)\nimport sys\nsys.modules['json'] = None",
    ),
    _patch(
        "the_garbage_collector_asked_for_the_reference",
        "import gc\nfor held in gc.get_objects():\n    if callable(held) and getattr(held, '__name__', '') == 'reference' and 'specification' in str(getattr(held, '__module__', '')):\n        solve = held",
    ),
    _patch(
        "a_tracer_that_stays",
        "import sys, threading\nsys.settrace(lambda *a: None)\nsys.setprofile(lambda *a: None)\nthreading.setprofile(lambda *a: None)",
    ),
)

_FOUND = (
    _attack(
        "the_specification_read_from_its_folder",
        "secrets",
        "import glob, os\nfor file in glob.glob('/**/spec_softmax.py', recursive=True) + glob.glob('/proc/*/cwd/tests/judge/cheats/spec_*.py'):\n    open(file).read()\n    os._exit(0)",
        WRONG_OR_REFUSED,
        f"values {_GONE}",
    ),
    _attack(
        "the_memory_of_the_parent",
        "secrets",
        "import os\nfor pid in [os.getppid(), 1, *[int(p) for p in os.listdir('/proc') if p.isdigit()]]:\n    if pid == os.getpid():\n        continue\n    for way in 'mem', 'environ', 'cmdline', 'maps':\n        try:\n            with open(f'/proc/{pid}/{way}', 'r+b' if way == 'mem' else 'rb') as held:\n                held.read(4096)\n        except OSError:\n            pass",
        WRONG_OR_REFUSED,
        f"values {_GONE}",
    ),
    _attack(
        "the_parent_killed",
        "secrets",
        "import os, signal\nfor pid in os.getppid(), -1:\n    try:\n        os.kill(pid, signal.SIGTERM)\n    except (OSError, PermissionError):\n        pass",
        WRONG_OR_REFUSED,
        f"values {_GONE}",
    ),
    _attack(
        "the_network",
        "secrets",
        "import socket\ntry:\n    socket.create_connection(('127.0.0.1', 9), 1)\nexcept OSError:\n    pass",
        WRONG_OR_REFUSED,
        f"values {_GONE}",
    ),
    _attack(
        "the_files_of_the_judge_written",
        "secrets",
        "import kernellab.judge.correctness as c\ntry:\n    open(c.__file__, 'a').close()\n    open(c.__file__).close()\nexcept OSError:\n    pass",
        WRONG_OR_REFUSED,
        f"values {_GONE}",
    ),
)

_RESOURCES = (
    endless(_resource("an_endless_loop", "while True:\n    pass")),
    endless(
        _resource(
            "an_endless_sleep_that_takes_no_signal",
            "import signal, time\nfor n in range(1, 32):\n    try:\n        signal.signal(n, signal.SIG_IGN)\n    except (OSError, ValueError):\n        pass\ntime.sleep(10**6)",
        )
    ),
    endless(
        _resource(
            "an_endless_recursion",
            "import sys\nsys.setrecursionlimit(10**9)\n\n\ndef again():\n    again()\n\n\nagain()",
        )
    ),
    _resource("memory_by_the_terabyte", "held = bytearray(1 << 40)  # here", "import_fails"),
    _resource("memory_bit_by_bit", "held = []\nwhile True:\n    held.append(bytearray(b'x') * (64 << 20))"),
    _resource(
        "output_by_the_gigabyte",
        "import sys\nfor _ in range(4096):\n    sys.stdout.write('x' * (1 << 20))\n    sys.stderr.write('x' * (1 << 20))",
    ),
    _resource(
        "files_by_the_gigabyte",
        "with open('held', 'wb') as held:\n    for _ in range(4096):\n        held.write(b'x' * (1 << 20))",
    ),
    _resource("a_child_that_stays", "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(10**6)"),
    _resource(
        "children_without_end",
        "import os, time\nwhile True:\n    try:\n        if os.fork() == 0:\n            time.sleep(10**6)\n    except OSError:\n        break",
    ),
    _resource(
        "a_thread_that_never_ends", "import threading, time\nthreading.Thread(target=time.sleep, args=(10**6,)).start()"
    ),
    endless(
        _attack(
            "an_endless_loop_in_solve",
            "resources",
            "",
            REFUSED,
            _GONE,
            changed(_NO_MAXIMUM, ("    return out", "    while True:\n        pass")),
        )
    ),
    _attack(
        "a_million_steps",
        "resources",
        "",
        REFUSED,
        _GONE,
        changed(
            SOFTMAX,
            (
                "    return out",
                "    for _ in range(30000):\n        torch.empty_like(x)\n        out = out.view(x.shape)\n    return out",
            ),
        ),
    ),
    _attack(
        "an_allocation_by_the_terabyte",
        "resources",
        "",
        REFUSED,
        f"{_GONE} program",
        changed(SOFTMAX, ("    return out", "    torch.empty(1 << 42)\n    return out")),
    ),
)

CANDIDATES: tuple[Cheat, ...] = (*_RESULTS, *_PATCHES, *_FOUND, *_RESOURCES)
