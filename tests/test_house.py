"""The house: ARCHITECTURE.md and the import contracts name its rooms, CONTRIBUTING.md its doors."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
    "contracts"
]
PACKAGES = ("ppw", "measurements", "fitting")
each_package = pytest.mark.parametrize("package", PACKAGES)


def folders(package):
    """Names of the rooms: folders with Python files."""
    return {path.parent.name for path in (ROOT / package).glob("*/*.py")}


def layers(package):
    """Rooms by their layer in the contract, the highest first."""
    lines = next(c["layers"] for c in CONTRACTS if c.get("containers") == [package])
    return [{room.strip() for room in line.split("|")} for line in lines]


def picture(package):
    """Rooms by their line of the picture, below the name of the package."""
    drawn = PAGE.split("```")[1].splitlines()
    (top,) = [n for n, line in enumerate(drawn) if f"{package}/" in line]
    left = drawn[top].index(f"{package}/")
    # A column ends where the next package begins.
    ends = [drawn[top].find(f"{other}/") for other in PACKAGES]
    right = min([end for end in ends if end > left], default=None)
    rows = []
    for line in drawn[top + 1 :]:
        if "─" in line:
            break
        rows.append(set(line[left:right].split()))
    return [row for row in rows if row]


@each_package
def test_the_table_names_each_room(package):
    section = re.split(rf"^## {package}$", PAGE, flags=re.M)[1].split("\n## ")[0]
    named = re.findall(r"^\| `(\w+)/` \| \S", section, flags=re.M)
    assert len(named) == len(set(named))
    assert set(named) == folders(package)


@each_package
def test_the_picture_shows_the_layers_of_the_import_contract(package):
    assert picture(package) == layers(package)
    assert set().union(*layers(package)) == folders(package)


def test_the_page_is_one_page_and_names_modules_that_exist():
    assert len(PAGE.splitlines()) <= 110
    for path in re.findall(r"`((?:ppw|measurements|fitting)/[\w/]+(?:\.py)?)`", PAGE):
        assert (ROOT / path).exists(), path


def hunks():
    """File and old lines of each place that the diffs of CONTRIBUTING.md change."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for diff in re.findall(r"^```diff\n(.*?)^```$", page, flags=re.M | re.S):
        for part in re.split(r"^--- ", diff, flags=re.M)[1:]:
            old, new, *body = part.splitlines()
            for hunk in re.split(r"^@@ .*\n", "\n".join([*body, ""]), flags=re.M)[1:]:
                lines = [line[1:] for line in hunk.splitlines() if line[0] in " -"]
                yield new.removeprefix("+++ b/"), "\n".join(lines), old == "/dev/null"


def test_the_changes_that_contributing_shows_still_apply():
    found = list(hunks())
    assert len(found) >= 15
    for file, lines, is_new in found:
        path = ROOT / file
        assert path.exists() != is_new, file
        text = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        assert is_new or set(lines.splitlines()) <= set(text), (file, lines)
