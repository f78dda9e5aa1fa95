"""The launch behind `lab.predict`, and predictions of compiled launches for tuning, cards and sliders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kernellab.explain.devices import device_for, named_device
from kernellab.explain.explanation import unknown_sentences
from kernellab.explain.facts import DeviceRates
from kernellab.explain.launch_facts import facts_of
from kernellab.explain.prediction import Prediction, predict_facts
from kernellab.explain.verbs import compile_call, device_of, traffic_or_reason
from kernellab.launch.calls import UserCall
from kernellab.registry import Session
from kernellab.timing.launches import Implementation


def device_session(open_session: Callable[[str | None], Session], target: str | None, device: str | None) -> Session:
    """Return the session of a target, or of a named device; both may be given if they agree.

    Raises:
        UsageError: the table has no such device, or it is of another target.
    """
    if device is None:
        return open_session(target)
    sheet = named_device(device)
    session = open_session(target or sheet.target)
    device_for(session.target, device)
    return replace(session, model=sheet.name)


def prediction_of(session: Session, call: UserCall) -> Prediction:
    """Compile a call for the session's target, of an autotuned kernel the first config, and predict its time.

    Raises:
        UsageError, LaunchError: the call does not fit the kernel, or times of the target cannot be predicted.
        CompileError: it does not compile.
    """
    implementation = compile_call(session, call, takes_best=False)
    return predict_implementation(implementation, device_of(session))


_LANE_STEPS = 10**7  # of a sample of programs, with which times are the same as with all programs


def predict_implementation(implementation: Implementation, device: DeviceRates) -> Prediction:
    """Return the predicted time of a compiled launch.

    Raises:
        UsageError: times of its target cannot be predicted.
    """
    traffic, why_not = traffic_or_reason(implementation, most_lane_steps=_LANE_STEPS)
    facts = facts_of(implementation, device, traffic)
    return predict_facts(facts, unknown_sentences(facts, why_not))
