"""Groups of tests, Hypothesis profiles, the measured data, and signals as in a terminal."""

from __future__ import annotations

import gc
import os
import signal
import tomllib
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

# Before scipy is imported: without it scikit-learn's estimator checks skip one.
os.environ.setdefault("SCIPY_ARRAY_API", "1")
os.environ.setdefault("MPLBACKEND", "Agg")
# Threads of several test processes would only wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

TESTS = Path(__file__).resolve().parent
DATA = Path(os.environ.get("PPW_DATA_DIR", TESTS.parents[1] / "shared" / "data"))
PEERS = tomllib.loads((TESTS / "system.toml").read_text(encoding="utf-8"))["peers"]

# Files of tests whose compiled loops take a minute to compile, or that look at one result of every
# kind; one process runs them all.
COMPILING = ("test_bare_", "test_exports", "test_pressure_m", "test_recorded", "test_refusals")
COMPILING += ("test_report", "test_requests", "test_trace", "test_transition")
# One process runs these, too: they share an engine, of which Spark takes long to start.
ENGINES = ("test_fleet_",)
# Files with few tests that take seconds each. They go first: at the end others would wait for them.
LONG = (*ENGINES, "test_examples", "test_meter", "test_plan", "test_robustness")

# The same examples on every machine, however slow it is: HYPOTHESIS_PROFILE=ci takes 100.
_ALIKE = settings(derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
for _name, _examples in {"quick": 20, "ci": 100, "slow": 2000}.items():
    settings.register_profile(_name, _ALIKE, max_examples=_examples)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))
# Examples would also use constants of the modules loaded so far, which depend on the tests before.
setattr(providers, "_get_local_constants", lambda: providers._local_constants)  # noqa: B010

# A shell ignores interrupts in what it starts in the background, nohup the end of a terminal, and
# children inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder of measured third-party data, for tests marked ``thirdparty``."""
    return DATA


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--peer memcached``: the tests of one peer, and of no other."""
    parser.addoption("--peer", action="append", default=[], metavar="NAME", choices=sorted(PEERS))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests whose data are absent or whose peers were not asked for; sort the files."""
    asked = config.getoption("--peer")
    parted: tuple[list[pytest.Item], list[pytest.Item]] = [], []
    for item in items:
        has_data = DATA.is_dir() or item.get_closest_marker("thirdparty") is None
        marker = item.get_closest_marker("peer")
        is_asked = not asked or (marker is not None and marker.args[0] in asked)
        parted[has_data and is_asked].append(item)
    config.hook.pytest_deselected(items=parted[False])
    tests_in = Counter(item.path for item in parted[True])
    items[:] = sorted(parted[True], key=lambda i: (_turn(i), -tests_in[i.path], i.path))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test once for each row of its ``@pytest.mark.cases("names", row, …)``."""
    for cases in metafunc.definition.iter_markers("cases"):
        metafunc.parametrize(cases.args[0], cases.args[1:], **cases.kwargs)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """Import from the last file on in every other process: each compiles half of them for both."""
    report = yield
    backwards = os.environ.get("PYTEST_XDIST_WORKER", "gw0")[-1] in "13579"
    if backwards and isinstance(collector, pytest.Directory):
        report.result.reverse()
    return report


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each file to one process, and all files of `COMPILING` or `ENGINES` to the same one."""
    from xdist.scheduler import LoadFileScheduling

    scheduling: Any = LoadFileScheduling(config, log)
    file_of = scheduling._split_scope

    def process_of(nodeid: str) -> str:
        file = file_of(nodeid)
        shared = (g for g in (COMPILING, ENGINES) if Path(file).name.startswith(g))
        return next(map(str, shared), file)

    scheduling._split_scope = process_of
    return scheduling


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Collect garbage rarely, and never what is imported: that took a fifth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)


def pytest_unconfigure() -> None:
    """Let the interpreter collect them when it exits."""
    gc.unfreeze()


def _turn(item: pytest.Item) -> int:
    name = item.path.name
    return 0 if name.startswith(COMPILING) else 1 if name.startswith(LONG) else 2
