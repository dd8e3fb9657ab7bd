"""Share of branches and lines that the tests reach, package by package.

    coverage json -o build/coverage.json
    python benchmarks/branches.py build/coverage.json [--least 95] [--missing]

Fails where fewer than the least branches of a package were taken. ``--missing`` lists the modules
that lack any, the most first.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

PACKAGES = ("fitting", "ppw")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("report", type=Path, help="what coverage json wrote")
    parser.add_argument("--least", type=float, default=95.0, help="percent of branches")
    parser.add_argument("--missing", action="store_true", help="list what was not reached")
    asked = parser.parse_args()
    files = json.loads(asked.report.read_text(encoding="utf-8"))["files"]
    few = []
    for package in PACKAGES:
        found = {name: f for name, f in files.items() if name.startswith(f"{package}/")}
        branches = share(found, "covered_branches", "num_branches")
        lines = share(found, "covered_lines", "num_statements")
        print(f"{package}: {branches:.1f} % of branches, {lines:.1f} % of lines")
        if asked.missing:
            print(*missing(found), sep="\n")
        if branches < asked.least:
            few.append(package)
    if few:
        sys.exit(f"branches: under {asked.least:g} % in {', '.join(few)}: see --missing")


def share(files: dict[str, Any], covered: str, all_: str) -> float:
    counts = [f["summary"] for f in files.values()]
    return 100.0 * sum(c[covered] for c in counts) / sum(c[all_] for c in counts)


def missing(files: dict[str, Any]) -> list[str]:
    by_count = sorted(files.items(), key=lambda pair: -pair[1]["summary"]["missing_branches"])
    return [
        f"  {name}: {', '.join(f'{a}-{b}' for a, b in f['missing_branches'])}"
        for name, f in by_count
        if f["missing_branches"]
    ]


if __name__ == "__main__":
    main()
