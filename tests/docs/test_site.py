"""The documentation site: built without a network, complete, and at work from the file system."""

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import fitting
import measurements
import measurements.timeseries
import measurements.traces
import ppw

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (ppw, fitting, measurements, measurements.timeseries, measurements.traces)
# Links that a reader follows; all else is loaded with the page.
FOLLOWED = {"a", "form"}
WITHOUT_NETWORK = """
import runpy, socket
socket.socket.connect = socket.getaddrinfo = None
runpy.run_module("mkdocs", run_name="__main__")
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Folder of the site, made where there is no network."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [*(sys.executable, "-c", WITHOUT_NETWORK, "build", "--strict", "--site-dir", str(folder))],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


class Loaded(HTMLParser):
    """Addresses that a page loads by itself."""

    def __init__(self, page):
        super().__init__()
        self.found = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        names = ("src", "href", "srcset", "data", "poster")
        self.found += [v for k, v in attrs if k in names and v and tag not in FOLLOWED]


def test_no_page_loads_anything_from_elsewhere(site):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        found = Loaded(page).found
        assert found
        assert [at for at in found if re.match(r"(\w+:)?//", at)] == [], page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*[\"']?(https?:)?//", sheet.read_text("utf-8"))


def test_search_has_what_it_needs_in_the_file_system(site):
    # A page of the file system may not read JSON or start a worker: both come as scripts.
    index = (site / "search" / "search_index.js").read_text(encoding="utf-8")
    entries = json.loads(re.fullmatch(r"\s*var __index = (.*?);?\s*", index, re.S)[1])["docs"]
    said = {entry["location"]: (entry["title"] + entry["text"]).lower() for entry in entries}
    assert "path length" in said["models/path-length.html"]
    assert [e["location"] for e in entries if "install" in e["title"].lower()] == [
        "installation.html"
    ]
    for page in site.rglob("*.html"):
        worker = [at for at in Loaded(page).found if at.endswith("iframe-worker.js")]
        assert page.name == "404.html" or (page.parent / worker[0]).is_file()


def test_the_reference_has_every_public_name_and_command(site):
    text = "".join(p.read_text(encoding="utf-8") for p in (site / "reference").glob("*.html"))
    shown = set(re.findall(r'<h2 id="([\w.]+)"', text))
    # What `ppw` takes over from the others stands with them.
    missing = [
        (package.__name__, name)
        for package in PACKAGES
        for name in package.__all__
        if name != "__version__"
        and not {f"{home}.{name}" for home in (package.__name__, "fitting", "measurements")} & shown
    ]
    assert missing == []
    index = (site / "reference" / "names.html").read_text(encoding="utf-8")
    assert [n for n in shown if "." in n and f'.html#{n}"' not in index] == []
    for name in ("ppw project", "ppw cpio study", "ppw run memcached", "ppw trace whatif"):
        assert f">{name}<" in text


def test_the_gallery_shows_every_example(site):
    drawn = {figure.stem for figure in (site / "figures").glob("*.svg")}
    page = (site / "gallery.html").read_text(encoding="utf-8")
    assert drawn == set(re.findall(r'src="figures/(\w+)\.svg"', page))
    assert len(drawn) >= 11
