"""Public data sets: the registry, a local folder, and fetching from a server that may fail."""

import hashlib
import io
import json
import re
import shlex
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from processes import ROOT, ppw_inside, refused, worked
from requests import exceptions

import ppw
from ppw.catalogue import datasets as ds
from ppw.catalogue.datasets import State, fetch_dataset, load_dataset, state_of, states_text
from ppw.cli import choose_answer, main
from ppw.errors import PpwError

RUNS = b"Clock (MHz);seconds;joules_wrong\n1000;2.5;0\n2000;1.5;0\n"
LOG = b"not a table\n"
OTHER = "its checksum is not that of the published file"
FILES = {"runs.csv": RUNS, "day.log": LOG}
SET = """
title = "Two clocks"
what = "2 runs"
kind = "{kind}"
origin = "http://127.0.0.1/about"
{base}
licence = "CC0-1.0"
terms = "none"
read_with = ["ppw fit small/{name} --map 'freq_mhz=Clock (MHz)'"]
quality = ["made for tests"]
drop = [{drop}]

[map]
freq_mhz = "Clock (MHz)"

[[file]]
path = "raw/{name}"
{at}
{check}
columns = {{ workload = "sort" }}
"""


@pytest.fixture
def known(tmp_path, monkeypatch):
    """Make ppw know one set, "small"; the function takes where it is and how it is checked."""

    def make(address="", *, name="runs.csv", kind="runs", checksum=None, checked=True):
        folder = tmp_path / "registry"
        folder.mkdir(exist_ok=True)
        size, digest = len(FILES[name]), checksum or hashlib.sha256(FILES[name]).hexdigest()
        text = SET.format(
            name=name,
            kind=kind,
            base=f'files_at = "{address}/"' * bool(address),
            at=f'at = "{name}"' * bool(address),
            check=f'size = {size}\nsha256 = "{digest}"' * checked,
            drop='"joules_wrong"' * (kind == "runs"),
        )
        (folder / "small.toml").write_text(text)
        there = SimpleNamespace(joinpath=lambda *parts: folder)
        monkeypatch.setattr(ds, "files", lambda package: there)
        ds.datasets_by_name.cache_clear()
        return ds.datasets_by_name()["small"]

    yield make
    ds.datasets_by_name.cache_clear()


class Files(BaseHTTPRequestHandler):
    """A server of files that can fail as servers do: at some paths none is there, or breaks off."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.asked.append(self.path)
        content = FILES.get(self.path.rpartition("/")[2])
        if content is None or self.path.startswith("/missing"):
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.close_connection = self.path.startswith("/broken")
        self.wfile.write(content[: len(content) // 2] if self.close_connection else content)

    def log_message(self, *arguments):
        """Say nothing."""


@pytest.fixture
def server():
    """Address of a server, and the paths that were asked for."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Files) as server:
        server.asked = []
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", server.asked
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def no_folder_of_the_users(tmp_path, monkeypatch):
    monkeypatch.delenv("PPW_DATA_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for variable in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(variable, raising=False)
        monkeypatch.delenv(variable.lower(), raising=False)


def put(folder, content=RUNS, name="runs.csv"):
    path = folder / "small" / "raw" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


SETS = ds.datasets_by_name()


class TestRegistry:
    def test_every_set_says_what_it_is_whose_and_how_to_read_it(self):
        for name, one in SETS.items():
            assert re.fullmatch(r"[a-z0-9-]+", name)
            assert one.kind in ("runs", "block trace", "log", "power levels")
            assert all((one.title, one.what, one.licence, one.files)), name
            assert one.origin.startswith("https://")
            assert one.can_be_fetched or one.made_from

    def test_every_file_stays_in_its_folder_and_is_of_one_version_of_a_public_repository(self):
        files = [f for one in ds.datasets_by_name().values() for f in one.files]
        assert len({f.path for f in files}) == len(files)
        assert any(f.url for f in files)
        repository = r"https://raw\.githubusercontent\.com/[^/]+/[^/]+/[0-9a-f]{40}/"
        for file in files:
            assert not file.path.startswith("/")
            assert ".." not in file.path.split("/")
            assert not file.url or re.match(repository, file.url)
            # Whatever is downloaded is checked.
            assert (file.url is None) == (file.size is None) == (file.sha256 is None)
            assert file.sha256 is None or re.fullmatch("[0-9a-f]{64}", file.sha256)

    def test_commands_to_read_a_set_name_its_files_and_options_that_exist(self):
        for one in ds.datasets_by_name().values():
            for said in one.read_with:
                program, *words = shlex.split(said)
                assert program == "ppw"
                assert any(f.path in word for f in one.files for word in words)
                _, answers, rest = choose_answer(words)
                words = [answers, *rest] if answers else words
                command, context = main, None
                while hasattr(command, "get_command"):
                    command = command.get_command(context, words.pop(0))
                command.make_context(command.name, words)

    def test_none_of_the_data_comes_with_ppw(self):
        folder = ROOT / "ppw/catalogue/data/sets"
        assert {p.suffix for p in folder.rglob("*") if p.is_file()} == {".toml"}


class TestFolder:
    def test_each_state_of_a_file(self, known, tmp_path):
        one = known()
        assert state_of(one.files[0], tmp_path) is State.MISSING
        put(tmp_path)
        assert state_of(one.files[0], tmp_path) is State.VERIFIED
        put(tmp_path, RUNS + b"3000;1;0\n")
        assert state_of(one.files[0], tmp_path) is State.WRONG
        assert state_of(known(checked=False).files[0], tmp_path) is State.UNVERIFIED

    def test_counts_in_words(self):
        counts = dict.fromkeys(State, 0)
        assert states_text(counts | {State.MISSING: 3}) == "not here"
        assert states_text(counts | {State.VERIFIED: 3}) == "all of 3 files, checksums right"
        mixed = {State.VERIFIED: 1, State.MISSING: 2, State.WRONG: 1, State.UNVERIFIED: 1}
        assert states_text(counts | mixed) == "of 5 files 1 wrong, 2 missing, 1 not checked"

    def test_a_folder_that_is_not_there(self, monkeypatch):
        with pytest.raises(PpwError, match="/nowhere: no such folder of data sets"):
            ds.list_datasets("/nowhere")
        monkeypatch.setenv("PPW_DATA_DIR", "/nowhere")
        with pytest.raises(PpwError, match=r"/nowhere \(PPW_DATA_DIR\): no such folder"):
            load_dataset("c3o")

    def test_the_cache_is_the_users(self, tmp_path, monkeypatch):
        assert ds.cache_folder() == tmp_path / "cache" / "ppw" / "data"
        monkeypatch.setenv("XDG_CACHE_HOME", "relative")
        monkeypatch.setenv("HOME", str(tmp_path))
        assert ds.cache_folder() == tmp_path / ".cache" / "ppw" / "data"


class TestLoading:
    def test_runs_are_in_si_units_and_keep_their_licence(self, known, tmp_path, monkeypatch):
        known()
        put(tmp_path)
        runs = load_dataset("small", tmp_path)
        assert (runs["freq_hz"].tolist(), runs["time_s"].tolist()) == ([1e9, 2e9], [2.5, 1.5])
        assert runs["workload"].tolist() == ["sort", "sort"]
        assert "joules_wrong" not in runs
        assert runs.attrs["licence"] == "CC0-1.0 (none)"
        assert runs.attrs["quality"] == ["made for tests"]
        assert runs.attrs["digest"].startswith("sha256:")
        monkeypatch.setenv("PPW_DATA_DIR", str(tmp_path))
        assert load_dataset("small").equals(runs)

    def test_of_others_the_paths(self, known, tmp_path):
        known(name="day.log", kind="log")
        path = put(tmp_path, LOG, "day.log")
        assert load_dataset("small", tmp_path) == [path]

    def test_from_its_origin_into_the_cache_once(self, known, server):
        address, asked = server
        known(address)
        assert len(load_dataset("small")) == 2
        assert len(load_dataset("small")) == 2
        assert asked == ["/runs.csv"]

    def test_a_folder_that_was_named_is_not_fetched_to(self, known, server, tmp_path):
        address, asked = server
        known(address)
        with pytest.raises(PpwError, match=r"runs.csv: not here: ppw datasets small --fetch gets"):
            load_dataset("small", tmp_path)
        assert asked == []

    def test_another_file_than_the_origins(self, known, tmp_path):
        known()
        put(tmp_path, b"else")
        with pytest.raises(PpwError, match=f"{OTHER}: remove"):
            load_dataset("small", tmp_path)


class TestFetching:
    @pytest.mark.parametrize("checked", [True, False])
    def test_a_file_with_the_right_checksum_or_an_unknown_one_is_kept(
        self, known, server, tmp_path, capfd, checked
    ):
        (path,) = fetch_dataset(known(server[0], checked=checked), tmp_path / "new")
        assert path.read_bytes() == RUNS
        assert path == tmp_path / "new" / "small" / "raw" / "runs.csv"
        assert capfd.readouterr() == ("", "")

    def refused(self, one, folder, text):
        with pytest.raises(PpwError, match=f"/runs.csv: {text}") as caught:
            fetch_dataset(one, folder)
        assert "\n" not in str(caught.value)
        assert [p for p in folder.rglob("*") if p.is_file() and "registry" not in p.parts] == []

    @pytest.mark.cases(
        "path, options, said",
        ("", {"checksum": "0" * 64}, OTHER),
        ("/missing", {}, "the server answers 404 Not Found"),
        ("/broken", {}, "the connection broke off: nothing was kept"),
        ("/broken", {"checked": False}, "the connection broke off: nothing was kept"),
    )
    def test_one_that_is_another_or_gone_or_breaks_off(
        self, known, server, tmp_path, path, options, said
    ):
        self.refused(known(server[0] + path, **options), tmp_path, said)

    def test_without_a_network_or_through_a_proxy_that_is_not_there(
        self, known, server, tmp_path, monkeypatch
    ):
        with socket.create_server(("127.0.0.1", 0)) as closed:
            nowhere = f"http://127.0.0.1:{closed.getsockname()[1]}"
        self.refused(known(nowhere), tmp_path, "no connection: download the files on another mach")
        one = known(server[0])
        monkeypatch.setenv("HTTP_PROXY", nowhere)
        self.refused(one, tmp_path, "the proxy cannot be reached or refuses")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        assert len(fetch_dataset(one, tmp_path)) == 1

    @pytest.mark.cases(
        "error, said",
        (exceptions.SSLError, "its certificate is not trusted: see REQUESTS_CA_BUNDLE"),
        (exceptions.ReadTimeout, "no answer in 30 s: try again later"),
    )
    def test_where_the_server_is_not_trusted_or_says_nothing(
        self, known, tmp_path, monkeypatch, error, said
    ):
        def refuse(*_, **__):
            raise error

        monkeypatch.setattr("requests.get", refuse)
        monkeypatch.setattr("requests.Session.get", refuse)
        self.refused(known("http://127.0.0.1:1"), tmp_path, said)

    def test_what_cannot_be_fetched(self, known, server, tmp_path):
        path = put(tmp_path, b"mine")
        with pytest.raises(PpwError, match=f"{OTHER}: move"):
            fetch_dataset(known(server[0]), tmp_path)
        assert path.read_bytes() == b"mine"
        assert server[1] == []
        with pytest.raises(PpwError, match=r"cannot be (written|read): Not a directory"):
            fetch_dataset(known(server[0]), path)
        derived = r"small: it was derived from data of .* so ppw cannot download it"
        with pytest.raises(PpwError, match=derived):
            fetch_dataset(known(), tmp_path / "new")


class TestCommand:
    @pytest.fixture
    def run(self, tmp_path):
        def run(*words):
            cache = {"XDG_CACHE_HOME": str(tmp_path)}
            return worked(ppw_inside("datasets", *words, cwd=tmp_path, **cache))

        return run

    def test_lists_what_there_is_and_what_is_here(self, known, run, tmp_path):
        known()
        (row,) = pd.read_csv(io.StringIO(run("--format", "csv").stdout)).to_dict(orient="records")
        assert (row["name"], row["size_bytes"], row["here"]) == ("small", 55, "not here")
        put(tmp_path)
        _, _, line, last = run("--folder", tmp_path).stdout.splitlines()
        assert line == "small  runs  55 B  CC0-1.0  all of 1 file, checksums right"
        assert last.startswith("1 sets, none included in ppw; ppw datasets NAME shows details")

    def test_one_with_its_licence_and_how_to_read_it(self, known, run):
        known()
        lines = run("small", "--folder", ".").stdout.splitlines()
        told = ("title: Two clocks", "origin: http://127.0.0.1/about", "licence: CC0-1.0 (none)")
        read = "  ppw fit small/runs.csv --map 'freq_mhz=Clock (MHz)'"
        state = "small/raw/runs.csv     55  not here"
        assert {"holds: runs", *told, read, state, "caveat: made for tests"} <= set(lines)

    def test_fetches_one_that_is_named_and_shows_the_licence_before(self, known, server, run):
        known(server[0])
        done = run("small", "--fetch", "--folder", "new", "--format", "json")
        assert done.stderr.splitlines() == [
            "ppw: small is of http://127.0.0.1/about, under CC0-1.0 (none)",
            f"ppw: fetching {server[0]}/runs.csv",
        ]
        document = json.loads(done.stdout)
        assert document["rows"][0]["state"] == "checksum right"
        assert (document["kind"], document["holds"]) == ("dataset", "runs")
        known(server[0], checked=False)
        done = run("small", "--fetch", "--folder", "other")
        assert "caveat: its checksum is not known, so ppw cannot check the download" in done.stderr

        done = ppw_inside("datasets", "--fetch", cwd=".")
        refused(done, "--fetch needs the name of a data set: ppw datasets NAME --fetch", code=2)


@pytest.mark.thirdparty
class TestMeasuredData:
    def test_what_is_here_is_what_its_makers_published(self, data_dir):
        for name, one in ds.datasets_by_name().items():
            counts = ds.states_of(one, data_dir)
            assert counts[State.WRONG] == 0, name
            # The whole trace that another set is cut from may be missing.
            if counts[State.MISSING] < len(one.files) and any(f.sha256 for f in one.files):
                assert counts[State.VERIFIED] == len(one.files), name

    @pytest.mark.parametrize("name", [n for n, one in SETS.items() if one.kind == "runs"])
    def test_every_set_of_runs_is_a_table_and_that_of_another_reading(self, name, data_dir):
        runs = load_dataset(name, data_dir)
        assert {"time_s", "workload"} <= set(runs)
        assert runs["time_s"].notna().all()
        assert runs["time_s"].gt(0).all()
        if name in ("nornir-repara", "freqbench"):
            other = ppw.read_runs(data_dir / name / "tidy.csv", check=False)
            for column in ("freq_hz", "time_s", "power_w"):
                ours, theirs = (np.sort(t[column].to_numpy()) for t in (runs, other))
                np.testing.assert_allclose(ours, theirs, rtol=1e-12)
            assert set(runs["host"]) == set(other["host"]) or name == "nornir-repara"

    @pytest.mark.slow
    @pytest.mark.parametrize("command", [c for one in SETS.values() for c in one.read_with])
    def test_every_command_to_read_a_set_reads_it(self, command, data_dir):
        words = shlex.split(command)[1:]
        if not any((data_dir / word).is_file() for word in words):
            words = [w.replace("PhysicsIO.vscsi", "PhysicsIO_first_hour.vscsi") for w in words]
        worked(ppw_inside(*words, cwd=data_dir))
