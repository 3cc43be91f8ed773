"""Weights of rows, which no estimator takes: said in words, where scikit-learn's users would give them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def counts_each_row_once(method: Callable[P, R]) -> Callable[P, R]:
    """A method that refuses `sample_weight`, by name or behind its other arguments, and says what to do instead.

    The argument is not part of the signature, from which scikit-learn would take that it has an effect.
    """
    most = sum(one.kind == one.POSITIONAL_OR_KEYWORD for one in signature(method).parameters.values())

    @wraps(method)
    def refusing(*args: P.args, **kwargs: P.kwargs) -> R:
        given = [kwargs.pop("sample_weight", None), *args[most:]]
        if any(weights is not None for weights in given):
            raise TypeError(
                f"expected no sample_weight, got one: {type(args[0]).__name__}.{method.__name__} counts each row "
                "once; leave out rows of weight 0, and repeat rows of other whole weights, as "
                "X[np.repeat(np.arange(len(X)), sample_weight)]; for weights with fractions draw rows, as "
                "X[rng.choice(len(X), size=len(X), p=sample_weight / sample_weight.sum())]"
            )
        return method(*args, **kwargs)

    return refusing
