"""The columns of the runs table: names, units, meaning, synonyms, and what a value may be."""

from typing import Literal, NamedTuple, cast

Kind = Literal["text", "positive", "net", "non-negative", "share", "count", "any"]


class RunsColumn(NamedTuple):
    """One canonical column and what its values may be."""

    unit: str
    # "net" is a difference, such as power with the idle power taken off: a sensor's noise may make
    # it negative, which can be read but not used where it is needed. "share" is of a whole that is
    # 1; a rate that was measured may come out somewhat above it.
    kind: Kind
    meaning: str


_COLUMNS = """
host                       |          | text         | machine
family                     |          | text         | microarchitecture family; a baseline holds \
within one
workload                   |          | text         | program
freq_hz                    | Hz       | positive     | core frequency that was set
freq_achieved_hz           | Hz       | positive     | core frequency that the counters measured
cores                      | 1        | positive     | physical cores used
threads                    | 1        | positive     | software threads
data_bytes                 | B        | non-negative | input size
repeat                     | 1        | count        | number of the repeat
time_s                     | s        | positive     | elapsed time
instructions               | 1        | positive     | retired instructions
cycles                     | 1        | positive     | core cycles
cpi                        | 1        | positive     | cycles per instruction
throughput_ops_s           | 1/s      | positive     | work per second
latency_p50_s              | s        | positive     | median latency
latency_p99_s              | s        | positive     | 99th percentile latency
voltage_v                  | V        | positive     | core voltage
power_w                    | W        | net          | mean power
energy_j                   | J        | net          | energy
power_source               |          | text         | sensor and domain of the power
user_s                     | s        | non-negative | CPU time, user
nice_s                     | s        | non-negative | CPU time, nice
system_s                   | s        | non-negative | CPU time, system
irq_s                      | s        | non-negative | CPU time, interrupts
softirq_s                  | s        | non-negative | CPU time, soft interrupts
steal_s                    | s        | non-negative | CPU time, stolen
idle_s                     | s        | non-negative | CPU time, idle
iowait_s                   | s        | non-negative | CPU time, waiting for I/O
other_cpu_s                | s        | non-negative | CPU time of all other processes in the run
other_cpu_share            | 1        | share        | share of other processes and steal in the \
CPU time, of one CPU at least
own_energy_estimate_j      | J        | net          | energy of the command alone, estimated: \
(idle_power_w + own share of CPU time · (power_w - idle_power_w)) · time_s
sectors_read               | 512 B    | non-negative | sectors read
sectors_written            | 512 B    | non-negative | sectors written
cpu_accounting             |          | text         | who counted the CPU time: scheduler or tick
scheduled_s                | s        | non-negative | CPU time of tasks (user, nice, system), by \
the scheduler
tick_busy_s                | s        | non-negative | CPU time of tasks in the same window, by \
the clock tick
intervals                  | 1        | non-negative | intervals that the run was sampled in
intervals_without_io       | 1        | non-negative | sampled intervals without a sector read or \
written
device                     |          | text         | device or file system that the I/O went to
device_kind                |          | text         | disk, or memory where the device was taken \
away (loop on tmpfs, zram)
hardware_threads           | 1        | positive     | logical CPUs used; equal to cores if one \
per core
instances                  | 1        | positive     | equal programs run at once
bandwidth_per_core_bytes_s | B/s      | positive     | memory bandwidth that was left to each core
memory_bytes               | B        | positive     | main memory of the host, or of the run's \
cgroup
load                       | 1        | share        | load as a share of full load
idle_power_w               | W        | non-negative | power of the idle host
temperature_c              | °C       | any          | temperature
sockets                    | 1        | positive     | sockets used
network_rx_bytes           | B        | non-negative | received
network_tx_bytes           | B        | non-negative | sent
price                      | currency | non-negative | price of one host
started_at                 |          | text         | start, UTC, ISO 8601
"""
COLUMNS: dict[str, RunsColumn] = {
    name: RunsColumn(unit, cast("Kind", kind), meaning)
    for name, unit, kind, meaning in (
        map(str.strip, line.split("|")) for line in _COLUMNS.strip().splitlines()
    )
}

# Columns of numbers; the others are texts.
NUMERIC = frozenset(name for name, column in COLUMNS.items() if column.kind != "text")

# What was measured may be above the whole; beyond this, percent are meant.
HIGHEST_SHARE = 1.5

IDENTITY = ("host", "family", "workload", "cores", "threads", "data_bytes")

# Where the files do not name their host, each file is one; see `measurements.runs.read_runs`.
FILE_COLUMN = "source_file"
# Of a table whose rows were chosen: the row in the file, 1 is the first below the header.
ROW_COLUMN = "source_row"
# What `measurements.runs` keeps in ``attrs`` of the headers that became another column.
HEADERS = "headers"
# And of numbers that may mean something else, in sentences.
DOUBTS = "doubts"
# What was read and what was not, in a sentence for each file; and by file the line of the header.
READ = "read"
HEADER_LINES = "header_lines"

# What the world writes for "not measured" among numbers, perf's included. In a text column only
# the empty cell is missing.
MISSING = (
    *("", "NA", "N/A", "n/a", "NaN", "nan", "-nan", "null", "NULL", "None", "<NA>"),
    *("<not counted>", "<not supported>"),
    *("-", "--", "–", "—"),
)


def _names_by_column(lines: str) -> dict[str, tuple[str, ...]]:
    """Read lines of a column, a colon, and names that are other words for it."""
    pairs = (line.split(":") for line in lines.strip().splitlines())
    return {column: tuple(names.split()) for column, names in pairs}


# Foreign names, compared in lower case without accents, spaces, # and dashes. A name whose
# canonical column has a unit still needs one: in the header, or by --map.
SYNONYMS_OF = _names_by_column("""
host: machine server hostname servername machinename node nodename rechner maschine serveur
family: microarchitecture uarch
workload: program benchmark application app job jobname programm anwendung programme
freq_hz: frequency freq cpufreq corefreq frequenz takt taktfrequenz
freq_achieved_hz: achievedfreq actualfreq
cores: cores ncores numcores corecount cpus ncpus numcpus vcpu vcpus kerne coeurs
threads: nthreads numthreads workers
data_bytes: datasize inputsize
repeat: run rep iteration trial
time_s: time elapsed elapsedtime runtime walltime executiontime duration seconds laufzeit dauer \
duree temps
instructions: instret instructionsretired
cycles: cpucycles
throughput_ops_s: throughput opspersecond opspersec
voltage_v: voltage volts
power_w: power avgpower meanpower watts leistung puissance
energy_j: energy joules energie
price: cost
""")
SYNONYMS = {name: column for column, names in SYNONYMS_OF.items() for name in names}

# These may be anything without a unit, and say what they are with one: "Clock (MHz)".
WITH_UNIT = _names_by_column("""
freq_hz: clock clockrate clockspeed coreclock cpuclock corefrequency cpufrequency
time_s: wall wallclock wallclocktime totaltime
power_w: averagepower powerdraw
energy_j: energyconsumed totalenergy
""")
SYNONYMS_WITH_UNIT = {name: column for column, names in WITH_UNIT.items() for name in names}

# These say their unit by their name alone.
UNIT_IN_NAME = frozenset({"seconds", "volts", "watts", "joules"})
