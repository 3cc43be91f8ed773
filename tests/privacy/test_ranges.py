"""Totals never leave their range: against whole numbers of Python, and against parties that add garbage."""

import math
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles import flat
from studies import make_study, run
from vpem import Masked, Star
from vpem.core.network.parties import make_network
from vpem.core.network.sums import NO_MEMORY, Place, Series, Shape, SumKind, WrongMessageError
from vpem.privacy import fixed_point, masked_deltas, masks
from vpem.privacy.fixed_point import WHOLE, Format
from vpem.privacy.masks import COUNTS, FIRST, N_EXTRA


class Quick(Masked):
    """Masks of a pair from a seed: keys of a hundred parties would take a second."""

    def streams(self, place, roots, n_bytes):
        pairs = {peer: sorted((peer, place.position)) for peer in roots if peer != place.position}
        return {
            peer: np.random.default_rng(pair).integers(256, size=n_bytes, dtype=np.uint8)
            for peer, pair in pairs.items()
        }


def opened(terms, series, carries):
    """Words of the total at the server, as whole numbers with a sign; and what all get of them."""
    n, n_rows, width = terms.shape
    network = make_network({k: [k] for k in range(n)}, "star", 0, np.random.default_rng(0))
    summation, shape, kept = Quick(Star()), Shape(n_rows, width), []
    places = [Place(network, k, shape, series, 0, 0, {}, None) for k in network.positions]
    states = [
        summation.begin(place, carry, term)
        for place, carry, term in zip(places, carries, [*(one for one in flat(terms)), None], strict=True)
    ]
    sent = {k: summation.message(places[k], 0, states[k]) for k in range(n)}
    original = masks._open

    def watch(place, state, head, entries):
        kept.append(entries)
        return original(place, state, head, entries)

    with mock.patch.object(masks, "_open", watch):
        state = summation.combine(places[n], 0, states[n], sent)
    [found] = kept
    size = 8 * found.dtype.itemsize * found.ndim
    whole = [int(one[0]) + (int(one[1]) << 64) for one in found] if found.ndim == 2 else [int(one) for one in found]
    return [one - 2**size if one >= 2 ** (size - 1) else one for one in whole], summation.end(places[n], state)[0]


def clipped(value, form, n):
    """A party's whole number, from the definition: clipped to what N parties may add, in units."""
    limit = Fraction(2) ** (8 * form.n_bytes - 2 + form.exponent - math.ceil(math.log2(n)))
    exact = max(-limit, min(limit, Fraction(float(value)))) / Fraction(2) ** form.exponent
    return math.trunc(exact) if form.n_bytes == 16 else round(exact)


def any_numbers(seed, n, n_rows, width, most=100):
    """Small, large and far too large ones, of both signs."""
    rng = np.random.default_rng(seed)
    sizes = 10.0 ** rng.uniform(-30, most, size=(n, n_rows, width))
    return rng.choice([-1.0, 0.0, 1.0], size=sizes.shape) * np.where(rng.random(sizes.shape) < 0.3, sizes, sizes**0.1)


KINDS = {
    "first": (Series(SumKind.ITERATE), FIRST, {}),
    "whole": (Series(), WHOLE, {}),
    "later": (Series(SumKind.CLUSTER), Format(8, -20), {"exponent": np.array([-20.0])}),
}


@settings(max_examples=30)
@given(st.integers(0, 2**32), st.integers(2, 100), st.sampled_from(sorted(KINDS)))
def test_a_total_is_exactly_the_sum_of_the_clipped_terms(seed, n, kind):
    series, form, carry = KINDS[kind]
    terms = any_numbers(seed, n, 2, 2)
    found, values = opened(terms, series, [carry] * (n + 1))
    expected = [sum(clipped(value, form, n) for value in terms[:, row, k]) for k in range(2) for row in range(2)]
    assert found == expected
    assert all(abs(one) <= 2 ** (8 * form.n_bytes - 2) for one in found), "with a bit to spare"
    unit = 2.0**form.exponent
    # Sixteen bytes are turned into a double in two halves, each rounded.
    np.testing.assert_allclose(values, [float(one) * unit for one in expected], rtol=2.0**-51, atol=0)


@settings(max_examples=30)
@given(st.integers(0, 2**32), st.integers(2, 100), st.integers(-40, 40))
def test_a_total_of_changes_is_exactly_the_sum_of_the_clipped_changes(seed, n, exponent):
    before, terms = any_numbers(seed, n, 3, 2, 5), any_numbers(seed + 1, n, 3, 2, 30)
    total, unit = before.sum(axis=0), 2.0**exponent
    common = {"total": total, "exponent": np.array([float(exponent)]), "present": np.ones(3, dtype=np.uint8)}
    carries = [*({**common, "sent": own} for own in before), common]
    found, _ = opened(terms, Series(SumKind.ITERATE), carries)
    most, expected = 2**23 - 1, []
    for row in range(3):
        leader = int(total[row, 1] > total[row, 0])
        now = terms[:, row, 1 - leader] - terms[:, row, leader]
        change = now - (before[:, row, 1 - leader] - before[:, row, leader])
        expected.append(sum(max(-most, min(most, round(one / unit))) for one in change.tolist()))
    assert found == expected
    assert all(abs(one) <= n * most < 2**31 for one in found)


def test_up_to_256_parties_the_largest_changes_fit_a_word_of_four_bytes():
    assert 256 * masked_deltas.MOST < 2**31 <= 257 * 2**23


# A party that adds something else


def spoil(kind, position=1):
    """A party whose words of one kind of sum are something else, under its masks; how often it was so."""
    original, done = Masked.begin, []

    def begin(self, place, carry, term):
        state = original(self, place, carry, term)
        is_later = "exponent" in carry
        wanted = SumKind.ITERATE if kind in ("first", "changes") else SumKind(kind)
        if place.position == position and place.series.kind is wanted and is_later == (kind == "changes"):
            out, head = state["out"].copy(), 16 * (place.shape.n_scalars + N_EXTRA)
            form = masks._form(place, carry)
            entries = fixed_point.read(out[head:], form)
            top = np.zeros(len(entries) * form.n_bytes, np.uint8)
            top[form.n_bytes - 1 :: form.n_bytes] = 0x60  # three eighths of the range
            out[head:] = np.frombuffer(
                fixed_point.write(fixed_point.add(entries, fixed_point.read(top, form))), np.uint8
            )
            state["out"] = out
            done.append(place.number)
        return state

    return mock.patch.object(Masked, "begin", begin), done


@pytest.mark.parametrize("kind", ["holders", "first", "changes", "cluster"])
def test_a_party_that_adds_what_cannot_be_ends_the_study_at_all(kind):
    start = "kmeans" if kind == "cluster" else "random"
    agents, _ = make_study("star", summation=Masked(Star()), init_params=start, max_iter=4)
    patch, done = spoil(kind)
    with patch:
        run(agents)
    assert done
    for agent in agents:
        assert "a party has added something else than its own term" in agent.failure
        assert agent.model is None


@pytest.mark.parametrize("numbers", [[0, 1, 5], [-1, 3, 3], [2**30, 3, 3]])
def test_a_server_that_tells_counts_that_cannot_be_is_named(numbers):
    network = make_network({k: [k] for k in range(3)}, "star", 0, np.random.default_rng(0))
    place = Place(network, 0, Shape(3, 1), Series(SumKind.HOLDERS), 0, 0, {}, None)
    content = masked_deltas.pack(np.array(numbers, dtype=np.int32))
    message = np.frombuffer(np.array([0.0, 0.0, 3.0], "<f8").tobytes() + content, np.uint8)
    assert masks._form(place, NO_MEMORY) == COUNTS
    with pytest.raises(WrongMessageError, match="within its range") as caught:
        Quick(Star()).combine(place, 1, {"out": message}, {network.server: message})
    assert caught.value.sender == network.server
