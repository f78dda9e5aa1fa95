"""Which GPUs measure: those that a user names, checked against those that there are."""

from __future__ import annotations

from collections.abc import Sequence

from kernellab.errors import UsageError


def checked_devices(given: Sequence[int], count: int, names: Sequence[str]) -> tuple[int, ...]:
    """Return the devices to measure on, each once; ``count`` GPUs there are, with these model names.

    Raises:
        UsageError: there is no such device, or they are of different models.
    """
    if isinstance(given, str | bytes) or not isinstance(given, Sequence) or not given:
        raise UsageError(f"devices is {given!r}; expected a list of GPU numbers, such as [0, 1].")
    wrong = [index for index in given if not isinstance(index, int) or isinstance(index, bool)]
    if wrong:
        raise UsageError(f"devices has {wrong[0]!r}; expected GPU numbers, such as [0, 1].")
    absent = [index for index in given if not 0 <= index < count]
    if absent:
        known = "there is no GPU" if not count else f"there is GPU 0 to {count - 1}" if count > 1 else "there is GPU 0"
        raise UsageError(f"devices has {absent[0]}, and {known}.")
    devices = tuple(dict.fromkeys(given))
    models = {names[index] for index in devices}
    if len(models) > 1:
        listed = " and ".join(sorted(models))
        raise UsageError(f"devices are of different models, {listed}, whose times cannot be compared; name one model.")
    return devices
