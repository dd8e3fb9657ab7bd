"""Sample data that come with ppw, and where they are from."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

SIMULATED_SWEEP = "simulated_sweep.csv"


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
