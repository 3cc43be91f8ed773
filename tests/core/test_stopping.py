import numpy as np

from vpem.core.blocks.weights import normalize
from vpem.core.decisions.stopping import has_converged, is_sharp


def test_each_root_looks_at_its_own_change_in_either_direction():
    history = [np.array([-2.0, -2.0, -2.0]), np.array([-1.9999, -2.0001, -1.9])]
    assert has_converged(history, 1e-3).tolist() == [True, True, False]


def test_one_value_is_no_change():
    assert not has_converged([np.array([-2.0, -3.0])], 1e9).any()
    assert not has_converged([], 1e9).any()


def test_sums_are_sharp_if_rounding_costs_less_than_the_tolerance():
    rng = np.random.default_rng(0)
    blur = 0.04
    assert is_sharp([0.0, blur], 1e-3)
    assert not is_sharp([0.0, 1.2 * blur], 1e-3)
    assert not is_sharp([np.inf], 1e9)
    assert is_sharp([], 0.0)
    log_joint = rng.normal(scale=3, size=(1000, 4))
    rounded, exact = (normalize(log_joint + errors)[0] for errors in (rng.choice([-blur, blur], (1000, 4)), 0.0))
    losses = (rounded * np.log(rounded / exact)).sum(axis=1)
    assert 0.5 < losses.max() / (blur**2 / 2) <= 1.01, "to second order"
