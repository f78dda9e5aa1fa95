"""Results as files that live without the lab."""

from typing import Literal, get_args

Kind = Literal["module", "torch-op", "autotune", "report", "bundle"]
KINDS: tuple[Kind, ...] = get_args(Kind)
