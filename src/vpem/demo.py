"""Demo: three parties fit one mixture to data of tumours: `python -m vpem.demo [PICTURE]`."""

from __future__ import annotations

import argparse
from typing import Any

from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture

from vpem import Consensus, VerticalGaussianMixture
from vpem.datasets import load_breast_cancer_parties
from vpem.metrics import clustering_accuracy

HEADER = ("method", "log-lik./row", "accuracy", "adj. Rand", "iterations", "messages", "bytes")


def default_picture(name: str) -> str | None:
    """Return the name if matplotlib is installed, or else None."""
    try:
        import matplotlib  # noqa: F401 (what is drawn with it is drawn later)
    except ModuleNotFoundError:
        return None
    return name


def run(picture: str | None) -> None:
    """Fit the models, print the table, and write the picture.

    Parameters
    ----------
    picture : str or None
        File of the picture. None: no picture is drawn, and a line at the start announces this.
    """
    if picture is None:
        print("There will be no picture, as matplotlib is missing: pip install 'vpem[figures]'\n")
    data = load_breast_cancer_parties()
    X, y = data.data, data.target
    settings: dict[str, Any] = {"n_components": 2, "tol": 1e-6, "max_iter": 200, "random_state": 0}
    centralized = GaussianMixture(**settings)
    federated = VerticalGaussianMixture(partition=data.partition, **settings)
    ring = VerticalGaussianMixture(partition=data.partition, graph="ring", summation=Consensus(100), **settings)
    methods = {
        "k-means (centralized)": KMeans(2, n_init=10, random_state=0),
        "EM (centralized)": centralized,
        "VP-EM, federated": federated,
        "VP-EM, on a ring": ring,
    }
    parties = ", ".join(data.partition)
    print(f"{len(X)} tumours, {X.shape[1]} raw columns; three parties hold ten each: {parties}\n")
    print("{:<22}{:>14}{:>10}{:>11}{:>12}{:>10}{:>13}".format(*HEADER))
    for name, model in methods.items():
        labels = model.fit(X).predict(X)
        score = "" if isinstance(model, KMeans) else f"{model.score(X):.4f}"
        quality = f"{clustering_accuracy(y, labels):>10.1%}{adjusted_rand_score(y, labels):>11.3f}"
        traffic = getattr(model, "traffic_", None)
        sent = f"{traffic.messages:>10,}{traffic.bytes:>13,}" if traffic else f"{'-':>10}{'-':>13}"
        print(f"{name:<22}{score or '-':>14}{quality}{model.n_iter_:>12}{sent}")
    print(
        f"""
No party sent a column. The centralized methods need all columns in one place; VP-EM needs one sum per iteration,
of 2 numbers a row. On the ring a sum takes 100 rounds between neighbours, the paper's setting (with three parties
one round would do). What the parties' terms reveal to those who see them: vpem docs privacy.
One more exact EM step would add {federated.certificate_.gain:.1e} per row to the federated fit; the
responsibilities of the ring's roots differ by at most {ring.disagreement_:.1e}.
"""
    )
    if picture is None:
        return
    from vpem.figures import plot_trajectories, save_figure

    trajectories = {name: model.lower_bounds_ for name, model in methods.items() if hasattr(model, "lower_bounds_")}
    figure = plot_trajectories(trajectories, "Breast cancer, columns split between three parties")
    save_figure(figure, picture)
    print(f"Log-likelihood trajectories: {picture}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m vpem.demo", description="Three parties fit one mixture.")
    parser.add_argument("picture", nargs="?", help="where to draw the trajectories (default: build/demo.png)")
    run(parser.parse_args().picture or default_picture("build/demo.png"))
