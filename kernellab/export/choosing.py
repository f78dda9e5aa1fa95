"""What an exported dispatch runs to find a config: each function is written into modules as it stands here.

There, the names at the top are globals of the module, filled with what was measured; here they are empty, and tests
fill them. Nothing but torch is used, and nothing of the lab.
"""

from __future__ import annotations

from typing import Any

INTERPRETED = False
KERNEL = ""
DECISIONS: dict[str, dict[str, Any]] = {}
"""By model of device: ``target``, ``multiprocessors``, ``configs``, their ``shared_bytes``, and ``choose`` by sizes."""
CHOSEN: dict[tuple[Any, ...], dict[str, Any]] = {}


def config_for(sizes: Any, device: Any, given: Any) -> Any:
    """Return the config for some sizes on a device, and nothing where ``given`` has all that configs set.

    What was chosen once is looked up. A config that takes more shared memory than the device has is replaced by the
    largest that fits.
    """
    found = CHOSEN.get((device, sizes))
    if found is None:
        if all(name in given for each in DECISIONS.values() for config in each["configs"] for name in config):
            return {}
        decision = decision_on(device)
        places = fitting(decision, device)
        place = decision["choose"](*sizes)
        if place not in places:
            place = max(places, key=lambda other: decision["shared_bytes"][other] or 0)
        found = CHOSEN[(device, sizes)] = decision["configs"][place]
    return found


def decision_on(device: Any) -> Any:
    """Return the decision of a device; for the CPU, which interprets kernels, the first."""
    import torch

    if INTERPRETED or torch.device(device).type == "cpu":
        return next(iter(DECISIONS.values()))
    return decision_for(torch.cuda.get_device_properties(device), is_amd=torch.version.hip is not None)


def fitting(decision: Any, device: Any) -> Any:
    """Return the places of the configs that the shared memory of a device allows."""
    import torch

    is_cpu = INTERPRETED or torch.device(device).type == "cpu"
    properties: Any = None if is_cpu else torch.cuda.get_device_properties(device)
    limit = getattr(properties, "shared_memory_per_block_optin", None)
    needs = enumerate(decision["shared_bytes"])
    places = [place for place, need in needs if limit is None or need is None or need <= limit]
    if not places:
        raise RuntimeError(f"No config of {KERNEL} fits {limit} bytes of shared memory: tune it on {properties.name}.")
    return places


def decision_for(properties: Any, is_amd: Any) -> Any:
    """Return the decision of a device; of one on which nobody measured, that of the nearest, with a warning."""
    import warnings

    if properties.name in DECISIONS:
        return DECISIONS[properties.name]
    amd = properties.gcnArchName.split(":")[0] if is_amd else ""
    target = f"hip:{amd}" if is_amd else f"cuda:{properties.major}{properties.minor}"
    backend = target.partition(":")[0]
    near = {name: each for name, each in DECISIONS.items() if each["target"].partition(":")[0] == backend}
    if not near:
        raise RuntimeError(
            f"{KERNEL} was tuned on {', '.join(DECISIONS)}, and {properties.name} is of another kind ({target}): "
            "tune it there, or pass all constexprs and options to launch."
        )

    def distance(name: Any) -> Any:
        numbers = ["".join(filter(str.isdigit, each)) for each in (near[name]["target"], target)]
        generations = abs(int(numbers[0] or 0) - int(numbers[1] or 0))
        ratio = near[name]["multiprocessors"] / properties.multi_processor_count
        return near[name]["target"] != target, generations, max(ratio, 1 / ratio)

    nearest = min(near, key=distance)
    warnings.warn(
        f"{KERNEL} was not tuned on {properties.name}; its configs are those for {nearest}, the nearest that is known.",
        stacklevel=5,
    )
    return near[nearest]
