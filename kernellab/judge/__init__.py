"""A judge of kernels: a candidate against a specification, without its Python next to the verdict or the clock.

The module is the verb: ``kernellab.judge(spec, candidate)`` judges.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from kernellab.errors import JudgeFailed, LaunchError, UsageError, refusal_text

if TYPE_CHECKING:
    from kernellab.judge.verdict import Verdict
    from kernellab.lab import Lab


class JudgeModule(ModuleType):
    """A module that can be called."""

    def __call__(
        self,
        spec: str | Path,
        candidate: str | Path,
        *,
        sizes: Sequence[Mapping[str, Any]] | None = None,
        time: bool = True,
        key: bytes | None = None,
        nonce: str = "",
        timeout_s: float = 30.0,
        seed: int | None = None,
        lab: Lab | None = None,
    ) -> Verdict:
        """Judge a candidate's file by a specification's; see `kernellab.judge.judging.judge` for the options.

        With a ``key`` of 16 bytes or more, the verdict is signed.

        Raises:
            UsageError: a file is missing, the specification is wrong, or the key too short.
            JudgeFailed: the judge itself failed, which says nothing of the candidate.
        """
        with failing_as_judge(str(candidate)):
            from kernellab.judge.judging import judge  # loads torch
            from kernellab.judge.verdict import judge_options, require_key, signature_of

            if key is not None:
                require_key(key)
            options: dict[str, Any] = {"sizes": sizes, "time": time, "nonce": nonce, "timeout_s": timeout_s}
            verdict = judge(spec, candidate, seed=seed, lab=lab, **options)
            verdict = replace(verdict, options=judge_options(sizes, time=time, timeout_s=timeout_s), signature="")
            return verdict if key is None else replace(verdict, signature=signature_of(verdict, key))


@contextmanager
def failing_as_judge(candidate: str) -> Iterator[None]:
    """Turn what the code inside raises into `JudgeFailed`; wrong calls stay what they are.

    Not even an exit, which a specification may ask for, ends in another status than that of a failure.
    """
    try:
        yield
    except JudgeFailed:
        raise
    except (Exception, SystemExit) as exc:
        if isinstance(exc, UsageError) and not isinstance(exc, LaunchError):
            raise
        reason = refusal_text(exc) if isinstance(exc, OSError) else f"{type(exc).__name__}: {exc}"
        raise JudgeFailed(f"The judge failed on {candidate}: {reason}", detail=str(getattr(exc, "detail", ""))) from exc


sys.modules[__name__].__class__ = JudgeModule
VERB = cast("JudgeModule", sys.modules[__name__])
"""The module itself, for callers to which its name is a module alone."""
