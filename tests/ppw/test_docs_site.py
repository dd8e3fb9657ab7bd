"""The documentation site: built without a network, complete, and at work from the file system."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest
from documentation import ROOT

import fitting
import measurements
import measurements.timeseries
import measurements.traces
import ppw

PACKAGES = (ppw, fitting, measurements, measurements.timeseries, measurements.traces)
# Links that a reader follows; all else is loaded with the page.
FOLLOWED = {"a", "form"}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Folder of the site, made where there is no network."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [
            *("unshare", "--map-root-user", "--net"),
            *(sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)),
        ],
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

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        names = ("src", "href", "srcset", "data", "poster")
        self.found += [v for k, v in attrs if k in names and v and tag not in FOLLOWED]


def test_no_page_loads_anything_from_elsewhere(site):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        loaded = Loaded()
        loaded.feed(page.read_text(encoding="utf-8"))
        assert loaded.found
        assert [at for at in loaded.found if re.match(r"(\w+:)?//", at)] == [], page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*[\"']?(https?:)?//", sheet.read_text("utf-8"))


@pytest.mark.parametrize("package", PACKAGES, ids=lambda p: p.__name__)
def test_the_reference_has_every_public_name(site, package):
    text = "".join(p.read_text(encoding="utf-8") for p in (site / "reference").glob("*.html"))
    shown = set(re.findall(r'<h2 id="([\w.]+)"', text))
    # What `ppw` takes over from the others stands with them.
    homes = (package.__name__, "fitting", "measurements")
    missing = [n for n in package.__all__ if not any(f"{home}.{n}" in shown for home in homes)]
    assert missing == []


def test_the_gallery_shows_every_example(site):
    drawn = {figure.stem for figure in (site / "figures").glob("*.svg")}
    page = (site / "gallery.html").read_text(encoding="utf-8")
    assert drawn == set(re.findall(r'src="figures/(\w+)\.svg"', page))
    assert len(drawn) >= 11


def test_every_command_is_in_the_reference(site):
    page = (site / "reference" / "commands.html").read_text(encoding="utf-8")
    for name in ("ppw project", "ppw cpio study", "ppw run memcached", "ppw trace whatif"):
        assert f">{name}<" in page


def test_search_answers_from_the_file_system(site, tmp_path):
    done = subprocess.run(
        [
            *("chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"),
            *(f"--user-data-dir={tmp_path}", "--virtual-time-budget=10000", "--dump-dom"),
            f"{(site / 'index.html').as_uri()}?q=path+length",
        ],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
        timeout=120,
    )
    found = re.findall(r'<a href="([^"]*)" class="md-search-result__link"', done.stdout)
    assert any("models/path-length.html" in link for link in found)
