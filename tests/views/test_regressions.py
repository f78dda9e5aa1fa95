from __future__ import annotations

from kernellab.registry import Registry
from kernellab.registry.regressions import Regressions, regressions_of
from kernellab.store import Store
from kernellab.views.cards.kernels import regressions_card
from tests.registry.kept import CHANGED, entered, key, measured, store_of


def found() -> Regressions:
    rows = [
        (measured(key(1024), 1.0), 0),
        (measured(key(1024, "3.9.0"), 1.5), 1),
        (measured(key(2048), 1.0), 0),
        (measured(key(2048, "3.9.0"), 1.0), 1),
    ]
    store = store_of(*rows)
    entered(store, (measured(key(device="<A&B>", closure=CHANGED), 1.0), 2), closure=CHANGED)
    return regressions_of(Registry(store), None, None, 0.03)


def test_the_table_has_what_changed_and_the_rest_is_counted() -> None:
    lines = regressions_card(found()).text().splitlines()
    assert lines[0].endswith("1 slower, 1 same, 1 incomparable.")
    assert lines[1].split()[:4] == ["kernel", "launch", "device", "became"]
    assert lines[2].split()[:6] == ["add_kernel", "n=1024", "NVIDIA", "H200", "slower", "1.500"]
    assert "Triton 3.6.0 to 3.9.0" in lines[2]
    assert lines[3] == "Single configs: 1 slower; .frame has them."
    assert lines[4].startswith("Not compared, add_kernel (n=4096): measured on this device under one Triton")
    assert len(lines) == 5


def test_the_card_escapes_what_it_shows() -> None:
    store = store_of((measured(key(device="<A&B>"), 1.0), 0), (measured(key(device="<A&B>", triton="3.9.0"), 2.0), 1))
    html = regressions_card(regressions_of(Registry(store), None, None, 0.03)).html()
    assert "&lt;A&amp;B&gt;" in html
    assert "<A&B>" not in html


def test_a_store_without_measurements_says_so() -> None:
    assert regressions_card(regressions_of(Registry(Store(None)), None, None, 0.03)).text() == (
        "No launch of any kernel is known under several versions of Triton, driver or kernel."
    )
