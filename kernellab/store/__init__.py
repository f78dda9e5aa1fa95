"""The database of kernels, their versions and their history: one SQLite file, shared by all notebooks of a user.

Rows are JSON and text, so that opening a store never executes anything. Writes are committed when a method returns.
"""

from kernellab.store.content import (
    Argument,
    Entry,
    LaunchedBy,
    LaunchRow,
    Measurement,
    MeasurementRow,
    RecordedLaunch,
    Result,
    Version,
    figures_of,
)
from kernellab.store.database import FILE
from kernellab.store.decoding import measurement_of
from kernellab.store.overview import Outline, Use
from kernellab.store.schema import SCHEMA
from kernellab.store.snapshots import AccessSummary, KeptExplanation, ProductSummary, Snapshot, snapshot_from_jsonable
from kernellab.store.store import History, PassedTrial, Store, TrialLog
