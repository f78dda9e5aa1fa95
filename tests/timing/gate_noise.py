"""Simulated times of two kernels with the noise of a GPU: jitter, drift, outliers, clocks, interference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from kernellab.timing.gate import GateTiming, GateVerdict, time_until_decided

ROUND_S = 3e-4  # two launches and two flushes
JITTER = 0.01
Disturbance = Callable[[np.random.Generator, np.ndarray], np.ndarray]
"""Factors of both kernels' times, a row of two per round, from the numbers of the rounds."""


def jitter(random: np.random.Generator, rounds: np.ndarray) -> np.ndarray:
    """Normal noise alone."""
    return np.ones((len(rounds), 2))


def drift(random: np.random.Generator, rounds: np.ndarray) -> np.ndarray:
    """A device that becomes slower by 5 % in a second, and fast again."""
    return np.repeat(1 + 0.05 * np.abs(np.sin(rounds[:, None] * ROUND_S * 1.5)), 2, axis=1)


def outliers(random: np.random.Generator, rounds: np.ndarray) -> np.ndarray:
    """A twentieth of the samples take half as long again to five times as long."""
    factors = random.uniform(1.5, 5.0, (len(rounds), 2))
    return np.where(random.random((len(rounds), 2)) < 0.05, factors, 1.0)


def two_clocks(random: np.random.Generator, rounds: np.ndarray) -> np.ndarray:
    """Each launch at one of two clocks 4 % apart, at random."""
    return np.where(random.random((len(rounds), 2)) < 0.5, 1.04, 1.0)


def switching_clock(random: np.random.Generator, rounds: np.ndarray) -> np.ndarray:
    """A clock that dwells at one of two values 8 % apart for some 200 rounds, for both kernels."""
    switches = np.cumsum(random.random(len(rounds)) < 1 / 200)
    return np.repeat(np.where(switches[:, None] % 2 == 0, 1.0, 1.08), 2, axis=1)


def wandering(random: np.random.Generator, rounds: np.ndarray) -> np.ndarray:
    """The second kernel's time wanders by 0.4 % around its mean, with neighbours alike for some 10 rounds."""
    steps = random.normal(0, 0.004 * np.sqrt(1 - 0.9**2), len(rounds))
    walk, value = np.empty(len(rounds)), random.normal(0, 0.004)
    for i, step in enumerate(steps):
        value = 0.9 * value + step
        walk[i] = value
    return np.stack([np.ones(len(rounds)), 1 + walk], axis=1)


def burst(random: np.random.Generator, rounds: np.ndarray) -> np.ndarray:
    """Another program makes the second kernel 10 % slower for the first tenth of a second."""
    return np.stack([np.ones(len(rounds)), np.where(rounds * ROUND_S < 0.1, 1.1, 1.0)], axis=1)


DISTURBANCES: dict[str, Disturbance] = {
    function.__name__: function for function in (jitter, drift, outliers, two_clocks, switching_clock, wandering, burst)
}


def simulated_gate(
    disturbance: Disturbance, slowdown: float, gate: float, seed: int, budget_s: float = 10.0
) -> tuple[GateVerdict, GateTiming]:
    """Run a gate on simulated times, on a clock of its own."""
    random, done = np.random.default_rng(seed), [0]

    def sample_rounds(rounds: int) -> Sequence[Sequence[float]]:
        numbers = np.arange(done[0], done[0] + rounds)
        done[0] += rounds
        times = 0.05 * disturbance(random, numbers) * np.exp(random.normal(0, JITTER, (rounds, 2)))
        return [times[:, 0].tolist(), (times[:, 1] * (1 + slowdown)).tolist()]

    return time_until_decided(sample_rounds, gate, budget_s, lambda: done[0] * ROUND_S)


def verdict_counts(
    disturbance: Disturbance, slowdown: float, gate: float, runs: int, budget_s: float = 10.0
) -> dict[GateVerdict, int]:
    """The number of each verdict over some simulated runs, with the seeds 0, 1, ..."""
    run = partial(simulated_gate, disturbance, slowdown, gate, budget_s=budget_s)
    verdicts = [run(seed)[0] for seed in range(runs)]
    return {verdict: verdicts.count(verdict) for verdict in GateVerdict if verdict in verdicts}
