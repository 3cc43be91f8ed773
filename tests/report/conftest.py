"""A browser without a network, and a fit of tumours at three parties."""

import shutil

import pytest

from vpem import VerticalGaussianMixture
from vpem.datasets import load_breast_cancer_parties

ARGUMENTS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)


@pytest.fixture(scope="package")
def browser():
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("no chromium: install it to test the report's page")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS.split())
        yield browser
        browser.close()


@pytest.fixture
def visit(browser):
    """Open a file; in the end nothing may have failed, and nothing else may have been asked for."""
    pages, troubles, requests = [], [], []

    def open_page(path, width=1280, **options):
        page = browser.new_page(viewport={"width": width, "height": 900}, **options)
        page.on("console", lambda message: troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("request", lambda request: requests.append((request.url, path.as_uri())))
        page.goto(path.as_uri())
        pages.append(page)
        return page

    yield open_page
    for page in pages:
        page.close()
    assert troubles == []
    assert all(asked == own for asked, own in requests)
    assert len(requests) >= len(pages)


@pytest.fixture(scope="package")
def cancer():
    data = load_breast_cancer_parties()
    model = VerticalGaussianMixture(2, partition=data.partition, graph="ring", random_state=0).fit(data.data)
    return model, data
