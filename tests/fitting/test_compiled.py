"""Where machine code is kept, when it is made anew, and what is said while it is made."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from fitting.compiled import loops as module
from fitting.compiled.loops import Notice, _cache_folder, _folder_candidates, _ForgivingCache, jit

WALK = """
from fitting.compiled.loops import jit
from fitting.limits import MOST
if False:
    from fitting.unused import NOTHING

@jit
def most():
    return MOST
"""


def loaded():
    """Unload the modules of the package and return them."""
    return {name: sys.modules.pop(name) for name in [*sys.modules] if name.startswith("fitting")}


def answer():
    """What the compiled function gives, imported anew, and whether its code came from the disk."""
    before = loaded()
    try:
        most = importlib.import_module("fitting.walk").most
        return most(), sum(most.stats.cache_hits.values()) > 0
    finally:
        loaded()
        sys.modules.update(before)


WAYS = ("fitting.laws.far import FAR", "FAR"), ("fitting.laws import far", "far.FAR")


@pytest.mark.parametrize("limits", [f"from {way}\nMOST = {far}\n" for way, far in WAYS])
def test_code_on_disk_is_that_of_all_sources_it_is_made_of(limits, tmp_path, monkeypatch):
    """Of a package with the real `compiled`: numba's stamp is of one file alone."""
    package = tmp_path / "fitting"
    for folder in (package, package / "laws", package / "compiled"):
        folder.mkdir()
        (folder / "__init__.py").touch()
    shutil.copy(module.__file__, package / "compiled")
    (package / "walk.py").write_text(WALK)
    (package / "limits.py").write_text(limits)
    (package / "laws" / "far.py").write_text("FAR = 1\n")
    (package / "unused.py").write_text("NOTHING = 0\n")
    monkeypatch.setattr(module._settings, "CACHE_DIR", "")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(tmp_path)
    assert answer() == (1, False)
    (package / "unused.py").write_text("NOTHING = 2\n")
    assert answer() == (1, True)
    (package / "laws" / "far.py").write_text("FAR = 3\n")
    assert [answer(), answer()] == [(3, False), (3, True)]


class TestFolders:
    @pytest.fixture
    def package(self, tmp_path, monkeypatch):
        folder = tmp_path / "package"
        folder.mkdir()
        monkeypatch.setattr(module, "__file__", str(folder / "compiled.py"))
        monkeypatch.setattr(module._settings, "CACHE_DIR", "")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        return folder

    def test_beside_the_package_then_the_users_caches(self, package, tmp_path, monkeypatch):
        home = tmp_path / "home" / ".cache" / "ppw"
        folders = [package / "__pycache__", tmp_path / "xdg" / "ppw", home]
        assert list(_folder_candidates()) == folders
        # One that is no absolute path is ignored; one that numba is told is the only one.
        for given in ("", "relative/cache"):
            monkeypatch.setenv("XDG_CACHE_HOME", given)
            assert list(_folder_candidates()) == [package / "__pycache__", home]
        monkeypatch.setattr(module._settings, "CACHE_DIR", str(tmp_path / "told"))
        assert list(_folder_candidates()) == [tmp_path / "told"]

    def test_the_first_that_can_be_made_is_taken(self, package, tmp_path):
        (package / "__pycache__").write_text("in the way")
        found = _cache_folder.__wrapped__()
        assert Path(found) == tmp_path / "xdg" / "ppw" / "ppw-loops"
        assert Path(found).is_dir()
        assert _cache_folder.__wrapped__() == found

    def test_one_that_may_not_be_written_to_is_passed_over(self, package, tmp_path, monkeypatch):
        def may(path, mode):
            return os.path.commonpath([package, path]) != str(package)

        monkeypatch.setattr(os, "access", may)
        assert Path(_cache_folder.__wrapped__()).parent == tmp_path / "xdg" / "ppw"
        monkeypatch.setattr(os, "access", lambda path, mode: False)
        assert _cache_folder.__wrapped__() is None


def twice(x):
    return 2 * x


class TestMachineCode:
    def test_goes_to_the_folder_and_that_of_other_packages_elsewhere(self, tmp_path, monkeypatch):
        monkeypatch.setattr(module, "_cache_folder", lambda: str(tmp_path))
        before = module._settings.CACHE_DIR
        assert jit(twice)(21) == 42
        assert list(tmp_path.rglob("*.nbc"))
        assert before == module._settings.CACHE_DIR

    def test_that_cannot_be_read_or_written_is_made_anew(self, tmp_path, monkeypatch):
        monkeypatch.setattr(module, "_cache_folder", lambda: str(tmp_path))
        for name in ("load_overload", "save_overload"):
            full = Mock(side_effect=OSError("no space left"))
            monkeypatch.setattr(module._FunctionCache, name, full)
        assert jit(twice)(21) == 42

    @pytest.mark.parametrize("gone", [AttributeError, ModuleNotFoundError])
    def test_of_another_release_that_names_classes_that_are_gone_is_made_anew(
        self, gone, tmp_path, monkeypatch
    ):
        monkeypatch.setattr(module, "_cache_folder", lambda: str(tmp_path))
        assert jit(twice)(21) == 42
        with monkeypatch.context() as patch:
            patch.setattr(module._FunctionCache, "load_overload", Mock(side_effect=gone))
            assert jit(twice)(21) == 42
        again = jit(twice)
        assert (again(21), sum(again.stats.cache_hits.values())) == (42, 1)

    @pytest.mark.parametrize("gone", [OSError, RuntimeError])
    def test_without_a_folder_for_it_is_made_by_each_process(self, gone, tmp_path, monkeypatch):
        monkeypatch.setattr(module, "_cache_folder", lambda: str(tmp_path))
        monkeypatch.setattr(_ForgivingCache, "__init__", Mock(side_effect=gone))
        assert jit(twice)(21) == 42
        assert not list(tmp_path.rglob("*.nbc"))


class Timers:
    """Timers that go off when a test says so, and a clock that it sets."""

    def __init__(self):
        self.now_s, self.made = 0.0, []

    def __call__(self, after_s, tell):
        self.after_s, self.tell, self.is_on = after_s, tell, False
        self.made.append(after_s)
        return self

    def start(self):
        self.is_on = True

    def cancel(self):
        self.is_on = False


def timed_notice(text, timers):
    notice = Notice(text)
    notice.timer, notice.clock = timers, lambda: timers.now_s
    return notice


class TestNotice:
    @pytest.fixture
    def timers(self):
        return Timers()

    @pytest.fixture
    def notice(self, timers, caplog):
        caplog.set_level("INFO", "fitting.compiled.loops")
        return timed_notice("compiling", timers)

    def test_comes_after_a_second_of_all_functions_together(self, notice, timers, caplog):
        notice.begin()
        assert timers.is_on
        # A function that is compiled for another one is part of it.
        notice.begin()
        notice.end()
        assert timers.is_on
        timers.now_s = 0.75
        notice.end()
        assert not timers.is_on
        timers.now_s = 100.0
        notice.begin()
        assert timers.made == [1.0, 0.25]
        assert timers.daemon
        assert caplog.messages == []
        timers.tell()
        assert caplog.messages == ["compiling"]

    def test_comes_once(self, notice, timers, caplog):
        for _ in range(2):
            notice.begin()
            timers.now_s += 2.0
            if timers.is_on:
                timers.tell()
            notice.end()
        assert timers.made == [1.0]
        assert caplog.messages == ["compiling"]

    @pytest.mark.parametrize(
        ("folder", "text"),
        [("kept", "compiling, first use only"), (None, "name one with NUMBA_CACHE_DIR")],
    )
    def test_is_of_functions_that_are_not_on_disk(
        self, folder, text, timers, tmp_path, monkeypatch, caplog
    ):
        caplog.set_level("INFO", "fitting.compiled.loops")
        for name in ("_KEPT", "_NOT_KEPT"):
            monkeypatch.setattr(module, name, timed_notice(getattr(module, name)._text, timers))
        monkeypatch.setattr(module, "_cache_folder", lambda: folder and str(tmp_path / folder))
        for _ in range(2):
            assert jit(twice)(4) == 8
        assert len(timers.made) == (1 if folder else 2)
        timers.tell()
        assert text in caplog.text
