"""Numbers as integers modulo a power of two, against whole numbers of Python."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vpem.privacy import fixed_point, masked_deltas
from vpem.privacy.fixed_point import WHOLE, Format

FORMS = [Format(4, -10), Format(8, -20), WHOLE]
SIZES = {4: 2.0**18, 8: 2.0**40, 16: 2.0**60}


def as_integers(found, form):
    if form.n_bytes == 16:
        return [int(low) + (int(high) << 64) for low, high in found]
    return [int(word) for word in found]


@given(st.lists(st.floats(-1, 1, allow_subnormal=False), min_size=1, max_size=20), st.sampled_from(FORMS))
def test_words_are_rounded_numbers_and_come_back(values, form):
    values = np.array(values) * SIZES[form.n_bytes]
    found = fixed_point.encode(values, form)
    modulus = 2 ** (8 * form.n_bytes)
    for value, whole in zip(values, as_integers(found, form), strict=True):
        signed = whole - modulus if whole >= modulus // 2 else whole
        # Half a unit, or the double's own rounding where a unit is finer than that.
        assert abs(signed - value * 2.0**-form.exponent) <= max(1.0, abs(value) * 2.0 ** (-form.exponent - 52))
    error = np.abs(fixed_point.decode(found, form) - values)
    assert (error <= np.maximum(2.0**form.exponent, np.abs(values) * 2.0**-52)).all()
    np.testing.assert_array_equal(fixed_point.read(np.frombuffer(fixed_point.write(found), np.uint8), form), found)


@given(st.integers(1, 30), st.sampled_from(FORMS), st.integers(0, 2**32))
def test_sums_are_those_of_whole_numbers(n, form, seed):
    rng = np.random.default_rng(seed)
    one, other = (fixed_point.read(rng.integers(256, size=n * form.n_bytes, dtype=np.uint8), form) for _ in range(2))
    modulus = 2 ** (8 * form.n_bytes)
    pairs = list(zip(as_integers(one, form), as_integers(other, form), strict=True))
    assert as_integers(fixed_point.add(one, other), form) == [(a + b) % modulus for a, b in pairs]
    assert as_integers(fixed_point.subtract(one, other), form) == [(a - b) % modulus for a, b in pairs]


@given(st.integers(2, 300), st.sampled_from(FORMS))
def test_a_sum_of_the_largest_terms_is_in_range(n_terms, form):
    value = np.array([form.limit(n_terms)])
    total = fixed_point.zeros(1, form)
    for _ in range(n_terms):
        total = fixed_point.add(total, fixed_point.encode(value, form))
    assert fixed_point.decode(total, form) == pytest.approx(n_terms * value)


@given(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=50), st.sampled_from([4, 8]))
def test_totals_are_packed_and_unpacked(numbers, n_bytes):
    numbers = np.array(numbers, dtype=np.int32 if n_bytes == 4 else np.int64)
    np.testing.assert_array_equal(masked_deltas.unpack(masked_deltas.pack(numbers), len(numbers), n_bytes), numbers)


@settings(max_examples=30)
@given(st.integers(0, 2**32), st.integers(2, 5), st.integers(1, 4))
def test_what_a_sum_leaves_out_comes_with_the_next(seed, n_components, n_parties):
    """Parties' memories add up to the public total, and what is left shrinks to the unit."""
    rng = np.random.default_rng(seed)
    terms = rng.standard_t(1, size=(n_parties, 40, n_components)) * 100
    total = terms.sum(axis=0)
    exponent = masked_deltas.next_exponent(np.zeros_like(total), total, n_parties)
    common = {"total": total, "exponent": exponent, "present": np.ones(40, dtype=np.uint8)}
    sent = list(terms)
    terms = terms + rng.standard_t(1, size=terms.shape)
    for _ in range(60):
        found = [
            masked_deltas.find(term, {**common, "sent": before}, n_parties)
            for term, before in zip(terms, sent, strict=True)
        ]
        sent = [after for _, after, _ in found]
        extra = sum(own for *_, own in found)
        _, total, exponent, present, blurs = masked_deltas.take(
            sum(numbers for numbers, *_ in found), *extra.tolist(), np.empty(0), common, n_parties
        )
        common = {"total": total, "exponent": exponent, "present": present, "blurs": blurs}
    leaders = total.argmax(axis=1)[:, None]

    def ratios(sums):
        return sums - np.take_along_axis(sums, leaders, axis=1)

    np.testing.assert_allclose(ratios(total), ratios(sum(sent)), atol=1e-9 * np.abs(total).max())
    behind = -ratios(total)
    error = np.abs(ratios(total) - ratios(terms.sum(axis=0)))
    assert (error <= np.maximum(1e-9 * np.abs(terms).max(), n_parties * np.maximum(behind - 25, 0) / 4)).all()


def test_what_does_not_fit_comes_whole_with_the_next_sum_and_other_rows_keep_their_digits():
    total = np.tile([0.0, -1.0], (40, 1))
    common = {"total": total, "exponent": np.array([-20.0]), "present": np.ones(40, dtype=np.uint8)}
    terms = total + np.array([0.0, 1e-5])
    terms[0, 1] = 1e6  # 2^40 units
    sent = total
    for n_clipped, is_wide_next in ((1, True), (0, False)):
        numbers, sent, extra = masked_deltas.find(terms, {**common, "sent": sent}, 3)
        assert extra[1] == n_clipped
        _, total, exponent, present, blurs = masked_deltas.take(numbers, *extra.tolist(), np.empty(0), common, 3)
        common = {"total": total, "exponent": exponent, "present": present, "blurs": blurs}
        assert masked_deltas.is_wide(common) == is_wide_next
    np.testing.assert_allclose(*(np.diff(one) for one in (total, terms)), rtol=0, atol=2.0**-25)
    assert blurs.tolist() == [0.0, np.inf, 3 * 2.0**-25]
    assert exponent <= -5 - 2, "no unit is coarse"


@pytest.mark.parametrize("far", [1e14, 1e29, 1e300])
def test_terms_that_are_far_apart_are_told_in_a_few_sums(far):
    """Columns of large values and a component on one of them: without an end to clipping, EM would have none."""
    total = np.tile([0.0, -1.0], (40, 1))
    common = {"total": total, "exponent": np.array([-20.0]), "present": np.ones(40, dtype=np.uint8)}
    terms, sent, n_sums, n_clipped = total.copy(), total, 0, 1
    terms[0] = [-far, -1.0]
    while n_clipped:
        numbers, sent, extra = masked_deltas.find(terms, {**common, "sent": sent}, 3)
        _, total, exponent, present, blurs = masked_deltas.take(numbers, *extra.tolist(), np.empty(0), common, 3)
        common = {"total": total, "exponent": exponent, "present": present, "blurs": blurs}
        n_sums, n_clipped = n_sums + 1, extra[1]
    assert n_sums <= 8
    assert np.diff(total[0]) == pytest.approx(min(far, 2.0**100), rel=1e-9)
    np.testing.assert_array_equal(total[1:], terms[1:])
    assert exponent < 0
