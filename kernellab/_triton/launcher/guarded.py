"""The text of a guarded function: what a kernel does at a launch that goes to the compiled kernel of the last ones.

Where a launch function (see `code`) works a key out and looks it up, a guarded function belongs to one entry, and asks
in one expression whether the key would be that entry's: is each tensor of this dtype and alignment, each integer of
this class, each constant this value, and have device, knobs, hooks and globals stayed the same? If so it launches; if
not, or if it cannot tell, the launch function decides, which puts the guarded function of the entry that it finds in
front of the kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernellab._triton.launcher.code import (
    ArgumentKind,
    ArgumentLayout,
    Slot,
    Style,
    chosen_config,
    direct_call,
    grid_lines,
    head_line,
    is_seen,
    launch_call,
    leave,
)

_UNGUARDED = {ArgumentKind.NATIVE, ArgumentKind.HEURISTIC, ArgumentKind.INNER_HEURISTIC}


@dataclass(frozen=True, slots=True)
class Features:
    """What a key says of the arguments: of each tensor and each integer, in the order of the parameters.

    An integer is ``1``, divisible by 16, or neither: True, 0 and 2, as in the key.
    """

    device: int
    debug: Any
    dtypes: tuple[Any, ...]
    aligned: tuple[bool, ...]
    integers: tuple[int, ...]
    are_narrow: bool


def features_in(layout: ArgumentLayout, key: tuple[Any, ...]) -> Features:
    """Take a key of the launch function of a layout apart."""
    tensors, integers = layout.names(ArgumentKind.TENSOR), layout.names(ArgumentKind.INTEGER)
    rest = list(key[2 + len(layout.knobs) :])
    aligned: Any = rest.pop(0) if tensors else ()
    dtypes = tuple(rest.pop(0) for _ in tensors)
    widths = rest.pop(0) if integers else 0
    classes = tuple(rest.pop(0) for _ in integers)
    return Features(
        device=key[0],
        debug=key[1],
        dtypes=dtypes,
        aligned=(True,) * len(tensors) if aligned is True else aligned,
        integers=classes,
        are_narrow=not widths,
    )


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What else the text of a guarded function depends on.

    ``options`` are the options it is for, ``env_knobs`` the knobs that Triton reads from the environment at each
    launch, and ``set_knobs`` the groups of knobs of which some were set. ``is_direct`` tells whether it calls the
    function under the launcher, ``is_only_device`` that there is no other device to be on.
    """

    options: tuple[str, ...] = ()
    env_knobs: tuple[str, ...] = ()
    set_knobs: tuple[str, ...] = ()
    is_direct: bool = False
    is_only_device: bool = False


KNOB_GROUPS = ("runtime", "compilation")


def can_guard(layout: ArgumentLayout, features: Features) -> bool:
    """Tell whether there is a guarded function for arguments like these."""
    return features.are_narrow and not any(slot.kind in _UNGUARDED for slot in layout.slots)


def guarded_source(layout: ArgumentLayout, features: Features, circumstances: Circumstances) -> str:
    """Return the source of the guarded function for ``features``, which takes what the launch function takes."""
    arguments = "".join(f"{slot.name}, " for slot in layout.slots)
    defaults = [
        f"if {slot.name} is _kl_missing: {slot.name} = _kl_default_{slot.name}"
        for slot in layout.slots
        if slot.has_default and slot.kind is not ArgumentKind.CONFIG
    ]
    chosen = [f"{name} = _kl_value_{name}" for name in layout.names(ArgumentKind.CONFIG)]
    wanted = [*_constants(layout), *_integers(layout, features)]  # first of all what mostly tells launches apart
    wanted += [*_surroundings(layout, circumstances), *_choice(layout), *_tensors(layout, features)]
    body = [
        *defaults,
        "try:",
        f"    _kl_known = {' and '.join(wanted)}",
        "except (TypeError, AttributeError, OverflowError, RuntimeError): _kl_known = False",
        "if not _kl_known:",
        f"    if _kl_rest or _kl_options: return _kl_general(_kl_grid, {arguments}*_kl_rest, **_kl_options)",
        f"    return _kl_general(_kl_grid, {arguments})",
        *chosen,
        *(["_kl_tuner.best_config = _kl_choice"] if layout.configs else []),
        *grid_lines(layout),
        "_kl_stream = _kl_current_stream(_kl_here)",
        "try:",
        f"    {direct_call(layout) if circumstances.is_direct else launch_call(layout, 'None, None, None')}",
        f"except _kl_foreign as _kl_error: {leave(layout, error='_kl_error')}",
        "return _kl_handle",
    ]
    return "\n".join([head_line(layout), *(f"    {line}" for line in body), ""])


def _surroundings(layout: ArgumentLayout, found: Circumstances) -> list[str]:
    """Return what is asked of everything but the arguments."""
    options = [f"_kl_len(_kl_options) == {len(found.options)}"] if found.options else ["not _kl_options"]
    options += [f"_kl_options.get({name!r}, _kl_missing) is _kl_option{i}" for i, name in enumerate(found.options)]
    set_knobs = [
        f"_kl_set_{group} == _kl_were_{group}" if group in found.set_knobs else f"not _kl_set_{group}"
        for group in KNOB_GROUPS
    ]
    return [
        "not _kl_switch.slow",
        "not _kl_modes()",
        "not _kl_rest",
        *options,
        "not _kl_kernel.pre_run_hooks",
        "_kl_kernel.debug is _kl_debug",
        "_kl_drivers._active is _kl_driver",
        *set_knobs,
        *(f"_kl_env_{name}() == _kl_was_{name}" for name in found.env_knobs),
        "not _kl_enter_chain.calls",
        "not _kl_leave_chain.calls",
        *(f"_kl_scope{i}.get({name!r}, _kl_missing) is _kl_global{i}" for i, name in enumerate(layout.scopes)),
        *([] if found.is_only_device else ["_kl_device() == _kl_here"]),
    ]


def _constants(layout: ArgumentLayout) -> list[str]:
    return [found for slot in layout.slots for found in _constant(slot)]


def _constant(slot: Slot) -> list[str]:
    name = slot.name
    is_same = f"{name} is _kl_value_{name}"
    match slot.kind:
        case ArgumentKind.CONFIG:
            return [f"{name} is _kl_missing"]
        case ArgumentKind.RICH_CONSTANT:
            return [is_same]
        case ArgumentKind.CONSTANT:
            return [f"({is_same} or _kl_type({name}) is _kl_type_{name} and {name} == _kl_value_{name})"]
        case ArgumentKind.TYPED:
            return [is_same if slot.is_tuning_key else f"_kl_type({name}) is _kl_type_{name}"]
        case ArgumentKind.INTEGER if slot.is_tuning_key:
            return [f"({is_same} or _kl_type({name}) is _kl_int and {name} == _kl_value_{name})"]
    return []


def _integers(layout: ArgumentLayout, features: Features) -> list[str]:
    """Return what is asked of integers: of each its class, and of all at once that they fit into 31 bits."""
    slots = [slot for slot in layout.slots if slot.kind is ArgumentKind.INTEGER]
    classes = [(s.name, c) for s, c in zip(slots, features.integers, strict=True) if not s.is_tuning_key]
    ones = [name for name, found in classes if found is True]
    divisible = [name for name, found in classes if found == 0]
    others = [name for name, found in classes if found == 2]
    wanted = [f"{name} is _kl_one" for name in ones]
    wanted += [f"_kl_type({name}) is _kl_int" for name in (*divisible, *others)]
    wanted += [f"{name} & 15 and {name} != 1" for name in others]
    wanted += [f"not ({' | '.join(divisible)}) & 15"] if divisible else []
    return [*wanted, f"not ({' | '.join((*divisible, *others))}) >> 31"] if divisible or others else wanted


def _tensors(layout: ArgumentLayout, features: Features) -> list[str]:
    """Return what is asked of tensors, and keep their addresses for the launch.

    The function under the launcher takes any address, so each must be one of the device, which is known of those seen.
    """
    wanted = []
    for name, is_aligned in zip(layout.names(ArgumentKind.TENSOR), features.aligned, strict=True):
        address = f"(_kl_at_{name} := {name}.data_ptr())"
        wanted.append(f"{name}.dtype is _kl_dtype_{name}")
        if layout.style is Style.UNKNOWN:
            wanted.append(f"not {address} & 15" if is_aligned else f"{address} & 15")
        elif is_aligned:
            wanted.append(is_seen(name, address))
        else:
            wanted.append(f"{address} & 15 and {name}.is_{layout.device_type}")
    return wanted


def _choice(layout: ArgumentLayout) -> list[str]:
    """Return what is asked of a tuner: that it still has this config for these arguments."""
    if not layout.configs:
        return []
    cached = chosen_config(layout)
    is_alike = f"_kl_len(_kl_tuner.configs) == {layout.configs}"
    return [is_alike, f"{cached} is _kl_choice", "_kl_choice.pre_hook is None"]
