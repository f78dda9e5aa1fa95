"""Calls that are to be explained."""

from __future__ import annotations

import pytest
import torch

import kernellab
from kernellab.errors import LaunchError, UnknownTarget
from tests import samples
from tests.labs import lab_fixture

lab = lab_fixture("cuda:90")


def test_an_empty_grid_is_refused_in_place_of_explaining_what_is_not_launched(lab: kernellab.Lab) -> None:
    x = torch.empty(0)
    with pytest.raises(LaunchError, match=r"The grid of add_kernel is \(0, 1, 1\): it launches nothing"):
        lab.explain(samples.add_kernel, (0,), x, x, x, 0, BLOCK=64)


@pytest.mark.slow
def test_a_launch_is_explained_for_another_target_and_the_lab_keeps_its_own(lab: kernellab.Lab) -> None:
    x = torch.empty(64)
    launch = (samples.add_kernel, (1,), x, x, x, 64)
    found = lab.explain(*launch, target="hip:gfx942", BLOCK=64)
    assert found.target == "hip:gfx942"
    assert any("machine code of hip:gfx942 is not followed" in note for note in found.unknown)
    assert "No estimate for hip:gfx942; roofline bound" in found.summary
    assert found.times.launch == 0
    assert "No rule says" not in found.summary
    assert "larger grid" not in found.summary
    assert "time alone" not in found.to_html()
    labels = [text.get_text() for legend in found.plot().legends for text in legend.get_texts()]
    assert [label.split(" ")[0] for label in labels] == ["roofline"]
    assert str(lab.target) == lab.explain(*launch, BLOCK=64).target == "cuda:90"
    with pytest.raises(UnknownTarget, match="target is 'cuda'; expected one of"):
        lab.explain(*launch, target="cuda", BLOCK=64)
    with pytest.raises(LaunchError, match=r"no parameter or option 'target'.*This verb takes no target"):
        lab.run(*launch, target="cuda:80", BLOCK=64)
