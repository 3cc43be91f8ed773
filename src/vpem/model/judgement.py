"""Findings about a fit, which are derived from facts when they are first read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from vpem.verdict import Facts, Finding, judge


class Judgement:
    """Facts about a fit, and the findings that follow from them.

    Parameters
    ----------
    facts : Facts, optional
        Facts whose columns have numbers; None if only the findings are known.
    names : sequence of str, optional
        Names of the columns.
    check : callable, optional
        Further checks, which take long: returns more facts, by their fields. Called once, when findings are read.
    findings : sequence of Finding
        Findings, without facts.
    """

    def __init__(
        self,
        facts: Facts | None = None,
        names: Sequence[str] | None = None,
        check: Callable[[], Mapping[str, Any]] | None = None,
        findings: Sequence[Finding] = (),
    ):
        self.facts, self.names, self.check = facts, names, check
        self._findings = None if facts is not None else list(findings)

    @property
    def findings(self) -> list[Finding]:
        """Findings, the worst first."""
        self._complete()
        if self._findings is None:
            self._findings = self.so_far()
        return self._findings

    def so_far(self) -> list[Finding]:
        """Findings without those of the further checks, if these have not run yet."""
        assert self.facts is not None, "not only findings"
        return judge(self.facts if self.names is None else _named(self.facts, self.names))

    def _complete(self) -> None:
        """Run the further checks once, then drop them and the rows that they hold."""
        if self.check is not None and self.facts is not None:
            self.facts, self.check = replace(self.facts, **self.check()), None

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for copies and pickles: complete, without the rows of the checks."""
        self._complete()
        return vars(self)


def _named(facts: Facts, names: Sequence[str]) -> Facts:
    """Return the facts with column names in place of column numbers."""

    def name(own: str) -> str:
        return str(names[int(own)]) if own.isdecimal() else own

    blocks = [replace(block, columns=[*map(name, block.columns)]) for block in facts.blocks]
    twins = [(name(one), name(other)) for one, other in facts.twins]
    codes = [own._replace(column=name(own.column)) for own in facts.codes]
    between = facts.dependence
    if between is not None and between.one:
        between = between._replace(one=name(between.one), other=name(between.other))
    row_names = [*map(name, facts.row_names)]
    return replace(facts, blocks=blocks, twins=twins, row_names=row_names, codes=codes, dependence=between)
