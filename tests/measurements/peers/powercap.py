"""A powercap tree as the kernel lays it out, counters that run, and a private /sys for any reader.

`Counters` run by any clock when they are told, `CounterWriter` by themselves::

    tree = PowercapTree(tmp_path / "sys")
    package = tree.package(0, limits_w=(125.0, 250.0))
    with CounterWriter({package: 40.0, tree.dram(package): lambda s: 3.0 if s < 1 else 6.0}) as run:
        ...                     # read below tmp_path / "sys", as SourceSettings(sysfs=...)
    run.joules[package]         # what it drew, unwrapped and exact

A reader that knows only the real /sys gets the tree there by `in_private_sys`.

Every zone's watts waver by a hundredth, each at its own pace, as no two real counters move alike;
``mirrors`` names the zones that do.
"""

import contextlib
import math
import os
import subprocess
import threading
import time
import types
from pathlib import Path

# 2**32 - 1 steps of 2**-14 J and of 2**-16 J, as packages and server DRAM have them (µJ).
PACKAGE_RANGE_UJ = 262_143_328_850
DRAM_RANGE_UJ = 65_712_999_613


class Zone:
    """One zone: its real folder, its name, and a counter from 0 to ``range_uj`` (µJ)."""

    def __init__(self, folder, name, range_uj, start_uj):
        self.folder, self.name = folder, name
        self.range_uj, self.start_uj = range_uj, start_uj
        self.energy = folder / "energy_uj"
        self.children, self._uj = 0, start_uj

    def show(self, energy_uj):
        """Write the counter in place, since readers keep the file open.

        Padded with spaces, so that it is as long as before; not with zeros, which some readers
        take for an octal number.
        """
        self._uj = energy_uj % (self.range_uj + 1)
        with contextlib.suppress(FileNotFoundError):
            file = os.open(self.energy, os.O_WRONLY)
            os.pwrite(file, self.text, 0)
            os.close(file)

    @property
    def text(self):
        return f"{self._uj:>{len(str(self.range_uj))}}\n".encode()


class PowercapTree:
    """A sysfs root with ``class/powercap``, which links to ``devices/virtual/powercap``.

    Energy files are readable by their owner alone, as root's in every kernel since 2020.
    """

    def __init__(self, root):
        self.root = root
        self.classes, self.devices = root / "class/powercap", root / "devices/virtual/powercap"
        for folder in (self.classes, self.devices):
            folder.mkdir(parents=True)
        self._top = {}

    def package(self, number=0, die=None, **known):
        """Add a processor package, or one of its dies."""
        name = f"package-{number}" if die is None else f"package-{number}-die-{die}"
        return self.zone(name, **{"limits_w": (125.0, 250.0), **known})

    def core(self, package):
        """Add the cores of a package, as always without limits in force."""
        return self.zone("core", package, range_uj=package.range_uj, enabled=False)

    def dram(self, package, *, start_uj=0):
        return self.zone("dram", package, DRAM_RANGE_UJ, start_uj, enabled=False)

    def zone(self, name, parent=None, range_uj=PACKAGE_RANGE_UJ, start_uj=0, **known):
        """Add a zone of any name at the top of a control type or below another zone."""
        known = {"control_type": "intel-rapl", "enabled": True, "limits_w": (), **known}
        control_type = known["control_type"]
        if parent is None:
            above = self._control_type(control_type)
            place = f"{control_type}:{self._top[control_type]}"
            self._top[control_type] += 1
        else:
            above, place = parent.folder, f"{parent.folder.name}:{parent.children}"
            parent.children += 1
        zone = Zone(above / place, name, range_uj, start_uj)
        texts = {"name": name, "enabled": int(known["enabled"]), "max_energy_range_uj": range_uj}
        for index, watts in enumerate(known["limits_w"]):
            texts[f"constraint_{index}_name"] = ("long_term", "short_term")[index]
            texts[f"constraint_{index}_power_limit_uw"] = round(watts * 1e6)
            texts[f"constraint_{index}_time_window_us"] = 999424
        write(zone.folder, **texts)
        _link(zone.folder / "device", above)
        _link(zone.folder / "subsystem", self.classes)
        zone.energy.touch(mode=0o600)
        zone.show(start_uj)
        _link(self.classes / place, zone.folder)
        return zone

    def remove(self, zone):
        """Take a zone away, as an unloaded driver does: what a reader has open gives no more."""
        os.truncate(zone.energy, 0)
        zone.folder.rename(self._away(zone))

    def restore(self, zone):
        """Put a removed zone back, its counter in a new file and where it should be by now."""
        energy = self._away(zone) / "energy_uj"
        energy.unlink()
        energy.write_bytes(zone.text)
        energy.parent.rename(zone.folder)

    def _away(self, zone):
        return self.root / f"removed-{zone.folder.name}"

    def topology(self, sockets=1):
        """Let the machine have one processor in each of so many sockets."""
        cpus = self.root / "devices/system/cpu"
        write(cpus, present="-".join(str(n) for n in sorted({0, sockets - 1})))
        for number in range(sockets):
            write(cpus / f"cpu{number}/topology", physical_package_id=number)

    def _control_type(self, name):
        folder = self.devices / name
        if name not in self._top:
            self._top[name] = 0
            write(folder, enabled=1)
            _link(folder / "subsystem", self.classes)
            _link(self.classes / name, folder)
        return folder


def write(folder, **texts):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(f"{text}\n")


def only_root(monkeypatch):
    """Let no counter be opened that others may not read, whoever runs the test."""
    real = os.open

    def open_as_nobody(path, *flags):
        if not Path(path).stat().st_mode & 0o004:
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *flags)

    calls = types.SimpleNamespace(**{**vars(os), "open": open_as_nobody})
    monkeypatch.setattr("measurements.host.files.os", calls)


def _link(path, target):
    path.symlink_to(os.path.relpath(target, path.parent))


class Counters:
    """Counters of several zones, brought up to date in place when `update` is called.

    ``watts`` has what each zone draws: constant, or by the seconds since the beginning. ``mirrors``
    has zones that show the counter of another one.
    """

    def __init__(self, watts, mirrors=None, clock=time.monotonic):
        self._watts, self._clock = watts, clock
        # A mirror is written right after its model, as one register is read under two names.
        self._shown = {z: [z, *(m for m, of in (mirrors or {}).items() if of is z)] for z in watts}
        self.joules = dict.fromkeys(watts, 0.0)
        self._began = self._last = clock()

    def update(self):
        now = self._clock()
        middle, passed = (now + self._last) / 2 - self._began, now - self._last
        self._last = now
        for index, (zone, watts) in enumerate(self._watts.items()):
            drawn = watts(middle) if callable(watts) else watts
            waver = 1 + 0.01 * math.sin(2 * math.pi * (11 + 3 * index) * middle)
            self.joules[zone] += drawn * waver * passed
            for shown in self._shown[zone]:
                shown.show(shown.start_uj + int(self.joules[zone] * 1e6))


class CounterWriter:
    """Counters that run in a thread while the context is open; ``joules`` has what was drawn."""

    def __init__(self, watts, *, period_s=0.001):
        self._counters, self._period_s = Counters(watts), period_s
        self.joules = self._counters.joules
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="powercap", daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    def _run(self):
        while not self._stop.wait(self._period_s):
            self._counters.update()


def in_private_sys(root, *command):
    """Output of a command that ends well, for which the folders of a tree are those of /sys.

    In a mount namespace of its own, so that nobody else sees them; nothing is copied, and what the
    command writes there is written to the tree. Needs root.
    """
    mounts = (f"mount --rbind {folder} /sys/{folder.name}" for folder in root.iterdir())
    script = f'{" && ".join(mounts)} && exec "$@"'
    unshare = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh"]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3])}
    known = {"capture_output": True, "text": True, "timeout": 60, "env": env}
    done = subprocess.run([*unshare, *command], check=False, **known)
    assert done.returncode == 0, done.stderr
    assert "ResourceWarning" not in done.stderr
    return done.stdout
