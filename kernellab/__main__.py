"""``python -m kernellab``: the command line."""

import sys

from kernellab.cli import main

if __name__ == "__main__":
    sys.exit(main())
