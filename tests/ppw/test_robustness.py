"""The command line where the world is unkind: other locales, no rights, full disks, closed ends."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from processes import ROOT, ppw_inside, printed, worked

NAME = "größe 日本"
TRACE = ("trace", "fit", ROOT / "examples" / "disk_trace.csv.gz", "--levels", "2")
CLOCK = ("--freq", "3.5GHz")
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
for_measuring = pytest.mark.peer("measure")


@pytest.fixture
def process(tmp_path):
    """Run ppw as a process of its own, with any warning an error; None in ``env`` is not set."""

    def process(*arguments, wrapped=(), env=None, **streams):
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PPW_", "PYTHON", "LC_"))}
        command = [*wrapped, sys.executable, "-W", "error", "-m", "ppw", *map(str, arguments)]
        given = {"stdin": subprocess.DEVNULL, "stdout": -1, "stderr": -1, **streams}
        known = {**kept, "PYTHONPATH": str(ROOT), "COLUMNS": "100", **(env or {})}
        known = {name: value for name, value in known.items() if value is not None}
        return subprocess.run(command, cwd=tmp_path, env=known, check=False, **given)

    return process


@pytest.fixture
def project(tmp_path):
    """Words of a projection of runs with a name that few encodings have."""
    rows = "".join(f"{NAME},{ghz},{1 + 1 / ghz}\n" for ghz in (1, 2, 3))
    (tmp_path / "läufe.csv").write_text(f"workload,freq_ghz,time_s\n{rows}", encoding="utf-8")
    return ("project", tmp_path / "läufe.csv", *CLOCK)


@pytest.fixture(scope="session")
def locales(tmp_path_factory):
    """Environments by the encoding that they ask for."""
    folder, german = tmp_path_factory.mktemp("locales"), "de_DE.ISO-8859-1"
    made = ["localedef", "-i", "de_DE", "-f", "ISO-8859-1", str(folder / german)]
    subprocess.run(made, check=True)
    strict = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    return {
        "ascii": {**strict, "LC_ALL": "C"},
        "iso8859-1": {**strict, "LC_ALL": german, "LANG": german, "LOCPATH": str(folder)},
    }


@for_measuring
@pytest.mark.parametrize("encoding", ["ascii", "iso8859-1"])
def test_other_locales(encoding, locales, project, process, tmp_path):
    env = locales[encoding]
    # What the encoding lacks is spelt out.
    done = process(*project, env=env)
    assert (done.stderr, done.returncode) == (b"", 0)
    assert "\\u65e5\\u672c" in done.stdout.decode(encoding)
    assert ("größe" in done.stdout.decode(encoding)) == (encoding == "iso8859-1")
    for form in ("json", "csv", "html"):
        into = tmp_path / f"antwort für.{form}"
        done = process(*project, "--format", form, "--output", into, env=env)
        assert (done.stdout, done.returncode) == (b"", 0)
        assert NAME in into.read_text(encoding="utf-8")
    done = process("project", "größe.csv", *CLOCK, env=env)
    assert done.returncode == 1
    assert done.stderr.startswith(b"ppw: error: gr")
    assert done.stderr.endswith(b"cannot be read: No such file or directory\n")
    assert done.stderr.count(b"\n") == 1
    for asked in (TRACE, ("hosts",)):
        done = worked(process(*asked, env=env))


@for_measuring
class TestRights:
    def test_a_user_who_owns_nothing(self, project, process, tmp_path):
        tmp_path.chmod(0o755)
        owned = {"wrapped": AS_NOBODY, "env": {"HOME": "/nonexistent", **UNWATCHED}}
        for command in ((*project, "--format", "html"), ("hosts",)):
            done = process(*command, **owned)
            assert (done.stderr.count(b"\n") <= 1, done.returncode) == (True, 0), done.stderr
        done = process(*project, "-o", "it", **owned)
        assert done.returncode == 1
        assert done.stderr == b"ppw: error: it: cannot be written: Permission denied\n"

    def test_a_machine_that_cannot_be_written_to(self, project, process, tmp_path):
        folders = dict.fromkeys(("HOME", "TMPDIR", "XDG_CACHE_HOME"), str(tmp_path))
        there = {"wrapped": (*READ_ONLY, tmp_path), "env": {**folders, **UNWATCHED}}
        done = worked(process(*TRACE, **there))
        assert b" requests in " in done.stdout
        done = process(*project, "-o", "it", **there)
        assert done.returncode == 1
        assert done.stderr == b"ppw: error: it: cannot be written: Read-only file system\n"


@for_measuring
def test_machine_code_without_room_on_the_disk_only_costs_time(tmp_path, full_disk):
    script = tmp_path / "it.py"
    script.write_text("import fitting.compiled.loops as c\nprint(c.jit(lambda x: 2 * x)(21.0))\n")
    kept = {k: v for k, v in os.environ.items() if not k.startswith("NUMBA")}
    env = {**kept, "PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(full_disk)}
    command = [sys.executable, "-W", "error", script]
    assert subprocess.check_output(command, env=env, text=True) == "42.0\n"


@pytest.fixture
def full_disk(tmp_path):
    """A disk of 32 kB, all of it taken."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32k", "tmpfs", folder], check=True)
    room = os.statvfs(folder)
    (folder / "filler").write_bytes(bytes(room.f_bavail * room.f_frsize))
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


class TestFullDisks:
    # An answer that fits the buffer, and one that does not.
    @pytest.mark.parametrize("asked", [("hosts",), ("demo", "--runs", "-")], ids=" ".join)
    def test_standard_output(self, asked, process):
        with Path("/dev/full").open("wb") as full:
            done = process(*asked, stdout=full)
        assert done.returncode == 1
        last = done.stderr.splitlines()[-1]
        assert last == b"ppw: error: standard output: No space left on device"
        assert b"Traceback" not in done.stderr

    @for_measuring
    @pytest.mark.cases(
        "command",
        *(("demo", "--runs", "out.csv"), ("demo", "--runs", "out.parquet")),
        *((*words, "--format", "json", "-o", "out.json") for words in (TRACE, ("hosts",))),
    )
    def test_files_appear_whole_or_not_at_all(self, command, full_disk):
        into = full_disk / command[-1]
        done = ppw_inside(*command[:-1], into, cwd=full_disk)
        assert done.returncode == 1
        said = done.stderr.splitlines()[-1]
        assert said.startswith(f"ppw: error: {into}: cannot be written: ")
        assert "No space left on device" in said
        assert [p.name for p in full_disk.iterdir()] == ["filler"]


class TestClosedEnds:
    """Shells close what they are told to: >&-."""

    @pytest.fixture
    def closed(self, process):
        return lambda end, *given: process(*given, wrapped=("sh", "-c", f'exec "$@" {end}', "sh"))

    def test_output_and_input_that_are_closed(self, closed):
        done = closed(">&-", "hosts")
        assert done.returncode == 1
        assert done.stderr == b"ppw: error: standard output: Bad file descriptor\n"
        done = closed("<&-", "project", "-", *CLOCK)
        assert (done.returncode, done.stderr) == (1, b"ppw: error: standard input: is empty\n")

    def test_files_are_written_all_the_same(self, closed, tmp_path):
        done = closed(">&- <&-", "hosts", "-o", "it.txt")
        assert (done.stderr, done.returncode) == (b"", 0)
        assert "Xeon" in (tmp_path / "it.txt").read_text(encoding="utf-8")

    def test_errors_that_nobody_reads_and_a_reader_that_has_gone(self, closed, process):
        done = closed("2>&-", "project", "nothing.csv", *CLOCK)
        assert (done.stdout, done.returncode) == (b"", 1)
        done = worked(closed("2>&-", "hosts"))
        assert b"Xeon" in done.stdout
        done = process("hosts", wrapped=("sh", "-c", '"$@" | true', "sh"))
        assert done.stderr == b""


# Presses tab: what is offered, by the function that was loaded.
PRESS = """
eval "$(ppw --completion bash)"; compopt() { COMPREPLY=("$*"); }; COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1)); COMPREPLY=()
$(complete -p ppw | sed 's/.*-F //; s/ .*//') ppw; printf "%s\\n" "${COMPREPLY[@]}"
"""


@pytest.mark.peer("measure")
def test_completion_in_bash(tmp_path):
    program = tmp_path / "bin" / "ppw"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ppw "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    known = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    names = ["pressure", "procure", "project"]
    for words, offered in (["pr"], names), (["project", "ru"], ["-o", "default"]):
        asked = ["bash", "--norc", "-c", PRESS, "bash", "ppw", *words]
        kept = {"capture_output": True, "text": True, "check": True, "cwd": tmp_path}
        done = subprocess.run(asked, env=known, **kept)
        assert (done.stdout.split("\n")[:-1], done.stderr) == (offered, "")


@pytest.mark.cases(
    "words, offered",
    (("project", "--fo"), ["--form", "--format"]),
    (("project", "--format", ""), ["text", "json", "csv", "html"]),
    (("project", "runs.csv", "--output", ""), [""]),
)
def test_completion_of_options_choices_and_files(tmp_path, words, offered):
    asked = {"_PPW_COMPLETE": "bash_complete", "COMP_CWORD": str(len(words))}
    done = ppw_inside(cwd=tmp_path, **asked, COMP_WORDS=" ".join(["ppw", *words]))
    assert [line.partition(",")[2] for line in done.stdout.splitlines()] == offered
    for shell in ("zsh", "fish"):
        text = printed(ppw_inside("--completion", shell, cwd=tmp_path))
        assert f"_PPW_COMPLETE={shell}_complete" in text
