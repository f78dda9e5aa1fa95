"""Dispatches as JSON: one file with all devices and versions of Triton, or a folder as vLLM keeps its configs.

The file is an object with ``schema`` 1, ``kernel``, ``sizes`` (their names in order) and ``devices``: by model of
device, then by version of Triton, an object with ``driver``, ``target``, ``created`` (seconds since
1970), ``rule``, and ``sizes``. That has, by sizes as ``M=64,N=64``, the ``config`` that is chosen, its
``time_ms`` and ``shared_bytes``, the ``best_ms`` of all configs and the ``regret``, each null where it is not known.
``rule`` is what `Rule.as_json` gives; it decides what is chosen for other sizes. Where the times are predicted, the
device is called ``H100 (predicted)``, ``predicted_for`` names it, and the times are ``predicted_ms`` and
``predicted_best_ms``.

The folder has a file for all sizes but the first, which are in its name with the device; it has a config by the first
size. ``N=4096,K=4096,device_name=NVIDIA_H200.json`` holds ``{"triton_version": "3.6.0", "16": {"BLOCK_M": 16, ...}}``,
as a file of vLLM's ``fused_moe/configs`` does. vLLM takes the config of the nearest size; here, the configs are
candidates for a tuning.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kernellab._triton import version_order
from kernellab.errors import UsageError, plural
from kernellab.export.write import Exported, replace_file
from kernellab.source import MalformedData, is_name, parse_json, reading, require
from kernellab.store.columns import Status
from kernellab.timing.config import Config
from kernellab.tune.dispatch.result import Dispatch, MeasuredCase, Regret
from kernellab.tune.dispatch.rule import Rule
from kernellab.tune.result import Row

SCHEMA = 1
_BYTES = 32 * 2**20


def write_table(path: Path, dispatches: Sequence[Dispatch]) -> Exported:
    """Write dispatches of one kernel to a table; entries for other devices and Triton versions stay in the file.

    Raises:
        UsageError: the file cannot be written, or is the table of another kernel.
    """
    first = dispatches[0]
    known = {_device_and_triton(kept): kept for kept in read_table(path)} if path.exists() else {}
    for other in known.values():
        require_alike(first, other, str(path))
    merged = {**known, **{_device_and_triton(new): new for new in dispatches}}
    devices: dict[str, dict[str, Any]] = {}
    for (device, triton), decision in sorted(merged.items(), key=lambda kept: (kept[0][0], version_order(kept[0][1]))):
        devices.setdefault(device, {})[triton] = _entry(decision)
    content = {"schema": SCHEMA, "kernel": first.kernel, "sizes": list(first.rule.names), "devices": devices}
    replace_file(path, f"{json.dumps(content, indent=1)}\n".encode())
    places = [" under Triton ".join(place) for place in merged]
    return Exported(path, first.kernel, "table", (f"it has decisions for {', '.join(places)}",))


def require_alike(dispatch: Dispatch, other: Dispatch, where: str) -> None:
    """Raise `UsageError` if two dispatches are of different kernels or sizes."""
    if (other.kernel, other.rule.names) != (dispatch.kernel, dispatch.rule.names):
        there, here = (f"{side.kernel} over {', '.join(side.rule.names)}" for side in (other, dispatch))
        raise UsageError(f"{where} has a dispatch of {there}; expected one of {here}.")


def _device_and_triton(dispatch: Dispatch) -> tuple[str, str]:
    return dispatch.device, str(dispatch.provenance.get("triton") or "unknown")


def _entry(dispatch: Dispatch) -> dict[str, Any]:
    facts, sizes = dispatch.provenance, {}
    time_ms, best_ms = _time_fields(is_predicted=dispatch.is_predicted)
    for case, regret in zip(dispatch.cases, dispatch.regrets, strict=True):
        if regret.config is not None:
            sizes[",".join(f"{name}={value}" for name, value in case.sizes.items())] = {
                "config": config_json(regret.config),
                time_ms: regret.time_ms,
                best_ms: regret.best_ms,
                "regret": regret.regret,
                "shared_bytes": next((row.shared_bytes for row in case.rows if row.config == regret.config), None),
            }
    return {
        **({"predicted_for": facts["predicted_for"]} if dispatch.is_predicted else {}),
        "driver": facts.get("driver"),
        "target": facts.get("target"),
        "created": facts.get("created") or time.time(),
        "sizes": sizes,
        "rule": dispatch.rule.as_json,
    }


def _time_fields(*, is_predicted: bool) -> tuple[str, str]:
    return ("predicted_ms", "predicted_best_ms") if is_predicted else ("time_ms", "best_ms")


def config_json(config: Config) -> dict[str, Any]:
    """Return the constexprs and options of a config as JSON, without defaults."""
    return {name: value for name, value in config.stored.items() if (name, value) != ("num_ctas", 1)}


def read_table(path: str | Path) -> tuple[Dispatch, ...]:
    """Return the dispatches of a table, one per device and Triton version; they have no kernel.

    Raises:
        UsageError: the file is not a table, or one of a later release.
    """
    try:
        if not Path(path).is_file() or Path(path).stat().st_size > _BYTES:
            raise MalformedData(f"expected a file of at most {_BYTES:,} bytes")
        content = parse_json(Path(path).read_text(encoding="utf-8"))
        with reading("it"):
            require(content["schema"] == SCHEMA, "its schema", content["schema"], f"{SCHEMA}, that of this release")
            require(is_name(content["kernel"]), "its kernel", content["kernel"], "an identifier")
            return tuple(
                _dispatch(content["kernel"], tuple(content["sizes"]), str(device), str(triton), entry)
                for device, versions in content["devices"].items()
                for triton, entry in versions.items()
            )
    except (MalformedData, OSError, ValueError) as exc:
        raise UsageError(f"{str(path)!r} is not a table of a dispatch: {exc}.") from exc


def _dispatch(kernel: str, names: tuple[str, ...], device: str, triton: str, entry: Mapping[str, Any]) -> Dispatch:
    rule = Rule.from_json(entry["rule"])
    require(rule.names == names, "the sizes of the rule", rule.names, f"{names}, as in the table")
    cases, regrets, predicted_for = [], [], entry.get("predicted_for")
    time_ms, best_ms = _time_fields(is_predicted=bool(predicted_for))
    for number, (text, stored) in enumerate(entry["sizes"].items()):
        sizes = {name: int(value) for name, _, value in (part.partition("=") for part in text.split(","))}
        require(tuple(sizes) == names, "its sizes", text, ",".join(f"{name}=1" for name in names))
        config = Config.from_stored({"num_ctas": 1, **stored["config"]})
        status = Status.NOT_TIMED if predicted_for else Status.OK
        row = replace(Row(config, status, shared_bytes=stored["shared_bytes"]), **{time_ms: stored[time_ms]})
        cases.append(MeasuredCase(number, sizes, (row,)))
        regrets.append(Regret(sizes, config, None, stored[time_ms], stored[best_ms], stored["regret"], None))
    facts = {"triton": triton, **{name: entry[name] for name in ("driver", "target", "created")}}
    facts |= {"predicted_for": predicted_for} if predicted_for else {"device": device}
    originals = tuple(config.to_triton() for config in rule.configs)
    return Dispatch(kernel, rule, tuple(cases), tuple(regrets), originals, provenance=facts)


def table_files(folder: Path, dispatches: Sequence[Dispatch]) -> Exported:
    """Write dispatches to a folder in vLLM's layout (see above).

    Raises:
        UsageError: a file cannot be written.
    """
    files: dict[str, dict[str, Any]] = {}
    for dispatch in dispatches:
        device, triton = _device_and_triton(dispatch)
        first, *others = dispatch.rule.names
        for case, regret in zip(dispatch.cases, dispatch.regrets, strict=True):
            if regret.config is not None:
                named = [f"{name}={case.sizes[name]}" for name in others] or [dispatch.kernel]
                name = ",".join([*named, f"device_name={_file_name(device)}"])
                content = files.setdefault(f"{name}.json", {"triton_version": triton})
                content[str(case.sizes[first])] = config_json(regret.config)
    for name, content in files.items():
        by_size = dict(sorted(content.items(), key=lambda item: int(item[0]) if item[0].isdecimal() else -1))
        replace_file(folder / name, f"{json.dumps(by_size, indent=4)}\n".encode())
    note = f"{plural(len(files), 'file')}, each with configs by {dispatches[0].rule.names[0]}"
    return Exported(folder, dispatches[0].kernel, "vllm", (note,))


@dataclass(frozen=True, slots=True)
class FileConfig:
    """A config of a folder, with the sizes and device that it was chosen for, and other parts of the file name.

    ``key`` is the size that the file is keyed by; the file does not have its name. ``triton`` is "" if unknown.
    """

    key: int
    sizes: Mapping[str, int]
    device: str
    triton: str
    more: Mapping[str, str]
    config: Config


def read_folder(folder: str | Path, device: str | None = None) -> tuple[FileConfig, ...]:
    """Return the configs of a folder in vLLM's layout, for one device or all; see `Config.to_triton`.

    Raises:
        UsageError: a file of the folder is none of that layout.
    """
    configs: list[FileConfig] = []
    for path in sorted(Path(folder).glob("*device_name=*.json")):
        named = dict(part.split("=", 1) for part in re.split(r",(?=\w+=)", path.stem) if "=" in part)
        if device is None or named["device_name"] == _file_name(device):
            configs += _file_configs(path, named)
    if not configs:
        what = "no file" if device is None else f"no file for {device}"
        raise UsageError(f"{str(folder)!r} has {what} called N=...,device_name=....json, as vLLM's configs are.")
    return tuple(configs)


def _file_configs(path: Path, named: Mapping[str, str]) -> Iterator[FileConfig]:
    sizes = {name: int(value) for name, value in named.items() if value.isdecimal()}
    more = {name: value for name, value in named.items() if name not in sizes and name != "device_name"}
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
        with reading("it"):
            triton = str(content.pop("triton_version", ""))
            for key, values in content.items():
                require(isinstance(values, dict) and all(map(is_name, values)), f"its {key}", values, "a config")
                config = Config.of({"num_warps": None, "num_stages": None, **values})
                yield FileConfig(int(key), sizes, named["device_name"].replace("_", " "), triton, more, config)
    except (MalformedData, OSError, ValueError) as exc:
        raise UsageError(f"{str(path)!r} has no configs by size: {exc}.") from exc


def _file_name(device: str) -> str:
    return device.replace(" ", "_").replace("/", "_")
