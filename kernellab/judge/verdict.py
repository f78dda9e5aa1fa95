"""The verdict on a candidate: accepted or not, with reasons, what was tried, and a signature."""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from kernellab.display import Displayable
from kernellab.errors import UsageError

SCHEMA = 1
"""Raised when a field of the JSON is renamed, removed, or means something else."""


class Decision(StrEnum):
    """The kinds of verdicts."""

    ACCEPTED = "accepted"
    WRONG = "wrong"
    REFUSED = "refused"
    UNSAFE = "unsafe"
    SLOW = "slow"


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason against a candidate.

    ``rule`` names the rule that it breaks (``values``, ``inputs_changed``, ``out_of_bounds``, ``host_code``, ...),
    ``detail`` is a sentence; ``file`` and ``line`` are a place in the candidate. ``trial`` names the trial: size,
    distribution and seed. Of a wrong element, ``output``, ``index``, ``got``, ``expected`` and ``bound`` are set.
    """

    rule: str
    detail: str
    file: str | None = None
    line: int | None = None
    trial: str | None = None
    output: str | None = None
    index: tuple[int, ...] | None = None
    got: float | None = None
    expected: float | None = None
    bound: float | None = None


@dataclass(frozen=True, slots=True)
class Trial:
    """One run of the candidate: ``sizes`` by name, ``is_hidden`` where the candidate's author did not see these.

    ``distribution`` names how the inputs were drawn, ``varied`` the input that alone was drawn anew, or None.
    ``device`` is ``cpu``, or the name of a GPU. ``outcome`` is ``right``, ``wrong``, ``unsafe``, ``refused`` or
    ``not asked``: the reference itself, in the precision of the inputs, leaves its bounds on such inputs.
    """

    sizes: tuple[tuple[str, Any], ...]
    is_hidden: bool
    distribution: str
    seed: int
    outcome: str
    varied: str | None = None
    device: str = "cpu"
    seconds: float = 0.0

    @property
    def words(self) -> str:
        """The trial in words: ``n=1000, m=7, normal, seed 3``."""
        sizes = ", ".join(f"{name}={value}" for name, value in self.sizes)
        how = self.distribution if self.varied is None else f"{self.varied} alone {self.distribution}"
        return f"{sizes}, {how}, seed {self.seed}" if sizes else f"{how}, seed {self.seed}"


@dataclass(frozen=True, slots=True)
class Timing:
    """Times of one size on a GPU, in microseconds; ``low`` and ``high`` bound the median with 95 % confidence.

    ``baseline_us`` and ``speedup`` are None without a baseline. ``roofline_us`` is the time of what must be read and
    written at the device's bandwidth. ``is_launch_bound`` is whether below 5 us the launch is what was measured.
    """

    sizes: tuple[tuple[str, Any], ...]
    time_us: float
    low_us: float
    high_us: float
    baseline_us: float | None
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None
    roofline_us: float
    is_launch_bound: bool
    samples: int


@dataclass(frozen=True)
class Verdict(Displayable):
    """The verdict of the judge on a candidate.

    ``speedup`` is the geometric mean over the timed sizes, with its interval; None where nothing was timed.
    ``isolation`` lists what kept the candidate's process apart. ``specification`` and ``candidate`` are SHA-256
    digests of the files, ``environment`` the versions. ``nonce`` is the caller's. ``signature`` is the HMAC-SHA-256 of
    `signed_text` with the caller's key, as hexadecimal digits; "" without a key.
    """

    decision: Decision
    reasons: tuple[Reason, ...]
    trials: tuple[Trial, ...]
    timings: tuple[Timing, ...] = ()
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    notes: tuple[str, ...] = ()
    isolation: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    name: str = ""
    specification: str = ""
    candidate: str = ""
    environment: tuple[tuple[str, str], ...] = ()
    nonce: str = ""
    seed: int = 0
    seconds: float = 0.0
    signature: str = field(default="", compare=False)

    @property
    def verdict(self) -> str:
        """``accepted``, ``wrong``, ``refused``, ``unsafe`` or ``slow``."""
        return self.decision.value

    @property
    def is_accepted(self) -> bool:
        """Whether the candidate is accepted."""
        return self.decision is Decision.ACCEPTED

    def __repr__(self) -> str:
        """One line: the decision and the first reason."""
        reason = f": {self.reasons[0].detail}" if self.reasons else ""
        return f"<Verdict: {self.verdict}{reason}>"

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as plain data, the signature included."""
        fields = asdict(self)
        fields["verdict"] = str(fields.pop("decision"))
        for timed in (*fields["trials"], *fields["timings"]):
            timed["sizes"] = dict(timed["sizes"])
        fields["environment"] = dict(self.environment)
        return {"schema": SCHEMA, **fields}

    def as_json(self) -> str:
        """Return the verdict as one line of JSON, in which only `signature` is not signed."""
        return json.dumps(self.as_dict(), sort_keys=True, allow_nan=True)

    def signed_text(self) -> str:
        """Return the text that is signed: the JSON without its signature."""
        fields = self.as_dict()
        del fields["signature"]
        return json.dumps(fields, sort_keys=True, allow_nan=True)


def signature_of(verdict: Verdict, key: bytes) -> str:
    """Return the HMAC-SHA-256 of a verdict under a key of the caller, in hexadecimal digits.

    Raises:
        UsageError: the key is shorter than 16 bytes.
    """
    if len(key) < 16:
        raise UsageError(f"The key has {len(key)} bytes; expected at least 16, such as of `openssl rand 32`.")
    return hmac.new(key, verdict.signed_text().encode(), hashlib.sha256).hexdigest()


def is_signed(text: str, key: bytes) -> bool:
    """Whether a line of JSON, as `Verdict.as_json` writes it, carries the right signature for a key."""
    try:
        fields = json.loads(text)
        signature = fields.pop("signature")
    except (ValueError, KeyError, AttributeError):
        return False
    signed = json.dumps(fields, sort_keys=True, allow_nan=True)
    expected = hmac.new(key, signed.encode(), hashlib.sha256).hexdigest()
    return isinstance(signature, str) and hmac.compare_digest(expected, signature)
