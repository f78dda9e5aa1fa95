"""The verdict on a candidate: accepted or not, with reasons, what was tried, and a signature.

Its JSON is one line, which the command line prints as it stands. The signature is the last field, and signs the text
before it: a program in any language cuts the line there, and need not write JSON as Python does.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from kernellab.display import Savable
from kernellab.errors import UsageError
from kernellab.source import Readers, record_of_json

if TYPE_CHECKING:
    from kernellab.views.blocks import Card

AS_SPECIFIED = "as specified"
"""The distribution and the layout of inputs that a specification's own ``inputs()`` makes."""

SCHEMA = 1
"""Raised when a field of the JSON is renamed, removed, or means something else; that of the command line, too."""

_LEAST_KEY_BYTES = 16
_CUT = ', "signature": "'


def sizes_words(sizes: Sequence[tuple[str, Any]]) -> str:
    """Return sizes in words: ``n=1000, m=7``."""
    return ", ".join(f"{name}={value}" for name, value in sizes)


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

    def __post_init__(self) -> None:
        for name in ("detail", "file", "trial", "output"):
            text = getattr(self, name)
            if text is not None and not text.isprintable():
                object.__setattr__(self, name, _printable(text))


def _printable(text: str) -> str:
    """Return a text with control characters, which could move the cursor of a terminal, written as escapes."""
    return "".join(c if c.isprintable() else " " if c == "\n" else ascii(c)[1:-1] for c in text)


@dataclass(frozen=True, slots=True)
class Trial:
    """One run of the candidate: ``sizes`` by name, ``is_hidden`` where the candidate's author did not see these.

    ``distribution`` names how the inputs were drawn, ``varied`` the input that alone was drawn anew, or None, and
    ``layout`` their layout in memory, such as ``strided``.
    ``device`` is ``cpu``, or the name of a GPU. ``outcome`` is ``right``, ``wrong``, ``unsafe``, ``refused`` or
    ``not asked``: the reference itself, in the precision of the inputs, leaves its bounds on such inputs, or is more
    than the sums and products that a ring has.
    """

    sizes: tuple[tuple[str, Any], ...]
    is_hidden: bool
    distribution: str
    seed: int
    outcome: str
    varied: str | None = None
    device: str = "cpu"
    seconds: float = 0.0
    layout: str = AS_SPECIFIED

    @property
    def words(self) -> str:
        """The trial in words: ``n=1000, m=7, normal, seed 3``."""
        return ", ".join(filter(None, (sizes_words(self.sizes), self.inputs_words, f"seed {self.seed}")))

    @property
    def inputs_words(self) -> str:
        """Layout and contents of the inputs in words: ``strided inputs``, ``x alone large``, ``as specified``."""
        contents = self.distribution if self.varied is None else f"{self.varied} alone {self.distribution}"
        if self.layout == AS_SPECIFIED:
            return contents
        layout = f"{self.layout} inputs"
        return layout if contents == AS_SPECIFIED else f"{layout}, {contents}"


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


@dataclass(frozen=True, slots=True)
class JudgeOptions:
    """The call of a judge: ``sizes`` in place of the specification's (None: its own), whether to time, the limit."""

    sizes: tuple[tuple[tuple[str, Any], ...], ...] | None = None
    time: bool = True
    timeout_s: float = 30.0


def judge_options(sizes: Sequence[Mapping[str, Any]] | None, *, time: bool, timeout_s: float) -> JudgeOptions:
    """Return the options of a call, as a verdict keeps them."""
    fixed = None if sizes is None else tuple(tuple(size.items()) for size in sizes)
    return JudgeOptions(fixed, time, float(timeout_s))


@dataclass(frozen=True)
class Verdict(Savable):
    """The verdict of the judge on a candidate.

    ``speedup`` is the geometric mean over the timed sizes, with its interval; None where nothing was timed.
    ``isolation`` lists what kept the candidate's process apart. ``specification`` and ``candidate`` are SHA-256
    digests of the files, ``environment`` the versions. ``options`` and ``nonce`` are the caller's. ``signature`` is the
    HMAC-SHA-256 of `signed_text` with the caller's key, as hexadecimal digits; "" without a key.
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
    options: JudgeOptions = JudgeOptions()
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

    def card(self) -> Card:
        """Return the card that shows under a cell and in a terminal."""
        from kernellab.judge.card import verdict_card  # loads the views

        return verdict_card(self)

    def rows(self) -> list[dict[str, Any]]:
        """Return a row per trial, for a table."""
        from kernellab.judge.card import trial_rows  # loads the views

        return trial_rows(self)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON has them, behind the head of the command line; the signature is the last one.

        NaN and infinities, which JSON lacks, are the texts ``"nan"``, ``"inf"`` and ``"-inf"``.
        """
        fields = asdict(self)
        head = {"schema": SCHEMA, "kernellab": dict(self.environment).get("kernellab", ""), "command": "judge"}
        first = {"verdict": str(fields.pop("decision"))}
        for timed in (*fields["trials"], *fields["timings"]):
            timed["sizes"] = dict(timed["sizes"])
        fields["environment"] = dict(self.environment)
        sizes = self.options.sizes
        fields["options"]["sizes"] = None if sizes is None else [dict(size) for size in sizes]
        plain: dict[str, Any] = _without_nonfinite({**head, **first, **fields})
        return plain

    def as_json(self) -> str:
        """Return the verdict as one line of JSON, in which only `signature` is not signed."""
        return json.dumps(self.as_dict(), allow_nan=False)

    def signed_text(self) -> str:
        """Return the text that is signed: the JSON without its signature."""
        fields = self.as_dict()
        del fields["signature"]
        return json.dumps(fields, allow_nan=False)


def _without_nonfinite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {name: _without_nonfinite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nonfinite(part) for part in value]
    return value


def require_key(key: bytes) -> None:
    """Check the length of a key.

    Raises:
        UsageError: it is shorter than 16 bytes.
    """
    if len(key) < _LEAST_KEY_BYTES:
        expected = f"expected at least {_LEAST_KEY_BYTES}, such as of `openssl rand 32`"
        raise UsageError(f"The key has {len(key)} bytes; {expected}.")


def signature_of(verdict: Verdict, key: bytes) -> str:
    """Return the HMAC-SHA-256 of a verdict under a key of the caller, in hexadecimal digits.

    Raises:
        UsageError: the key is shorter than 16 bytes.
    """
    require_key(key)
    return _hmac(verdict.signed_text(), key)


def is_signed(text: str, key: bytes) -> bool:
    """Whether a line of JSON, as `Verdict.as_json` writes it, carries the right signature for a key."""
    before, _, after = text.strip().rpartition(_CUT)
    expected = f'{_hmac(f"{before}}}", key)}"}}'
    return hmac.compare_digest(expected.encode(), after.encode("utf-8", "surrogatepass"))


def _hmac(text: str, key: bytes) -> str:
    return hmac.new(key, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


def verdict_of_json(text: str) -> Verdict:
    """Return the verdict of a line of JSON, as `Verdict.as_json` writes it.

    Raises:
        ValueError: it is none, such as a line with an error in place of a verdict.
    """
    try:
        fields = json.loads(text)
        if fields["schema"] != SCHEMA:
            raise ValueError(f"its schema is {fields['schema']}")
        verdict = record_of_json(Verdict, {**fields, "decision": fields["verdict"]}, _READERS)
    except (KeyError, TypeError, AttributeError, RecursionError) as exc:
        raise ValueError(f"it lacks a field of a verdict, or has another one ({exc})") from exc
    if verdict.as_json() != text.strip():
        raise ValueError("it is not written as a verdict is")
    return verdict


def _pairs(value: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(value.items())


_READERS: Readers = frozenset(
    {
        (tuple[tuple[str, Any], ...], _pairs),
        (tuple[tuple[str, str], ...], _pairs),
        (float, lambda value: float(value) if isinstance(value, str) else value),
    }
)
