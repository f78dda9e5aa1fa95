"""What the store holds, as frozen records."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from keyword import iskeyword
from typing import Any, Literal

from kernellab.source import Binding, Closure, is_name

LaunchedBy = Literal["launch", "run"]
ArgumentKind = Literal["tensor", "scalar", "dtype", "function", "value", "tuple", "descriptor", "other"]

FIGURE = {"figure": True}
"""The metadata of a field of `RecordedLaunch` that is a figure: equal launches may differ in it.

It is a column of ``lab.frame("launches")``; the JSON of a launch lacks it where it has its default.
"""


@dataclass(frozen=True, slots=True)
class Version:
    """One version of one kernel.

    ``id`` is its number in the store, ``cell`` the cell or file it was defined in, with the name of its notebook before
    it where that is known: ``tuning.ipynb, In[5]``. ``created`` is in seconds since 1970.
    """

    id: int
    name: str
    version: int
    digest: str
    closure: Closure
    created: float
    cell: str = ""

    @property
    def label(self) -> str:
        """The name and the number: ``softmax@2``."""
        return f"{self.name}@{self.version}"

    @property
    def identifier(self) -> str:
        """The name; of one that an earlier release let in and that is not an identifier, the nearest that is."""
        return self.name if is_name(self.name) else re.sub(r"^(?=\d)|\W", "_", self.name) + "_" * iskeyword(self.name)


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a launch, with enough data to make another of its kind.

    ``value`` is the plain value of a scalar, the name of a dtype or a function. Of a tensor, ``dtype`` is torch's name
    without ``torch.``, ``shape`` and ``stride`` count elements, ``alias`` names an earlier argument that is the same
    memory, ``low`` and ``high`` bound the finite values it held, and ``values`` holds all of a small one of integers;
    of one that ``is_updated``, which the launch read and changed, they are those from before it.
    ``members`` are those of a tuple; a descriptor has the tensor it describes, and ``block`` as its block shape. Of a
    function, and of a value that is not a literal, ``source`` is a closure with the binding in it that stands for it.
    """

    name: str
    kind: ArgumentKind
    constexpr: bool = False
    value: Any = None
    dtype: str = ""
    shape: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    device: str = ""
    low: float | None = None
    high: float | None = None
    values: tuple[int, ...] | None = None
    alias: str = ""
    members: tuple[Argument, ...] = ()
    block: tuple[int, ...] = ()
    is_updated: bool = False
    source: tuple[Closure, Binding] | None = field(default=None, hash=False)  # a value in it may be a dict


@dataclass(frozen=True, slots=True)
class RecordedLaunch:
    """A way in which a kernel was launched.

    ``signature`` gives Triton's type of each parameter, ``options`` what the compiler was given (``num_warps``, ...),
    ``grid_text`` the expression of a grid function where it is known; ``result`` is the digest of the compiled kernel
    and ``where`` it ran (``gpu``, ``interpreter``, or ``nowhere``). ``device`` is the model of the GPU. ``by`` is
    ``run`` for a trial, which `Lab.run` makes.
    """

    signature: tuple[tuple[str, str], ...]
    arguments: tuple[Argument, ...]
    options: Mapping[str, Any]
    grid: tuple[int, int, int] | None
    target: str
    where: str
    result: str
    config: str = ""
    grid_text: str = ""
    device: str = ""
    check: str = ""
    by: LaunchedBy = "launch"

    @property
    def has_stand_ins(self) -> bool:
        """Whether nothing was launched: it was compiled for what looks like the tensors of an earlier version."""
        return any(argument.kind == "value" and argument.value == "MockTensor" for argument in self.arguments)

    @property
    def kind(self) -> Literal["gpu", "launch", "run", "compile"]:
        """``gpu`` or, elsewhere, ``launch``: the user launched it; ``run``: a trial; ``compile``: it has no grid."""
        if self.by == "run":
            return "run"
        if self.grid is None:
            return "compile"
        return "gpu" if self.where == "gpu" else "launch"

    @property
    def is_launch(self) -> bool:
        """Whether the user launched it: no trial, and not compiled alone."""
        return self.kind in ("gpu", "launch")

    def argument(self, name: str) -> Argument:
        """Return the argument of this name, which it has."""
        return next(argument for argument in self.arguments if argument.name == name)


def figures_of(launch: RecordedLaunch | type[RecordedLaunch]) -> list[str]:
    """Return the names of the fields that are figures of a launch."""
    return [column.name for column in fields(launch) if "figure" in column.metadata]


@dataclass(frozen=True, slots=True)
class LaunchRow:
    """A launch in the history: ``count`` times since ``created``, the last time at ``last`` and in ``seconds``.

    Cells of ``%%triton`` and `Lab.run` count. Of what other code launches, the first launch of each specialization is
    kept, and not counted: ``count`` is 0.
    """

    id: int
    version_id: int
    launch: RecordedLaunch
    seconds: float | None
    count: int
    created: float
    last: float


@dataclass(frozen=True, slots=True)
class Result:
    """The summary of one compiled specialization, for one target.

    ``resources`` has the fields of `kernellab.compile.types.Resources`; ``complete`` says that no effect is unknown,
    ``through`` the arguments that hold addresses, through which the kernel reaches other memory.
    """

    digest: str
    target: str
    options: Mapping[str, Any]
    resources: Mapping[str, Any]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    atomics: tuple[str, ...]
    complete: bool
    seconds: float
    triton: str
    through: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Measurement:
    """The outcome of one config.

    ``key`` names what it holds for (specialization, key values, device, driver and Triton, as one text), ``config`` the
    config's parameters, ``time_ms`` the median; ``details`` the other columns of the frame that it comes from.
    """

    key: str
    config: Mapping[str, Any]
    device: str
    status: str
    time_ms: float | None
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MeasurementRow:
    """A measurement in the history."""

    id: int
    version_id: int
    measurement: Measurement
    created: float


@dataclass(frozen=True, slots=True)
class Entry:
    """A kernel that comes from elsewhere, with its history; ``notebook`` is the one that defined it, or "".

    A launch comes with seconds and count, a measurement with its time, or None where that is not known: then it counts
    as made when it is entered.
    """

    name: str
    closure: Closure
    digest: str
    tags: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    launches: tuple[tuple[RecordedLaunch, float | None, int], ...] = ()
    measurements: tuple[tuple[Measurement, float | None], ...] = ()
    notebook: str = ""
