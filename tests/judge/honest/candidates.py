"""All honest candidates: names, specifications and texts."""

from tests.judge.honest import elementwise, products, reductions

CANDIDATES: tuple[tuple[str, str, str], ...] = (*elementwise.CANDIDATES, *reductions.CANDIDATES, *products.CANDIDATES)
