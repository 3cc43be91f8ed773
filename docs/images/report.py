"""The pictures of reports in the tutorial: `python docs/images/report.py [PICTURE]`; needs Chromium.

With the name of a picture, only the first one is made. The second needs the files of the air of Beijing, in the
folder `beijing-air` of `VPEM_DATA`.
"""

import csv
import io
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from vpem.datasets import load_breast_cancer_parties

PARTIES = {"clinic": "mean_{}", "laboratory": "{}_error", "archive": "worst_{}"}
MEASURED = ("radius", "texture", "smoothness", "concavity")
WIDTH = 1100


def run(*arguments: str) -> None:
    """A command of the tutorial."""
    subprocess.run([sys.executable, "-c", "from vpem.cli import main; main()", *arguments], check=True)


def make_tumours(folder: Path) -> Path:
    """The report of the tutorial's first fit."""
    data = load_breast_cancer_parties()
    names = [name.replace(" ", "_") for name in data.feature_names]
    with open(folder / "tumours.csv", "w", newline="") as file:
        csv.writer(file).writerows([names, *data.data])
    lines = [f"{party} = {[name.format(one) for one in MEASURED]}" for party, name in PARTIES.items()]
    (folder / "parties.toml").write_text("\n".join(["[parties]", *lines]).replace("'", '"'))
    page, table, parties, model = (folder / name for name in ("t.html", "tumours.csv", "parties.toml", "t.vpem"))
    run("fit", str(table), "--parties", str(parties), "-k", "2", "-o", str(model), "--report", str(page))
    return page


def make_air(folder: Path) -> Path:
    """The report of the tutorial's fit of twelve stations."""
    tables = sorted(map(str, (Path(os.environ["VPEM_DATA"]) / "beijing-air").glob("*.csv.gz")))
    page, model = folder / "air.html", folder / "air.vpem"
    chosen = ["--id", "year,month,day,hour", "--ignore", "No,RAIN,wd,station", "-k", "4"]
    run("fit", *tables, *chosen, "-o", str(model), "--report", str(page), "--title", "Air of Beijing")
    return page


def take_picture(page: Path, picture: Path, first: str, last: str) -> None:
    """From the top of one element to the end of another, in few colours: the file is small."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as playwright:
        arguments = ["--headless", "--no-sandbox", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=chromium, args=arguments)
        tab = browser.new_page(viewport={"width": WIDTH, "height": 900}, color_scheme="light")
        tab.goto(page.as_uri())
        tab.wait_for_timeout(200)  # the cards find their places
        top, end = (tab.locator(selector).bounding_box() for selector in (first, last))
        assert top is not None, f"the page has {first}"
        assert end is not None, f"the page has {last}"
        begin = max(0, top["y"] - 16)
        height = end["y"] + end["height"] + 8 - begin
        taken = tab.screenshot(full_page=True, clip={"x": 0, "y": begin, "width": WIDTH, "height": height})
        browser.close()
    Image.open(io.BytesIO(taken)).convert("RGB").quantize(64).save(picture, optimize=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        picture = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_suffix(".png")
        take_picture(make_tumours(Path(made)), picture, "header", "#importance")
        if len(sys.argv) == 1:
            take_picture(make_air(Path(made)), picture.with_name("air.png"), "#profiles", "#profiles .plot")
