"""The imports of most candidates, as text."""

HEAD = "import torch\nimport triton\nimport triton.language as tl\n"
