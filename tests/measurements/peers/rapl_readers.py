"""Reads the counters below /sys at the same time with ppw's sources and with others' readers.

A script, run where `peers.powercap.in_private_sys` shows a tree: lets the seconds given pass, and
prints as JSON what each reader saw of the package's joules. ppw reads right around the others and
again inside of them, so that what they see must lie between.
"""

import json
import subprocess
import sys
import time
import warnings

from measurements.power import rapl
from measurements.power.source import SourceSettings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import pyRAPL
    from codecarbon.core.cpu import IntelRAPL
    from codecarbon.core.units import Time
    from pyJoules.device.rapl_device import RaplDevice

# Readers: they are set up, begin and end at a `next` each, and the last gives the joules.


def ppw(open_source):
    source = open_source(None, SourceSettings())
    return difference(lambda: next(r.value for r in source.read() if r.label == "rapl:package-0"))


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


def difference(joules):
    yield
    before = joules()
    yield
    yield joules() - before


def powercap_info():
    command = ["powercap-info", "intel-rapl", "--zone", "0", "--z-energy"]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout) / 1e6


def main():
    device = RaplDevice()
    device.configure(RaplDevice.available_package_domains())
    readers = {"outer": ppw(rapl.open_source), "pyRAPL": py_rapl(), "codecarbon": code_carbon()}
    readers["pyJoules"] = difference(lambda: device.get_energy()[0] / 1e6)
    readers["powercap-info"] = difference(powercap_info)
    readers |= {"rapl:pyrapl": ppw(rapl.open_pyrapl), "inner": ppw(rapl.open_source)}
    for _ in range(2):
        for reader in readers.values():
            next(reader)
    time.sleep(float(sys.argv[1]))
    print(json.dumps({name: next(readers[name]) for name in reversed(readers)}))


if __name__ == "__main__":
    main()
