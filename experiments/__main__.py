"""All experiments, and the page that shows them: `python -m experiments [--quick | --page]`."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys

from experiments.common import RESULTS, ROOT

ORDER = (
    "synthetic",
    "cycle",
    "pulsar",
    "hops",
    "rounds",
    "batches",
    "components",
    "shrinkage",
    "labels",
    "thrift",
    "sums",
    "air",
    "adult",
)
PAGE = ROOT.parent / "docs" / "experiments.md"
INTRODUCTION = """# Experiments

The experiments of the paper's section "Experiments" and of its supplement, and additional ones. Each section is the page of one
full run. `python -m experiments.NAME` repeats one experiment; with `--quick` it runs a smaller form in less than a minute.
`python -m experiments` repeats all of them. The same command resumes an interrupted run. `experiments/results/NAME/` contains
each page with its figures as SVG and PNG, and the numbers behind them as CSV. Data are downloaded, or read from the
folder that `VPEM_DATA` names.
"""


def page() -> str:
    """All pages in one, headings a level lower, pictures found from docs/."""
    parts = [INTRODUCTION]
    for name in ORDER:
        text = (RESULTS / name / "README.md").read_text()
        text = re.sub(r"^(#+) ", r"#\1 ", text, flags=re.MULTILINE)
        parts.append(re.sub(r"\]\(([\w-]+\.svg)\)", rf"](../experiments/results/{name}/\1)", text))
    return "\n".join(parts)


def main() -> None:
    """Run, then write the page."""
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small runs, whose results go to build/; no page")
    parser.add_argument("--page", action="store_true", help="only the page, from the results that are there")
    options = parser.parse_args()
    if not options.page:
        for name in ORDER:
            subprocess.run([sys.executable, "-m", f"experiments.{name}", *["--quick"] * options.quick], check=True)
    if not options.quick:
        PAGE.write_text(page())
        print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
