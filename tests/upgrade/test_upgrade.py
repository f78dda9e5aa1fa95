"""The gate over stores that were filled here, with what was kept altered to stand for another version of Triton."""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.errors import CompileError, KernellabError, UsageError
from kernellab.explain.snapshot import NOT_KEPT
from kernellab.registry import Session
from kernellab.registry.regressions import TimeChange
from kernellab.store import Store
from kernellab.store.decoding import launch_digest
from kernellab.timing.config import Config
from kernellab.tune import verbs as tune_verbs
from kernellab.upgrade.comparison import ReasonKind
from kernellab.upgrade.result import UpgradeOutcome, compared_row
from kernellab.upgrade.verbs import retimed_row, upgrade_of
from kernellab.upgrade.winners import has_values, stored_winners
from tests.labs import lab_fixture, shared_lab
from tests.upgrade.stores import OTHER, as_of_another_triton, snapshot

pytestmark = pytest.mark.slow


@triton.jit
def scaled(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + places, tl.load(x_ptr + places, mask=places < n) * 2, mask=places < n)


@triton.jit
def gathered(x_ptr, index_ptr, out_ptr, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + places, tl.load(x_ptr + tl.load(index_ptr + places)))


def config(block: int = 1024, warps: int = 4) -> Any:
    return triton.Config({"BLOCK": block}, num_warps=warps)


def grid(meta: Any) -> tuple[int]:
    return (triton.cdiv(1 << 16, meta["BLOCK"]),)


lab = lab_fixture("cuda:90", "function", on_disk=True)


def tuned(lab: kernellab.Lab, *configs: Any) -> None:
    """Tune one config after the other, so that the last one is the winner and the others are its neighbours."""
    x = torch.rand(1 << 16)
    for own in configs:
        lab.tune(lab.bind(scaled), grid, x, torch.empty_like(x), len(x), configs=[own])


def test_a_tuning_keeps_what_the_gate_needs_and_an_equal_compile_is_not_suspect(lab: kernellab.Lab) -> None:
    tuned(lab, config())
    as_of_another_triton(lab.kernels.store)
    upgrade = lab.upgrade()
    (row,) = upgrade.rows
    assert (row.outcome, row.basis, row.why) == (UpgradeOutcome.SAME, "code", "")
    assert (row.kernel, row.launch, row.ratio) == ("scaled@1", "n=65536", pytest.approx(1.0))
    assert row.config == "BLOCK=1024, num_warps=4, num_stages=3"
    assert upgrade.text == f"Triton {OTHER} to {triton.__version__}: 1 same"
    assert not upgrade.suspects


@pytest.mark.parametrize(
    ("facts", "kind"),
    [
        ({"spill_bytes": -4}, ReasonKind.SPILLS),
        ({"predicted_ms": 0.001, "loop_code": {}}, ReasonKind.PREDICTED),
        ({"registers": 1, "shared_bytes": 7}, None),
    ],
)
def test_a_winner_is_suspect_by_what_was_kept(lab: kernellab.Lab, facts: dict[str, Any], kind: ReasonKind) -> None:
    tuned(lab, config())
    as_of_another_triton(lab.kernels.store, **facts)
    assert [reason.kind for reason in lab.upgrade().rows[0].reasons] == ([] if kind is None else [kind])


def test_accesses_that_were_wider_are_named_by_line(lab: kernellab.Lab) -> None:
    tuned(lab, config())
    store = lab.kernels.store
    version = store.find("scaled")
    assert version is not None
    (snapshot,) = store.snapshots.of_version(version.id).values()
    wider = tuple(replace(a, width_bytes=2 * a.width_bytes, requests=a.requests / 2) for a in snapshot.accesses)
    as_of_another_triton(store, accesses=wider)
    (row,) = lab.upgrade(OTHER).suspects
    assert [reason.kind for reason in row.reasons] == [ReasonKind.WIDTH] * 2
    line = scaled.starting_line_number + 3
    assert f"line {line}: load of x_ptr 32 -> 16 bytes wide per thread" in row.why


def test_other_configs_of_the_same_launch_are_neighbours_and_do_not_decide(lab: kernellab.Lab) -> None:
    tuned(lab, config(256), config(512, 2), config())
    store = lab.kernels.store
    as_of_another_triton(store)
    version = store.find("scaled")
    assert version is not None
    for row in store.history.launches(version.id):
        snapshot = store.snapshots.of_version(version.id)[launch_digest(row.launch), OTHER]
        if "BLOCK=1024" not in row.launch.config and row.launch.argument("BLOCK").value != 1024:
            store.snapshots.add(version.id, launch_digest(row.launch), replace(snapshot, spill_bytes=-4))
    upgrade = lab.upgrade()
    assert [(row.is_winner, row.outcome) for row in upgrade.rows] == [
        (True, UpgradeOutcome.SAME), (False, UpgradeOutcome.SUSPECT), (False, UpgradeOutcome.SUSPECT)
    ]  # fmt: skip
    assert not upgrade.suspects


def test_of_a_launch_without_a_snapshot_the_resources_are_compared(lab: kernellab.Lab) -> None:
    tuned(lab, config())
    store = lab.kernels.store
    as_of_another_triton(store)
    store.database.execute("DELETE FROM snapshots")
    upgrade = lab.upgrade()
    assert (upgrade.rows[0].basis, upgrade.rows[0].ratio) == ("resources", None)
    assert "resources alone were kept" in upgrade.notes[0]


def test_a_kernel_that_does_not_compile_any_more_fails(lab: kernellab.Lab) -> None:
    tuned(lab, config())
    as_of_another_triton(lab.kernels.store)

    def session_of(target: str | None) -> Session:
        if target is not None:
            raise CompileError("the compiler refused it")
        return lab.session()

    (row,) = upgrade_of(session_of, None, None).suspects
    assert (row.outcome, row.why) == (UpgradeOutcome.FAILS, "the compiler refused it")


def test_a_launch_that_cannot_be_made_again_is_unknown(lab: kernellab.Lab) -> None:
    tuned(lab, config())
    store = lab.kernels.store
    as_of_another_triton(store)
    store.database.execute("UPDATE launches SET launch = replace(launch, '65536', '99999999999999')")
    store.database.execute("UPDATE snapshots SET launch = 'of another digest'")
    (row,) = lab.upgrade().rows
    assert row.outcome is UpgradeOutcome.UNKNOWN
    assert "no room" in row.why


def test_without_kept_integers_accesses_are_compared_without_addresses(lab: kernellab.Lab) -> None:
    x, index = torch.rand(1 << 16), torch.randint(1 << 16, (1 << 16,), dtype=torch.int32)
    lab.tune(lab.bind(gathered), grid, x, index, torch.empty_like(x), configs=[config()])
    as_of_another_triton(lab.kernels.store)
    (row,) = lab.upgrade().rows
    assert row.before is not None
    assert (row.outcome, row.before.wavefronts, row.after.wavefronts) == (UpgradeOutcome.SAME, None, None)
    assert any("not kept" in sentence for sentence in row.after.unknown)


def test_what_was_compiled_under_the_installed_triton_is_compared_only_where_it_is_asked_for(
    lab: kernellab.Lab,
) -> None:
    tuned(lab, config())
    assert lab.upgrade().rows == ()
    assert lab.upgrade(triton.__version__).rows[0].outcome is UpgradeOutcome.SAME
    with pytest.raises(UsageError, match=rf"compiled under Triton 1.0; it has {triton.__version__}"):
        lab.upgrade("1.0")


def test_another_python_compiles_what_was_not_kept_and_equal_compilers_do_not_part(lab: kernellab.Lab) -> None:
    tuned(lab, config())
    store = lab.kernels.store
    as_of_another_triton(store)
    store.database.execute("DELETE FROM snapshots")
    (row,) = lab.upgrade(python=sys.executable).rows
    assert (row.basis, row.outcome) == ("code", UpgradeOutcome.SAME)
    assert row.parting is not None
    assert row.parting.stage == ""


OTHER_PYTHONS = [
    path
    for path in Path(__file__).parents[2].glob(".venv*/bin/python")
    if path.resolve().parent != Path(sys.executable).resolve().parent or path.parent != Path(sys.executable).parent
]


@pytest.mark.skipif(not OTHER_PYTHONS, reason="there is no second Python with another Triton")
def test_a_real_other_triton_parts_at_a_stage_and_is_not_suspect(lab: kernellab.Lab) -> None:
    tuned(lab, config())
    store = lab.kernels.store
    as_of_another_triton(store)
    store.database.execute("DELETE FROM snapshots")
    (row,) = lab.upgrade(python=OTHER_PYTHONS[0]).rows
    assert row.before is not None
    assert row.before.triton != row.after.triton
    assert row.outcome is UpgradeOutcome.SAME
    assert row.parting is not None


@pytest.mark.parametrize(("python", "why"), [("/nowhere/python", "cannot be started"), ("/bin/false", "failed")])
def test_a_python_that_does_not_answer_says_so(lab: kernellab.Lab, python: str, why: str) -> None:
    tuned(lab, config())
    as_of_another_triton(lab.kernels.store)
    with pytest.raises(KernellabError, match=why):
        lab.upgrade(python=python)


def test_a_worker_makes_the_same_snapshot_as_this_process(lab: kernellab.Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    tuned(lab, config())
    store = lab.kernels.store
    version = store.find("scaled")
    assert version is not None
    kept = store.snapshots.of_version(version.id)
    assert len(kept) == 1
    store.database.execute("DELETE FROM snapshots")
    keep = tune_verbs._keep_snapshot
    monkeypatch.setattr(tune_verbs, "_keep_snapshot", lambda *call, is_now: keep(*call, is_now=False))
    tuned(lab, config())
    for thread in tuple(lab.compiler.pool._background._jobs):
        thread.join(60)
    assert store.snapshots.of_version(version.id) == kept


def test_snapshots_leave_the_store_with_their_version(tmp_path: Path) -> None:
    with shared_lab("cuda:90", tmp_path / "store") as lab:
        tuned(lab, config())
    with closing(Store(tmp_path / "store")) as store:
        version = store.find("scaled")
        assert version is not None
        assert len(store.snapshots.of_version(version.id)) == 1
        store.remove(version.id)
        assert store.database.rows("SELECT COUNT(*) FROM snapshots") == [(0,)]


@triton.jit
def flagged(x_ptr, out_ptr, FLAG: tl.constexpr, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + places, tl.load(x_ptr + places) * (2 if FLAG else 3))


def test_the_measured_config_of_a_winner_may_have_values_that_are_false(lab: kernellab.Lab) -> None:
    x, own = torch.rand(1 << 16), triton.Config({"FLAG": False, "BLOCK": 1024})
    lab.tune(lab.bind(flagged), grid, x, torch.empty_like(x), configs=[own])
    (winner,) = stored_winners(lab.kernels.store, "", triton.__version__)
    stored = Config.of(own.all_kwargs()).stored
    assert has_values(winner.launch, stored)
    assert not has_values(winner.launch, {**stored, "FLAG": True})


def test_launches_whose_integers_are_not_kept_are_not_timed_again(lab: kernellab.Lab) -> None:
    x, index = torch.rand(1 << 16), torch.randint(0, 1 << 16, (1 << 16,))
    lab.tune(lab.bind(gathered), grid, x, index, torch.empty_like(x), configs=[config()])
    (winner,) = stored_winners(lab.kernels.store, "", triton.__version__)
    same = snapshot()
    row = compared_row("gathered@1", winner.sizes, winner.config, same, same)
    again = retimed_row(lab.session(), replace(winner, measured={"BLOCK": 1024}), row).retimed
    assert again is not None
    assert (again.became, again.reason) == (TimeChange.INCOMPARABLE, NOT_KEPT)


@pytest.mark.gpu
def test_on_a_gpu_suspects_are_timed_again_and_equal_times_clear_them(tmp_path: Path) -> None:
    n = 1 << 24
    x = torch.rand(n, device="cuda")
    with kernellab.Lab(store=tmp_path) as lab:
        lab.tune(
            scaled, lambda meta: (triton.cdiv(n, meta["BLOCK"]),), x, torch.empty_like(x), n,
            configs=[config(1024), config(2048, 8)],
        )  # fmt: skip
    with kernellab.Lab(store=tmp_path) as lab:  # the snapshot of a winner comes at the end of the session at last
        store = lab.kernels.store
        version = store.find("scaled")
        assert version is not None
        rows = [replace(row.measurement, key=row.measurement.key.replace(triton.__version__, OTHER))
                for row in store.history.measurements(version.id)]  # fmt: skip
        store.database.execute("DELETE FROM measurements")
        store.history.add_measurements(version.id, rows)
        as_of_another_triton(store, predicted_ms=1e-4, loop_code={})
        (row,) = lab.upgrade().winners
        assert row.retimed is not None
        assert row.retimed.became is not TimeChange.INCOMPARABLE, row.retimed
        if row.retimed.became is TimeChange.SAME:  # not where another process uses the GPU
            assert row.outcome is UpgradeOutcome.CLEARED, row.retimed
