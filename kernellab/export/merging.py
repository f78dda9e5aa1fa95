"""The closures of several kernels as one, in which equal helpers are the same function."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

from kernellab.source import Binding, Closure, Constexpr, FunctionRef, Members, jsonable


def merged(closures: Sequence[Closure]) -> tuple[Closure, tuple[dict[int, int], ...]]:
    """Return one closure, and for each given one where its functions went, by their indices."""
    functions, places, seen = [], [], dict[str, int]()
    for closure in closures:
        keys = [_key(closure, index, ()) for index in range(len(closure.functions))]
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
    known = {_key(closure, index, ()): index for index in reversed(range(len(functions)))}
    places = []
    for other in others:
        keys = [_key(other, index, ()) for index in range(len(other.functions))]
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
    match binding:
        case FunctionRef(index):
            return FunctionRef(place[index])
        case Constexpr(inner):
            return Constexpr(moved(inner, place))
        case Members(module, members):
            return Members(module, tuple((name, moved(member, place)) for name, member in members))
        case _:
            return binding


def _key(closure: Closure, index: int, above: tuple[int, ...]) -> str:
    """Return what two functions have in common that are the same: text, and what their global names stand for."""
    if index in above:
        return f"recursion {len(above) - above.index(index)}"
    function = closure.functions[index]
    bindings = [(name, _binding_key(closure, binding, (*above, index))) for name, binding in function.bindings]
    return json.dumps([function.name, function.kind, function.text, function.noinline, bindings])


def _binding_key(closure: Closure, binding: Binding, above: tuple[int, ...]) -> object:
    match binding:
        case FunctionRef(index):
            return ["function", _key(closure, index, above)]
        case Constexpr(inner):
            return ["constexpr", _binding_key(closure, inner, above)]
        case Members(module, members):
            return ["members", module, [(name, _binding_key(closure, member, above)) for name, member in members]]
        case _:
            return jsonable(binding)
