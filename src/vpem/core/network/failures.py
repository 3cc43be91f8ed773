"""Simulated failures of links: random or listed, and the same for every agent and in every process."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpem.core.network.parties import Network

Truths = NDArray[np.bool_]
Integers = NDArray[np.int64]

LINKS, MESSAGES = 0, 1
"""Kinds of failures: of a link in both directions, or of a single message."""

FEWEST_ROUNDS = 64
"""Minimum number of rounds that are drawn at a time."""


@dataclass(frozen=True)
class Failures:
    """Links that fail for some rounds of a sum.

    Every failure is a function of the seed, the number of the sum, the round and the link, in any order and in any
    process. In a sum whose agents know the working links (`Consensus`), a link fails in both directions. In one
    whose agents need not know them (`RunningSums`), each direction fails independently.

    Parameters
    ----------
    probability : float, default=0.0
        Share of the rounds in which a link fails, from 0 to less than 1.
    burst : float, optional
        Mean number of consecutive rounds of a failure within a sum, 1 or more. None: rounds are drawn independently,
        so that it is `1 / (1 - probability)`.
    seed : int, default=0
    listed : sequence of (round, sender, receiver), optional
        Failures that happen in every sum: the round of averaging, from 0 on, or None for all rounds, and the names
        of two linked parties. If links fail in both directions, the order of the two does not matter.

    Examples
    --------
    A tenth of the messages, three rounds in a row on average; and a link that never works:

    >>> Failures(0.1, burst=3, listed=[(None, "bank", "shop")])
    Failures(probability=0.1, burst=3, seed=0, listed=((None, 'bank', 'shop'),))
    """

    probability: float = 0.0
    burst: float | None = None
    seed: int = 0
    listed: tuple[tuple[int | None, str, str], ...] = ()

    def __post_init__(self) -> None:
        share, burst = self.probability, self.burst
        if not _is_number(share) or not 0 <= share < 1:
            raise ValueError(f"expected the probability of a failure from 0 to less than 1, got {share!r}")
        if burst is not None and (not _is_number(burst) or not max(1.0, share / (1 - share)) <= burst < np.inf):
            raise ValueError(
                f"expected failures that last burst={max(1.0, share / (1 - share)):g} rounds or more, to have them "
                f"in {share:.0%} of the rounds, got {burst!r}; try burst=None"
            )
        if not isinstance(self.seed, Integral) or isinstance(self.seed, bool) or not 0 <= self.seed < 2**62:
            raise ValueError(f"expected a seed from 0 on, got {self.seed!r}")
        object.__setattr__(self, "listed", tuple(map(_read, self.listed)))

    def check(self, network: Network) -> None:
        """Raise ValueError if a failure is listed for a link that does not exist."""
        _listed_pairs(self, network)

    def links(self, network: Network, count: int, number: int) -> Truths:
        """Return True for each link that fails, (n_links,), in the order of `link_pairs`.

        Parameters
        ----------
        network : Network
        count : int
            Count of the sum; see `vpem.core.network.sums.Place`.
        number : int
            Number of the round of averaging, from 0 on.
        """
        return self._find(network, LINKS, count, number)

    def messages(self, network: Network, count: int, number: int) -> Truths:
        """Return True for each lost message, (2 * n_links,): first from the lower to the higher ends, then back."""
        return self._find(network, MESSAGES, count, number)

    def loses(self, network: Network, count: int, number: int, sender: int, receiver: int) -> bool:
        """True if one message is lost; sender and receiver by position."""
        return bool(self.messages(network, count, number)[message_numbers(network)[sender, receiver]])

    def _find(self, network: Network, what: int, count: int, number: int) -> Truths:
        """Return the failures of one round from the cached sums; at any time, agents are in at most two sums."""
        known: dict[int, Truths] = network.remember(("failures", self, what), lambda _: {})
        found = known.get(count)
        if found is None or len(found) <= number:
            n_rounds = FEWEST_ROUNDS
            while n_rounds <= number:
                n_rounds *= 2
            found = known[count] = self._draw(network, what, count, n_rounds)
            for old in [other for other in list(known) if other < count - 1]:
                known.pop(old, None)
        now: Truths = found[number]
        return now

    def _draw(self, network: Network, what: int, count: int, n_rounds: int) -> Truths:
        """Draw all failures of a sum, (n_rounds, n); more rounds do not change the first ones."""
        pairs = link_pairs(network)
        if what == MESSAGES:
            pairs = np.concatenate([pairs, pairs[:, ::-1]])
        found = np.zeros((n_rounds, len(pairs)), dtype=bool)
        if self.probability > 0:
            keys = [[self.seed, what, count, *pair] for pair in pairs.tolist()]
            draws = np.column_stack([np.random.default_rng(key).random(n_rounds) for key in keys])
            found = draws < self.probability
            if self.burst is not None:
                begins = self.probability / (self.burst * (1 - self.probability))
                for now in range(1, n_rounds):
                    found[now] = draws[now] < np.where(found[now - 1], 1 - 1 / self.burst, begins)
        for number, sender, receiver in _listed_pairs(self, network):
            pair = (sender, receiver) if what == MESSAGES else (min(sender, receiver), max(sender, receiver))
            found[slice(None) if number is None else slice(number, number + 1), message_numbers(network)[pair]] = True
        return found


def link_pairs(network: Network) -> Integers:
    """Positions of the two ends of each link, the lower one first; shape (n_links, 2)."""

    def find(network: Network) -> Integers:
        pairs = sorted((min(pair), max(pair)) for pair in network.links.edges)
        return np.array(pairs, dtype=np.int64).reshape(-1, 2)

    found: Integers = network.remember(link_pairs, find)
    return found


def message_numbers(network: Network) -> dict[tuple[int, int], int]:
    """Index in `Failures.messages` by sender and receiver; from the lower end, it is the index of the link."""

    def find(network: Network) -> dict[tuple[int, int], int]:
        pairs = link_pairs(network)
        both = np.concatenate([pairs, pairs[:, ::-1]]).tolist()
        return {(sender, receiver): number for number, (sender, receiver) in enumerate(both)}

    found: dict[tuple[int, int], int] = network.remember(message_numbers, find)
    return found


def _listed_pairs(failures: Failures, network: Network) -> list[tuple[int | None, int, int]]:
    """Return the listed failures by position."""
    position_of = {str(name): position for position, name in enumerate(network.agents)}
    found = []
    for number, *names in failures.listed:
        pair = tuple(position_of.get(name, -1) for name in names)
        if pair not in message_numbers(network):
            raise ValueError(
                f"expected listed failures of links of this network, got one between {names[0]!r} and {names[1]!r}; "
                f"its parties are {', '.join(map(repr, position_of))}"
            )
        found.append((number, *pair))
    return found


def _read(entry: Any) -> tuple[int | None, str, str]:
    """Validate a listed failure."""
    is_listed = isinstance(entry, tuple | list) and len(entry) == 3
    number = entry[0] if is_listed else -1
    is_whole = isinstance(number, Integral) and not isinstance(number, bool)
    is_round = number is None or (is_whole and int(number) >= 0)
    if not is_listed or not is_round:
        raise ValueError(
            f"expected failures as (round, sender, receiver), the round from 0 on, or None for all, got {entry!r}"
        )
    return None if number is None else int(number), str(entry[1]), str(entry[2])


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
