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

Everything in the paper's section "Experiments" and in its supplement, and what they leave out; each section is the page of
one full run. To run one again: `python -m experiments.NAME`, in a smaller form and less than a minute with `--quick`; to run
all: `python -m experiments`. An interrupted run goes on where it was. Beside each page, in `experiments/results/NAME/`, are the
numbers behind every figure as CSV, and the figures as SVG and PNG. Data are downloaded, or read from the folder that
`VPEM_DATA` names.
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
