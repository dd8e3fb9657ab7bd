"""The command line where the world is unkind: other locales, no rights, full disks, closed ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAME = "größe 日本"
# Reads what it may, as a user who owns nothing: a checkout in root's home can still be run.
AS_NOBODY = (
    *("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"),
    *("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"),
)
# The installation and another folder cannot be written to, by root neither.
READ_ONLY = (
    *("unshare", "--mount", "sh", "-c"),
    'mount --make-rprivate / && for folder in "$1" "$2"; do '
    'mount --bind "$folder" "$folder" && mount -o remount,bind,ro "$folder" || exit 98; '
    'touch "$folder/it" 2>/dev/null && exit 99; done; cd "$2"; shift 2; exec "$@"',
    *("sh", ROOT),
)


# Where nothing may be written, nor can what coverage saw.
UNWATCHED = dict.fromkeys(name for name in os.environ if name.startswith("COVERAGE_"))


@pytest.fixture
def process(tmp_path):
    """Run ppw as a process of its own, with any warning an error; None in ``env`` is not set."""

    def process(*arguments, wrapped=(), env=None, **streams):
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PPW_", "PYTHON", "LC_"))}
        command = [*wrapped, sys.executable, "-W", "error", "-m", "ppw", *map(str, arguments)]
        given = {"stdin": subprocess.DEVNULL, "stdout": -1, "stderr": -1, **streams}
        known = {**kept, "PYTHONPATH": str(ROOT), "COLUMNS": "100", **(env or {})}
        return subprocess.run(
            command,
            cwd=tmp_path,
            env={name: value for name, value in known.items() if value is not None},
            check=False,
            **given,
        )

    return process


@pytest.fixture
def runs(tmp_path):
    rows = "".join(f"{NAME},{ghz},{1 + 1 / ghz}\n" for ghz in (1, 2, 3))
    path = tmp_path / "läufe.csv"
    path.write_text(f"workload,freq_ghz,time_s\n{rows}", encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def locales(tmp_path_factory):
    """Environments by the encoding that they ask for."""
    folder = tmp_path_factory.mktemp("locales")
    german = "de_DE.ISO-8859-1"
    subprocess.run(
        ["localedef", "-i", "de_DE", "-f", "ISO-8859-1", str(folder / german)], check=True
    )
    strict = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    return {
        "ascii": {**strict, "LC_ALL": "C"},
        "iso8859-1": {**strict, "LC_ALL": german, "LANG": german, "LOCPATH": str(folder)},
    }


@pytest.mark.parametrize("encoding", ["ascii", "iso8859-1"])
class TestLocales:
    def test_what_the_encoding_lacks_is_spelt_out(self, encoding, locales, runs, process):
        done = process("project", runs, "--freq", "3.5GHz", env=locales[encoding])
        assert (done.stderr, done.returncode) == (b"", 0)
        assert "\\u65e5\\u672c" in done.stdout.decode(encoding)
        assert ("größe" in done.stdout.decode(encoding)) == (encoding == "iso8859-1")

    @pytest.mark.parametrize("form", ["json", "csv", "html"])
    def test_files_are_utf_8(self, encoding, form, locales, runs, process, tmp_path):
        into = tmp_path / f"antwort für.{form}"
        options = ("--format", form, "--output", into)
        done = process("project", runs, "--freq", "3.5GHz", *options, env=locales[encoding])
        assert (done.stdout, done.returncode) == (b"", 0)
        assert NAME in into.read_text(encoding="utf-8")

    def test_errors_are_one_line(self, encoding, locales, process):
        done = process("project", "größe.csv", "--freq", "3.5GHz", env=locales[encoding])
        assert done.returncode == 1
        assert done.stderr.startswith(b"ppw: error: gr")
        assert done.stderr.endswith(b"cannot be read: No such file or directory\n")
        assert done.stderr.count(b"\n") == 1

    def test_traces_and_catalogue(self, encoding, locales, process, tmp_path):
        trace = ROOT / "examples" / "disk_trace.csv.gz"
        done = process("trace", "fit", trace, "--levels", "2", env=locales[encoding])
        assert done.returncode == 0, done.stderr
        assert process("hosts", env=locales[encoding]).returncode == 0


class TestRights:
    def test_a_user_who_owns_nothing(self, runs, process, tmp_path):
        tmp_path.chmod(0o755)
        env = {"HOME": "/nonexistent", **UNWATCHED}
        for command in (
            ("project", runs, "--freq", "3.5GHz", "--format", "html"),
            ("hosts",),
        ):
            done = process(*command, wrapped=AS_NOBODY, env=env)
            assert (done.stderr.count(b"\n") <= 1, done.returncode) == (True, 0), done.stderr
        done = process("project", runs, "--freq", "3GHz", "-o", "it", wrapped=AS_NOBODY, env=env)
        assert done.returncode == 1
        assert done.stderr == b"ppw: error: it: cannot be written: Permission denied\n"

    def test_a_machine_that_cannot_be_written_to(self, runs, process, tmp_path):
        folders = dict.fromkeys(("HOME", "TMPDIR", "XDG_CACHE_HOME"), str(tmp_path))
        there = {"wrapped": (*READ_ONLY, tmp_path), "env": {**folders, **UNWATCHED}}
        trace = ROOT / "examples" / "disk_trace.csv.gz"
        done = process("trace", "fit", trace, "--levels", "2", **there)
        assert done.returncode == 0, done.stderr
        assert b" requests in " in done.stdout
        done = process("project", runs, "--freq", "3.5GHz", "-o", "it", **there)
        assert done.returncode == 1
        assert done.stderr == b"ppw: error: it: cannot be written: Read-only file system\n"


class TestCompiledCode:
    """Machine code on disk: numba keeps it, and ppw does not depend on it."""

    SCRIPT = (
        "import fitting.compiled as c, numpy as np\n"
        "@c.compiled\n"
        "def twice(x):\n"
        "    return 2 * x\n"
        "print(twice(np.float64(21)), numba_files())\n"
    )

    def run(self, tmp_path, lines="", **env):
        script = tmp_path / "it.py"
        counted = "import pathlib\ndef numba_files():\n    return len(c._folder() or '') and len(\n"
        counted += "        [*pathlib.Path(c._folder()).rglob('*.nbi')])\n"
        script.write_text(lines + counted + self.SCRIPT)
        kept = {k: v for k, v in os.environ.items() if not k.startswith("NUMBA")}
        done = subprocess.run(
            [sys.executable, "-W", "error", script],
            env={**kept, "PYTHONPATH": str(ROOT), **env},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    def test_is_kept_where_it_may_be(self, tmp_path):
        cache = tmp_path / "cache"
        assert self.run(tmp_path, NUMBA_CACHE_DIR=str(cache)) == ["42.0", "1"]
        assert [p.name[:4] for p in cache.iterdir()] == ["ppw-"]

    def test_is_not_needed_where_nothing_can_be_kept(self, tmp_path):
        (tmp_path / "file").write_text("")
        nowhere = str(tmp_path / "file" / "folder")
        assert self.run(tmp_path, NUMBA_CACHE_DIR=nowhere) == ["42.0", "0"]

    def test_a_disk_that_is_full_only_costs_time(self, tmp_path, full_disk):
        (full_disk / "filler").write_bytes(bytes(full_disk_room(full_disk)))
        assert self.run(tmp_path, NUMBA_CACHE_DIR=str(full_disk))[0] == "42.0"

    def test_other_packages_keep_theirs_where_they_did(self, tmp_path):
        lines = "import numba\nbefore = numba.config.CACHE_DIR\nimport fitting.walk\n"
        lines += "assert numba.config.CACHE_DIR == before\n"
        self.run(tmp_path, lines)


def full_disk_room(folder):
    room = os.statvfs(folder)
    return room.f_bavail * room.f_frsize


@pytest.fixture
def full_disk(tmp_path):
    """A disk of 32 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32k", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


class TestFullDisks:
    @pytest.mark.parametrize("form", ["text", "json", "csv", "html"])
    def test_standard_output(self, form, runs, process):
        with Path("/dev/full").open("wb") as full:
            options = ("--freq", "3.5GHz", "--format", form)
            done = process("project", runs, *options, stdout=full)
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1] == (
            b"ppw: error: standard output: No space left on device"
        )
        assert b"Traceback" not in done.stderr

    @pytest.mark.parametrize(
        "command",
        [
            ("demo", "--runs", "out.csv"),
            ("demo", "--runs", "out.parquet"),
            ("trace", "fit", "TRACE", "--levels", "3", "--format", "json", "-o", "out.json"),
            ("hosts", "--format", "json", "-o", "out.json"),
        ],
    )
    def test_files_appear_whole_or_not_at_all(self, command, process, full_disk):
        (full_disk / "filler").write_bytes(bytes(full_disk_room(full_disk)))
        trace = ROOT / "examples" / "disk_trace.csv.gz"
        asked = [trace if word == "TRACE" else word for word in command]
        into = full_disk / asked.pop()
        done = process(*asked, into)
        assert done.returncode == 1
        said = done.stderr.decode().splitlines()[-1]
        assert said.startswith(f"ppw: error: {into}: cannot be written: ")
        assert "No space left on device" in said
        assert [p.name for p in full_disk.iterdir()] == ["filler"]

    def test_a_table_on_standard_output(self, process):
        with Path("/dev/full").open("wb") as full:
            done = process("demo", "--runs", "-", stdout=full)
        assert done.returncode == 1
        assert b"ppw: error: standard output: No space left on device" in done.stderr


class TestClosedEnds:
    """Shells close what they are told to: >&-."""

    def closed(self, process, end, *arguments):
        return process(*arguments, wrapped=("sh", "-c", f'exec "$@" {end}', "sh"))

    def test_output_that_is_closed(self, runs, process):
        for arguments in (("project", runs, "--freq", "3.5GHz"), ("demo", "--runs", "-")):
            done = self.closed(process, ">&-", *arguments)
            assert done.returncode == 1
            assert b"ppw: error: standard output: Bad file descriptor\n" in done.stderr
            assert b"Traceback" not in done.stderr

    def test_files_are_written_all_the_same(self, runs, process, tmp_path):
        done = self.closed(process, ">&- <&-", "project", runs, "--freq", "3GHz", "-o", "it.txt")
        assert (done.stderr, done.returncode) == (b"", 0)
        assert NAME in (tmp_path / "it.txt").read_text(encoding="utf-8")

    def test_input_that_is_closed(self, process):
        done = self.closed(process, "<&-", "project", "-", "--freq", "3.5GHz")
        assert done.returncode == 1
        assert done.stderr == b"ppw: error: standard input: is empty\n"

    def test_errors_that_nobody_reads(self, process, runs):
        done = self.closed(process, "2>&-", "project", "nothing.csv", "--freq", "3.5GHz")
        assert (done.stdout, done.returncode) == (b"", 1)
        done = self.closed(process, "2>&-", "project", runs, "--freq", "3.5GHz")
        assert done.returncode == 0
        assert NAME.encode() in done.stdout

    def test_a_reader_that_has_gone(self, process):
        done = process("hosts", wrapped=("sh", "-c", '"$@" | true', "sh"))
        assert done.stderr == b""


class TestCompletion:
    @pytest.fixture
    def complete(self, tmp_path):
        """Press tab in bash: what is offered, by the function that was loaded."""
        program = tmp_path / "bin" / "ppw"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ppw "$@"\n')
        program.chmod(0o755)
        env = {"PATH": f"{program.parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
        script = (
            'eval "$(ppw --completion bash)"; compopt() { COMPREPLY=("$*"); }; COMP_WORDS=("$@"); '
            "COMP_CWORD=$(($# - 1)); COMPREPLY=(); "
            "$(complete -p ppw | sed 's/.*-F //; s/ .*//') ppw; "
            'printf "%s\\n" "${COMPREPLY[@]}"'
        )

        def complete(*words):
            done = subprocess.run(
                ["bash", "--norc", "-c", script, "bash", *words],
                capture_output=True,
                text=True,
                check=True,
                cwd=tmp_path,
                env={**os.environ, **env},
            )
            assert done.stderr == ""
            return done.stdout.split("\n")[:-1]

        return complete

    def test_commands(self, complete):
        assert complete("ppw", "pr") == ["pressure", "project"]
        assert "fit" in complete("ppw", "trace", "")

    def test_options_and_their_choices(self, complete):
        assert complete("ppw", "project", "--fo") == ["--form", "--format"]
        assert complete("ppw", "project", "--format", "") == ["text", "json", "csv", "html"]

    def test_files_elsewhere(self, complete):
        assert complete("ppw", "project", "ru") == ["-o", "default"]
        assert complete("ppw", "project", "runs.csv", "--output", "") == ["-o", "default"]

    @pytest.mark.parametrize("shell", ["zsh", "fish"])
    def test_scripts_for_other_shells(self, shell, process):
        done = process("--completion", shell)
        assert (done.stderr, done.returncode) == (b"", 0)
        assert f"_PPW_COMPLETE={shell}_complete".encode() in done.stdout
