import numpy as np

from vpem.core.decisions.stopping import has_converged


def test_each_root_looks_at_its_own_change_in_either_direction():
    history = [np.array([-2.0, -2.0, -2.0]), np.array([-1.9999, -2.0001, -1.9])]
    assert has_converged(history, 1e-3).tolist() == [True, True, False]


def test_one_value_is_no_change():
    assert not has_converged([np.array([-2.0, -3.0])], 1e9).any()
    assert not has_converged([], 1e9).any()
