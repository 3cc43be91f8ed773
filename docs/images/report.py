"""The picture of the report in the tutorial: `python docs/images/report.py [PICTURE]`; needs Chromium."""

import io
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image
from playwright.sync_api import sync_playwright

from vpem import VerticalGaussianMixture
from vpem.datasets import load_breast_cancer_parties
from vpem.report import write_report

PARTIES = {"clinic": "mean {}", "laboratory": "{} error", "archive": "worst {}"}
MEASURED = ("radius", "texture", "smoothness", "concavity")
WIDTH = 1100


def make_page(path: Path) -> None:
    """The report of the tutorial's first fit."""
    data = load_breast_cancer_parties()
    names = {party: [name.format(measured) for measured in MEASURED] for party, name in PARTIES.items()}
    columns = [list(data.feature_names).index(name) for own in names.values() for name in own]
    X = np.asarray(data.data)[:, columns]
    partition = {party: range(4 * place, 4 * place + 4) for place, party in enumerate(names)}
    model = VerticalGaussianMixture(2, partition=partition, max_iter=500, random_state=0).fit(X)
    shown = [name.replace(" ", "_") for own in names.values() for name in own]
    write_report(model, X, path, title="tumours.csv, K=2", feature_names=shown)


def take_picture(page: Path, picture: Path) -> None:
    """The upper part of the page, in few colours: the file is small."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as playwright:
        arguments = ["--headless", "--no-sandbox", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=chromium, args=arguments)
        tab = browser.new_page(viewport={"width": WIDTH, "height": 900}, color_scheme="light")
        tab.goto(page.as_uri())
        tab.wait_for_timeout(200)  # the cards find their places
        last = tab.locator("#pairs").bounding_box()
        assert last is not None, "the page has such a card"
        end = last["y"] + last["height"] + 16
        taken = tab.screenshot(full_page=True, clip={"x": 0, "y": 0, "width": WIDTH, "height": end})
        browser.close()
    Image.open(io.BytesIO(taken)).convert("RGB").quantize(64).save(picture, optimize=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        make_page(page)
        take_picture(page, Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_suffix(".png"))
