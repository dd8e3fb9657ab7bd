"""Small valid inputs to begin with: texts, those kept in ``corpus``, and others of the sources."""

import gzip
import io
import json
import re
import shlex
import sys
import tempfile
from pathlib import Path

import click
import pandas as pd

from measurements.power.ipmi_dcmi import _REPLY
from measurements.traces import read_trace, write_trace
from ppw import load_hosts
from ppw.cli import main

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "measurements" / "data"
CORPUS = Path(__file__).with_name("corpus")
# A document a line; ``python tests/fuzz/seeds.py`` makes it anew.
SAVED = Path(__file__).with_name("saved.jsonl")

RUNS = """host,workload,freq_ghz,time_s,power_w,cycles,instructions,data_bytes,cores,notes
rack1,wordcount,1.6,21.9,30.5,3.5e10,2.1e10,1e9,4,
rack1,wordcount,2.4,15.25,41,3.6e10,2.1e10,1e9,4,"warm, quiet"
rack1,terasort,1.6,30,NaN,,,2e9,4,'=late
"""
SEMICOLONS = "Frequency (MHz);Runtime [ms];Energy (kWh);\n1600;21900;0.0002;\n2400;15250;0.0002;\n"
RUN_LINES = (
    '{"host": "rack1", "freq_hz": 1600000000.0, "time_s": 21.9, "power_w": null}\n'
    '{"host": "rack1", "freq_hz": 2400000000.0, "time_s": 15.25, "notes": ["a"]}\n'
)
SAMPLES = "label,at_s,value,source_at_s\nrapl:package,12.5,100.25,\nmeter,13,99,1750000000.5\n"
NODES = "host,power,family,price,cores,role\nn1,rapl,atom,500,4,master\nn2,,atom,500,4,\n"
PACED = """requests 3
failed 0
unanswered 0
min_ns 900
max_ns 3100
late_p99_ns 20
latency 512 1024 2
latency 2048 4096 1
lateness 0 64 3
sum_ns 5100
"""
CALLGRIND = "version: 1\ncreator: callgrind\ncmd: ./a.out 5\nevents: Ir\n\ntotals: 2000004\n"
QEMU = "17 100 exec\n17 1999904 exit\n18 5 exit\n"
POWER_LOGS = (
    "time,power_w\n1772366400,50.5\n1772366401,51\n1772366402,nan\n",
    "# logger 3\nDate;Time;Power (mW);Energy\n01.03.2026;12:00:00;50500,5;1\n"
    "01.03.2026;12:00:01;51000;2\n01.03.2026;12:00:02;51000;3\n",
    "timestamp,energy_wh\n2026-03-01T12:00:00Z,1.5\n2026-03-01T12:00:01.5+00:00,1.6\n"
    "2026-03-01T12:00:03Z,1.8\n",
)
METER = "YOKOGAWA,WT310,C2,F1.0\nASC\n3\nU,1\nI,1\nP,1\n100E-3\n230.1,0.25,57.5\n57.25,0,1\n"
REDFISH = """{
"chassis": {"EnvironmentMetrics": {"@odata.id": "/e"}, "PowerSubsystem": {"@odata.id": "/s"},
  "Power": {"@odata.id": "/p"}},
"/e": {"PowerWatts": {"Reading": 240, "DataSourceUri": "/m"}, "EnergyJoules": {"Reading": 5e6},
  "EnergykWh": {"Reading": 12.125, "LifetimeReading": 13.5}},
"/m": {"Reading": 240.5, "ReadingTime": "2026-03-01T12:00:00Z", "SensingInterval": "PT0.5S"},
"/s": {"PowerSupplies": {"@odata.id": "/l"}},
"/l": {"Members": [{"@odata.id": "/1"}]},
"/1": {"Status": {"State": "Enabled"}, "Metrics": {"@odata.id": "/1m"}},
"/1m": {"InputPowerWatts": {"Reading": 120.5}},
"/p": {"PowerControl": [{"Name": "whole", "PowerConsumedWatts": 239,
  "PowerMetrics": {"IntervalInMin": 1, "AverageConsumedWatts": 230}}]}}"""
MANIFEST = """{"schema_version": 1, "generation": "00000001-5f3a5f3a", "previous": "", "by": null,
"runs": 4, "files": 1, "layout": {"by": ["host", "workload"], "shades": ["freq_hz"],
"metrics": ["time", "power"], "quantities": {"time": ["value", "log"], "power": ["value"]},
"tallies": [], "finest": [], "settings": []}}"""
PLAN = """{"schema_version": 1, "host": "rack1", "family": null, "workload": "work",
"data_bytes": 1e9, "price": null, "channels": [{"label": "rapl:package", "quantity": "energy",
"domain": "package", "note": ""}]}"""
SESSION_RUN = (
    '{"kind": "run", "run": 0, "repeat": 0, "freq_hz": 1.6e9, "cores": 4, "exit_code": 0, '
    '"start_s": 1.0, "end_s": 2.0, "executions": 1, "started_at": "2026-03-01T12:00:00Z", '
    '"facts": {"llc_misses": 5.0}, "failures": {"rapl": "once"}}\n'
)
THRESHOLDS = "[iowait]\nmedium = 0.5\nhigh = 0.8\n"
QUANTITIES = (
    *("1.2 GHz", "10 W", "0.5 kWh", "64KiB", "3e9", "12 %", "1,5 s", "1.333 MHz", "2 TB"),
    "100 MB/s",
)
# What names a sensor, CPUs, a device or an address.
SPECS = (
    *("rapl", "meter@TCPIP0::h::5025::SOCKET,item=1", "ipmi@h:623,cipher=3", "0-3,8"),
    *("log@w.csv,time=Date+Time,unit=W", "ssd,units=16,read=70us", "redfish@https://h/redfish/v1"),
)


def of(*texts):
    """Each of the texts, as bytes."""
    return [text.encode() if isinstance(text, str) else text for text in texts]


def files(folder, pattern="*", longest=12000):
    """Contents of test data, their beginnings of whole lines."""
    contents = (path.read_bytes() for path in sorted(DATA.joinpath(folder).glob(pattern)))
    return [c if len(c) <= longest else c[: c.rfind(b"\n", 0, longest) + 1] for c in contents]


def zipped(*texts):
    """The texts, and the first of them as a gzip."""
    plain = of(*texts)
    return [*plain, gzip.compress(plain[0], mtime=0)]


def parquet(frame=None):
    """A table, or the runs of the seeds, as plain Parquet: mutations reach what is in it."""
    frame = pd.read_csv(io.StringIO(RUNS)) if frame is None else frame
    return frame.to_parquet(index=False, compression=None)


def kept(name):
    """Inputs kept for a target."""
    return lambda: [path.read_bytes() for path in sorted(CORPUS.joinpath(name).iterdir())]


def own_trace():
    """A trace as ppw writes it, and the same without ppw's mark."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "own.parquet")
        write_trace(read_trace(DATA / "traces" / "msr.csv"), path)
        other = parquet(read_trace(path).to_table().to_pandas().head(4))
        return [path.read_bytes(), other]


def local_log():
    """A log of Hadoop's local runner."""
    return [*kept("hadoop-log")(), *files("hadoop", pattern="*.log", longest=4000)]


def sensor_records():
    """Sensor data records of a BMC, and a reply to DCMI's Get Power Reading."""
    from peers.ipmi_bmc import Sensor, sensor_record

    return [b"".join(sensor_record(n, Sensor(f"PSU{n}", n)) for n in (1, 2))]


def power_reading():
    """A reply to DCMI's Get Power Reading."""
    return [_REPLY.pack(0xDC, 240, 100, 400, 230, 1_750_000_000, 1000, 0x40)]


def saved(*kinds):
    """Results as they are saved: of these kinds, or of every kind."""
    lines = SAVED.read_bytes().splitlines()
    return [line for line in lines if not kinds or json.loads(line)["kind"] in kinds]


def calibrations():
    """What `ppw calibrate --save` keeps of a host."""
    kept = {"schema_version": 1, "kind": "calibrations", "ppw_version": "1", "input_digest": None}
    return of(
        json.dumps({**kept, "host": "h", "calibrations": [json.loads(saved("calibration")[0])]})
    )


def hosts():
    """Machines of the catalogue."""
    return [path.read_bytes() for path in sorted((ROOT / "ppw" / "catalogue").glob("*d5*.toml"))]


def saved_hosts():
    """Machines as they are saved."""
    return [host.to_json().encode() for _, host in sorted(load_hosts().items())[:3]]


def scenarios():
    """Scenarios of a procurement."""
    text = (ROOT / "docs" / "procurement.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    return of(blocks[0], (ROOT / "examples" / "procurement.toml").read_text(encoding="utf-8"))


def sessions():
    """The plan and the runs of a sweep's folder, one after the other."""
    return of(PLAN + "\n\n" + SESSION_RUN.replace('"run"', '"idle"', 1) + SESSION_RUN)


def command_lines():
    """Commands of the documentation, an argument a line."""
    found = {}
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = page.read_text(encoding="utf-8").replace("\\\n", " ")
        for line in re.findall(r"^\$ ppw (.*)$", text, re.MULTILINE):
            words = shlex.split(line.partition(" | ")[0], comments=True)
            found[tuple(words)] = None
    return ["\n".join(words).encode() for words in found]


def options():
    """Names of all commands and their options."""
    found = set()

    def visit(command, context):
        for parameter in command.params:
            found.update(parameter.opts)
            if isinstance(parameter.type, click.Choice):
                found.update(map(str, parameter.type.choices))
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                found.add(name)
                inner = command.get_command(context, name)
                visit(inner, click.Context(inner, parent=context, info_name=name))

    visit(main, click.Context(main, info_name="ppw"))
    return of(*sorted(found))


def write_saved():
    """Save every public result, its lists cut to what its kind still reads back."""
    import test_exports

    import ppw

    lines = []
    for name in test_exports.RESULTS:
        kind = getattr(ppw, name)
        document = json.loads(test_exports.made(kind).to_json())
        _shorten(document, document, kind)
        lines.append(json.dumps({**document, "ppw_version": "1"}, ensure_ascii=False) + "\n")
    SAVED.write_text("".join(lines), encoding="utf-8")


def _shorten(part, document, kind):
    for key, value in part.items() if isinstance(part, dict) else enumerate(part):
        if isinstance(value, list) and len(value) > 1:
            part[key] = value[:1]
            if not _reads_back(document, kind):
                part[key] = value
        if isinstance(part[key], (dict, list)):
            _shorten(part[key], document, kind)


def _reads_back(document, kind):
    try:
        result = kind.from_json(json.dumps(document))
        return bool(result.to_json() and result.summary())
    except Exception:  # whatever: it is cut too short
        return False


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / "tests" / "ppw"), str(ROOT / "tests" / "measurements"), str(ROOT)]
    write_saved()
