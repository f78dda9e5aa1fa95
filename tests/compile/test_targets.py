from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import kernellab
from kernellab.compile.cache import refusals
from kernellab.errors import UnknownTarget
from kernellab.target import Target, known_targets
from kernellab.views.compile_facts import resource_facts
from tests import samples
from tests.labs import shared_lab

N = 1000
ADD = {"x_ptr": torch.rand(N), "y_ptr": torch.rand(N), "out_ptr": torch.zeros(N), "n": N, "BLOCK": 256}


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[kernellab.Lab]:
    with shared_lab(store=tmp_path) as lab:
        yield lab


@pytest.mark.slow
def test_targets_are_those_that_compile_and_what_was_found_is_kept(fresh: kernellab.Lab) -> None:
    found = fresh.targets()
    assert set(found) <= set(known_targets())
    assert {"cuda:75", "cuda:90", "cuda:121", "hip:gfx90a", "hip:gfx942", "hip:gfx1100", "hip:gfx1250"} <= set(found)
    (kept,) = fresh.compiler.folder.glob("targets-*.json")
    known = json.loads(kept.read_text())
    assert tuple(text for text in known_targets() if not known[text]) == found
    kept.write_text(json.dumps({**known, "cuda:90": "as kept"}))
    assert "cuda:90" not in fresh.targets()


@pytest.mark.slow
def test_a_target_of_no_table_is_taken_where_a_kernel_compiles_for_it(fresh: kernellab.Lab) -> None:
    compiled = fresh.compile(samples.add_kernel, **ADD, target="hip:gfx1152")
    resources = compiled.resources
    assert resources.registers
    assert (resources.occupancy, resources.limiter, resources.fits) == (None, None, True)
    facts = {fact.name: f"{fact.value}; {fact.detail}" for fact in resource_facts(compiled)}
    assert facts["occupancy"] == "not known; the limits of this target are not known"


def test_a_target_that_the_compiler_refuses_is_unknown_and_its_words_are_told(fresh: kernellab.Lab) -> None:
    with pytest.raises(UnknownTarget, match=r"'cuda:91'; expected one of cuda:75.*A compile for it was tried: .+"):
        fresh.compile(samples.add_kernel, **ADD, target="cuda:91")


@pytest.mark.slow
def test_a_compiler_that_dies_of_a_target_costs_its_worker_alone(fresh: kernellab.Lab) -> None:
    refused = refusals(fresh.compiler, [Target("cuda", 90, 32), Target("hip", "gfx000", 32)])
    assert refused["cuda:90"] == ""
    assert refused["hip:gfx000"]
    assert fresh.compile(samples.add_kernel, **ADD).resources.fits
