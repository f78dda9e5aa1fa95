"""Kernels by id, name and version, with the history of their launches: side table, listing, recorded launches."""

from kernellab.registry.kernels import Registry, keep, launched_version, remember, version_digest
from kernellab.registry.launches_from_store import (
    RecordedVersion,
    grid_text,
    recorded_version,
    regenerated_arguments,
    regenerated_inputs,
    values_of,
)
from kernellab.registry.launches_to_store import argument_of, recorded_launch_of, result_of
from kernellab.registry.listing import Listing, LoadedVersion, VersionRow, config_words, define, texts_of
from kernellab.registry.session import Session
