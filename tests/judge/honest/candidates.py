"""All honest candidates: names, specifications and texts."""

from tests.judge.honest import activations, elementwise, formats, norms, orders, products, scans, softmaxes, sums

CANDIDATES: tuple[tuple[str, str, str], ...] = (
    *activations.CANDIDATES,
    *elementwise.CANDIDATES,
    *formats.CANDIDATES,
    *norms.CANDIDATES,
    *orders.CANDIDATES,
    *products.CANDIDATES,
    *scans.CANDIDATES,
    *softmaxes.CANDIDATES,
    *sums.CANDIDATES,
)
