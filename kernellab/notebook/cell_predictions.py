"""The predicted times of a cell's launches, for the card."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING

from kernellab.compile.types import Compiled
from kernellab.errors import KernellabError
from kernellab.lab import Lab
from kernellab.launch.recording import LaunchRecord
from kernellab.workers.forks_and_interrupts import in_background

if TYPE_CHECKING:
    from kernellab.explain.prediction import Prediction

_MOST_KERNELS = 4  # of a cell; each takes up to a quarter of a second


@dataclass(slots=True)
class CellPredictions:
    """Predicts the launches of a cell. Their kernels are disassembled while they run on the CPU."""

    lab: Lab
    _disassembling: dict[str, Thread] = field(default_factory=dict)
    _count: int = 0

    def begin(self, compiled: Compiled) -> None:
        """Disassemble a kernel in the background."""
        is_wanted = self.lab.settings.predict and compiled.target.backend == "cuda" and compiled.resources.fits
        if is_wanted and compiled.digest not in self._disassembling and len(self._disassembling) < _MOST_KERNELS:
            self._disassembling[compiled.digest] = in_background(partial(_disassemble, compiled))

    def of(self, record: LaunchRecord) -> Prediction | None:
        """Return the predicted time of a launch; None of one beyond the first few, or where the settings say so."""
        self._count += 1
        if not self.lab.settings.predict or self._count > _MOST_KERNELS:
            return None
        from kernellab.explain.prediction_verbs import prediction_of_record  # loaded while the first cell runs

        if (thread := self._disassembling.get(record.compiled.digest)) is not None:
            thread.join()
        return prediction_of_record(self.lab.session(), record)


def _disassemble(compiled: Compiled) -> None:
    with suppress(KernellabError):  # raised again where it is needed
        _ = compiled.sass
