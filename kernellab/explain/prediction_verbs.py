"""The launch behind `lab.predict`, and predictions of compiled launches for tuning, cards and sliders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kernellab.explain.devices import device_for, named_device
from kernellab.explain.predicting import predict_implementation
from kernellab.explain.prediction import Prediction
from kernellab.explain.verbs import device_of
from kernellab.launch.calls import UserCall
from kernellab.registry import Session
from kernellab.registry.calls import compile_call


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
