"""Who may import whom, and what the core must not touch; the rule is in docs/architecture.md."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import vpem

SOURCE = Path(vpem.__file__).parent

# Room to the rooms that it may import; every room may import itself.
MAY_IMPORT = {
    "core": set(),
    "simulation": {"core"},
    "transports": {"core"},
    "agents": {"core", "transports"},
    "planning": {"core", "privacy", "summations", "verdict"},
    "privacy": {"core"},
    "meaning": {"core", "verdict", "words"},
    "model": {"core", "meaning", "model_format", "overlap", "simulation", "verdict"},
    "words": set(),
    "report": {"core", "figures", "files", "meaning", "model", "overlap", "verdict"},
    "estimators": {
        "simulation",
        "core",
        "meaning",
        "model",
        "overlap",
        "privacy",
        "tables",
        "transports.inprocess",
        "verdict",
    },
    "verdict": {"overlap"},
    "overlap": {"words"},
    "metrics": set(),
    "figures": {"files", "meaning", "metrics", "model"},
    "datasets": {"downloading"},
    "downloading": {"files"},
    "files": set(),
    "tables": {"reading"},
    "reading": {"files", "overlap", "words"},
    "models": {"", "core", "estimators", "files", "model", "model_format", "overlap", "simulation", "verdict"},
    "summations": {"core"},
    "model_format": {"core", "summations"},
    "extend": {"core", "model_format"},
    "study": {"core", "reading"},
    "studies": {
        *("core", "datasets", "estimators", "files", "meaning", "model", "model_format", "models", "overlap"),
        *("planning", "privacy", "reading", "report", "simulation", "summations", "tables", "transports", "verdict"),
        "words",
    },
    "flower": {"core", "files", "planning", "privacy", "studies", "transports", "words"},
    "demo": {"", "datasets", "figures", "metrics"},
}
MAY_IMPORT_EVERYTHING = {"", "cli"}

# The same for the rooms of the core.
CORE_MAY_IMPORT = {
    "network": {"compiling", "buffer_pool", "zstd"},
    "buffer_pool": set(),
    "zstd": set(),
    "compiling": set(),
    "blocks": {"network", "rows", "buffer_pool", "compiling"},
    "decisions": {"network", "blocks", "rows"},
    "settings": {"network", "blocks"},
    "script": {"network", "blocks", "decisions", "settings", "rows", "buffer_pool"},
    "agent": {"network", "blocks", "decisions", "script", "settings", "rows", "buffer_pool"},
    "rows": set(),
}

# The core is pure: an allowed list, as a forbidden one would never be complete.
STANDARD = {"__future__", "abc", "collections", "contextlib", "dataclasses", "enum", "functools", "itertools", "math"}
CORE_MODULES = (
    STANDARD
    | {"numbers", "hashlib", "hmac", "typing", "msgspec", "numpy", "scipy", "numba", "networkx", "vpem"}
    | {"compression", "sys", "weakref", "zstandard"}
)
CORE_MUST_NOT_CALL = {"print", "open", "input", "exec", "eval", "compile", "__import__", "breakpoint"}
# Ways of numpy, scipy and networkx to reach a file or a clock; of numpy.random only these names.
CORE_MUST_NOT_USE = re.compile(r"(load|save|read_|write_|fromfile|tofile|memmap|genfromtxt|io$|datetime64|mm)")
CORE_RANDOM = {"Generator", "SeedSequence", "default_rng"}


def imported_modules(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are written out"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room_of(module):
    """`vpem.core.blocks.gaussian.Block` lives in "core"; `vpem` itself in ""."""
    parts = module.split(".")[1:]
    if not parts or not ((SOURCE / parts[0]).is_dir() or (SOURCE / f"{parts[0]}.py").is_file()):
        return ""
    return parts[0]


def forbidden_imports(room, code):
    """What a file of some room imports of ours and must not."""
    if room in MAY_IMPORT_EVERYTHING:
        return []
    allowed = MAY_IMPORT[room] | {room}
    ours = [module for module in imported_modules(ast.parse(code)) if module.split(".")[0] == "vpem"]
    return [
        module
        for module in ours
        if room_of(module) not in allowed and not any(module.startswith(f"vpem.{name}.") for name in allowed if name)
    ]


def impurities(code):
    """What a file of the core imports or calls and must not."""
    tree = ast.parse(code)
    found = [module for module in imported_modules(tree) if module.split(".")[0] not in CORE_MODULES]
    found += [
        module
        for module in imported_modules(tree)
        if any(CORE_MUST_NOT_USE.match(part) for part in module.split(".")[1:]) or "numpy.random" in module
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in CORE_MUST_NOT_CALL:
            found.append(node.id)
        if isinstance(node, ast.Attribute):
            of_random = isinstance(node.value, ast.Attribute) and node.value.attr == "random"
            if CORE_MUST_NOT_USE.match(node.attr) or (of_random and node.attr not in CORE_RANDOM):
                found.append(node.attr)
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "default_rng" and not node.args:
            found.append("default_rng without a seed")
    return found


FILES = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(SOURCE)) for path in FILES])
def test_every_room_imports_only_what_it_may(path):
    parts = path.relative_to(SOURCE).with_suffix("").parts
    room = "" if parts == ("__init__",) else parts[0]
    assert room in MAY_IMPORT or room in MAY_IMPORT_EVERYTHING, f"say what the room {room!r} may import"
    code = path.read_text()
    assert forbidden_imports(room, code) == []
    if room == "core" and parts[1:] != ("__init__",):
        assert impurities(code) == []
        core = [
            module.split(".")[2] for module in imported_modules(ast.parse(code)) if module.startswith("vpem.core.")
        ]
        assert set(core) <= CORE_MAY_IMPORT[parts[1]] | {parts[1]}


@pytest.mark.parametrize(
    ("room", "code"),
    [
        ("core", "from vpem.simulation.fit import em"),
        ("core", "import vpem.estimators"),
        ("core", "from vpem import Star"),
        ("simulation", "from vpem.estimators.mixture import VerticalGaussianMixture"),
        ("simulation", "from vpem import datasets"),
    ],
)
def test_the_rule_notices_imports(room, code):
    assert forbidden_imports(room, code)


@pytest.mark.parametrize(
    "code",
    [
        "import time",
        "from datetime import datetime",
        "import logging",
        "import threading",
        "import asyncio",
        "import socket",
        "import os.path",
        "from pathlib import Path",
        "import random",
        "print('hello')",
        "open('file')",
        "import numpy as np\nnp.load('file')",
        "import numpy as np\nnp.random.seed(0)",
        "import numpy as np\nnp.random.rand()",
        "import numpy as np\nnp.random.default_rng()",
        "import numpy as np\nnp.datetime64('now')",
        "from numpy import save",
        "from numpy import fromfile as f",
        "from numpy.random import rand",
        "from networkx import write_gml",
        "from scipy import io",
        "def f():\n    import time",
    ],
)
def test_the_rule_notices_impurity(code):
    assert impurities(code)


def test_compressed_consensus_is_imported_by_consensus_alone():
    folder = "vpem.core.network.compressed_consensus"
    users = {
        path for path in FILES if any(one.startswith(folder) for one in imported_modules(ast.parse(path.read_text())))
    }
    assert {path.name for path in users if path.parent.name != "compressed_consensus"} == {"consensus.py"}


def test_the_rule_allows_what_is_allowed():
    assert not impurities("import numpy as np\nfrom scipy import linalg\nfrom vpem.core.network.hubs import Hub")
    assert not forbidden_imports("estimators", "from vpem.core.blocks.arrays import Block")
    assert not forbidden_imports("demo", "from vpem import VerticalGaussianMixture")


# What only the estimators may touch


def private_names(tree):
    """Names with one underscore that a module's classes define or set on themselves."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for own in node.body:
                targets = [own.target] if isinstance(own, ast.AnnAssign) else getattr(own, "targets", [])
                yield from [getattr(own, "name", ""), *(getattr(target, "id", "") for target in targets)]
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield from [node.attr] * (getattr(node.value, "id", "") == "self")


def is_private(name):
    return name.startswith("_") and not name.startswith("__")


@cache
def of_estimators():
    trees = (ast.parse(path.read_text()) for path in (SOURCE / "estimators").glob("*.py"))
    return {name for tree in trees for name in private_names(tree) if is_private(name)}


def trespasses(code):
    """Where a module reads or sets private attributes of an estimator, or sets its fitted ones (`weights_`)."""
    tree = ast.parse(code)
    forbidden = of_estimators() - set(private_names(tree))
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") not in ("self", "cls"):
            is_set = not isinstance(node.ctx, ast.Load) and node.attr.endswith("_") and not node.attr.endswith("__")
            if node.attr in forbidden or is_set:
                found.append(f"line {node.lineno}: {node.attr}")
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in (
            "getattr",
            "hasattr",
            "setattr",
            "delattr",
        ):
            name = getattr(node.args[1], "value", "")
            if isinstance(name, str) and name in forbidden:
                found.append(f"line {node.lineno}: {name}")
    return found


def test_nothing_but_estimators_touches_their_attributes():
    assert {"_fitted", "_take", "_has_families", "_settings"} <= of_estimators()
    others = [path for path in FILES if path.relative_to(SOURCE).parts[0] != "estimators"]
    found = {str(path.relative_to(SOURCE)): trespasses(path.read_text()) for path in others}
    assert {name: where for name, where in found.items() if where} == {}


@pytest.mark.parametrize(
    "code",
    [
        "model._fitted",
        "model._fitted = other",
        "make()._settings()",
        "getattr(model, '_has_families', False)",
        "model.rows_ = count",
        "del model.feature_names_in_",
    ],
)
def test_the_rule_notices_trespasses(code):
    assert trespasses(code)


def test_the_rule_allows_values_and_own_attributes():
    assert not trespasses(
        "class A:\n    def f(self):\n        return self._fitted, model.weights_, row._replace(a=1)"
    )


def test_a_base_name_occurs_once():
    names = [path.stem for path in SOURCE.rglob("*.py") if path.stem != "__init__"]
    assert sorted(names) == sorted(set(names))
