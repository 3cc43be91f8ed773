"""Refusal of `sample_weight`, which users of scikit-learn may pass."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def counts_each_row_once(method: Callable[P, R]) -> Callable[P, R]:
    """Decorate a method so that it refuses `sample_weight`, by keyword or position, with a remedy.

    The argument is not in the signature: scikit-learn would then test its effect.
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
