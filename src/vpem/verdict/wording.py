"""Findings in the words of whoever asked: Python's arguments, the program's options, or the fields of a study."""

from __future__ import annotations

import re
from collections.abc import Callable

from vpem.verdict.findings import Finding

FIELDS = {
    "n_components": "components",
    "covariance_type": "covariance",
    "n_init": "starts",
    "init_params": "init",
    **{name: name for name in ("max_iter", "tol", "reg_covar", "shrinkage", "standardize", "graph", "rounds")},
}
"""Arguments of the estimators, and what the program and study files call them."""

ARGUMENT = re.compile(rf"\b({'|'.join(FIELDS)})\b(?:=('[^']*'|[\w.]+))?")
FAMILIES = "VerticalMixture(families='auto')"

Wording = Callable[[Finding], Finding]


def in_python(finding: Finding) -> Finding:
    """Return the finding as it is: rules name Python's arguments."""
    return finding


def in_program(finding: Finding) -> Finding:
    """Name the program's options, as `--starts 20` for `n_init=20`."""

    def option(found: re.Match[str]) -> str:
        name, value = found.groups()
        shown = "" if value in (None, "True") else f" {value.strip(chr(39))}"
        return f"--{FIELDS[name].replace('_', '-')}{shown}"

    return _reword(finding, "--family auto", option)


def in_study(finding: Finding) -> Finding:
    """Name the fields of a study's shared file, as `starts = 20` for `n_init=20`."""

    def field(found: re.Match[str]) -> str:
        name, value = found.groups()
        if value is None:
            return FIELDS[name]
        quoted = value.replace("'", '"') if value != "True" else "true"
        return f"{'links' if name == 'graph' else FIELDS[name]} = {quoted}"

    return _reword(finding, 'families = "auto"', field)


def _reword(finding: Finding, families: str, argument: Callable[[re.Match[str]], str]) -> Finding:
    sentence, remedy = (
        ARGUMENT.sub(argument, text.replace(FAMILIES, families)) for text in (finding.sentence, finding.remedy)
    )
    return finding._replace(sentence=sentence, remedy=remedy)
