"""The command line: ``kernellab demo`` and ``kernellab ls``."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from kernellab.errors import KernellabError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status: 0, or 1 where it failed with a message."""
    parser = argparse.ArgumentParser(prog="kernellab", description="A lab for Triton kernels.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    demo = commands.add_parser("demo", help="execute the quickstart notebook and write it as an HTML page")
    demo.add_argument("notebook", nargs="?", type=Path, default=Path("notebooks/01_quickstart.ipynb"))
    demo.add_argument("--page", type=Path, default=Path("build/quickstart.html"))
    demo.set_defaults(command=_demo)
    listing = commands.add_parser("ls", help="list the kernels in the store")
    listing.add_argument("search", nargs="?", default="", help="a part of name, tags, notes or source")
    listing.set_defaults(command=_ls)
    given = parser.parse_args(arguments)
    try:
        status: int = given.command(given)
    except KernellabError as exc:
        print("\n".join(exc.lines(verbose=True)), file=sys.stderr)
        return 1
    return status


def _demo(given: argparse.Namespace) -> int:
    from kernellab.notebook.demo import demonstrate, summary_text  # each command loads what it needs

    print(summary_text(demonstrate(given.notebook, given.page, sys.stdout)))
    return 0


def _ls(given: argparse.Namespace) -> int:
    from kernellab.registry.listing import listing
    from kernellab.settings import read_settings
    from kernellab.store import Store
    from kernellab.views.cards.kernels import listing_text

    store = Store(read_settings().store)
    print(listing_text(listing(store, time.time(), given.search)))
    store.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
