"""Verdicts written by hand, for tests of what shows, keeps and signs them."""

from __future__ import annotations

from dataclasses import replace

from kernellab.judge.verdict import Decision, JudgeOptions, Reason, Timing, Trial, Verdict, signature_of

KEY = bytes(range(32))
_SHOWN = (("n", 1000), ("m", 7))
_HIDDEN = (("n", 4097), ("m", 1))
_COMMON = {
    "isolation": ("no network",),
    "name": "soft<max>.py",
    "specification": "5" * 64,
    "candidate": "c" * 64,
    "environment": (("kernellab", "0.1.0"), ("torch", "2.13.0")),
    "nonce": 'round "3"',
    "seed": 7,
    "seconds": 4.5,
}
ACCEPTED = Verdict(
    Decision.ACCEPTED,
    (),
    (
        Trial(_SHOWN, False, "normal", 7, "right", seconds=0.5),
        Trial(_HIDDEN, True, "tiny", 8, "not asked", varied="x"),
    ),
    (Timing(_SHOWN, 12.5, 12.25, 12.75, 16.5, 1.32, 1.3, 1.34, 9.5, False, 60),),
    1.32,
    1.3,
    1.34,
    notes=("not asked, since the reference leaves its own bounds there: tiny",),
    kernels=("softmax_kernel",),
    **_COMMON,  # type: ignore[arg-type]
)
WRONG = Verdict(
    Decision.WRONG,
    (
        Reason(
            "values",
            "output is wrong in 3 of 7,000 elements: [3, 4] is nan & not 1.",
            "/work/soft<max>.py",
            12,
            "n=1000, m=7, normal, seed 7",
            "output",
            (3, 4),
            float("nan"),
            1.0,
            1e-6,
        ),
    ),
    (Trial(_SHOWN, False, "normal", 7, "wrong"),),
    options=JudgeOptions((_SHOWN,), False, 5.0),
    **_COMMON,  # type: ignore[arg-type]
)


def signed(verdict: Verdict, key: bytes = KEY) -> Verdict:
    """Return a verdict with its signature."""
    return replace(verdict, signature=signature_of(verdict, key))
