"""All honest candidates: names, specifications and texts."""

from tests.judge.honest import (
    activations,
    addresses,
    convolutions,
    descriptors,
    elementwise,
    formats,
    host_forms,
    library_forms,
    norms,
    operators,
    orders,
    products,
    scans,
    softmaxes,
    sums,
    tuned_products,
)

CANDIDATES: tuple[tuple[str, str, str], ...] = (
    *activations.CANDIDATES,
    *addresses.CANDIDATES,
    *convolutions.CANDIDATES,
    *descriptors.CANDIDATES,
    *elementwise.CANDIDATES,
    *formats.CANDIDATES,
    *host_forms.CANDIDATES,
    *library_forms.CANDIDATES,
    *norms.CANDIDATES,
    *operators.CANDIDATES,
    *orders.CANDIDATES,
    *products.CANDIDATES,
    *scans.CANDIDATES,
    *softmaxes.CANDIDATES,
    *sums.CANDIDATES,
    *tuned_products.CANDIDATES,
)
