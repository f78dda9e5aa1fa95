"""Launch the cases by Triton's own interpreter: ``TRITON_INTERPRET=1 python -m tests.kernels.interpret NAME...``"""

from __future__ import annotations

import sys

from tests.kernels.cases import all_cases


def main(names: list[str]) -> None:
    cases = all_cases()
    for name in names:
        case = cases[name]
        arguments = case.fresh_arguments()
        case.kernel[case.grid](**arguments, **case.meta)
        case.assert_as_expected(arguments)
        print(name)


if __name__ == "__main__":
    main(sys.argv[1:])
