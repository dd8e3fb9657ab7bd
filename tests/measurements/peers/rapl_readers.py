"""Reads the counters below /sys at the same time with ppw's sources and with others' readers.

A script, run where `peers.powercap.private_sys` shows a tree: waits until the package has drawn
the joules given, and prints as JSON what each reader saw of it (J). ppw reads right around the
others and again inside of them, so that what they see must lie between.
"""

import json
import subprocess
import sys
import time
import warnings

from measurements.power import rapl, rapl_pyrapl
from measurements.power.protocol import SourceSettings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import pyRAPL
    from codecarbon.core.cpu import IntelRAPL
    from codecarbon.core.units import Time
    from pyJoules.device.rapl_device import RaplDevice

PACKAGE = "rapl:package-0"


class Ppw:
    """A source of ppw, read often enough that its counter wraps once at most between readings."""

    def __init__(self, module):
        self._source = module.open_source(None, SourceSettings())
        channels = {channel.label: channel for channel in self._source.channels}
        self._range_j = channels[PACKAGE].range_j
        self.drawn = 0.0

    def begin(self):
        self._last = self._joules()

    def tick(self):
        joules = self._joules()
        step = joules - self._last
        self.drawn += step + self._range_j if step < 0 else step
        self._last = joules

    def end(self):
        self.tick()
        return self.drawn

    def _joules(self):
        return next(r.value for r in self._source.read() if r.label == PACKAGE)


class PyRapl:
    def __init__(self):
        pyRAPL.setup()
        self._measurement = pyRAPL.Measurement("package")

    def begin(self):
        self._measurement.begin()

    def end(self):
        self._measurement.end()
        pkg = self._measurement.result.pkg
        return None if pkg is None else pkg[0] / 1e6


class PyJoules:
    def __init__(self):
        self._device = RaplDevice()
        self._device.configure(RaplDevice.available_package_domains())

    def begin(self):
        self._before = self._device.get_energy()[0]

    def end(self):
        return (self._device.get_energy()[0] - self._before) / 1e6


class CodeCarbon:
    def __init__(self):
        self._rapl = IntelRAPL()

    def begin(self):
        self._rapl.start()

    def end(self):
        details = self._rapl.get_cpu_details(Time.from_seconds(1.0))
        return details["Processor Energy Delta_0(kWh)"] * 3.6e6


class PowercapInfo:
    def begin(self):
        self._before = self._microjoules()

    def end(self):
        return (self._microjoules() - self._before) / 1e6

    def _microjoules(self):
        command = ["powercap-info", "intel-rapl", "--zone", "0", "--z-energy"]
        return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main():
    readers = {
        "outer": Ppw(rapl),
        "pyRAPL": PyRapl(),
        "pyJoules": PyJoules(),
        "codecarbon": CodeCarbon(),
        "powercap-info": PowercapInfo(),
        "rapl:pyrapl": Ppw(rapl_pyrapl),
        "inner": Ppw(rapl),
    }
    for reader in readers.values():
        reader.begin()
    while readers["inner"].drawn <= float(sys.argv[1]):
        time.sleep(0.02)
        for name in ("outer", "rapl:pyrapl", "inner"):
            readers[name].tick()
    seen = {name: readers[name].end() for name in reversed(readers)}
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
