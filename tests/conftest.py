"""Shared measured data, how tests that need them skip, and signals as in a terminal."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent
# Few tests that wait for programs and clocks: begun last, one worker would be at them alone.
LONG = (
    *("test_measure.py", "test_run.py", "test_run_hadoop.py", "test_fleet_equality.py"),
    *("test_frequency.py", "test_fuzz.py", "test_hadoop.py", "test_robustness.py"),
)

# The same examples on every machine, however slow it is.
settings.register_profile(
    "ppw", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("ppw")

# A shell starts what runs in its background with interrupts ignored, and all that is started from
# there inherits it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder of measured third-party data; tests that use it are marked ``thirdparty``."""
    folder = Path(os.environ.get("PPW_DATA_DIR", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no measured data at {folder}; set PPW_DATA_DIR")
    return folder


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest."""
    items.sort(key=lambda item: item.path.name not in LONG)
