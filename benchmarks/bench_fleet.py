"""How answers over a fleet grow with its runs, beside DuckDB's own sums, pandas and Spark.

``python benchmarks/bench_fleet.py --folder FOLDER [--files 16] [--rows 12500000] [--spark]`` makes
Parquet files of runs in FOLDER (200 million runs are 3 GB), asks for the fits and the
projections of 1, 4 and 16 of them, each in a process of its own, and prints a line a question:
seconds, the exponent of their growth, and the highest memory of the process. Beside it stand

* DuckDB's ``GROUP BY`` sums over the same keys and columns, in the same process as the fits;
* the answer in memory (`ppw.fit_runs`), measured on the first file and extrapolated in proportion;
* with ``--spark`` the same expressions on a local Spark, on a tenth of the rows.

The files hold 2000 hosts, 10 workloads and 8 frequencies: 20 000 groups and 160 000 cells.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

HOSTS, WORKLOADS, STEPS = 2000, 10, 8
LIMIT = "4GiB"
KEYS = "host, workload, cores, freq_hz"
METRICS = ["time", "power"]


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


def sums(paths: list[str]) -> tuple[float, int]:
    """DuckDB's own sums over the keys and columns of the fits."""
    import duckdb

    connection = duckdb.connect(config={"memory_limit": LIMIT, "preserve_insertion_order": False})
    start = time.perf_counter()
    found = connection.execute(
        f"select {KEYS}, sum(time_s), sum(power_w) from read_parquet(?) group by all", [paths]
    ).to_arrow_table()
    return time.perf_counter() - start, found.num_rows


def ask(question: str, engine: str, paths: list[str], folder: str) -> tuple[float, int]:
    """Ask a fleet; seconds, once the engine is there, and cells."""
    from ppw import fleet

    limits = {"memory_limit": LIMIT, "temporary": folder}
    connection = fleet.connect(engine, **limits)
    if engine == "spark":
        fleet.fit(paths[:1], metric=METRICS, engine=connection)
    asked: dict[str, Any] = {"metric": METRICS, "engine": connection}
    start = time.perf_counter()
    if question == "fit":
        answer = fleet.fit(paths, **asked)
    else:
        answer = fleet.project(paths, freq="3GHz", keep_all=question == "project", **asked)
    return time.perf_counter() - start, answer.origin.cells


def in_memory(paths: list[str]) -> tuple[float, int]:
    """Read and fit in memory."""
    import ppw

    start = time.perf_counter()
    runs = ppw.read_runs(paths)
    fitted = ppw.fit_runs(runs, metric=METRICS)
    return time.perf_counter() - start, len(fitted.table)


def one(name: str, engine: str, paths: list[str], folder: str) -> None:
    """Measure one thing in this process and print it as JSON."""
    warnings.simplefilter("ignore")
    measured: dict[str, Any] = {}
    if name == "fit" and engine == "duckdb":
        # Twice, so that both find the files in the page cache.
        sums(paths)
        measured["sums"], _ = sums(paths)
    made = in_memory(paths) if name == "memory" else ask(name, engine, paths, folder)
    measured["seconds"], measured["cells"] = made
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


def report(engine: str, questions: list[str], paths: list[str], folder: str, rows: int) -> None:
    """Measure questions at 1, 4 and 16 files, and print them."""
    counts = [n for n in (1, 4, 16, 64) if n <= len(paths)]
    for question in questions:
        found = [measure(question, engine, paths[:n], folder) for n in counts]
        for n, one_size in zip(counts, found, strict=True):
            line = f"{engine:7} {question:8} {n * rows:>12,} runs {one_size['seconds']:8.2f} s"
            line += f"  {one_size['cells']:,} cells  {one_size['gib']:.2f} GiB"
            if "sums" in one_size:
                ratio = one_size["seconds"] / one_size["sums"]
                line += f"  {ratio:.2f} x the sums ({one_size['sums']:.2f} s)"
            print(line, flush=True)
        slope = exponent([n * rows for n in counts], [f["seconds"] for f in found])
        print(f"{engine:7} {question:8} exponent {slope:.2f}", flush=True)
        if question == "fit" and engine == "duckdb":
            alone = measure("memory", "duckdb", paths[:1], folder)
            there = alone["seconds"] * counts[-1]
            print(
                f"memory  fit      {rows:>12,} runs {alone['seconds']:8.2f} s  {alone['gib']:.2f} "
                f"GiB; {counts[-1] * rows:,} would take {there:.0f} s, "
                f"{there / found[-1]['seconds']:.1f} x the fleet's",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", required=True, help="where the files go")
    parser.add_argument("--files", type=int, default=16)
    parser.add_argument("--rows", type=int, default=12_500_000, help="of a file")
    parser.add_argument("--questions", default="fit,project,checked", help="of these three")
    parser.add_argument("--spark", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--engine", default="duckdb", help=argparse.SUPPRESS)
    parser.add_argument("paths", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one(options.one, options.engine, options.paths, options.folder)
        return
    folder = Path(options.folder)
    paths = make(folder, options.files, options.rows)
    report("duckdb", options.questions.split(","), paths, options.folder, options.rows)
    if options.spark:
        fewer = make(folder, options.files, options.rows // 10)
        report("spark", ["fit"], fewer, options.folder, options.rows // 10)


if __name__ == "__main__":
    main()
