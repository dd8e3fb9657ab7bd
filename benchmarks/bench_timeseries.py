"""Speed and memory of the readers of time series, and the cost of the live sampler.

``python benchmarks/bench_timeseries.py [--share 1.0] [--only NAME]`` writes a day of 1-second
samples into a temporary folder (deleted afterwards): collectl with the usual subsystems, collectl
of 64 CPUs and 20 disks in detail (1030 columns; plain and gzip), ``sadf -j`` of all CPUs together
and of 64 CPUs one by one. Each is read in a process of its own by ppw and by pandas (CSV) or
``json.load``; time, highest resident memory and the ratio of times are printed. The sampler runs
for ten seconds. The exit code is 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import gzip
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from figures import Figure, cost

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DAY = 86_400
CPUS, DISKS = 64, 20
START = 1_750_000_000
SHARE_OF_A_CORE = 0.01
# What a day may take: seconds, and resident MB.
TARGETS = {
    "collectl.tab": (3.0, 300.0),
    "sadf.json": (3.0, 300.0),
    "sadf-64.json": (15.0, None),
    "collectl-64.tab": (3.0, 400.0),
    "collectl-64.tab.gz": (5.0, 400.0),
}

_HEADER = """\
# Collectl:   V4.3.1-1  HiRes: 1  Options: -scdnm -P
# Host:       made-up  DaemonOpts:
# Date:       20250615-150640  Secs: 1750000000 TZ: +0000
# SubSys:     cdnm Options:  Interval: 1 NumCPUs: {cpus}  NumBud: 0 Flags: i
# HZ:         100  Arch: x86_64-linux-gnu-thread-multi PageSize: 4096
# NumNets:    1 NetNames: eth0:10000
"""
_CPU = ("User%", "Nice%", "Sys%", "Wait%", "Irq%", "Soft%", "Steal%", "Idle%", "Totl%")
_CPU_MORE = ("Guest%", "GuestN%", "Intrpt")
_HOST_CPU = ("Guest%", "GuestN%", "Intrpt/sec", "Ctx/sec", "Proc/sec", "ProcQue", "ProcRun")
_MEMORY = (
    *("Tot", "Used", "Free", "Shared", "Buf", "Cached", "Slab", "Map", "Anon", "AnonH", "Commit"),
    *("Locked", "SwapTot", "SwapUsed", "SwapFree", "SwapIn", "SwapOut", "Dirty", "Clean"),
    *("Laundry", "Inactive", "PageIn", "PageOut", "PageFaults", "PageMajFaults"),
)
_DISK = (
    *("Name", "Reads", "RMerge", "RKBytes", "WaitR", "Writes", "WMerge", "WKBytes", "WaitW"),
    *("Request", "QueLen", "Wait", "SvcTim", "Util"),
)


def collectl_names(*, detail: bool) -> list[str]:
    names = [f"[CPU]{n}" for n in (*_CPU, *_HOST_CPU, "RunTot", "BlkTot")]
    names += [f"[MEM]{n}" for n in _MEMORY]
    names += [f"[NET]{n}" for n in ("RxPktTot", "TxPktTot", "RxKBTot", "TxKBTot")]
    names += [f"[DSK]{n}" for n in ("ReadTot", "WriteTot", "OpsTot", "ReadKBTot", "WriteKBTot")]
    if detail:
        names += [f"[CPU:{c}]{n}" for c in range(CPUS) for n in (*_CPU, *_CPU_MORE)]
        names = [n for n in names if not n.endswith("]Intrpt")]
        names += [f"[DSK:sd{chr(97 + d)}]{n}" for d in range(DISKS) for n in _DISK]
    return names


def collectl_lines(rows: int, *, detail: bool) -> Iterator[str]:
    names = collectl_names(detail=detail)
    yield _HEADER.format(cpus=CPUS) + "#Date Time " + " ".join(names) + "\n"
    bodies = []
    for variant in range(16):
        fields = []
        for place, name in enumerate(names):
            if name.endswith("]Name"):
                fields.append(name[5:8])
            elif name.startswith("[MEM]"):
                fields.append(str(15_969_160 + variant * 37 - place * 1000))
            elif name.startswith("[CPU") and name.endswith("%"):
                fields.append("98" if "Idle" in name else str((place * 7 + variant) % 3))
            else:
                fields.append(str((place * 31 + variant * 17) % 97))
        bodies.append(" ".join(fields))
    for row in range(rows):
        at = time.gmtime(START + row)
        yield f"{time.strftime('%Y%m%d %H:%M:%S', at)} {bodies[row % 16]}\n"


def sadf_lines(rows: int, *, cpus: int) -> Iterator[str]:
    yield (
        '{"sysstat": {\n\t"hosts": [\n\t\t{\n\t\t\t"nodename": "made-up",\n\t\t\t"machine": '
        f'"x86_64",\n\t\t\t"number-of-cpus": {CPUS},\n\t\t\t"timezone": "UTC",\n'
        '\t\t\t"statistics": [\n'
    )
    indent = "\n\t\t\t\t\t\t"
    bodies = []
    for variant in range(16):
        load = f",{indent}".join(
            f'{{"cpu": "{cpu}", "usr": {variant + 1.25:.2f}, "nice": 0.00, "sys": 3.10, "iowait": '
            '0.40, "steal": 0.00, "irq": 0.00, "soft": 0.12, "guest": 0.00, "gnice": 0.00, '
            f'"idle": {95.13 - variant:.2f}}}'
            for cpu in ("all", *range(cpus))
        )
        disks = f",{indent}".join(
            f'{{"disk-device": "sd{name}", "tps": {variant}.00, "rkB": 128.00, "wkB": 64.00, "dkB":'
            ' 0.00, "areq-sz": 8.00, "aqu-sz": 0.02, "await": 0.50, "util-percent": 1.20}'
            for name in "abcd"
        )
        bodies.append(
            f'\n\t\t\t\t\t"cpu-load": [{indent}{load}\n\t\t\t\t\t],\n\t\t\t\t\t'
            '"process-and-context-switch": {"proc": 2.00, "cswch": 5213.00},\n\t\t\t\t\t'
            '"memory": {"memfree": 23391664, "avail": 24248092, "memused": 85032, '
            '"memused-percent": 0.34, "buffers": 22692, "cached": 875852, "commit": 791212, '
            '"commit-percent": 3.21, "active": 414576, "inactive": 488884, "dirty": 656},'
            '\n\t\t\t\t\t"queue": {"runq-sz": 2, "plist-sz": 88, "ldavg-1": 0.69, "ldavg-5": 0.57, '
            f'"ldavg-15": 0.59, "blocked": 0}},\n\t\t\t\t\t"disk": [{indent}{disks}\n\t\t\t\t\t],'
            f'\n\t\t\t\t\t"network": {{\n{indent}"net-dev": [{indent}{{"iface": "eth0", "rxpck": '
            '12.00, "txpck": 9.00, "rxkB": 4.20, "txkB": 1.10, "rxcmp": 0.00, "txcmp": 0.00, '
            '"rxmcst": 0.00, "ifutil-percent": 0.00}\n\t\t\t\t\t\t]\n\t\t\t\t\t}\n\t\t\t\t}'
        )
    for row in range(rows):
        stamp = time.strftime('"date": "%Y-%m-%d", "time": "%H:%M:%S"', time.gmtime(START + row))
        end = ",\n" if row + 1 < rows else "\n"
        yield (
            f'\t\t\t\t{{\n\t\t\t\t\t"timestamp": {{{stamp}, "utc": 1, "interval": 1}},'
            f"{bodies[row % 16]}{end}"
        )
    yield '\t\t\t],\n\t\t\t"restarts": [\n\t\t\t]\n\t\t}\n\t]\n}}\n'


def write(path: Path, lines: Iterator[str]) -> None:
    with gzip.open(path, "wt", 6) if path.suffix == ".gz" else path.open("w") as file:
        file.writelines(lines)


MAKERS: dict[str, Callable[[int], Iterator[str]]] = {
    "collectl.tab": lambda rows: collectl_lines(rows, detail=False),
    "sadf.json": lambda rows: sadf_lines(rows, cpus=0),
    "sadf-64.json": lambda rows: sadf_lines(rows, cpus=CPUS),
    "collectl-64.tab": lambda rows: collectl_lines(rows, detail=True),
    "collectl-64.tab.gz": lambda rows: collectl_lines(rows, detail=True),
}


def read_by(reader: str, path: Path) -> dict[str, float]:
    """Read once, in this process."""
    start = time.perf_counter()
    if reader == "ppw":
        from measurements.timeseries import read_time_series

        rows = len(read_time_series(path).frame)
    elif path.name.startswith("sadf"):
        with path.open() as file:
            rows = len(json.load(file)["sysstat"]["hosts"][0]["statistics"])
    else:
        import pandas as pd

        rows = len(pd.read_csv(path, sep=" ", skiprows=6))
    elapsed = time.perf_counter() - start
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu = used.ru_utime + used.ru_stime
    return {"seconds": elapsed, "cpu": cpu, "mb": used.ru_maxrss / 1e3, "rows": rows}


def in_a_process(reader: str, path: Path) -> dict[str, float] | None:
    done = subprocess.run(
        [sys.executable, __file__, "--read", reader, str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        print(f"  {reader}: failed: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return None
    result: dict[str, float] = json.loads(done.stdout)
    return result


def bench(name: str, folder: Path, rows: int, *, peers: bool) -> bool:
    path = folder / name
    write(path, MAKERS[name](rows))
    size = path.stat().st_size / 1e6
    ours = in_a_process("ppw", path)
    # A gigabyte of JSON takes json.load some ten gigabytes of memory.
    theirs = in_a_process("peer", path) if peers and name != "sadf-64.json" else None
    path.unlink()
    if ours is None or ours["rows"] != rows:
        print(f"{name:20} not read whole")
        return False
    seconds, most = TARGETS[name]
    met = ours["seconds"] <= seconds * max(rows / DAY, 0.2) and ours["mb"] <= (most or 1e9)
    ratio = f"{theirs['seconds'] / ours['seconds']:.1f}" if theirs else "-"
    peer = f"{theirs['seconds']:.2f} s, {theirs['mb']:.0f} MB" if theirs else "-"
    print(
        f"{name:20} {size:>8.0f} MB {ours['seconds']:>7.2f} s {ours['cpu']:>7.2f} s "
        f"{ours['mb']:>6.0f} MB   {peer:>20} {ratio:>6}   {'' if met else 'MISSED'}",
        flush=True,
    )
    return met


def bench_sampler(seconds: float) -> bool:
    share = sampler_share(seconds)
    print(f"live sampler: {share:.3%} of a core over {seconds:g} s")
    return share <= SHARE_OF_A_CORE


_READ = {
    "collectl.tab": "collectl, usual subsystems",
    "sadf.json": "sadf JSON",
    "collectl-64.tab": "collectl of 64 CPUs and 20 disks, 1030 columns",
    "collectl-64.tab.gz": "the same, gzip",
}


def figures(scale: float = 1.0) -> Iterator[Figure]:
    """Lines of the table of speed; see ``speed.py``."""
    rows = int(DAY / 8 * scale)
    with tempfile.TemporaryDirectory() as folder:
        for name, title in _READ.items():
            path = Path(folder, name)
            write(path, MAKERS[name](rows))
            turns = [[in_a_process(r, path) for r in ("ppw", "peer")] for _ in range(3)]
            path.unlink()
            peer = "json.load" if name.startswith("sadf") else "pandas.read_csv"
            for unit, key in (("s", "seconds"), ("MB", "mb")):
                ours, theirs = ([turn[k][key] for turn in turns] for k in (0, 1))
                what = f"{'read' if key == 'seconds' else 'memory to read'} {rows:,} rows: {title}"
                yield cost(what, unit, ours, peer=peer, peers=theirs)
    shares = [100 * sampler_share(4.0) for _ in range(3)]
    yield cost("sample this host once a second", "% of a core", shares)


def sampler_share(seconds: float) -> float:
    """Share of a core that the live sampler takes."""
    from measurements.timeseries.live import LiveSampler, for_seconds

    sampler = LiveSampler()
    before, start = time.process_time(), time.monotonic()
    for _ in sampler.rows(for_seconds(seconds)):
        pass
    return (time.process_time() - before) / (time.monotonic() - start)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--share", type=float, default=1.0, help="of a day")
    parser.add_argument("--only", choices=list(MAKERS))
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--read", nargs=2, metavar=("READER", "PATH"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.read:
        print(json.dumps(read_by(given.read[0], Path(given.read[1]))))
        return 0
    rows = int(DAY * given.share)
    print(f"{rows} rows; imports are in the times")
    heads = {"file": 11, "ppw": 9, "CPU": 9, "peak": 9, "pandas or json.load": 22, "ratio": 6}
    print(" " * 20 + " ".join(f"{head:>{width}}" for head, width in heads.items()))
    with tempfile.TemporaryDirectory() as folder:
        names = [given.only] if given.only else list(MAKERS)
        met = [bench(name, Path(folder), rows, peers=not given.no_peers) for name in names]
    met.append(bench_sampler(10.0))
    return int(not all(met))


if __name__ == "__main__":
    raise SystemExit(main())
