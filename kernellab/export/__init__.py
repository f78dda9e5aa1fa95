"""Results as files that live without the lab."""

EXPORT_KINDS = {
    "module": "a module with the configs that were chosen in place of ``@triton.autotune``",
    "torch-op": "a module with the kernel as an operator of PyTorch",
    "autotune": "a module with the decorators that the kernel was launched with (the default)",
    "report": "an HTML page: source, compiled stages, launches, measurements",
    "binaries": "a folder with cubins for some targets, and a loader that needs torch and the CUDA driver, not Triton",
    "bundle": "a zip with the kernel and its history, for ``%triton_load`` on another machine",
}
"""What is written, by kind of export; `kernellab.export.write.WRITERS` writes each."""


def kinds_help() -> str:
    """Return the kinds of export, each with what it writes, as the help of an option."""
    words = "; ".join(f"{kind}: {meaning}" for kind, meaning in EXPORT_KINDS.items())
    return words.replace("%", "%%").replace("``", "`")


DISPATCH_KINDS = ("dispatch", "torch-op", "table", "vllm", "binaries")
"""What is written of a dispatch, by kind; `kernellab.tune.dispatch.exporting` writes each."""
