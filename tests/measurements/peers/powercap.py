"""A powercap tree as the kernel lays it out, counters that run, and a private /sys for any reader.

Nothing here needs more than Python, and `private_sys` util-linux. In a test::

    tree = PowercapTree(tmp_path / "sys")
    package = tree.package(0, limits_w=(125.0, 250.0))
    dram = tree.dram(package)
    with CounterWriter({package: 40.0, dram: lambda s: 3.0 if s < 1 else 6.0}) as writer:
        ...                        # read below tmp_path / "sys", as SourceSettings(sysfs=...)
    writer.joules(package)         # what it drew, unwrapped and exact

`CounterProcess` does the same for constant watts in a process of its own, so that the reader's
processor time is not the writer's. A reader that knows only the real /sys gets the tree there::

    subprocess.run(private_sys(tree.mounts(), [sys.executable, "-c", "..."]))

Every zone's watts waver by a hundredth, each at its own pace, as no two real counters move alike;
`mirrors` names the zones that do. `joules` counts what was really shown; it is within 0.3 mJ for
each watt of watts times seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

# 2**32 - 1 steps of 2**-14 J and of 2**-16 J, as packages and server DRAM have them (µJ).
PACKAGE_RANGE_UJ = 262_143_328_850
DRAM_RANGE_UJ = 65_712_999_613

Watts = float | Callable[[float], float]


class Zone:
    """One zone: its real folder, its name, and a counter from 0 to ``range_uj`` (µJ)."""

    def __init__(self, folder: Path, name: str, range_uj: int, start_uj: int) -> None:
        self.folder, self.name = folder, name
        self.range_uj, self.start_uj = range_uj, start_uj
        self.energy = folder / "energy_uj"
        self.children = 0
        self._uj = start_uj
        self._file: int | None = None
        # A zone is removed by one thread while another one writes its counter.
        self._lock = threading.Lock()

    def show(self, energy_uj: int) -> None:
        """Write the counter in place, since readers keep the file open.

        Padded with spaces, so that it is as long as before; not with zeros, which some readers
        take for an octal number.
        """
        with self._lock:
            self._uj = energy_uj % (self.range_uj + 1)
            if self._file is None and self.folder.exists():
                self._file = os.open(self.energy, os.O_WRONLY)
            if self._file is not None:
                os.pwrite(self._file, self._text(), 0)

    def close(self) -> None:
        with self._lock:
            self._close()

    def vanish(self, kept: Path) -> None:
        """Take all files away; what a reader has open gives nothing more, as in the kernel."""
        with self._lock:
            self._close()
            os.truncate(self.energy, 0)
            shutil.copytree(self.folder, kept, symlinks=True)
            shutil.rmtree(self.folder)

    def appear(self, kept: Path) -> None:
        """Come back as new files, with the counter where it should be by now."""
        with self._lock:
            (kept / "energy_uj").write_bytes(self._text())
            kept.rename(self.folder)

    def _text(self) -> bytes:
        return f"{self._uj:>{len(str(self.range_uj))}}\n".encode()

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


class PowercapTree:
    """A sysfs root with ``class/powercap``, which links to ``devices/virtual/powercap``.

    Energy files are readable by their owner alone, as root's in every kernel since 2020.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.classes = root / "class" / "powercap"
        self.devices = root / "devices" / "virtual" / "powercap"
        self.classes.mkdir(parents=True)
        self.devices.mkdir(parents=True)
        self.zones: list[Zone] = []
        self._top: dict[str, int] = {}

    def package(
        self,
        number: int = 0,
        die: int | None = None,
        *,
        control_type: str = "intel-rapl",
        range_uj: int = PACKAGE_RANGE_UJ,
        start_uj: int = 0,
        limits_w: Sequence[float] = (125.0, 250.0),
    ) -> Zone:
        """Add a processor package, or one of its dies."""
        name = f"package-{number}" if die is None else f"package-{number}-die-{die}"
        return self.zone(
            name,
            control_type=control_type,
            range_uj=range_uj,
            start_uj=start_uj,
            limits_w=limits_w,
        )

    def core(self, package: Zone, *, start_uj: int = 0) -> Zone:
        """Add the cores of a package, as always without limits in force."""
        return self.zone(
            "core", package, range_uj=package.range_uj, start_uj=start_uj, enabled=False
        )

    def dram(self, package: Zone, *, range_uj: int = DRAM_RANGE_UJ, start_uj: int = 0) -> Zone:
        """Add the memory of a package."""
        return self.zone("dram", package, range_uj=range_uj, start_uj=start_uj, enabled=False)

    def zone(
        self,
        name: str,
        parent: Zone | None = None,
        *,
        control_type: str = "intel-rapl",
        range_uj: int = PACKAGE_RANGE_UJ,
        start_uj: int = 0,
        enabled: bool = True,
        limits_w: Sequence[float] = (),
    ) -> Zone:
        """Add a zone of any name at the top of a control type or below another zone."""
        if parent is None:
            above = self._control_type(control_type)
            place = f"{control_type}:{self._top[control_type]}"
            self._top[control_type] += 1
        else:
            above, place = parent.folder, f"{parent.folder.name}:{parent.children}"
            parent.children += 1
        zone = Zone(above / place, name, range_uj, start_uj)
        zone.folder.mkdir()
        _write(zone.folder / "name", name)
        _write(zone.folder / "enabled", "1" if enabled else "0")
        _write(zone.folder / "max_energy_range_uj", str(range_uj))
        kinds = ("long_term", "short_term")
        for index, (watts, kind) in enumerate(zip(limits_w, kinds, strict=False)):
            _write(zone.folder / f"constraint_{index}_name", kind)
            _write(zone.folder / f"constraint_{index}_power_limit_uw", f"{watts * 1e6:.0f}")
            _write(zone.folder / f"constraint_{index}_time_window_us", "999424")
        _link(zone.folder / "device", above)
        _link(zone.folder / "subsystem", self.classes)
        zone.energy.touch(mode=0o600)
        zone.show(start_uj)
        zone.close()
        _link(self.classes / place, zone.folder)
        self.zones.append(zone)
        return zone

    def remove(self, zone: Zone) -> None:
        """Take a zone away, as an unloaded driver does."""
        zone.vanish(self._away(zone))

    def restore(self, zone: Zone) -> None:
        """Put a removed zone back."""
        zone.appear(self._away(zone))

    def _away(self, zone: Zone) -> Path:
        return self.root / f"removed-{zone.folder.name}"

    def mounts(self) -> dict[str, Path]:
        """Where the tree belongs below the real /sys, for `private_sys`."""
        return {"/sys/devices/virtual/powercap": self.devices, "/sys/class/powercap": self.classes}

    def _control_type(self, name: str) -> Path:
        folder = self.devices / name
        if name not in self._top:
            self._top[name] = 0
            folder.mkdir()
            _write(folder / "enabled", "1")
            _link(folder / "subsystem", self.classes)
            _link(self.classes / name, folder)
        return folder


def _write(path: Path, text: str) -> None:
    path.write_text(f"{text}\n", encoding="ascii")


def _link(path: Path, target: Path) -> None:
    path.symlink_to(os.path.relpath(target, path.parent))


class _Counters:
    """Counters of several zones, brought up to date in place."""

    def __init__(self, watts: Mapping[Zone, Watts], mirrors: Mapping[Zone, Zone]) -> None:
        self._watts = watts
        # A mirror is written right after its model, as one register is read under two names.
        self._shown = {zone: [zone, *(m for m in mirrors if mirrors[m] is zone)] for zone in watts}
        self.joules = dict.fromkeys(watts, 0.0)
        self._began = self._last = 0.0

    def begin(self) -> None:
        self._began = self._last = time.monotonic()

    def update(self) -> None:
        """Add what was drawn since the last update."""
        now = time.monotonic()
        middle, passed = (now + self._last) / 2 - self._began, now - self._last
        self._last = now
        for index, (zone, watts) in enumerate(self._watts.items()):
            drawn = watts(middle) if callable(watts) else watts
            waver = 1 + 0.01 * math.sin(2 * math.pi * (11 + 3 * index) * middle)
            self.joules[zone] += drawn * waver * passed
            for shown in self._shown[zone]:
                shown.show(shown.start_uj + int(self.joules[zone] * 1e6))

    def close(self) -> None:
        for zones in self._shown.values():
            for zone in zones:
                zone.close()


class CounterWriter:
    """Counters that run in a thread while the context is open.

    Parameters
    ----------
    watts : mapping of Zone to float or callable
        What each zone draws: constant, or by the seconds since the beginning.
    mirrors : mapping of Zone to Zone
        Zones that show the counter of another one, which is in `watts`.
    period_s : float
        Time between two updates.
    """

    def __init__(
        self,
        watts: Mapping[Zone, Watts],
        *,
        mirrors: Mapping[Zone, Zone] | None = None,
        period_s: float = 0.001,
    ) -> None:
        self._counters = _Counters(watts, mirrors or {})
        self._period_s = period_s
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="powercap", daemon=True)

    def joules(self, zone: Zone) -> float:
        """Energy that a zone has drawn since the beginning, as of the last update."""
        return self._counters.joules[zone]

    def __enter__(self) -> CounterWriter:
        self._counters.begin()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._counters.close()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._stop.wait(self._period_s):
                self._counters.update()
        except BaseException as failure:  # handed to whoever leaves the context
            self._failure = failure


class CounterProcess:
    """Counters at constant watts in a process of their own; `joules` is known after the end."""

    def __init__(self, watts: Mapping[Zone, float], *, period_s: float = 0.001) -> None:
        self._zones = list(watts)
        self._joules: list[float] = []
        orders = {
            "period_s": period_s,
            "zones": [[str(z.folder), z.name, z.range_uj, z.start_uj, w] for z, w in watts.items()],
        }
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__, "write", json.dumps(orders)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def joules(self, zone: Zone) -> float:
        """Energy that a zone drew from the beginning to the end."""
        return self._joules[self._zones.index(zone)]

    def __enter__(self) -> CounterProcess:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "running\n"
        return self

    def __exit__(self, *_: object) -> None:
        said, _ = self._process.communicate(timeout=30)
        self._joules = json.loads(said)


def _write_until_told(orders: str) -> None:
    plan = json.loads(orders)
    watts = {Zone(Path(folder), *rest): drawn for folder, *rest, drawn in plan["zones"]}
    counters = _Counters(watts, {})
    counters.begin()
    print("running", flush=True)
    while not select.select([sys.stdin], [], [], plan["period_s"])[0]:
        counters.update()
    print(json.dumps(list(counters.joules.values())))


def topology(folder: Path, sockets: int) -> dict[str, Path]:
    """Mounts for `private_sys` that give the machine one processor in each of so many sockets."""
    folder.mkdir()
    present = folder / "present"
    _write(present, "0" if sockets == 1 else f"0-{sockets - 1}")
    mounts = {"/sys/devices/system/cpu/present": present}
    for cpu in range(sockets):
        package = folder / f"package_of_cpu{cpu}"
        _write(package, str(cpu))
        mounts[f"/sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id"] = package
    return mounts


def private_sys(mounts: Mapping[str, Path], command: Sequence[str]) -> list[str]:
    """Command line that runs a command where folders and files stand at given places of /sys.

    A mount namespace of its own, so that nobody else sees them; nothing is copied, and what the
    command writes there is written to the given files. Needs root.
    """
    binds = json.dumps({place: str(source) for place, source in mounts.items()})
    unshare = ["unshare", "--mount", "--propagation", "private"]
    return [*unshare, sys.executable, "-P", __file__, "mount", binds, *command]


def _mount_and_run(binds: str, command: list[str]) -> None:
    # An overlay hides what is mounted below it: all rooms come first, and the upper ones before.
    mounts = sorted(json.loads(binds).items(), key=lambda item: len(Path(item[0]).parts))
    for place, source in mounts:
        _make_room(Path(place), folder=Path(source).is_dir())
    for place, source in mounts:
        _mount("--bind", source, place)
    os.execvp(command[0], command)


def _make_room(place: Path, *, folder: bool) -> None:
    """Make a name that can be mounted on; sysfs takes none, but an overlay above it does."""
    if place.exists():
        return
    _make_room(place.parent, folder=True)
    try:
        _make(place, folder=folder)
    except OSError:
        _overlay(place.parent)
        _make(place, folder=folder)


def _make(place: Path, *, folder: bool) -> None:
    place.mkdir() if folder else place.touch()


def _overlay(folder: Path) -> None:
    scratch = tempfile.mkdtemp()
    _mount("-t", "tmpfs", "tmpfs", scratch)
    for name in ("upper", "work"):
        Path(scratch, name).mkdir()
    options = f"lowerdir={folder},upperdir={scratch}/upper,workdir={scratch}/work"
    _mount("-t", "overlay", "overlay", "-o", options, str(folder))
    # The overlay keeps what it stands on; the scratch name is not needed any more.
    subprocess.run(["umount", "--lazy", scratch], check=True)
    with contextlib.suppress(OSError):
        Path(scratch).rmdir()


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["write", "mount"])
    parser.add_argument("orders")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    asked = parser.parse_args()
    if asked.what == "write":
        _write_until_told(asked.orders)
    else:
        _mount_and_run(asked.orders, asked.command)
