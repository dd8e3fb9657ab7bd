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
        self._last, self.drawn = None, 0.0

    def tick(self):
        joules = next(r.value for r in self._source.read() if r.label == PACKAGE)
        if self._last is not None:
            step = joules - self._last
            self.drawn += step + self._range_j if step < 0 else step
        self._last = joules

    def __next__(self):
        self.tick()
        return self.drawn


# Others: they are set up, begin and end at a `next` each, and the last gives the joules.


def py_rapl():
    pyRAPL.setup()
    measurement = pyRAPL.Measurement("package")
    yield
    yield measurement.begin()
    measurement.end()
    package = measurement.result.pkg
    yield None if package is None else package[0] / 1e6


def code_carbon():
    reader = IntelRAPL()
    yield
    yield reader.start()
    details = reader.get_cpu_details(Time.from_seconds(1.0))
    yield details["Processor Energy Delta_0(kWh)"] * 3.6e6


def difference(microjoules):
    yield
    before = microjoules()
    yield
    yield (microjoules() - before) / 1e6


def powercap_info():
    command = ["powercap-info", "intel-rapl", "--zone", "0", "--z-energy"]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main():
    device = RaplDevice()
    device.configure(RaplDevice.available_package_domains())
    others = {"pyRAPL": py_rapl(), "pyJoules": difference(lambda: device.get_energy()[0])}
    others |= {"codecarbon": code_carbon(), "powercap-info": difference(powercap_info)}
    for reader in others.values():
        next(reader)
    outer, other, inner = Ppw(rapl), Ppw(rapl_pyrapl), Ppw(rapl)
    readers = {"outer": outer, **others, "rapl:pyrapl": other, "inner": inner}
    for reader in readers.values():
        next(reader)
    while inner.drawn <= float(sys.argv[1]):
        time.sleep(0.02)
        for source in (outer, other, inner):
            source.tick()
    print(json.dumps({name: next(readers[name]) for name in reversed(readers)}))


if __name__ == "__main__":
    main()
