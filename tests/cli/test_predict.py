"""The predicted time of a launch on the command line, and targets that are named by a model of GPU."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Call

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("option", ["--device", "--target"])
def test_a_launch_of_a_file_is_predicted_for_the_device_that_an_option_names(kernellab: Call, option: str) -> None:
    found = kernellab("predict", "add.py::add_kernel", option, "l4", "--json").json
    assert (found["device"], found["target"]) == ("L4", "cuda:89")
    assert found["low_ms"] < found["time_ms"] < found["high_ms"]
    assert found["terms"][found["bound"]] == max(found["terms"].values())
    text = kernellab("predict", "add.py::add_kernel", option, "l4").out
    assert "Predicted " in text
    assert "on L4, limited by launch overhead" in text


def test_the_recorded_launch_of_a_kept_kernel_is_predicted(kernellab: Call) -> None:
    assert kernellab("run", "add.py", "--size", "n=50_000").status == 0
    kept = kernellab("predict", "add_kernel", "--device", "h200", "--json").json
    of_file = kernellab("predict", "add.py", "--size", "n=50_000", "--device", "h200", "--json").json
    assert kept["device"] == "H200"
    assert kept["time_ms"] == of_file["time_ms"]
    refused = kernellab("predict", "add_kernel", "--size", "n=5")
    assert refused.status == 2
    assert "is kept with its recorded launch" in refused.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--device", "mi300x"), "Times cannot be predicted for hip:gfx942: the model counts NVIDIA's instructions."),
        (("--target", "hip:gfx942"), "Times cannot be predicted for hip:gfx942: the model counts NVIDIA's"),
        (("--device", "h100", "--target", "l4"), "device h100 is a cuda:90, and target is cuda:89; give one of them."),
        (("--device", "h300"), "device is 'h300'; expected one of t4, "),
    ],
)
def test_what_cannot_be_predicted_is_said_in_a_sentence(
    kernellab: Call, options: tuple[str, ...], message: str
) -> None:
    called = kernellab("predict", "add.py", *options)
    assert called.status == 2
    assert message in called.err
    assert kernellab("predict", "add.py", *options, "--json").error["message"].startswith(message)


@pytest.mark.parametrize(
    "words",
    [
        ("compile",),
        ("effects",),
        ("run",),
        ("traffic",),
        ("explain",),
        ("predict",),
        ("tune", "--space", "BLOCK=128,256"),
        ("bench",),
    ],
    ids=lambda words: words[0],
)
def test_every_command_takes_a_model_as_its_target(kernellab: Call, words: tuple[str, ...]) -> None:
    command, *options = words
    called = kernellab(command, "add.py", *options, "--target", "L4", "--json")
    assert called.status == 0, called.err
    found = called.json
    assert found["target"] == "cuda:89"
    if command == "explain":
        assert "(L4 data sheet)" in found["summary"]
    if command == "predict":
        assert found["device"] == "L4"
    if command == "tune":
        assert found["provenance"]["predicted_for"] == "L4"
        assert all(row["predicted_ms"] is not None and row["time_ms"] is None for row in found["rows"])


def test_an_export_takes_a_model_as_its_target(kernellab: Call) -> None:
    assert kernellab("export", "add.py", "--target", "l4", "-o", "out.py").status == 0


def test_the_environment_may_name_a_model(kernellab: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELLAB_TARGET", "h200")
    assert kernellab("predict", "add.py", "--json").json["device"] == "H200"
