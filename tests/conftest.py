"""Settings of all tests: repeatable hypothesis, data that a machine may lack, and REQUIRE_ALL."""

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from numba import config as numba_config
from threadpoolctl import threadpool_info

from vpem.datasets import fetch_beijing_air

# Repeatable runs, no clock: a machine under load must not fail a test.
settings.register_profile(
    "vpem", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("vpem")

REQUIRE_ALL = os.environ.get("REQUIRE_ALL") == "1"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config, specs):
    """Workers side by side must not each take all cores, nor write the same files of compiled code.

    Threads of OpenBLAS and OpenMP wait by spinning: with two in each of two workers on two cores, tests of small
    matrices took up to twenty times as long. A test that compares numbers of threads sets them itself. numba numbers
    the files of a function's versions without a lock.
    """
    for spec in specs:
        own = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "2"}
        own["NUMBA_CACHE_DIR"] = str(config.rootpath / "build" / "numba" / spec.id)
        spec.env.update({name: value for name, value in own.items() if name not in os.environ})


def pytest_report_header():
    """What the bits of a result depend on: the kernels of the linear algebra, the instructions of compiled loops."""
    kernels = {library["architecture"] for library in threadpool_info() if "architecture" in library}
    return f"processor: BLAS for {', '.join(sorted(kernels))}; numba for {numba_config.CPU_NAME or 'this one'}"


def pytest_collection_modifyitems(config, items):
    """Tests with faults in real networks take minutes: they are only run if they are asked for."""
    for marker in ("network", "flower"):
        if marker not in config.option.markexpr:
            left_out = [item for item in items if item.get_closest_marker(marker)]
            config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if item not in left_out]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Under REQUIRE_ALL=1 nothing may be missing: a skip is a failure."""
    report = yield
    if REQUIRE_ALL and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, but REQUIRE_ALL=1: {call.excinfo.value}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    report = yield
    if REQUIRE_ALL and report.skipped:
        report.outcome = "failed"
        report.longrepr = f"module skipped, but REQUIRE_ALL=1: {report.longrepr}"
    return report


@pytest.fixture(scope="module")
def small_chunks():
    """Rows go through in chunks of 64, so that small tables have several."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vpem.core.rows.CHUNK_VALUES", 1)
        yield


@pytest.fixture(scope="session")
def htru2():
    """Columns and classes of the pulsar candidates, from the folder that VPEM_DATA names."""
    path = Path(os.environ.get("VPEM_DATA", "")) / "HTRU_2.csv"
    if not path.is_file():
        pytest.skip("no HTRU_2.csv: set VPEM_DATA to the folder that holds it")
    table = np.loadtxt(path, delimiter=",")
    return table[:, :8], table[:, 8].astype(int)


@pytest.fixture(scope="session")
def beijing():
    """Twelve stations' air, from the folder that VPEM_DATA names."""
    if not (Path(os.environ.get("VPEM_DATA", "")) / "beijing-air").is_dir():
        pytest.skip("no beijing-air: set VPEM_DATA to the folder that holds it")
    found = fetch_beijing_air()
    for array in (found.data, found.weather, found.time):
        array.flags.writeable = False  # many tests share it: reading takes seconds
    return found


@pytest.fixture
def small_disk(tmp_path):
    """A folder with a file system of its own, of 16 MB; only root can make one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m,mode=700", "vpem-test", folder], capture_output=True, text=True
    )
    if made.returncode != 0:
        pytest.skip(f"no small file system can be mounted here: {made.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)
