"""Findings in the terms of their reader: Python's arguments, the program's options, or the fields of a study."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from vpem.verdict.findings import Finding
from vpem.verdict.rules import ACCEPT, MAKE_GAPS

FIELDS = {
    "n_components": "components",
    "covariance_type": "covariance",
    "n_init": "starts",
    "init_params": "init",
    **{
        name: name for name in ("max_iter", "tol", "reg_covar", "shrinkage", "standardize", "graph", "hops", "rounds")
    },
}
"""Argument of the estimators to its name in the program and in study files."""

NOUNS = ("graph", "rounds")
"""Arguments that are words of sentences too; there they have no value."""
ARGUMENT = re.compile(
    rf"\b({'|'.join(FIELDS)})\b=('[^']*'|[\w.]+)|\b({'|'.join(name for name in FIELDS if name not in NOUNS)})\b"
)
FAMILIES = "VerticalMixture(families='auto')"
IN_PROGRAM = {
    FAMILIES: "--family auto",
    ACCEPT: "--sum exact, which hides no party's terms",
    MAKE_GAPS: "name them with --gaps (such as --gaps NA,-999)",
}
IN_STUDY = {
    FAMILIES: 'families = "auto"',
    ACCEPT: 'accept = "rows of two parties are plain to both"',
    MAKE_GAPS: "name them in gaps of [form] in the party's file",
}
"""Replacements for Python's calls."""

Wording = Callable[[Finding], Finding]


def in_python(finding: Finding) -> Finding:
    """Return the finding unchanged, as rules name Python's arguments."""
    return finding


def in_program(finding: Finding) -> Finding:
    """Name the program's options, as `--starts 20` for `n_init=20`."""

    def option(found: re.Match[str]) -> str:
        name, value = found[1] or found[3], found[2]
        shown = "" if value in (None, "True") else f" {value.strip(chr(39))}"
        return f"--{FIELDS[name].replace('_', '-')}{shown}"

    return _reword(finding, IN_PROGRAM, option)


def in_study(finding: Finding) -> Finding:
    """Name the fields of a study's shared file, as `starts = 20` for `n_init=20`."""

    def field(found: re.Match[str]) -> str:
        name, value = found[1] or found[3], found[2]
        if value is None:
            return FIELDS[name]
        quoted = value.replace("'", '"') if value != "True" else "true"
        return f"{'links' if name == 'graph' else FIELDS[name]} = {quoted}"

    return _reword(finding, IN_STUDY, field)


def _reword(finding: Finding, calls: Mapping[str, str], argument: Callable[[re.Match[str]], str]) -> Finding:
    def reword(text: str) -> str:
        for call, own in calls.items():
            text = text.replace(call, own)
        return ARGUMENT.sub(argument, text)

    return finding._replace(sentence=reword(finding.sentence), remedy=reword(finding.remedy))
