"""Source text of launch functions, and of the guarded functions in front of them.

A launch function is for arguments of one combination of types. It computes a key, looks the compiled kernel up, and
calls its launcher. Whatever it is not sure of goes to ``_kl_miss``, the slow path.

A guarded function belongs to one entry. It checks in one expression that the key would be that entry's: dtype and
alignment of each tensor, class of each integer, value of each constant, and unchanged device, knobs, hooks and globals.
If so it launches. Otherwise it calls the launch function, which puts the guarded function of the entry that it finds in
front of the kernel.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kernellab._triton.launch_key import SUPPLIED, ArgumentKind, ArgumentLayout, CallingConvention, Features, Slot

COMPILED = (
    "_kl_handle, _kl_run, _kl_function, _kl_packed, "
    "_kl_launch, _kl_cooperative, _kl_dependent, _kl_annotations, _kl_signature"
)


def launch_source(layout: ArgumentLayout) -> str:
    """The source of the launch function, which has the name of the kernel.

    It takes the grid, then the parameters of the kernel by position or name, then options by name.
    """
    body = [
        *_guard_lines(layout),
        *_heuristic_lines(layout.heuristics, "_kl_heuristic", _heuristic_arguments(layout, "**_kl_options")),
        *_key_lines(layout),
        *_entry_lines(layout),
        *_inner_heuristic_lines(layout),
        *grid_lines(layout),
        *_launch_lines(layout),
    ]
    return _function_text(layout, body)


def _function_text(layout: ArgumentLayout, body: Iterable[str]) -> str:
    """The text of a launch or guarded function."""
    parameters = "".join(f"{slot.name}=_kl_missing, " for slot in layout.slots)
    head = f"def {layout.name}(_kl_grid, /, {parameters}*_kl_rest, **_kl_options):"
    return "\n".join([head, *(f"    {line}" for line in body), ""])


def _guard_lines(layout: ArgumentLayout) -> list[str]:
    doubts = [
        "_kl_switch.slow",
        "_kl_modes()",  # a tracer may follow this launch
        "_kl_rest",
        "_kl_kernel.pre_run_hooks",
        "_kl_drivers._active is not _kl_driver",
        "_kl_runtime.add_stages_inspection_hook is not None",
        *(f"_kl_scope{i}.get({name!r}, _kl_missing) is not _kl_global{i}" for i, name in enumerate(layout.scopes)),
        *(f"{slot.name} is not _kl_missing" for slot in layout.slots if slot.kind in SUPPLIED),
    ]
    types = [_type_doubt(slot) for slot in layout.slots if slot.kind not in SUPPLIED]
    guards = [f"if {' or '.join(doubts)}: {leave_line(layout, as_given=True)}", *_default_lines(layout)]
    return [*guards, f"if {' or '.join(types)}: {leave_line(layout)}"] if types else guards


def _default_lines(layout: ArgumentLayout) -> list[str]:
    """Statements that replace absent arguments by their defaults."""
    return [
        f"if {slot.name} is _kl_missing: {slot.name} = _kl_default_{slot.name}"
        for slot in layout.slots
        if slot.has_default and slot.kind not in SUPPLIED
    ]


def _type_doubt(slot: Slot) -> str:
    exact = f"_kl_type({slot.name}) is not _kl_type_{slot.name}"
    return f"({exact} and _kl_type({slot.name}) not in _kl_tensors)" if slot.kind is ArgumentKind.TENSOR else exact


def _heuristic_lines(names: tuple[str, ...], prefix: str, arguments: str) -> list[str]:
    known = [f"_kl_named = {arguments}"] if names else []
    lines = []
    for i, name in enumerate(names):
        lines += [*known, f"{name} = {prefix}{i}(_kl_named)"]
        known = [f"_kl_named[{name!r}] = {name}"]
    return lines


def _key_lines(layout: ArgumentLayout) -> list[str]:
    tensors, integers = layout.names(ArgumentKind.TENSOR), layout.names(ArgumentKind.INTEGER)
    parts = ["_kl_device()", "_kl_kernel.debug", *layout.knobs]
    lines = ["try:"]
    if tensors:
        lines += [f"    {line}" for line in _address_lines(layout, tensors)]
        parts += ["_kl_aligned", *(f"{name}.dtype" for name in tensors)]
    if integers:
        native_arguments = "".join(f"_kl_native({name}), " for name in integers)
        lines.append(f"    _kl_widths = ({' | '.join(integers)}) >> 31 and ({native_arguments})")
        parts += ["_kl_widths", *(f"{name} & 15 and ({name} == 1 or 2)" for name in integers)]
    parts += [part for slot in layout.slots for part in _value_parts(slot)]
    parts.append(
        "_kl_options and (_kl_tuple(_kl_options.items()), _kl_tuple(_kl_map(_kl_type, _kl_options.values()))) or None"
    )
    return [
        *lines,
        f"    _kl_key = ({', '.join(parts)},)",
        "    _kl_entry = _kl_entries.get(_kl_key)",
        f"except (TypeError, AttributeError, OverflowError, RuntimeError): {leave_line(layout)}",
        f"if _kl_entry is None: {leave_line(layout, '_kl_key')}",
    ]


def _address_lines(layout: ArgumentLayout, tensors: list[str]) -> list[str]:
    """Statements that read the tensors' addresses and their alignment to 16 bytes: True for all, or one each."""
    reads = [f"_kl_at_{name} = {name}.data_ptr()" for name in tensors]
    alignments = "".join(f"_kl_at_{name} & 15 == 0, " for name in tensors)
    aligned = f"({alignments}) if ({' | '.join(f'_kl_at_{name}' for name in tensors)}) & 15 else True"
    if layout.style is CallingConvention.UNKNOWN:
        return [*reads, f"_kl_aligned = {aligned}"]
    are_there = " and ".join(f"{name}.is_{layout.device_type}" for name in tensors)
    return [
        *reads,
        f"if {' and '.join(seen_condition(name) for name in tensors)}: _kl_aligned = True",
        f"elif {are_there}: _kl_aligned = {aligned}",
        f"else: {leave_line(layout)}",
    ]


def seen_condition(name: str, address: str = "") -> str:
    """The condition that a tensor's address is known to lie on the device, at a multiple of 16."""
    return f"({address or f'_kl_at_{name}'} in _kl_seen or _kl_see({name}, _kl_at_{name}))"


def _value_parts(slot: Slot) -> list[str]:
    match slot.kind:
        case ArgumentKind.CONSTANT:
            return [slot.name]
        case ArgumentKind.NATIVE:
            return [f"_kl_feature({slot.name})"]
        case ArgumentKind.RICH_CONSTANT | ArgumentKind.HEURISTIC:
            return [f"_kl_constant({slot.name})"]
        case ArgumentKind.INTEGER if slot.is_tuning_key:
            return [slot.name]
        case ArgumentKind.TYPED if slot.is_tuning_key:
            return [f"_kl_constant({slot.name})"]
    return []


def _entry_lines(layout: ArgumentLayout) -> list[str]:
    """Statements that unpack the entry; for an autotuned kernel, check that its tuner still has that config."""
    hand_over = "if _kl_guarded is not None: _kl_fields['front'] = _kl_guarded"
    if not layout.configs:
        return [f"_kl_guarded, {COMPILED} = _kl_entry", hand_over]
    chosen = "".join(f"{name}, " for name in layout.names(ArgumentKind.CONFIG))
    entry = "_kl_inner" if layout.inner_heuristics else COMPILED
    doubt = f"_kl_len(_kl_tuner.configs) != {layout.configs} or _kl_choice.pre_hook is not None"
    return [
        f"_kl_tuned, _kl_choice, ({chosen}), _kl_guarded, {entry} = _kl_entry",
        f"if {doubt}: {leave_line(layout)}",
        f"if {chosen_config(layout)} is not _kl_choice: {leave_line(layout, '_kl_key')}",
        hand_over,
        "_kl_tuner.best_config = _kl_choice",
    ]


def chosen_config(layout: ArgumentLayout) -> str:
    """The expression of the tuner's choice; of its only config, where the call has no options."""
    default = ", _kl_tuner.configs[0]" if layout.configs == 1 else ""
    return f"_kl_tuner.cache.get(_kl_tuned{default})"


def _inner_heuristic_lines(layout: ArgumentLayout) -> list[str]:
    if not layout.inner_heuristics:
        return []
    arguments = _heuristic_arguments(layout, "**_kl_options", "**_kl_choice.all_kwargs()")
    values = "".join(f"_kl_constant({name}), " for name in layout.inner_heuristics)
    return [
        *_heuristic_lines(layout.inner_heuristics, "_kl_inner_heuristic", arguments),
        "try:",
        f"    _kl_values = ({values})",
        "    _kl_found = _kl_inner.get(_kl_values)",
        f"except TypeError: {leave_line(layout)}",
        f"if _kl_found is None: {leave_line(layout, '_kl_key', values='_kl_values')}",
        f"{COMPILED} = _kl_found",
    ]


def grid_lines(layout: ArgumentLayout, evaluate: str = "_kl_grid({})") -> list[str]:
    """Statements that compute the extents of the grid, which may be a function, or leave for the slow path.

    ``evaluate`` is the call of such a function, with braces for the dictionary of arguments. Where launches are
    recorded, a grid function without a launch before leaves for the slow path, which records it. One that returns an
    integer leaves as the function, so that the error is of the function.
    """
    bound = ", ".join(f"{slot.name!r}: {slot.name}" for slot in layout.slots)
    lines = [
        "if _kl_type(_kl_grid) is not _kl_tuple:",
        "    if _kl_callable(_kl_grid):",
        "        if _kl_type(_kl_grid) is _kl_python and _kl_id(_kl_grid.__code__) not in _kl_codes:",
        f"            if _kl_keeps(): {leave_line(layout)}",
        f"        _kl_extents = {evaluate.format(f'{{{bound}}}')}",
        "    else: _kl_extents = _kl_grid",
        "    if _kl_type(_kl_extents) is not _kl_tuple:",
        "        if _kl_type(_kl_extents) is not _kl_list:",
        "            if _kl_type(_kl_extents) is not _kl_int: _kl_grid = _kl_extents",
        f"            {leave_line(layout)}",
        "        _kl_extents = _kl_tuple(_kl_extents)",
        "    _kl_grid = _kl_extents",
        "_kl_count = _kl_len(_kl_grid)",
    ]
    extents = ("_kl_x", "_kl_y", "_kl_z")
    for count in (1, 2, 3):
        axes, rest = extents[:count], extents[count:]
        good = " and ".join(f"_kl_type({extent}) is _kl_int and {extent} > 0" for extent in axes)
        lines += [
            f"{'if' if count == 1 else 'elif'} _kl_count == {count}:",
            f"    {', '.join(axes)}, = _kl_grid",
            *([f"    {' = '.join(rest)} = 1"] if rest else []),
            f"    if not ({good}): {leave_line(layout)}",
        ]
    return [*lines, f"else: {leave_line(layout)}"]


def _launch_lines(layout: ArgumentLayout) -> list[str]:
    arguments = "".join(f", {slot.name}" for slot in layout.slots)
    idle = (
        "_kl_enter is _kl_enter_chain and not _kl_enter.calls and _kl_leave is _kl_leave_chain and not _kl_leave.calls"
    )
    direct = [f"    if _kl_launch is not None and {idle}:", f"        {direct_call(layout)}", f"    elif {idle}:"]
    return [
        "_kl_stream = _kl_current_stream(_kl_key[0])",
        "_kl_enter, _kl_leave = _kl_runtime.launch_enter_hook, _kl_runtime.launch_exit_hook",
        "try:",
        *([f"    if {idle}:"] if layout.style is CallingConvention.UNKNOWN else direct),
        f"        {launch_call(layout, 'None, None, None')}",
        "    else:",
        f"        _kl_info = _kl_handle.launch_metadata(_kl_grid, _kl_stream{arguments})",
        f"        {launch_call(layout, '_kl_info, _kl_enter, _kl_leave')}",
        "except _kl_foreign as _kl_error:",
        f"    {leave_line(layout, error='_kl_error')}",
        "return _kl_handle",
    ]


def launch_call(layout: ArgumentLayout, hooks: str) -> str:
    """The call of a kernel's launcher; ``hooks`` are the launch metadata and the hooks."""
    arguments = "".join(f", {slot.name}" for slot in layout.slots)
    return f"_kl_run(_kl_x, _kl_y, _kl_z, _kl_stream, _kl_function, _kl_packed, {hooks}{arguments})"


def direct_call(layout: ArgumentLayout) -> str:
    """The call of the C function under the launcher, with the addresses of tensors."""
    passed = "".join(f"_kl_at_{s.name}, " if s.kind is ArgumentKind.TENSOR else f"{s.name}, " for s in layout.slots)
    head = "_kl_launch(_kl_x, _kl_y, _kl_z, _kl_stream, _kl_function, _kl_cooperative, _kl_dependent, "
    if layout.style is CallingConvention.FLAT:
        return f"{head}None, None, _kl_packed, None, None, None, {passed})"
    return f"{head}_kl_packed, None, None, None, None, None, _kl_annotations, _kl_signature, ({passed}))"


def _heuristic_arguments(layout: ArgumentLayout, *more: str) -> str:
    """The dictionary that Triton passes to a heuristic."""
    arguments = [f"{slot.name!r}: {slot.name}" for slot in layout.slots if slot.kind not in SUPPLIED]
    outer = [f"{name!r}: {name}" for name in layout.heuristics] if "**_kl_choice.all_kwargs()" in more else []
    return "{" + ", ".join([*arguments, *outer, "'grid': _kl_grid", "'warmup': False", *more]) + "}"


def leave_line(
    layout: ArgumentLayout, key: str = "None", *, values: str = "None", error: str = "None", as_given: bool = False
) -> str:
    """The statement that leaves for the slow path with the user's arguments.

    ``as_given`` includes the parameters that a config or a heuristic supplies; later these hold other values.
    """
    names = (slot.name if as_given or slot.kind not in SUPPLIED else "_kl_missing" for slot in layout.slots)
    arguments = "".join(f"{name}, " for name in names)
    return f"return _kl_miss(_kl_grid, ({arguments}), _kl_rest, _kl_options, {key}, {values}, {error})"


@dataclass(frozen=True, slots=True)
class Circumstances:
    """The inputs of a guarded function's text besides the layout and the features.

    ``options`` are the launch options, ``env_knobs`` the knobs that Triton reads from the environment at each launch,
    ``set_knobs`` the groups of knobs with set ones. ``is_direct``: it calls the C function under the launcher.
    ``is_only_device``: there is no other device.
    """

    options: tuple[str, ...] = ()
    env_knobs: tuple[str, ...] = ()
    set_knobs: tuple[str, ...] = ()
    is_direct: bool = False
    is_only_device: bool = False


KNOB_GROUPS = ("runtime", "compilation")


_UNGUARDED = {ArgumentKind.NATIVE, ArgumentKind.HEURISTIC, ArgumentKind.INNER_HEURISTIC}


def can_guard(layout: ArgumentLayout, features: Features) -> bool:
    """Whether there is a guarded function for arguments like these."""
    return features.are_narrow and not any(slot.kind in _UNGUARDED for slot in layout.slots)


def guarded_source(layout: ArgumentLayout, features: Features, circumstances: Circumstances) -> str:
    """The source of the guarded function for ``features``; it has the parameters of the launch function."""
    arguments = "".join(f"{slot.name}, " for slot in layout.slots)
    wanted = [
        # First the conditions that fail most often.
        *(condition for slot in layout.slots for condition in _constant_conditions(slot)),
        *_integer_conditions(layout, features),
        *_surrounding_conditions(layout, circumstances),
        *_choice_conditions(layout),
        *_tensor_conditions(layout, features),
    ]
    body = [
        *_default_lines(layout),
        "try:",
        f"    _kl_known = {' and '.join(wanted)}",
        "except (TypeError, AttributeError, OverflowError, RuntimeError): _kl_known = False",
        "if not _kl_known:",
        f"    if _kl_rest or _kl_options: return _kl_general(_kl_grid, {arguments}*_kl_rest, **_kl_options)",
        f"    return _kl_general(_kl_grid, {arguments})",
        *(f"{name} = _kl_value_{name}" for name in layout.names(ArgumentKind.CONFIG)),
        *(["_kl_tuner.best_config = _kl_choice"] if layout.configs else []),
        # The extents of a grid function, if they are known for the variables that it reads.
        "if _kl_type(_kl_grid) is _kl_python:",
        "    _kl_memo = _kl_memos.by_code.get(_kl_id(_kl_grid.__code__))",
        "    if _kl_memo is not None: _kl_grid = _kl_memo.extents.get(_kl_memo.values(_kl_grid), _kl_grid)",
        *grid_lines(layout, evaluate="_kl_memos.evaluate(_kl_grid, {})"),
        "_kl_stream = _kl_current_stream(_kl_here)",
        "try:",
        f"    {direct_call(layout) if circumstances.is_direct else launch_call(layout, 'None, None, None')}",
        f"except _kl_foreign as _kl_error: {leave_line(layout, error='_kl_error')}",
        "return _kl_handle",
    ]
    return _function_text(layout, body)


def _surrounding_conditions(layout: ArgumentLayout, circumstances: Circumstances) -> list[str]:
    """Conditions on everything but the arguments: switch, modes, options, knobs, hooks, globals, device."""
    names = circumstances.options
    return [
        "not _kl_switch.slow",
        "not _kl_modes()",
        "not _kl_rest",
        f"_kl_len(_kl_options) == {len(names)}" if names else "not _kl_options",
        *(f"_kl_options.get({name!r}, _kl_missing) is _kl_option{i}" for i, name in enumerate(names)),
        "not _kl_kernel.pre_run_hooks",
        "_kl_kernel.debug is _kl_debug",
        "_kl_drivers._active is _kl_driver",
        *(
            f"_kl_set_{group} == _kl_were_{group}" if group in circumstances.set_knobs else f"not _kl_set_{group}"
            for group in KNOB_GROUPS
        ),
        *(f"_kl_env_{name}() == _kl_was_{name}" for name in circumstances.env_knobs),
        "not _kl_enter_chain.calls",
        "not _kl_leave_chain.calls",
        *(f"_kl_scope{i}.get({name!r}, _kl_missing) is _kl_global{i}" for i, name in enumerate(layout.scopes)),
        *([] if circumstances.is_only_device else ["_kl_device() == _kl_here"]),
    ]


def _constant_conditions(slot: Slot) -> list[str]:
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


def _integer_conditions(layout: ArgumentLayout, features: Features) -> list[str]:
    """Conditions on integers: the class of each, and that all fit into 31 bits."""
    slots = [slot for slot in layout.slots if slot.kind is ArgumentKind.INTEGER]
    classes = [(s.name, c) for s, c in zip(slots, features.integers, strict=True) if not s.is_tuning_key]
    divisible = [name for name, integer_class in classes if integer_class == 0]
    others = [name for name, integer_class in classes if integer_class == 2]
    wanted = [f"{name} is _kl_one" for name, integer_class in classes if integer_class is True]
    wanted += [f"_kl_type({name}) is _kl_int" for name in (*divisible, *others)]
    wanted += [f"{name} & 15 and {name} != 1" for name in others]
    wanted += [f"not ({' | '.join(divisible)}) & 15"] if divisible else []
    return [*wanted, f"not ({' | '.join((*divisible, *others))}) >> 31"] if divisible or others else wanted


def _tensor_conditions(layout: ArgumentLayout, features: Features) -> list[str]:
    """Conditions on tensors; they assign the addresses for the launch.

    The C function under the launcher takes any address, so each must lie on the device; ``_kl_seen`` has known ones.
    """
    wanted = []
    for name, is_aligned in zip(layout.names(ArgumentKind.TENSOR), features.aligned, strict=True):
        address = f"(_kl_at_{name} := {name}.data_ptr())"
        wanted.append(f"{name}.dtype is _kl_dtype_{name}")
        if layout.style is CallingConvention.UNKNOWN:
            wanted.append(f"not {address} & 15" if is_aligned else f"{address} & 15")
        elif is_aligned:
            wanted.append(seen_condition(name, address))
        else:
            wanted.append(f"{address} & 15 and {name}.is_{layout.device_type}")
    return wanted


def _choice_conditions(layout: ArgumentLayout) -> list[str]:
    """Conditions on the tuner: it still has this config for these arguments."""
    if not layout.configs:
        return []
    is_alike = f"_kl_len(_kl_tuner.configs) == {layout.configs}"
    return [is_alike, f"{chosen_config(layout)} is _kl_choice", "_kl_choice.pre_hook is None"]
