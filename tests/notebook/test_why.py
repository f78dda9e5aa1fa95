"""Why a launch takes as long as it does, from a notebook without a GPU: by its traffic and the target's data."""

from __future__ import annotations

import pytest

from kernellab.explain.causes import Cause
from kernellab.explain.explanation import Explanation
from kernellab.explain.profile import Profile
from tests.notebook.conftest import Notebook

STRIDED = """
@triton.jit
def gather(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets * 64, mask=mask)
    tl.store(out_ptr + offsets, x + 1, mask=mask)

n = 1 << 20
x = torch.zeros(64 * n)
out = torch.zeros(n)
"""
LAUNCH = "gather[(n // 1024,)](x, out, n, BLOCK=1024)"


@pytest.mark.slow
def test_the_card_says_why_it_takes_this_long(notebook: Notebook) -> None:
    small = STRIDED.replace("1 << 20", "4096")
    ran = notebook.triton(f"{small}\n{LAUNCH}", "--why")
    assert ran.error is None
    (card,) = ran.shown
    assert "Why it takes this long" in card["text/html"]
    assert "Limited by launch overhead" in card["text/plain"]
    assert notebook.names["out"].tolist() == [1.0] * 4096


@pytest.mark.slow
def test_without_the_option_nothing_is_explained(notebook: Notebook) -> None:
    ran = notebook.triton(f"{STRIDED.replace('1 << 20', '4096')}\n{LAUNCH}")
    assert "Why it takes this long" not in ran.shown[0]["text/html"]


@pytest.mark.slow
def test_the_line_magic_takes_a_launch_and_blames_its_line(notebook: Notebook) -> None:
    notebook.triton(STRIDED)
    ran = notebook.run(f"why = %triton_why {LAUNCH}")
    assert ran.error is None
    why = notebook.names["why"]
    assert isinstance(why, Explanation)
    assert why.findings[0].cause is Cause.UNCOALESCED
    assert why.findings[0].line == 6
    assert "Estimated" in why.summary
    assert list(why.frame.columns) == ["cause", "line", "text", "low", "high", "evidence"]


@pytest.mark.slow
def test_the_line_magic_takes_the_name_of_a_kernel_that_was_launched(notebook: Notebook) -> None:
    notebook.triton(f"{STRIDED.replace('1 << 20', '4096')}\n{LAUNCH}")
    ran = notebook.run("%triton_why gather")
    assert ran.error is None
    assert "gather" in ran.printed
    assert "Limited by" in ran.printed


def test_a_name_that_is_not_kept_is_an_error_that_says_so(notebook: Notebook) -> None:
    ran = notebook.run("%triton_why nothing_of_the_kind")
    assert "nothing_of_the_kind" in "".join(ran.error_lines)


@pytest.mark.slow
def test_a_kernel_without_a_launch_says_how_to_give_one(notebook: Notebook) -> None:
    notebook.triton(STRIDED.replace("gather", "never_launched"))
    ran = notebook.run("%triton_why never_launched")
    assert "No launch of never_launched@1 is known" in "".join(ran.error_lines)


@pytest.mark.slow
def test_a_profile_without_a_gpu_says_what_is_known_without(notebook: Notebook) -> None:
    notebook.triton(STRIDED)
    call = "profile(gather, (n // 1024,), x, out, n, BLOCK=1024)"
    ran = notebook.run(f"import kernellab\nprofile = kernellab.current_lab().{call}\nprofile")
    assert ran.error is None
    profile = notebook.names["profile"]
    assert isinstance(profile, Profile)
    assert profile.refused
    assert any("uncoalesced access" in note for note in profile.notes)


@pytest.mark.slow
def test_a_target_whose_machine_code_is_not_followed_says_so(notebook: Notebook) -> None:
    ran = notebook.triton(f"{STRIDED.replace('1 << 20', '4096')}\n{LAUNCH}", "--why --target hip:gfx942")
    assert ran.error is None
    assert "machine code of hip:gfx942 is not followed" in " ".join(ran.shown[0]["text/plain"].split())


def test_an_option_behind_the_kernel_is_told_where_it_belongs(notebook: Notebook) -> None:
    ran = notebook.run("%triton_why gather --samples")
    assert ran.error is not None
    expected = "'gather --samples' is not a kernel; options come before it: %triton_why --samples softmax."
    assert str(ran.error) == expected
