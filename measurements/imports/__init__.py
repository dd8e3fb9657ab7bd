"""Files of other programs as runs tables: modules by subject, with a function per format.

``read_hyperfine`` and its like make a mapping of columns for each run of a text, and leave out what
the text does not say.
"""

from typing import NamedTuple


class Format(NamedTuple):
    """One format of another program."""

    module: str  # that has its ``read_FORMAT``
    title: str  # as messages name it
    found: str  # regular expression that finds it in the first bytes of a file, in linear time


# By the name that a user types. Lookaheads read a line or the whole start once each.
FORMATS = {
    "perf": Format(
        "perf_stat",
        "output of perf stat, with the time as text or by the event duration_time",
        r'Performance counter stats for|"counter-value"\s*:|\A# started on [^\n]*\n\s*\n'
        r"|(?m:^)[^\n,;]*[,;][^\n,;]*[,;](?:task-clock|cycles|instructions|duration_time)[:\w]*[,;]",
    ),
    "hyperfine": Format(
        "benchmarks",
        "JSON of hyperfine --export-json",
        r'\A\s*\{\s*"results"\s*:\s*\[\s*\{\s*"command"',
    ),
    "codecarbon": Format(
        "benchmarks",
        "emissions.csv of codecarbon",
        r"\A\ufeff?timestamp,(?=[^\n]*\bproject_name,)(?=[^\n]*\bemissions,)",
    ),
    "pyperf": Format(
        "benchmarks",
        "JSON of pyperf",
        r'\A\s*\{(?=(?s:.*?)"benchmarks"\s*:)(?=(?s:.*?)"(?:loops|warmups|perf_version)"\s*:)',
    ),
    "turbostat": Format(
        "processor_logs", "output of turbostat", r"(?m:^)[^\n]*\bBusy%\s+Bzy_MHz\b"
    ),
    "likwid": Format(
        "processor_logs", "CSV of likwid-perfctr", r"(?m:^)(?:STRUCT,Info|TABLE,(?:Region|Group))"
    ),
    "sacct": Format(
        "job_accounts",
        "output of sacct --parsable2",
        r"\A\s*(?=[^\n]*\bJobID(?:Raw)?\b)(?=[^\n]*\bElapsed)[\w%]+\|",
    ),
    "nvidia-smi": Format(
        "gpu_logs",
        "log of nvidia-smi --query-gpu --format=csv",
        r"\A[^\n]*\bpower\.draw(?:\.\w+)? \[W\]",
    ),
    "rocm-smi": Format(
        "gpu_logs",
        "log of rocm-smi --showpower --csv",
        r"(?m:^)device,[^\n]*Graphics Package Power",
    ),
    "prometheus": Format(
        "prometheus",
        "JSON of a range query of Prometheus for node_cpu_seconds_total, node_rapl_*_joules_total "
        "or kepler_node_*_joules_total",
        r'\A\s*\{\s*"status"\s*:\s*"(?:success|error)"',
    ),
    "ear": Format(
        "job_accounts", "CSV of eacct -c", r"\A(?=[^\n]*[;\n]TIME_SEC;)[^\n]*;DC_NODE_POWER_W[;\n]"
    ),
    "geopm": Format("job_accounts", "report of GEOPM", r"\A(?:#+ geopm |GEOPM Version: )"),
    "pcm": Format("processor_logs", "CSV of pcm -csv", r"(?m:^)Date[,;]Time[,;](?=[^\n]*\bEXEC\b)"),
}
