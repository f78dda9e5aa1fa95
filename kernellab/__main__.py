"""``python -m kernellab`` and the program ``kernellab``: the command line, whose import may be interrupted, too."""

import os
import sys


def main() -> int:
    """Run the command line; returns its exit status."""
    try:
        from kernellab.cli import main as command_line

        status = command_line()
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        status = 130
    # Where an interrupt met an exec() of text, by which `dataclasses` makes methods, Python remembers it, caught or
    # not, and would end by SIGINT whatever the status is. The next exec() forgets it.
    exec("")
    return status


if __name__ == "__main__":
    if sys.path[:1] in ([""], [os.getcwd()]):
        del sys.path[0]  # `python -m` puts the current folder first, whose random.py is not what torch means
    sys.exit(main())
