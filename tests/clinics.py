"""Small studies of clinics, whose parties run as processes or in threads."""

import os
import struct
import subprocess
import sys
import threading
import warnings

import networkx as nx
import numpy as np

import vpem
from vpem.models import load
from vpem.reading import write
from vpem.studies.joining import join
from vpem.studies.local_trial import find_files, local_copy, make_keys
from vpem.studies.row_order import row_digests
from vpem.studies.shared_file import read_study
from vpem.studies.study_text import party_text

RESOLUTION = 1e-6
"""Of a fit under masks, beside the simulation's exact one; docs/privacy.md says what sums are rounded to."""
SALT = "00112233445566778899aabbccddeeff"
NAMES = ("north", "east", "south")
MASKED = 'sum = "masked"'
PROGRAM = [sys.executable, "-c", "from vpem.cli import main; main()"]


class Clinics:
    """A study in a folder, with its parties' tables, each in an order of its own."""

    def __init__(
        self,
        folder,
        *,
        links="tree",
        model="",
        network="",
        n_rows=80,
        lease="2s",
        patience="60s",
        seed=0,
        gaps=0,
        rows="",
        starts=2,
    ):
        self.folder = folder
        rng = np.random.default_rng(seed)
        self.ids = [f"p{number}" for number in range(n_rows)]
        group = np.arange(n_rows) % 2
        self.X = 100 * rng.normal(size=(n_rows, 6)) + 150 * group[:, None] + rng.normal(size=6) * 1000
        self.X.flat[rng.choice(self.X.size, gaps, replace=False)] = np.nan
        if "sum =" not in network:
            network = f'sum = "differences"\n{network}'
        server = '\n[network.server]\naddress = "127.0.0.1:1"' if links == "star" else ""
        text = f"""vpem = 1
name = "clinics"
seed = 3
lease = "{lease}"
patience = "{patience}"
[model]
components = 2
starts = {starts}
{model}
[network]
links = "{links}"
{network}{server}
[rows]
salt = "{SALT}"
{rows}
"""
        text += "".join(f'[parties.{name}]\naddress = "127.0.0.1:{place + 2}"\n' for place, name in enumerate(NAMES))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "study.toml").write_text(text)
        for place, name in enumerate(NAMES):
            (folder / name).mkdir()
            (folder / name / "clinic.toml").write_text(party_text(name, "table.csv", ["patient"]))
            self.write_table(name, place, folder / name / "table.csv", self.ids, self.X, rng.permutation(n_rows))

    def write_table(self, name, place, path, ids, X, order):
        columns = {f"{name}_{number}": X[order, 2 * place + number] for number in range(2)}
        columns = {name: [None if np.isnan(one) else one for one in values] for name, values in columns.items()}
        write(path, {"patient": [ids[row] for row in order], **columns})

    def replace(self, X):
        """Write the parties' tables again, with other values."""
        self.X = X
        for place, name in enumerate(NAMES):
            path = self.folder / name / "table.csv"
            path.unlink()
            self.write_table(name, place, path, self.ids, X, np.arange(len(X)))

    @property
    def study(self):
        return read_study(self.folder / "study.toml")

    def expected(self, names=NAMES):
        """The simulation's fit of these parties' columns, with the rows in the study's order."""
        study = self.study
        order = np.argsort(row_digests([(one,) for one in self.ids], SALT, len(self.ids)))
        graph = "star"
        if study.server is None:
            kept = nx.Graph(list(study.links)).subgraph(map(NAMES.index, names))
            graph = nx.relabel_nodes(kept, {NAMES.index(name): place for place, name in enumerate(names)})
        partition = {name: [2 * place, 2 * place + 1] for place, name in enumerate(names)}
        model = study.estimator().set_params(partition=partition, graph=graph)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", vpem.FitWarning)  # of fits that are to take long
            return model.fit(self.columns(self.X, names)[order])

    @staticmethod
    def columns(X, names):
        """Columns of these parties."""
        return X[:, [2 * NAMES.index(name) + number for name in names for number in range(2)]]

    def copy(self):
        """The shared file with free ports."""
        return local_copy(self.study, self.folder)

    def process(self, copy, name, *options, command="join", secure=False):
        """The program as one party, or as the server."""
        who = ["--server"] if name == "server" else ["--party", str(self.folder / name / "clinic.toml")]
        arguments = [*PROGRAM, command, str(copy), *who, *([] if secure else ["--insecure"]), *map(str, options)]
        return subprocess.Popen(
            arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ
        )

    def new_rows(self, X, absent=(), prefix="new"):
        """Tables `new.csv` of these rows in the parties' folders, each in another order; the rows' ids."""
        ids, rng = [f"{prefix}{row}" for row in range(len(X))], np.random.default_rng(5)
        for place, name in enumerate(NAMES):
            path = self.folder / name / "new.csv"
            path.unlink(missing_ok=True)
            if name in absent:
                write(path, {"patient": ids})
            else:
                self.write_table(name, place, path, ids, X, rng.permutation(len(X)))
        return ids

    def threads(self, run=None, names=None):
        """All parties in threads of this process; what each returns or raises, by name."""
        study = read_study(self.copy())
        files, found = find_files(study, self.folder), {}
        run = run or (lambda study, own: join(study, own, insecure=True, progress=False))

        def take_part(name):
            try:
                found[name] = run(study, files[name])
            except Exception as error:
                found[name] = error

        threads = [threading.Thread(target=take_part, args=(name,)) for name in names or study.names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found


class MaskedClinics(Clinics):
    """Under masks, with keys."""

    def __init__(self, folder, model='init = "random"\ntol = 0\nmax_iter = 4', **arguments):
        super().__init__(folder, links="star", network='sum = "masked"', model=model, starts=1, **arguments)
        make_keys(self.study, find_files(self.study, folder))


def check_models(clinics, tolerance):
    """Each party's folder has its part of the simulation's model."""
    expected = clinics.expected()
    for place, name in enumerate(NAMES):
        folder = clinics.folder / name / "results"
        found = load(folder / "model.vpem")
        np.testing.assert_allclose(found.weights_, expected.weights_, rtol=0, atol=tolerance)
        np.testing.assert_allclose(found.means_, expected.means_[:, [2 * place, 2 * place + 1]], rtol=tolerance)
        written = {"rows.csv", "report.html", "verdict.json", "ledger.jsonl", "state", "log.jsonl"}
        assert written <= {one.name for one in folder.iterdir()}
    return expected


class Unmatched(Clinics):
    """Parties with rows of their own beside common ones, in orders of their own."""

    def __init__(self, folder, join="inner", model='init = "random"', called="p", **arguments):
        super().__init__(
            folder, network=MASKED, rows=f'match = "{join}"\nspelling = "text"', model=model, **arguments
        )
        self.ids = [f"{called}{number}" for number in range(len(self.ids))]
        rng = np.random.default_rng(9)
        self.held = {}
        for place, name in enumerate(NAMES):
            lacks = set(rng.choice(len(self.ids), 6, replace=False).tolist())
            order = np.array([row for row in rng.permutation(len(self.ids)) if row not in lacks])
            self.held[name] = sorted(order.tolist())
            spelled = [f" {one.upper()} " if place == 1 else one for one in self.ids]
            self.write_table(name, place, folder / name / "table.csv", spelled, self.X, order)
        study = read_study(self.folder / "study.toml")
        make_keys(study, find_files(study, self.folder))

    def joined(self, how):
        """The joined table, and its ids."""
        sets = [set(own) for own in self.held.values()]
        rows = sorted(set.intersection(*sets) if how == "inner" else set.union(*sets))
        X = self.X.copy()
        for place, name in enumerate(NAMES):
            X[[row for row in range(len(X)) if row not in self.held[name]], 2 * place : 2 * place + 2] = np.nan
        return X[rows], [self.ids[row] for row in rows]


def secure(study, own):
    """Take part with certificates."""
    return join(study, own, progress=False)


def found_in(content, X):
    """Values of a table that are in some bytes, as numbers or as text of nine characters: fewer occur by chance."""
    numbers = X[~np.isnan(X)].tolist()
    binary = [one for one in numbers if struct.pack("<d", one) in content or struct.pack(">d", one) in content]
    return binary + [one for one in numbers if repr(one)[:9].encode() in content]
