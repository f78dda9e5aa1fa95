"""The closures of several kernels as one, in which equal helpers are the same function."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from kernellab.source import Binding, Closure, FunctionRef, content_keys, with_functions


def merged(closures: Sequence[Closure]) -> tuple[Closure, tuple[dict[int, int], ...]]:
    """Return one closure, and for each given one where its functions went, by their indices."""
    functions, places, seen = [], [], dict[str, int]()
    for keys in content_keys([closure.functions for closure in closures]):
        for key in keys:
            seen.setdefault(key, len(seen))
        places.append({index: seen[key] for index, key in enumerate(keys)})
    done = set[int]()
    for closure, place in zip(closures, places, strict=True):
        for index, function in enumerate(closure.functions):
            if place[index] not in done:
                done.add(place[index])
                bindings = tuple((name, moved(binding, place)) for name, binding in function.bindings)
                functions.append((place[index], dataclasses.replace(function, bindings=bindings)))
    return Closure(tuple(function for _, function in sorted(functions, key=lambda pair: pair[0]))), tuple(places)


def appended(closure: Closure, others: Sequence[Closure]) -> tuple[Closure, tuple[dict[int, int], ...]]:
    """Return a closure with the functions of others after its own, and where those of each other went."""
    functions = list(closure.functions)
    own, *keys_of_others = content_keys([each.functions for each in (closure, *others)])
    known = {own[index]: index for index in reversed(range(len(functions)))}
    places = []
    for other, keys in zip(others, keys_of_others, strict=True):
        new = [key for key in dict.fromkeys(keys) if key not in known]
        known |= {key: len(functions) + number for number, key in enumerate(new)}
        place = {index: known[key] for index, key in enumerate(keys)}
        for key in new:
            function = other.functions[keys.index(key)]
            bindings = tuple((name, moved(binding, place)) for name, binding in function.bindings)
            functions.append(dataclasses.replace(function, bindings=bindings))
        places.append(place)
    return dataclasses.replace(closure, functions=tuple(functions)), tuple(places)


def moved(binding: Binding, place: dict[int, int]) -> Binding:
    """Return a binding of one closure as one of the merged closure."""
    return with_functions(binding, lambda index: FunctionRef(place[index]))
