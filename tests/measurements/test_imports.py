"""Files of other programs: the figures that stand in them, by hand, as a runs table."""

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest
from test_timeseries import IOSTAT, SAR, VMSTAT

from measurements import MeasurementError, import_runs
from measurements.imports import prometheus
from measurements.imports.importing import recognise_format

# Recorded with perf 6.1; the counters of the second are of a processor that has them.
PERF_TEXT = """# started on Thu Nov 26 13:18:31 2026


 Performance counter stats for 'sort big.txt' (3 runs):

          1,204.50 msec task-clock                       #    0.982 CPUs utilized
     2,400,000,000      cycles                           #    1.992 GHz
     3,200,000,000      instructions                     #    1.33  insn per cycle
             30.25 Joules power/energy-pkg/
   <not supported>      branches

            1.2500 +- 0.0113 seconds time elapsed  ( +-  0.90% )
"""
PERF_FIELDS = """# started on Thu Nov 26 16:02:33 2026

1204.50,msec,task-clock,1204500000,100.00,0.982,CPUs utilized
1250000000,ns,duration_time,1250000000,100.00,1.000,G/sec
2400000000,,cycles,1204500000,100.00,1.992,GHz
3200000000,,instructions,1204500000,100.00,1.33,insn per cycle
30.25,Joules,power/energy-pkg/,1250000000,100.00,,
"""
PERF_JSON = "\n".join(
    # perf of Arm machines leaves a comma before the end.
    f'{{"counter-value" : "{v}", "unit" : "{u}", "event" : "{e}", "pcnt-running" : 100.00,}}'
    for v, u, e in (
        ("1250000000.000000", "ns", "duration_time"),
        ("2400000000.000000", "", "cycles"),
        ("3200000000.000000", "", "instructions"),
        ("30.250000", "Joules", "power/energy-pkg/"),
    )
)
# As a program saw it that moved between kinds of cores: each count is what it would have been had
# the program been there all the time.
PERF_HYBRID = """ Performance counter stats for './t' (100 runs):

       146,000,000      cpu_atom/cycles:u/                              ( +-  4.23% )  (25.00%)
        88,000,000      cpu_core/cycles:u/                              ( +-  0.63% )  (75.00%)
       200,000,000      cpu_atom/instructions:u/     # 1.37  insn per cycle              (25.00%)
       400,000,000      cpu_core/instructions:u/     # 4.54  insn per cycle              (75.00%)
"""
PERF_SOCKETS = """ Performance counter stats for 'system wide':

S0       24        240,000.00 msec cpu-clock             #   24.000 CPUs utilized
S0       24    40,000,000,000      cycles                #    0.166 GHz
S0        1            300.00 Joules power/energy-pkg/
S1       24    10,000,000,000      cycles                #    0.041 GHz
S1        1            150.00 Joules power/energy-pkg/

      10.000000000 seconds time elapsed
"""
PERF_OLD = """ Performance counter stats for './cfg small':

         26,500000 task-clock (msec)       #    0,965 CPUs utilized
        77 375 671 cycles                  #    2,920 GHz

       0,027500000 seconds time elapsed
"""
PERF = {"time_s": 1.25, "cycles": 2.4e9, "instructions": 3.2e9, "cpi": 0.75, "energy_j": 30.25,
        "power_w": 24.2, "power_source": "rapl:package"}  # fmt: skip
HYPERFINE = {
    "results": [
        {"command": "sort -p 2 big", "mean": 1.5, "times": [1.25, 1.75, 9.0],
         "exit_codes": [0, 0, 1], "parameters": {"threads": "2"}},
        {"command": "sort -p 4 big", "mean": 0.75, "parameters": {"threads": "4"}},
    ]
}  # fmt: skip
PYPERF = {
    "benchmarks": [
        {"metadata": {"name": "sort"}, "runs": [
            {"warmups": [[1, 9.0]], "metadata": {"calibrate_loops": 8}},
            {"values": [0.5, 0.75], "metadata": {"date": "2026-11-26 13:43:03"}, "warmups": []},
        ]},
        {"metadata": {"name": "memory", "unit": "byte"}, "runs": [{"values": [4096.0]}]},
    ],
    "metadata": {"hostname": "lab3", "perf_version": "2.9.0"},
}  # fmt: skip
CODECARBON = """timestamp,project_name,run_id,duration,emissions,energy_consumed,tracking_mode
2026-11-26T13:43:21,sort,1,20.0,0.0001,0.0002,machine
"""
# Two lines of one tracker: the second has what the first has, and more.
CODECARBON_FLUSHED = CODECARBON.replace(",20.0,0.0001,0.0002", ",2.0,0.00001,0.00001") + (
    "2026-11-26T13:43:41,sort,1,20.0,0.0001,0.0002,machine\n"
)
TURBOSTAT = """turbostat version 2023.11.07
cpu0: base frequency 2100 MHz
10.000000 sec
Core\tCPU\tAvg_MHz\tBusy%\tBzy_MHz\tTSC_MHz\tPkgWatt\tCorWatt\tRAMWatt
-\t-\t1000\t50.00\t2000\t2100\t40.50\t30.25\t5.75
0\t0\t1100\t55.00\t2010\t2100\t40.50\t30.25\t5.75
0\t1\t900\t45.00\t1990\t2100
"""
TURBOSTAT_SUMMARY = """Avg_MHz Busy% Bzy_MHz TSC_MHz PkgWatt
1000 50.00 2000 2100 40.50
1200 60.00 2000 2100 44.50
"""
TURBOSTAT_JOULES = TURBOSTAT.replace("Watt", "_J").replace("40.50", "405.0").split("0\t0")[0]
LIKWID = """STRUCT,Info,3,,,
CPU name:,Intel Xeon,,,,
TABLE,Group 1 Raw,ENERGY,4,,
Event,Counter,HWThread 0,HWThread 1,,
INSTR_RETIRED_ANY,FIXC0,1000000000,3000000000,,
CPU_CLK_UNHALTED_CORE,FIXC1,2000000000,2000000000,,
TABLE,Group 1 Raw Stat,ENERGY STAT,4,,
Event,Counter,Sum,Min,Max,Avg
INSTR_RETIRED_ANY STAT,FIXC0,4000000000,1000000000,3000000000,2000000000
TABLE,Group 1 Metric,ENERGY,4,,
Metric,HWThread 0,HWThread 1,,,
Runtime (RDTSC) [s],2.5,2.5,,,
Clock [MHz],2400,2600,,,
Energy [J],100,0,,,
Energy DRAM [J],12.5,0,,,
"""
LIKWID_AMD = """TABLE,Region sort,Group 1 Raw,ENERGY,2,
Event,Counter,HWThread 0,HWThread 64
RETIRED_INSTRUCTIONS,PMC0,1000,3000
CPU_CLOCKS_UNHALTED,PMC1,2000,2000
TABLE,Region sort,Group 1 Metric,ENERGY,2,
Metric,HWThread 0,HWThread 64,
Runtime (RDTSC) [s],2.5,2.4,
Energy Core [J],9,9,
Energy PKG [J],100,25,
"""
SACCT_RAW = """JobIDRaw|State|ElapsedRaw|AllocCPUS|ConsumedEnergyRaw|
77_0|COMPLETED|120|4|6000|
"""
SACCT = """JobID|JobName|Elapsed|State|ConsumedEnergy|NCPUS|NodeList|Start
17|sort|1-00:01:40|COMPLETED||8|n4|2026-11-25T10:00:00
17.batch|batch|1-00:01:40|COMPLETED|8.65M|8|n4|2026-11-25T10:00:00
17.extern|extern|1-00:01:40|COMPLETED|8.65M|8|n4|2026-11-25T10:00:00
18|sort|00:00:09|FAILED||8|n4|2026-11-26T10:00:00
19|grep|00:02:05|COMPLETED|0|8|n4|2026-11-26T10:00:00
"""
NVIDIA = """timestamp, index, power.draw [W], clocks.current.sm [MHz]
2026/11/26 13:00:00.000, 0, 100.00 W, 1400 MHz
2026/11/26 13:00:00.000, 1, 50.00 W, 1200 MHz
2026/11/26 13:00:10.500, 0, 200.00 W, 1400 MHz
2026/11/26 13:00:10.500, 1, [N/A], 1200 MHz
"""
ROCM = """device,Average Graphics Package Power (W),sclk clock speed:,sclk clock level:
card0,210.0,(1700Mhz),2
card1,N/A,(1500Mhz),1

device,Average Graphics Package Power (W),sclk clock speed:,sclk clock level:
card0,190.0,(1700Mhz),2
card1,50.5,(1500Mhz),1
"""
ROCM_SOCKET = "device,Current Socket Graphics Package Power (W)\ncard0,133.0\ncard1,131.0\n"
EAR = """JOBID;STEPID;APPID;JOBNAME;POLICY;NODENAME;AVG_CPUFREQ_KHZ;DEF_FREQ_KHZ;TIME_SEC;CPI;\
DC_NODE_POWER_W;DRAM_POWER_W;PCK_POWER_W;CYCLES;INSTRUCTIONS;CPU_GFLOPS
7;0;0;lu;MO;n1;2380000;2400000;100.5;0.50;400.0;30.0;250.0;1000;2000;1.5
7;0;0;lu;ME;n2;2000000;2400000;101.0;0.50;300.0;0.0;0.0;1000;2000;1.5
7;4294967295;0;lu;MO;n1;0;0;0.0;0.0;0.0;0.0;0.0;0;0;0.0
"""
EAR_OLD = """NODENAME;JOBID;STEPID;JOBNAME;POLICY;AVG_CPUFREQ_KHZ;AVG_IMCFREQ_KHZ;DEF_FREQ_KHZ;\
TIME_SEC;CPI;TPI;DC_NODE_POWER_W;DRAM_POWER_W;PCK_POWER_W;CPU-GFLOPS
n1;7;0;lu;monitoring;2380000;2000000;2400000;10.0;0.5;0.1;400.0;30.0;250.0;1.5
"""
GEOPM = """GEOPM Version: 2.0.1
Start Time: Thu Nov 26 06:03:32 2026
Profile: "dgemm 8"
Agent: monitor
Policy: {}

Hosts:
  n1:
    Regions:
    -
      region: "dgemm"
      runtime (s): 4.5
      package-energy (J): 800
      power (W): 177
    Application Totals:
      runtime (s): 5.0
      sync-runtime (s): 5.0
      package-energy (J): 880.5
      dram-energy (J): 60.75
      power (W): 176.1
      frequency (%): 135.5
      frequency (Hz): 2.84e+09
      geopmctl memory HWM (B): 32380
  n2:
    Application Totals:
      runtime (s): 4.0
      package-energy (J): 800
"""
GEOPM_OLD = """##### geopm 1.1.0 #####
Start Time: Tue Feb 18 14:51:13 2020
Profile: dgemm
Agent: energy_efficient

Host: c1
Region tutorial (0x00000000c82f28bd):
    runtime (sec): 179.5
    power (watts): 107.9
Epoch Totals:
    runtime (sec): 256.8
Application Totals:
    runtime (sec): 260.0
    package-energy (joules): 28600
    dram-energy (joules): 4500
    power (watts): 110
    frequency (Hz): 2.7e+09
"""
# Titles of groups above each column, or above the first of each in older versions.
PCM_ROWS = """
Date,Time,EXEC,Proc Energy (Joules),SKT0,SKT1,SKT0
2026-11-26,10:00:01.000,0.5,100,60,40,10
2026-11-26,10:00:03.000,0.5,110,65,45,11
2026-11-26,10:00:05.500,0.5,120,70,50,12
"""
ENERGIES = "Proc Energy (Joules),{}DRAM Energy (Joules)"
PCM = "System," * 4 + ENERGIES.format("Proc Energy (Joules),") + PCM_ROWS
PCM_OLD = ("System,,,," + ENERGIES.format(",") + PCM_ROWS).replace(",", ";")
PCM_SYSTEM = PCM_ROWS.replace("SKT", "-")[1:]


def _series(name, *values, start=1000.5, step=15, instance="n1:9100", **labels):
    found = [[start + step * n, str(value)] for n, value in enumerate(values)]
    return {"metric": {"__name__": name, "instance": instance, "job": "x", **labels},
            "values": found}  # fmt: skip


def _answer(*found):
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": [*found]}})


CPU, RAPL = "node_cpu_seconds_total", "node_rapl_{}_joules_total"
PROMETHEUS = _answer(
    # A counter that was set back between two samples shows no growth there.
    _series(CPU, 100, 110, 5, 15, cpu="0", mode="user"),
    _series(CPU, 200, 205, 210, 215, cpu="1", mode="user"),
    _series(CPU, 7, 7.5, 8, 8.5, cpu="0", mode="iowait"),
    _series(RAPL.format("package"), 0, 600, 1200, 1800, index="0", path="/sys/class/powercap"),
    _series(RAPL.format("package"), 0, 300, 600, "NaN", index="1"),
    _series(RAPL.format("dram"), 10, 40, 70, 100, index="0"),
    _series("kepler_node_platform_joules_total", 0, 1500, 3000, 4500, instance="n1:8888"),
    _series("node_uname_info", 1, 1, 1, 1, nodename="lab3"),
    _series("node_uname_info", 1, 1, instance="n2:9100", nodename="lab4"),
    _series("up", 1, 1, 1, 1),
)
KEPLER = _answer(
    _series("kepler_node_cpu_joules_total", 5, 155, zone="package", node_name="n1"),
    _series("kepler_node_cpu_joules_total", 5, 35, zone="dram", node_name="n1"),
    _series("kepler_node_cpu_active_joules_total", 5, 95, zone="package", node_name="n1"),
    _series("kepler_node_package_joules_total", 5, 155, instance="n2", mode="dynamic"),
    _series("kepler_node_package_joules_total", 5, 305, instance="n2", mode="idle"),
)
# By file: its format, its text, and the runs that a reader finds in it with a ruler.
FILES = {
    "perf-text": ("perf", PERF_TEXT, [PERF | {"workload": "sort big.txt"}]),
    "perf-fields": ("perf", PERF_FIELDS, [PERF]),
    "perf-json": ("perf", PERF_JSON, [PERF]),
    "perf-hybrid": ("perf", PERF_HYBRID, [
        {"workload": "./t", "cycles": 102.5e6, "instructions": 350e6, "cpi": 0.2928571}
    ]),
    "perf-sockets": ("perf", PERF_SOCKETS, [
        {"time_s": 10, "cycles": 5e10, "energy_j": 450, "power_w": 45}
    ]),
    "perf-old": ("perf", PERF_OLD, [
        {"time_s": 0.0275, "cycles": 77375671, "freq_achieved_hz": 2.91983664e9}
    ]),
    "hyperfine": ("hyperfine", json.dumps(HYPERFINE), [
        {"workload": "sort -p {threads} big", "threads": 2, "repeat": 1, "time_s": 1.25},
        {"workload": "sort -p {threads} big", "threads": 2, "repeat": 2, "time_s": 1.75},
        {"workload": "sort -p {threads} big", "threads": 4, "repeat": 1, "time_s": 0.75},
    ]),
    "pyperf": ("pyperf", json.dumps(PYPERF), [
        {"host": "lab3", "workload": "sort", "time_s": t} for t in (0.5, 0.75)
    ]),
    **{name: ("codecarbon", text, [{
        "workload": "sort", "time_s": 20, "energy_j": 720, "power_w": 36,
        "power_source": "codecarbon:machine",
    }]) for name, text in (("codecarbon", CODECARBON), ("flushed", CODECARBON_FLUSHED))},
    "turbostat": ("turbostat", TURBOSTAT, [{
        "freq_achieved_hz": 2e9, "time_s": 10, "power_w": 40.5, "power_source": "rapl:package",
        "core_power_w": 30.25, "ram_power_w": 5.75,
    }]),
    "turbostat-summary": ("turbostat", TURBOSTAT_SUMMARY, [{"power_w": 40.5}, {"power_w": 44.5}]),
    "turbostat-joules": ("turbostat", TURBOSTAT_JOULES, [{"power_w": 40.5, "time_s": 10}]),
    "likwid": ("likwid", LIKWID, [{
        "time_s": 2.5, "instructions": 4e9, "cycles": 4e9, "freq_achieved_hz": 2.5e9,
        "energy_j": 100, "power_w": 40, "power_source": "rapl:package", "dram_energy_j": 12.5,
    }]),
    "likwid-amd": ("likwid", LIKWID_AMD, [{
        "workload": "sort", "time_s": 2.5, "instructions": 4000, "cycles": 4000, "energy_j": 125,
        "power_w": 50,
    }]),
    "sacct-raw": ("sacct", SACCT_RAW, [
        {"time_s": 120, "threads": 4, "energy_j": 6000, "power_w": 50}
    ]),
    "sacct": ("sacct", SACCT, [
        {"workload": "sort", "host": "n4", "threads": 8, "time_s": 86500, "energy_j": 8.65e6,
         "power_w": 100},
        {"workload": "grep", "host": "n4", "threads": 8, "time_s": 125},
    ]),
    "nvidia-smi": ("nvidia-smi", NVIDIA, [{
        "power_w": 200, "power_source": "gpu:nvidia-smi", "freq_achieved_hz": 1.3e9, "time_s": 10.5,
    }]),
    "rocm-smi": ("rocm-smi", ROCM, [{
        "power_w": 250.5, "power_source": "gpu:rocm-smi", "freq_achieved_hz": 1.6e9,
    }]),
    "rocm-smi-socket": ("rocm-smi", ROCM_SOCKET, [{"power_w": 264}]),
    "ear": ("ear", EAR.replace(";ME;", ";MO;"), [
        {"workload": "lu", "host": "n1", "freq_hz": 2.4e9, "time_s": 100.5, "cpi": 0.5,
         "power_w": 400, "energy_j": 40200, "power_source": "ear:node", "package_power_w": 250},
        {"workload": "lu", "host": "n2", "time_s": 101, "freq_achieved_hz": 2e9, "power_w": 300},
    ]),
    "ear-old": ("ear", EAR_OLD, [{"freq_hz": 2.4e9, "time_s": 10, "ram_power_w": 30}]),
    "geopm": ("geopm", GEOPM, [
        {"host": "n1", "workload": "dgemm 8", "time_s": 5, "energy_j": 880.5, "power_w": 176.1,
         "dram_energy_j": 60.75, "freq_achieved_hz": 2.84e9, "power_source": "geopm:package"},
        {"host": "n2", "workload": "dgemm 8", "time_s": 4, "energy_j": 800, "power_w": 200},
    ]),
    "geopm-old": ("geopm", GEOPM_OLD, [
        {"host": "c1", "workload": "dgemm", "time_s": 260, "energy_j": 28600, "power_w": 110},
    ]),
    # Three intervals in the time from the first stamp to the last, and half as much before.
    "pcm": ("pcm", PCM, [{
        "time_s": 6.75, "energy_j": 330, "dram_energy_j": 33, "power_w": 330 / 6.75,
        "power_source": "rapl:package",
    }]),
    "pcm-old": ("pcm", PCM_OLD, [{"time_s": 6.75, "energy_j": 330, "dram_energy_j": 33}]),
    "pcm-system": ("pcm", PCM_SYSTEM, [{"time_s": 6.75, "energy_j": 330}]),
    "prometheus": ("prometheus", PROMETHEUS, [{
        "host": "lab3", "time_s": 45, "started_at": "1970-01-01T00:16:40.500000+00:00",
        # 20 s in the 30 s without the reset, and 15 s in all 45 s.
        "user_s": 30 + 15, "iowait_s": 1.5, "energy_j": 45 * (40 + 20), "power_w": 60,
        "power_source": "rapl:package", "rapl_dram_power_w": 2, "kepler_platform_power_w": 100,
    }]),
    "kepler": ("prometheus", KEPLER, [
        {"host": "n1", "time_s": 15, "energy_j": 150, "power_w": 10, "kepler_dram_power_w": 2,
         "power_source": "kepler:package"},
        {"host": "n2", "time_s": 15, "energy_j": 450, "power_w": 30},
    ]),
}  # fmt: skip
# By format: a log of a host of four CPUs, and what its two intervals of 10 s add up to.
LOGS = {
    "sar": (SAR, {"host": "db7", "time_s": 20, "user_s": 30, "started_at": "2025-06-14T23:59:50"}),
    "iostat": (IOSTAT, {"time_s": 20, "system_s": 8, "sectors_read": 1500}),
    "vmstat": (VMSTAT, {"time_s": 20, "user_s": 40, "sectors_read": 800}),
}
ASKED = {"freq": "2.4GHz", "workload": "w", "power_source": "meter:wall"}


@pytest.mark.parametrize("name", FILES)
def test_each_format_gives_what_stands_in_it(name, tmp_path):
    form, text, expected = FILES[name]
    (tmp_path / "f").write_text(text)
    assert recognise_format(tmp_path / "f") == form
    said = {key: ASKED[key] for key in ASKED if not {key, f"{key}_hz"} & expected[0].keys()}
    for source in (form, None):
        runs = import_runs(str(tmp_path / "f"), source=source, values=said)
        assert len(runs) == len(expected)
        for (_, run), wanted in zip(runs.iterrows(), expected, strict=True):
            assert run.freq_hz == 2.4e9
            assert {k: run[k] for k in wanted} == pytest.approx(wanted)


@pytest.mark.parametrize("name", LOGS)
def test_a_log_of_a_host_is_one_run(name, tmp_path):
    text, expected = LOGS[name]
    (tmp_path / "f").write_text(text)
    assert recognise_format(str(tmp_path / "f")) == name
    runs = import_runs(str(tmp_path / "f"), values=ASKED | {"hardware_threads": "4"})
    (run,) = runs.assign(started_at=runs.started_at.str[:19]).to_dict(orient="records")
    assert {k: run[k] for k in expected} == pytest.approx(expected)
    if name == "vmstat":
        said = import_runs(str(tmp_path / "f"), source=name, values=ASKED).attrs["read"]
        assert "(--set hardware_threads=N)" in " ".join(said)


def test_what_a_format_lacks_is_asked_for_by_name(tmp_path):
    for name in ("sort-1.2GHz", "sort-1.8GHz"):
        (tmp_path / f"{name}.txt").write_text(SACCT.replace("JobName", "Comment"))
    paths = [str(path) for path in sorted(tmp_path.iterdir())]
    asked = (
        r"--set workload=NAME --set freq=2.4GHz --set power_source=rapl:package, or with --names"
    )
    with pytest.raises(MeasurementError, match=re.escape(asked)):
        import_runs(paths)
    names = {"names": "{workload}-{freq}.txt"}
    runs = import_runs(paths, **names, values={"power_source": "ipmi"})
    assert runs.freq_hz.tolist() == [1.2e9, 1.2e9, 1.8e9, 1.8e9]
    assert set(runs.workload) == {"sort"}
    with pytest.raises(MeasurementError, match="its name is not of the form"):
        import_runs(paths, names="{freq}.csv")


@pytest.mark.parametrize(
    ("text", "source", "message"),
    [
        ("time_s,freq_ghz\n1,2\n", None, "its format is not recognised; the formats are perf, hyp"),
        (PERF_TEXT, "prf", "no format 'prf'; the formats are perf"),
        ('{"results": 3}', "hyperfine", "is no JSON of hyperfine"),
        (SACCT.replace("COMPLETED", "FAILED"), "sacct", "holds no run: give output of sacct"),
        (NVIDIA.replace("index, ", "").replace(" 0,", "").replace(" 1,", ""), None, "add index to"),
        (
            "# started on Thu\n\n1.2,msec,task-clock,1,100.00,,\n",
            None,
            "by the event duration_time",
        ),
    ],
)
def test_a_file_without_runs_is_named(text, source, message, tmp_path):
    (tmp_path / "f").write_text(text)
    with pytest.raises(MeasurementError, match=re.escape(message)) as refused:
        import_runs(str(tmp_path / "f"), source=source)
    assert str(tmp_path / "f") in str(refused.value)


def test_a_server_is_asked_for_a_range_and_its_refusals_are_shown(tmp_path):
    asked = []

    class Server(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(parse_qs(urlsplit(self.path).query))
            bad = asked[-1]["start"] == ["0"]
            body = b'{"status":"error","error":"too many points"}' if bad else PROMETHEUS.encode()
            self.send_response(400 if bad else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Server) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        url = f"http://127.0.0.1:{server.server_port}"
        with pytest.raises(MeasurementError, match=r"answers 400: too many points$"):
            import_runs(prometheus.range_url(url, "0", "60", "15"))
        runs = import_runs(prometheus.range_url(f"{url}/", "9", "60", "15"), values=ASKED)
        server.shutdown()
        serving.join()
    assert asked[1] | {"query": []} == {"query": [], "start": ["9"], "end": ["60"], "step": ["15"]}
    assert runs.energy_j.tolist() == [2700]
    with pytest.raises(MeasurementError, match="query_range: cannot be read: "):
        import_runs(prometheus.range_url(url, "9", None, "15"))
