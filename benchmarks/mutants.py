"""Mutation testing: the share of small faults in ``fitting`` and ``ppw`` that the tests find.

A sample of mutants is run against the tests that call the changed function, the nearest first. What
survives is printed; what changes nothing that could be told from outside is listed, with the
reason, in ``equivalent_mutants.toml`` beside this script and counted apart.

    python benchmarks/mutants.py [--each 10] [--total 200] [--seed 1] [--module
    fitting.regression.lines ...]

Results stand in ``build/mutants``, and another run goes on from there: ``--again`` first repeats
what survived. Twenty minutes of a core go to learning what each test calls, a second or two to each
mutant.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mutant_tests import PACKAGES, ROOT, killed, mapped, module_name, nearest, prepare
from mutations import OPERATORS, Drawn, Mutant, sample

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SCRATCH = ROOT / "build" / "mutants"
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.toml")
TESTS = ("tests/fitting/test_*.py", "tests/ppw/test_*.py")
# What ppw reads, draws, prints and keeps as data: not what it computes.
NOT_COMPUTED = (
    *(
        "ppw/cli/*",
        "ppw/*/report.py",
        "ppw/*/plots.py",
        "ppw/catalogue/*",
        "ppw/published*",
        "ppw/__*",
    ),
    *(
        "ppw/cli/demo.py",
        "ppw/cli/demo.py",
        "ppw/projection/plots.py",
        "ppw/results/result.py",
        "ppw/results/result.py",
    ),
    *(
        "measurements/sweep/measure.py",
        "measurements/workloads/service.py",
        "measurements/workloads/hadoop/job_sweep.py",
        "measurements/sweep/measure.py",
    ),
)
# Of processor time: of all tests of a file while they are listened to, and of those of a mutant.
MAPPING_LIMIT, MUTANT_LIMIT = 240.0, 10.0


def main() -> None:
    """Sample, run what has not been run, and print what survives."""
    options = _options()
    SCRATCH.mkdir(parents=True, exist_ok=True)
    ends = time.monotonic() + 60 * options.minutes
    named = options.module
    chosen = [p for p in _sources() if not named or module_name(p) in named]
    drawn = sorted((d for p in chosen for d in _sampled(p, options.each, options.seed)), key=_order)
    mutants = [d.mutant for d in drawn[: options.total]]
    prepare(SCRATCH)
    tests = _map(ends)
    results = _Results(again=options.again)
    for mutant in mutants:
        if mutant.name not in results.found and time.monotonic() < ends:
            near = nearest(tests, mutant.module, mutant.function, MUTANT_LIMIT)
            dead = bool(near) and killed(mutant, near, SCRATCH, 1.5 * MUTANT_LIMIT)
            results.add(mutant, dead)
    print("\n".join([*_report(mutants, results.found), *_gone()]))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--each", type=int, default=10, help="mutants a module")
    parser.add_argument("--total", type=int, help="mutants in all: these of those, at random")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--module", action="append", default=[], help="this one only; repeatable")
    parser.add_argument("--minutes", type=float, default=600, help="stop after these")
    parser.add_argument("--again", action="store_true", help="repeat what survived")
    return parser.parse_args()


def _sources() -> list[Path]:
    found = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return sorted(p for p in found if not any(p.match(pattern) for pattern in NOT_COMPUTED))


def _order(drawn: Drawn) -> int:
    return drawn.order


def _sampled(path: Path, each: int, seed: int) -> list[Drawn]:
    """Mutants of a module; made anew, which takes seconds, when it has changed."""
    module = module_name(path)
    label = hashlib.sha256(path.read_bytes() + repr((each, seed, OPERATORS)).encode()).hexdigest()
    kept = SCRATCH / f"sample-{module}-{label[:16]}.json"
    if not kept.exists():
        made = sample(path, module, each, seed)
        kept.write_text(json.dumps([(d.order, asdict(d.mutant)) for d in made]))
    return [Drawn(order, Mutant(**fields)) for order, fields in json.loads(kept.read_text())]


def _map(ends: float) -> dict[str, dict[str, Any]]:
    """What every test calls; files that have not changed are not run again."""
    kept = SCRATCH / "calls.json"
    known: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
    calls: dict[str, Any] = {}
    for path in sorted(path for pattern in TESTS for path in ROOT.glob(pattern)):
        name, digest = str(path.relative_to(ROOT)), hashlib.sha256(path.read_bytes()).hexdigest()
        if known.get(name, {}).get("digest") != digest:
            if time.monotonic() > ends:
                continue
            known[name] = {"digest": digest, "tests": mapped(name, SCRATCH, MAPPING_LIMIT)}
            kept.write_text(json.dumps(known))
        if not known[name]["tests"]:
            print(f"{name} is left out: no test of it runs here and passes in time")
        calls |= known[name]["tests"]
    return calls


class _Results:
    """Which mutants were killed, kept in a file as they come."""

    def __init__(self, *, again: bool) -> None:
        self._file = SCRATCH / "results.jsonl"
        lines = self._file.read_text().splitlines() if self._file.exists() else []
        self.found = {tuple(name): dead for *name, dead in map(json.loads, lines)}
        if again:
            self.found = {name: dead for name, dead in self.found.items() if dead}

    def add(self, mutant: Mutant, dead: bool) -> None:
        self.found[mutant.name] = dead
        with self._file.open("a") as file:
            file.write(json.dumps([*mutant.name, dead]) + "\n")


def _equivalent() -> set[tuple[str, ...]]:
    listed = tomllib.loads(EQUIVALENT.read_text())["mutant"]
    return {tuple(m[k] for k in ("module", "function", "before", "after")) for m in listed}


def _report(mutants: Iterable[Mutant], found: dict[tuple[str, ...], bool]) -> Iterator[str]:
    run = [m for m in mutants if m.name in found]
    same = _equivalent()
    survived = [m for m in run if not found[m.name] and m.name not in same]
    for m in survived:
        yield f"survived  {m.module}.{m.function}\n    - {m.before}\n    + {m.after}"
    yield f"{'module':36}{'sampled':>9}{'killed':>9}{'survived':>9}{'equivalent':>12}"
    for module in sorted({m.module for m in run}):
        yield _row(module, [m for m in run if m.module == module], found, same)
    yield _row("all", run, found, same)
    told = [m for m in run if found[m.name] or m.name not in same]
    if told:
        yield f"{100 * (1 - len(survived) / len(told)):.1f} % killed of those not equivalent"


def _gone() -> Iterator[str]:
    """Mutants listed as equivalent whose line is in the source no more."""
    for module, function, before, _ in sorted(_equivalent()):
        path = ROOT.joinpath(*module.split(".")).with_suffix(".py")
        if not path.exists() or before not in map(str.strip, path.read_text().splitlines()):
            yield f"listed, but gone: {module}.{function}: {before}"


def _row(
    title: str, of: list[Mutant], found: dict[tuple[str, ...], bool], same: set[tuple[str, ...]]
) -> str:
    dead = sum(found[m.name] for m in of)
    alike = sum(not found[m.name] and m.name in same for m in of)
    return f"{title:36}{len(of):9}{dead:9}{len(of) - dead - alike:9}{alike:12}"


if __name__ == "__main__":
    main()
