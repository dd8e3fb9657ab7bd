"""How answers over a fleet grow with its runs, beside DuckDB's own sums, pandas and Spark.

``python benchmarks/bench_fleet.py --folder FOLDER [--files 16] [--rows 12500000]`` makes Parquet
files of runs in FOLDER (200 million runs are 3 GB), asks for the fits and the projections of 1, 4
and 16 of them, each in a process of its own, and prints a line a question: seconds, processor
seconds, the highest memory of the process, and the exponent of the growth. Beside the fits stand

* DuckDB's ``GROUP BY`` sums over the same keys and columns, in the same process as the fits;
* the same moments in pandas: Parquet read, number, mean and variance by the same keys of the same
  columns, no value judged and no curve fitted; on the first file and on the first two, and in
  proportion for the largest size, which would not fit in memory;
* the answer in memory (`ppw.fit`) on the first file, and in proportion.

``--spark ROWS`` asks a local Spark instead, over files of so many runs. DuckDB and Spark use all
cores, pandas one: hence the processor seconds.

The files hold 2000 hosts, 10 workloads and 8 frequencies: 20 000 groups and 160 000 cells, each run
of any of them, so that no cell is near another in memory.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from figures import Figure, in_turns, rate

if TYPE_CHECKING:
    from collections.abc import Iterator

HOSTS, WORKLOADS, STEPS = 2000, 10, 8
LIMIT = "4GiB"
KEYS = ["host", "workload", "cores", "freq_hz"]
VALUES = ["time_s", "power_w"]
METRICS = ["time", "power"]
# Files whose runs fit in memory, for pandas.
IN_MEMORY = (1, 2)


def make(folder: Path, files: int, rows: int) -> list[str]:
    """Write the files that are not there yet."""
    import duckdb

    made = []
    for number in range(files):
        path = folder / f"runs-{rows}-{number:03}.parquet"
        made.append(str(path))
        if path.exists():
            continue
        connection = duckdb.connect()
        connection.execute(f"select setseed({(number + 1) / 1000})")
        connection.execute(
            f"""
            copy (
                with r as (
                    select hash(i + {number * rows}) as h, random() + random() as noise,
                           random() + random() as hum
                    from range({rows}) t(i)
                ),
                s as (
                    select h % {HOSTS} as m, h // {HOSTS} % {WORKLOADS} as w,
                           1.2 + (h // {HOSTS * WORKLOADS} % {STEPS}) / 5 as ghz, noise, hum from r
                )
                select 'host-' || m as host, 'work-' || w as workload, 8 as cores,
                       ghz * 1e9 as freq_hz,
                       round((2 + w + (20 + m % 50) / ghz) * (0.99 + 0.01 * noise), 6) as time_s,
                       round((40 + m % 30 + 6 * ghz * ghz) * (0.99 + 0.01 * hum), 4) as power_w,
                       'rapl:package' as power_source
                from s
            ) to '{path}' (format parquet)
            """
        )
    return made


def sums(paths: list[str]) -> int:
    """DuckDB's own sums over the keys and columns of the fits; the number of groups."""
    import duckdb

    connection = duckdb.connect(config={"memory_limit": LIMIT, "preserve_insertion_order": False})
    summed = ", ".join(f"sum({value})" for value in VALUES)
    found = connection.execute(
        f"select {', '.join(KEYS)}, {summed} from read_parquet(?) group by all", [paths]
    )
    return int(found.to_arrow_table().num_rows)


def ask(question: str, engine: Any, paths: list[str]) -> int:
    """Ask a fleet; the number of cells."""
    from ppw import fleet

    asked: dict[str, Any] = {"metric": METRICS, "engine": engine}
    if question == "fit":
        answer = fleet.fit(paths, **asked)
    else:
        answer = fleet.project(paths, freq="3GHz", keep_all=question == "project", **asked)
    return int(answer.origin.cells)


def in_pandas(paths: list[str]) -> int:
    """Number, mean and centred second moment of each cell's times and watts, in pandas."""
    import pandas as pd

    keys = [*KEYS, "power_source"]
    runs = pd.concat([pd.read_parquet(path, columns=[*keys, *VALUES]) for path in paths])
    cells = runs.groupby(keys, dropna=False, sort=False)[VALUES].agg(["count", "mean", "var"])
    for value in VALUES:
        cells[value, "m2"] = cells[value, "var"] * (cells[value, "count"] - 1)
    return len(cells)


def in_memory(paths: list[str]) -> int:
    """Read and fit in memory; the number of parameters."""
    import ppw

    return len(ppw.fit(ppw.read_runs(paths), metric=METRICS).table)


def one(name: str, engine: str, paths: list[str], folder: str) -> None:
    """Measure one thing in this process and print it as JSON."""
    warnings.simplefilter("ignore")
    measured: dict[str, Any] = {}
    if name == "sums":
        # So that what is measured after it finds the files in the page cache.
        sums(paths)
    works = {
        "sums": lambda: sums(paths),
        "pandas": lambda: in_pandas(paths),
        "memory": lambda: in_memory(paths),
    }
    if name not in works:
        from ppw import fleet

        connection = fleet.connect(engine, memory_limit=LIMIT, temporary=folder)
        if engine == "spark":
            # Its first question is of a Java that has compiled nothing.
            ask("fit", connection, paths[:1])
        works[name] = lambda: ask(name, connection, paths)
    start, spent = time.perf_counter(), time.process_time()
    measured["rows"] = works[name]()
    measured["seconds"] = time.perf_counter() - start
    # Spark's processor seconds are of another process.
    measured["cpu"] = time.process_time() - spent if engine == "duckdb" else float("nan")
    measured["gib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps(measured))


def measure(name: str, engine: str, paths: list[str], folder: str) -> dict[str, Any]:
    """Measure in a process of its own."""
    command = [sys.executable, __file__, "--one", name, "--engine", engine, "--folder", folder]
    done = subprocess.run([*command, *paths], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return measured


def exponent(sizes: list[int], seconds: list[float]) -> float:
    """Slope of ln(seconds) by ln(size)."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def show(who: str, what: str, runs: int, found: dict[str, Any], more: str = "") -> None:
    """Print what was measured."""
    line = f"{who:7} {what:8} {runs:>12,} runs {found['seconds']:8.2f} s"
    print(f"{line} {found['cpu']:8.2f} core-s {found['gib']:6.2f} GiB{more}", flush=True)


def report(engine: str, questions: list[str], paths: list[str], folder: str, rows: int) -> None:
    """Measure questions at 1, 4 and 16 files, and print them; of fits on DuckDB also the peers."""
    counts = [n for n in (1, 4, 16, 64) if n <= len(paths)]
    for question in questions:
        beside = question == "fit" and engine == "duckdb"
        found = []
        for n in counts:
            summed = measure("sums", engine, paths[:n], folder) if beside else None
            found.append(measure(question, engine, paths[:n], folder))
            more = f"  {found[-1]['rows']:,} cells"
            if summed:
                show(engine, "sums", n * rows, summed)
                more += f"  {found[-1]['seconds'] / summed['seconds']:.2f} x the sums"
            show(engine, question, n * rows, found[-1], more)
        slope = exponent([n * rows for n in counts], [f["seconds"] for f in found])
        print(f"{engine:7} {question:8} exponent {slope:.2f}", flush=True)
        if beside:
            peers(paths, folder, rows, counts[-1], found[-1])


def peers(paths: list[str], folder: str, rows: int, most: int, fleet: dict[str, Any]) -> None:
    """Measure pandas on what fits, and print what the largest size would take in proportion."""
    for name, sizes in (("pandas", IN_MEMORY), ("memory", IN_MEMORY[:1])):
        for n in sizes:
            found = measure(name, "duckdb", paths[:n], folder)
            there = {key: found[key] * most / n for key in ("seconds", "cpu", "gib")}
            ratio = there["seconds"] / fleet["seconds"]
            show(
                "pandas",
                "moments" if name == "pandas" else "fit_runs",
                n * rows,
                found,
                f"; {most * rows:,}: {there['seconds']:.0f} s and {there['gib']:.0f} GiB, "
                f"{ratio:.1f} x the fleet's seconds, {there['cpu'] / fleet['cpu']:.1f} x its "
                "core-seconds",
            )


def figures(scale: float = 1.0) -> Iterator[Figure]:
    """Fits of a fleet beside DuckDB's sums, pandas' moments and the fits in memory."""
    from ppw import fleet

    rows = int(3_000_000 * scale)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        paths = make(Path(folder), 1, rows)
        connection = fleet.connect("duckdb", memory_limit=LIMIT, temporary=folder)
        works = [
            lambda: ask("fit", connection, paths),
            lambda: sums(paths),
            lambda: in_pandas(paths),
            lambda: in_memory(paths),
        ]
        ours, *theirs = in_turns(3, *works)
        named = ("DuckDB's sums by the same keys", "the same moments in pandas", "ppw.fit")
        for peer, seconds in zip(named, theirs, strict=True):
            name = f"fit {rows / 1e6:.3g} million runs of 20 000 groups by DuckDB"
            yield rate(name, "million runs/s", rows / 1e6, ours, peer=peer, peer_seconds=seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", required=True, help="where the files go")
    parser.add_argument("--files", type=int, default=16)
    parser.add_argument("--rows", type=int, default=12_500_000, help="of a file")
    parser.add_argument("--questions", default="fit,project,checked", help="of these three")
    parser.add_argument("--spark", type=int, metavar="ROWS", help="ask Spark over such files")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--engine", default="duckdb", help=argparse.SUPPRESS)
    parser.add_argument("paths", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one(options.one, options.engine, options.paths, options.folder)
        return
    folder = Path(options.folder)
    folder.mkdir(parents=True, exist_ok=True)
    engine, rows = ("spark", options.spark) if options.spark else ("duckdb", options.rows)
    paths = make(folder, options.files, rows)
    report(engine, options.questions.split(","), paths, options.folder, rows)


if __name__ == "__main__":
    main()
