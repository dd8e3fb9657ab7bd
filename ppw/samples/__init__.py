"""Sample data that come with ppw, and where they are from."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from measurements.traces.trace import Trace

SIMULATED_SWEEP = "simulated_sweep.csv"
RECORDED_TRACES = (
    "uniform_fixed",
    "uniform_poisson",
    "zoned_80_20",
    "sequential",
    "mixed_70_30",
    "terasort",
    "terasort_repeat",
)


def simulated_sweep() -> pd.DataFrame:
    """Runs of seven small C programs on two simulated cores at seven clocks: simulated, no watts.

    Six programs in the spirit of server workloads (``word_count``, ``sort``, ``hash_table_get``,
    ``kmeans``, ``inverted_index``, ``pointer_chase``) and a control that is bound by stores to
    memory (``stream``), on a small in-order core (host "simulated-inorder") and a large
    out-of-order one ("simulated-o3"), from 0.8 to 4.0 GHz. Made by ``python -m
    measurements.simulated`` with rvsim 2.1.0; its authors say that memory-bound programs are 10 to
    60 % apart from gem5's model of an out-of-order core. Of these figures the way they change with
    the clock is what counts, not their size. Licence: that of ppw.

    Returns
    -------
    pandas.DataFrame
        A runs table, one row a program, core and clock: 98 rows. ``time_s``, ``instructions``,
        ``cycles`` and ``cpi`` are of the program's measured region; `simulate` in
        ``measurements.workloads.simulated`` says what the other columns are.
    """
    from measurements.runs import read_runs

    with resources.as_file(resources.files("ppw.samples") / SIMULATED_SWEEP) as path:
        return read_runs(path)


def recorded_trace(name: str) -> Trace:
    """Block trace of a known load, recorded with ``ppw trace record``: measured.

    Five of fio on the first GiB of a loop device, 6000 requests at 500 a second each, and two
    recordings of Hadoop's Terasort of 600 MB. ``traces/README.md`` beside this file says what each
    one is and on what it was recorded; ``traces/record.sh`` records them anew. Licence: that of
    ppw.

    Parameters
    ----------
    name : str
        One of ``RECORDED_TRACES``: ``"uniform_fixed"`` (random reads at a fixed rate),
        ``"uniform_poisson"`` (the same, Poisson arrivals), ``"zoned_80_20"`` (80 % of the reads
        in the first fifth of the space), ``"sequential"`` (reads of 64 KiB, one after the other),
        ``"mixed_70_30"`` (random, 70 % reads), ``"terasort"`` or ``"terasort_repeat"``.

    Returns
    -------
    measurements.traces.trace.Trace
        As ``ppw.fit_trace`` and the other answers on traces take it.

    Raises
    ------
    PpwError
        For another name.
    """
    from measurements.traces import read_trace
    from ppw.arguments import known_choice

    known_choice("recorded trace", name, RECORDED_TRACES)
    # A trace is read anew for every pass: from a file that stays.
    return read_trace(Path(str(resources.files("ppw.samples"))) / "traces" / f"{name}.parquet")
