"""Tests run in a fork of a process that has the heavy libraries in memory, with a mutated module.

Numba's compiler is off: a mutant of a compiled loop would be compiled anew for half a minute.
Python then warns of the wrap-around of unsigned integers, which machine code does not.
"""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import json
import os
import resource
import signal
import sys
import threading
import time
import traceback
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import CodeType, FrameType

    from mutations import Mutant

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("fitting", "ppw")
WARM = (
    *("numpy", "pandas", "scipy.stats", "scipy.optimize", "scipy.linalg", "scipy.interpolate"),
    *("sklearn.utils.estimator_checks", "sklearn.linear_model", "statsmodels.api", "mpmath"),
    *("numba", "jsonschema", "pyarrow", "pytest", "hypothesis.strategies"),
)
QUIET = (
    *("-q", "-x", "-p", "no:cacheprovider", "-o", "addopts=", "-m", "not peer and not slow"),
    *("-W", "ignore:overflow encountered:RuntimeWarning"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
)
MEMORY = 6 << 30


class Recorder:
    """Which functions of the packages each test that passes calls, and in how many seconds."""

    def __init__(self) -> None:
        self.tests: dict[str, dict[str, Any]] = {}
        self._called: set[CodeType] = set()
        self._by_fixtures: set[str] = set()

    def pytest_runtest_setup(self, item: Any) -> None:
        """Listen from here, so that what fixtures call counts."""
        self._called = set()
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Keep what a test called, once it has passed."""
        functions = {_name(code) for code in tuple(self._called) if _ours(code)}
        if report.when == "setup":
            self._by_fixtures |= functions
        elif report.when == "call":
            sys.setprofile(None)
            if report.outcome == "passed":
                self.tests[report.nodeid] = {"seconds": report.duration, "functions": functions}

    def calling(self) -> dict[str, dict[str, Any]]:
        """Tests with the functions they call; what fixtures call counts for the whole file."""
        found = {
            name: test | {"functions": sorted(test["functions"] | self._by_fixtures)}
            for name, test in self.tests.items()
        }
        return {name: test for name, test in found.items() if test["functions"]}

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            self._called.add(frame.f_code)


def _ours(code: CodeType) -> bool:
    return code.co_name != "<module>" and _module(code.co_filename) is not None


def _name(code: CodeType) -> str:
    return f"{_module(code.co_filename)}:{code.co_qualname.split('.<locals>')[0]}"


@functools.cache
def _module(file: str) -> str | None:
    """Dotted name of a source of the packages."""
    path = Path(file)
    inside = path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in PACKAGES
    return module_name(path) if inside else None


def module_name(path: Path) -> str:
    """Dotted name of a source."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def prepare(scratch: Path) -> None:
    """Bring in what tests need besides the packages themselves; done once, before any fork."""
    os.environ |= {
        "NUMBA_DISABLE_JIT": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "SCIPY_ARRAY_API": "1",
        "HYPOTHESIS_STORAGE_DIRECTORY": str(scratch / "hypothesis"),
    }
    for name in WARM:
        importlib.import_module(name)
    from hypothesis import Phase, settings

    # Those of tests inherit from it: an example that fails is not made smaller.
    phases = (Phase.explicit, Phase.generate)
    settings.register_profile(
        "mutants", deadline=None, derandomize=True, database=None, phases=phases
    )
    settings.load_profile("mutants")


def mapped(file: str, scratch: Path, limit: float) -> dict[str, dict[str, Any]]:
    """What the tests of a file call; those before ``limit`` seconds of processor time."""
    found = scratch / "mapped.json"
    found.unlink(missing_ok=True)

    def record() -> int:
        recorder = Recorder()
        arguments = [a for a in QUIET if a != "-x"]
        code = _tests([file, *arguments], [recorder])
        found.write_text(json.dumps(recorder.calling()))
        return code

    _forked(record, scratch / "mapping.log", limit)
    return dict(json.loads(found.read_text())) if found.exists() else {}


def killed(mutant: Mutant, tests: Sequence[str], scratch: Path, limit: float) -> bool:
    """Whether any of the tests fails, or does not end, with the mutant in place."""

    def run() -> int:
        sys.meta_path.insert(0, _Finder(mutant))
        return _tests([*tests, *QUIET], [])

    return _forked(run, scratch / "mutant.log", limit) != 0


class _Finder(importlib.machinery.SourceFileLoader):
    """Finder and loader of one module, whose text is the mutant's."""

    def __init__(self, mutant: Mutant) -> None:
        path = ROOT.joinpath(*mutant.module.split("."))
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        super().__init__(mutant.module, str(file))
        self._text = mutant.text

    def find_spec(self, name: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        if name != self.name:
            return None
        inside = [str(Path(self.path).parent)] if self.path.endswith("__init__.py") else None
        return importlib.util.spec_from_file_location(
            name, self.path, loader=self, submodule_search_locations=inside
        )

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._text, self.path, "exec")


def _tests(arguments: list[str], plugins: list[object]) -> int:
    import pytest

    return int(pytest.main(arguments, plugins=plugins))


def _forked(work: Callable[[], int], log: Path, limit: float) -> int:
    """Exit code of ``work`` in a child; a signal's number where it took more than it may."""
    child = os.fork()
    if child == 0:
        os.setsid()
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(output, stream)
        used = time.process_time()
        resource.setrlimit(resource.RLIMIT_CPU, (int(used + limit) + 1,) * 2)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(int(20 * limit))
        code = 70
        try:
            code = work()
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def nearest(
    tests: dict[str, dict[str, Any]], module: str, function: str, seconds: float
) -> list[str]:
    """Tests that call a function, those that call the least besides first, as time allows.

    Long ones come last: one of them would take the time of dozens. What a module does when it is
    imported is in all tests that call any of its functions.
    """
    calling = defaultdict(list)
    for name, test in tests.items():
        for called in test["functions"]:
            calling[called].append(name)
            calling[f"{called.split(':')[0]}:<module>"].append(name)
    candidates = set(calling[f"{module}:{function}"]) or set(calling[f"{module}:<module>"])
    chosen, spent = [], 0.0

    def far(name: str) -> tuple[bool, int, float]:
        took = tests[name]["seconds"]
        return took > seconds / 20, len(tests[name]["functions"]), took

    for name in sorted(candidates, key=far):
        cost = tests[name]["seconds"] + 0.02
        if not chosen or spent + cost <= seconds:
            chosen.append(name)
            spent += cost
    return chosen
