from __future__ import annotations

import pytest

from kernellab.errors import UnknownTarget
from kernellab.target import (
    _MODELS,
    Target,
    known_targets,
    limits_of,
    parse_target,
    shared_bytes_limit,
    well_formed_target,
)


@pytest.mark.parametrize("text", known_targets())
def test_every_known_target_reads_back_as_itself(text: str) -> None:
    assert str(parse_target(text)) == text


@pytest.mark.parametrize("text", ["cuda:90a", "cuda:sm_90", "cuda:sm90", " cuda:90 "])
def test_usual_spellings_of_an_architecture_are_taken(text: str) -> None:
    assert parse_target(text) == Target("cuda", 90, 32)


def test_cdna_has_waves_of_64_and_rdna_of_32() -> None:
    assert parse_target("hip:gfx942") == Target("hip", "gfx942", 64)
    assert parse_target("hip:gfx1100") == Target("hip", "gfx1100", 32)


def test_a_target_of_no_table_has_a_form_and_no_limits() -> None:
    target = well_formed_target("hip:gfx1152")
    assert target == Target("hip", "gfx1152", 32)
    assert (limits_of(target), shared_bytes_limit(target)) == (None, None)
    assert well_formed_target("hip:gfx1") is None


@pytest.mark.parametrize("text", ["", "cuda", "cuda:", "cuda:9", "cuda:gfx942", "hip:90", "hip:gfx1", "rocm:gfx942"])
def test_anything_else_is_refused_with_the_choices(text: str) -> None:
    with pytest.raises(UnknownTarget, match="expected one of cuda:75"):
        parse_target(text)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("nvidia h100", "cuda:90"),
        ("GeForce RTX 4090", "cuda:89"),
        ("sm_90a", "cuda:90"),
        ("cuda:9.0", "cuda:90"),
        ("100", "cuda:100"),
        ("gfx942", "hip:gfx942"),
        ("h100x", "h100"),
        ("rtx 4091", "rtx4090"),
    ],
)
def test_a_model_or_an_architecture_alone_is_answered_with_its_target(text: str, meant: str) -> None:
    with pytest.raises(UnknownTarget, match=f"Did you mean {meant}?"):
        parse_target(text)


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("h100", "cuda:90"),
        ("A100", "cuda:80"),
        ("a100-40", "cuda:80"),
        ("RTX 4090", "cuda:89"),
        ("MI300X", "hip:gfx942"),
    ],
)
def test_a_model_names_its_target(text: str, target: str) -> None:
    assert str(parse_target(text)) == target


def test_a_target_like_no_other_gets_no_proposal() -> None:
    with pytest.raises(UnknownTarget) as caught:
        parse_target("tpu")
    assert "Did you mean" not in str(caught.value)


def test_every_proposed_target_is_known() -> None:
    assert set(_MODELS) <= set(known_targets())


def test_shared_memory_per_block_is_known_for_every_target() -> None:
    limits = {text: shared_bytes_limit(parse_target(text)) for text in known_targets()}
    assert limits["cuda:90"] == 232448
    assert limits["hip:gfx950"] == 163840
    assert all(limits.values())


def test_only_blackwell_has_tensor_memory() -> None:
    columns = {
        text: limits.tensor_memory_columns for text in known_targets() if (limits := limits_of(parse_target(text)))
    }
    assert {text for text, count in columns.items() if count} == {"cuda:100", "cuda:103", "cuda:110"}
