"""Where the shared measured data are, and how tests that need them skip."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder of measured third-party data; tests that use it are marked ``thirdparty``."""
    folder = Path(os.environ.get("PPW_DATA_DIR", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no measured data at {folder}; set PPW_DATA_DIR")
    return folder
