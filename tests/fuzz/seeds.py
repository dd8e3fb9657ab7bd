"""Small valid inputs to begin with: those kept in ``corpus``, and others made of the sources."""

import gzip
import json
import re
import shlex
import sys
import tempfile
from pathlib import Path

import click
import pandas as pd

from measurements.power.ipmi import _REPLY
from measurements.traces import read_trace, write_trace
from ppw import load_hosts
from ppw.cli import main

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "measurements" / "data"
CORPUS = Path(__file__).with_name("corpus")
# A document a line; ``python tests/fuzz/seeds.py`` makes it anew.
SAVED = Path(__file__).with_name("saved.jsonl")


def files(folder, pattern="*", longest=12000):
    """Contents of test data, their beginnings of whole lines."""
    contents = (path.read_bytes() for path in sorted(DATA.joinpath(folder).glob(pattern)))
    return [c if len(c) <= longest else c[: c.rfind(b"\n", 0, longest) + 1] for c in contents]


def kept(name):
    """Inputs kept for a target, and the first of them as a gzip."""
    plain = [path.read_bytes() for path in sorted(CORPUS.joinpath(name).iterdir())]
    return [*plain, gzip.compress(plain[0], mtime=0)]


def parquet(frame=None):
    """A table, or the runs that are kept, as plain Parquet: mutations reach what is in it."""
    frame = pd.read_csv(CORPUS / "runs-csv" / "0.csv") if frame is None else frame
    return frame.to_parquet(index=False, compression=None)


def own_trace():
    """A trace as ppw writes it, and the same without ppw's mark."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "own.parquet")
        write_trace(read_trace(DATA / "traces" / "msr.csv"), path)
        other = parquet(read_trace(path).to_table().to_pandas().head(4))
        return [path.read_bytes(), other]


def local_log():
    """A log of Hadoop's local runner."""
    return [*kept("hadoop-log"), *files("hadoop", pattern="*.log", longest=4000)]


def sensor_records():
    """Sensor data records of a BMC, and a reply to DCMI's Get Power Reading."""
    from peers.ipmi_bmc import Sensor, sensor_record

    return [b"".join(sensor_record(n, Sensor(f"PSU{n}", n)) for n in (1, 2))]


def imported():
    """A file of each format of another program."""
    from test_imports import FILES

    return [text.encode() for _, text, _ in FILES.values()]


def power_reading():
    return [_REPLY.pack(0xDC, 240, 100, 400, 230, 1_750_000_000, 1000, 0x40)]


def saved(*kinds):
    """Results as they are saved: of these kinds, or of every kind."""
    lines = SAVED.read_bytes().splitlines()
    return [line for line in lines if not kinds or json.loads(line)["kind"] in kinds]


def calibrations():
    kept = {"schema_version": 1, "kind": "calibrations", "ppw_version": "1", "input_digest": None}
    document = {**kept, "host": "h", "calibrations": [json.loads(saved("calibration")[0])]}
    return [json.dumps(document).encode()]


def hosts():
    folder = ROOT / "ppw/catalogue/data/hosts"
    return [path.read_bytes() for path in sorted(folder.glob("*d5*.toml"))]


def saved_hosts():
    return [host.to_json().encode() for _, host in sorted(load_hosts().items())[:3]]


def scenarios():
    text = (ROOT / "docs" / "procurement.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```toml.*?\n(.*?)```", text, re.DOTALL)
    return [blocks[0].encode(), (ROOT / "examples" / "procurement.toml").read_bytes()]


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
    return [word.encode() for word in sorted(found)]


def write_saved():
    """Save every public result, its lists cut to what its kind still reads back."""
    import made_results
    import test_exports

    import ppw

    lines = []
    for name in test_exports.KINDS:
        kind = getattr(ppw, name)
        with tempfile.TemporaryDirectory() as folder:
            made = made_results.made(name, "one", "two", Path(folder))
            document = json.loads(made.to_json())
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
