"""Where machine code is kept, and what happens where it cannot be."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fitting import compiled as module
from fitting.compiled import _folder, _Forgiving, _parents, _sources_digest, compiled


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of two sources, one of which has compiled functions; nothing else is set."""
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "loops.py").write_text("from fitting.compiled import compiled\n")
    (folder / "sums.py").write_text("total = sum\n")
    monkeypatch.setattr(module, "__file__", str(folder / "compiled.py"))
    monkeypatch.setattr(module._settings, "CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return folder


class TestFolders:
    def test_beside_the_package_then_the_users_caches(self, package, tmp_path):
        home = tmp_path / "home" / ".cache" / "ppw"
        assert list(_parents()) == [package / "__pycache__", tmp_path / "xdg" / "ppw", home]

    @pytest.mark.parametrize("given", ["", "relative/cache"])
    def test_a_cache_that_is_no_absolute_path_is_ignored(self, package, monkeypatch, given):
        monkeypatch.setenv("XDG_CACHE_HOME", given)
        assert [p.name for p in _parents()] == ["__pycache__", "ppw"]

    def test_the_one_that_numba_is_told_is_the_only_one(self, package, tmp_path, monkeypatch):
        monkeypatch.setattr(module._settings, "CACHE_DIR", str(tmp_path / "told"))
        assert list(_parents()) == [tmp_path / "told"]

    def test_the_first_that_can_be_made_is_taken(self, package, tmp_path):
        (package / "__pycache__").write_text("in the way")
        found = _folder.__wrapped__()
        assert Path(found) == tmp_path / "xdg" / "ppw" / f"ppw-{_sources_digest()}"
        assert Path(found).is_dir()
        # Once more, when it is there.
        assert _folder.__wrapped__() == found

    def test_one_that_may_not_be_written_to_is_passed_over(self, package, tmp_path, monkeypatch):
        def may(path, mode):
            return os.path.commonpath([package, path]) != str(package)

        monkeypatch.setattr(os, "access", may)
        assert Path(_folder.__wrapped__()).parent == tmp_path / "xdg" / "ppw"

    def test_where_there_is_none_nothing_is_kept(self, package, monkeypatch):
        monkeypatch.setattr(os, "access", lambda path, mode: False)
        assert _folder.__wrapped__() is None


class TestDigest:
    def test_changes_with_a_source_that_has_compiled_functions(self, package):
        before = _sources_digest()
        with (package / "loops.py").open("a") as file:
            file.write("# another\n")
        assert _sources_digest() != before

    def test_stays_when_another_source_changes(self, package):
        before = _sources_digest()
        with (package / "sums.py").open("a") as file:
            file.write("# another\n")
        assert _sources_digest() == before


def twice(x):
    return 2 * x


class TestMachineCode:
    def test_is_kept_in_the_folder_and_other_packages_stay_as_they_are(
        self, package, tmp_path, monkeypatch
    ):
        monkeypatch.setattr(module, "_folder", lambda: str(tmp_path))
        made = compiled(twice)
        assert made(21) == 42
        assert isinstance(made._cache, _Forgiving)
        assert module._settings.CACHE_DIR == ""

    def test_is_not_kept_where_there_is_no_folder(self, monkeypatch):
        monkeypatch.setattr(module, "_folder", lambda: None)

        def thrice(x):
            return 3 * x

        made = compiled(thrice)
        assert made(14) == 42
        assert not isinstance(getattr(made, "_cache", None), _Forgiving)

    def test_that_cannot_be_read_or_written_is_made_anew(self, tmp_path, monkeypatch):
        def fail(*_):
            raise OSError("no space left")

        monkeypatch.setattr(module._settings, "CACHE_DIR", str(tmp_path))
        kept = _Forgiving(twice)
        monkeypatch.setattr(module._FunctionCache, "load_overload", fail)
        monkeypatch.setattr(module._FunctionCache, "save_overload", fail)
        assert kept.load_overload("signature", "target") is None
        kept.save_overload("signature", "data")


class TestWaiting:
    """Compiling is told once a process, where it takes time, and not where code is on disk."""

    @pytest.fixture(autouse=True)
    def anew(self, caplog):
        module._tell.cache_clear()
        caplog.set_level("INFO", "fitting.compiled")
        yield
        module._tell.cache_clear()

    def test_is_told_once(self, tmp_path, monkeypatch, caplog):
        monkeypatch.setattr(module, "_folder", lambda: str(tmp_path))
        made = [compiled(twice) for _ in range(2)]
        assert [f(21) for f in made] == [42, 42]
        assert [f(2.5) for f in made] == [5.0, 5.0]
        assert caplog.messages == [
            "compiling loops, for up to a minute; the next start finds them on disk"
        ]

    def test_is_not_told_of_code_on_disk(self, tmp_path, monkeypatch, caplog):
        monkeypatch.setattr(module, "_folder", lambda: str(tmp_path))
        assert compiled(twice)(4) == 8
        module._tell.cache_clear()
        caplog.clear()
        assert compiled(twice)(5) == 10
        assert caplog.messages == []

    def test_without_a_folder_it_is_told_how_to_give_one(self, monkeypatch, caplog):
        monkeypatch.setattr(module, "_folder", lambda: None)
        assert compiled(twice)(4) == 8
        assert "name one by NUMBA_CACHE_DIR" in caplog.text
