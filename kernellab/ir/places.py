"""Which place of a chain of calls is the user's own."""

from __future__ import annotations

from collections.abc import Iterator

from kernellab.ir.graph import Location

_LIBRARY = ("triton/language/", "triton\\language\\", "triton/experimental/", "triton\\experimental\\")


def place_of(location: Location) -> Location:
    """Return the innermost place of a chain of calls that is not inside Triton's own library."""
    place = location
    while place.caller is not None and (place.line is None or is_library(place.file)):
        place = place.caller
    return place


def calls_of(place: Location) -> Iterator[Location]:
    """Yield the places outside Triton's library that called a place, from the inside out."""
    caller = place.caller
    while caller is not None:
        if caller.line is not None and not is_library(caller.file):
            yield caller
        caller = caller.caller


def is_library(file: str | None) -> bool:
    """Return whether a file is part of Triton's own library of kernel functions."""
    return file is not None and any(part in file for part in _LIBRARY)


def short_file(file: str | None) -> str:
    """Return a file's name without its folders; ``In[5]`` stays as it is."""
    return (file or "").replace("\\", "/").rpartition("/")[2]
