"""The verdict as JSON: what is printed is what is signed, and it reads back as it was."""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import random

import pytest

from kernellab.cli import SCHEMA
from kernellab.errors import UsageError
from kernellab.judge import verdict as verdicts
from kernellab.judge.verdict import Reason, Verdict, is_signed, signature_of, verdict_of_json
from tests.judge.verdicts import ACCEPTED, KEY, WRONG, signed

OTHER_KEY = bytes(range(1, 33))


@pytest.mark.parametrize("verdict", [ACCEPTED, WRONG], ids=lambda verdict: verdict.verdict)
def test_a_verdict_reads_back_as_it_was(verdict: Verdict) -> None:
    line = signed(verdict).as_json()
    assert "\n" not in line
    again = verdict_of_json(line)
    assert again.as_json() == line
    assert again.signature == signed(verdict).signature
    assert repr(again) == repr(verdict)
    assert again.trials == verdict.trials
    assert again.options == verdict.options


def test_the_json_begins_with_the_head_of_the_command_line_and_ends_with_the_signature() -> None:
    fields = json.loads(signed(WRONG).as_json())
    assert list(fields)[:4] == ["schema", "kernellab", "command", "verdict"]
    assert list(fields)[-1] == "signature"
    assert fields["command"] == "judge"
    assert fields["schema"] == verdicts.SCHEMA == SCHEMA


def test_numbers_that_json_lacks_are_texts() -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    (reason,) = json.loads(WRONG.as_json(), parse_constant=refuse)["reasons"]
    assert reason["got"] == "nan"
    (read,) = verdict_of_json(WRONG.as_json()).reasons
    assert read.got is not None
    assert math.isnan(read.got)


def test_a_reason_has_no_character_that_moves_the_cursor_of_a_terminal() -> None:
    reason = Reason("host_code", "failed: \x1b[2K\r\u202e\ud800\nc.py: accepted", file="\x1b.py")
    assert reason.detail == "failed: \\x1b[2K\\r\\u202e\\ud800 c.py: accepted"
    assert reason.file == "\\x1b.py"


def test_a_signature_holds_for_its_key_alone() -> None:
    line = signed(ACCEPTED).as_json()
    assert is_signed(line, KEY)
    assert is_signed(f"{line}\n", KEY)
    assert not is_signed(line, OTHER_KEY)
    assert not is_signed(ACCEPTED.as_json(), KEY)


def test_a_line_with_one_byte_changed_is_not_signed() -> None:
    line = signed(ACCEPTED).as_json()
    draw = random.Random(0)
    for at in range(len(line)):
        byte = draw.choice([code for code in range(32, 127) if chr(code) != line[at]])
        assert not is_signed(f"{line[:at]}{chr(byte)}{line[at + 1 :]}", KEY), at


@pytest.mark.parametrize("text", ["", "{}", "null", '{"signature": ""}', '{"a": 1, "signature": "\udc80"}', "[" * 9999])
def test_what_is_no_verdict_is_not_signed(text: str) -> None:
    assert not is_signed(text, KEY)


def test_a_second_field_of_a_name_is_not_signed() -> None:
    line = signed(WRONG).as_json()
    for forged in (
        line.replace("{", '{"verdict": "accepted", ', 1),
        line.replace(', "signature"', ', "verdict": "accepted", "signature"'),
        line.removesuffix("}") + ', "verdict": "accepted"}',
    ):
        assert not is_signed(forged, KEY)


def test_a_program_without_kernellab_checks_the_signature_by_cutting_the_line() -> None:
    before, _, after = signed(ACCEPTED).as_json().rpartition(', "signature": "')
    assert after == hmac.new(KEY, f"{before}}}".encode(), hashlib.sha256).hexdigest() + '"}'


def test_a_short_key_is_refused() -> None:
    with pytest.raises(UsageError, match="The key has 5 bytes; expected at least 16"):
        signature_of(ACCEPTED, b"short")


@pytest.mark.parametrize(
    "text",
    [
        "half a li",
        "[]",
        "{}",
        '{"schema": 1, "kernellab": "0", "command": "judge", "name": "a.py", "error": {"type": "JudgeFailed"}}',
        ACCEPTED.as_json().replace('"schema": 1', '"schema": 2'),
        ACCEPTED.as_json().replace('"accepted"', '"perfect"', 1),
        ACCEPTED.as_json().replace('"nonce"', '"once"'),
        ACCEPTED.as_json().replace('"seed": 7', '"seed": 7, "seed": 8', 1),
    ],
)
def test_a_line_that_is_no_verdict_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^(its? |.*column|.*is not a valid)"):
        verdict_of_json(text)
