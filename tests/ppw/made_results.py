"""One result of every kind about hosts, workloads and files whose names the caller chooses."""

import json
import pkgutil
import warnings
from importlib import import_module

import pandas as pd
from cpio_studies import APPLICATIONS, study
from made_traces import MadeTrace, busy
from made_up import ATOM, answered, sweep
from pressure_series import host
from procurement_scenarios import documented
from recordings import recording

import ppw
from ppw import fleet


def _pages():
    """Functions that make a page, each by the class of the result that it takes."""
    classes = {getattr(getattr(ppw, name), "kind", ""): name for name in ppw.__all__}
    # A trace model is a document of its own.
    classes["trace_model"] = "TraceModel"
    modules = [one.name for one in pkgutil.walk_packages(ppw.__path__, "ppw.")]
    for module in (name for name in modules if name.endswith(".report")):
        for kind, make in getattr(import_module(module), "PAGES", {}).items():
            yield classes[kind], make


PAGES = dict(_pages())


def made(kind, one, two, folder):
    """Make a result of a kind about hosts, workloads and the like of these two names."""
    runs = _runs(one, two)
    if kind == "FleetAnswer":
        with warnings.catch_warnings():
            # ibis calls DuckDB by names that it will drop; caveats are no warnings here.
            warnings.simplefilter("ignore")
            return fleet.project(runs, freq=3e9)
    metered = runs.assign(meter_power_w=30 + 1.1 * runs["power_w"])
    both = pd.concat([runs, runs.assign(host=two, time_s=2 * runs["time_s"])])
    io = study(noise=0.02, applications=dict(zip((one, two), APPLICATIONS.values(), strict=True)))
    io = io.assign(host=one, device=two)
    task = {"data_bytes": 1e15, "time_s": 86400.0, "cores": 16}
    pair = {one: recording(cores=3.0), two: recording(cores=2.0, read=1e8)}
    trace = MadeTrace(busy(1500).table, {"stream": (one, two), "device": (one,), "file": ()})
    short = MadeTrace(busy(100, rate=1000.0).table, trace.names)
    other = MadeTrace(busy(1500, seed=2).table, trace.names)
    calls = {
        "BestFrequency": lambda: ppw.best(runs, draws=200),
        "Calibration": lambda: ppw.calibrate(metered, sensor="rapl:package", reference="meter"),
        "ChangeCheck": lambda: ppw.check_changes(runs, runs.assign(host=two), fail_if="time > 3%"),
        "Characterisation": lambda: ppw.characterise(both),
        "CoLocation": lambda: ppw.co_locate(pair),
        "Comparison": lambda: ppw.compare(both, {"host": one}, {"host": two}, draws=200),
        "CoreCountProjection": lambda: ppw.project(_by_cores(one, two), cores=16),
        "CpioProjection": lambda: ppw.project_cpio(io, cores=16),
        "CyclesPerIO": lambda: ppw.cycles_per_io(io),
        "DataSizeProjection": lambda: ppw.project(_sizes(one, two), data_bytes=512e6),
        "DeviceComparison": lambda: ppw.compare_devices(io),
        "FittedParameters": lambda: ppw.fit(runs),
        "HalfDrift": lambda: ppw.half_drift(trace, levels=2),
        "LevelChoice": lambda: ppw.choose_level(trace, levels=2),
        "MissRatioCurves": lambda: ppw.miss_ratio_curves(trace),
        "Pairing": lambda: ppw.pair_workloads(pair),
        "PathLengths": lambda: ppw.path_lengths(_by_cores(one, two)),
        "Plan": lambda: ppw.plan(runs, metric="time", steps="1.2GHz,1.8GHz"),
        "PowerLoads": lambda: ppw.power_loads(
            [ppw.PowerLoadCurve.of_levels([0, 0.5, 1], [60, 80, 120], name=n) for n in (one, two)]
        ),
        "PressureMatrix": lambda: ppw.pressure_matrix({one: host(), two: host(user_s=3.0)}),
        "Procurement": lambda: ppw.procure(_scenario(one, two), draws=200),
        "Projection": lambda: ppw.project_points(ATOM, freq=3e9),
        "Quality": lambda: ppw.check(_copied(runs)),
        "RightSizing": lambda: ppw.right_size(recording(cores=6.0, name=one)),
        "RunsProjection": lambda: ppw.project(runs, freq=3e9, metric=["time", "power"]),
        "ServerSizing": lambda: ppw.size_servers(io, **task, server_power_w=300.0),
        "SweepKnees": lambda: ppw.find_knees(_swept(one, two), over="threads", of="throughput"),
        "TimeScales": lambda: ppw.time_scales(answered(calls["TraceModel"]), scales=[1, 2]),
        "TraceDrift": lambda: ppw.trace_drift(trace, other),
        "TraceFidelity": lambda: ppw.validate_trace(trace, other),
        "TraceModel": lambda: ppw.fit_trace(trace, levels=2),
        "TraceReplay": lambda: ppw.replay_trace(short, str(folder / "scratch"), size_bytes=2**22),
        "TraceWhatIf": lambda: ppw.trace_what_if(trace, cache_bytes=2**20, repeats=2),
        "Validation": lambda: ppw.validate(runs, metric=["time", "power"]),
    }
    return answered(calls[kind])


def _runs(one, two):
    runs = sweep(noise=0.02, workloads=("grep", "sort"), host=one).assign(family=two)
    return runs.replace({"workload": {"grep": one, "sort": two}})


def _copied(runs):
    runs = runs.drop(columns=["cycles", "instructions"])
    runs.loc[2, ["time_s", "power_w"]] = runs.loc[0, ["time_s", "power_w"]].to_numpy()
    return runs


def _sizes(one, two):
    sizes = pd.DataFrame({"data_bytes": [64e6, 128e6, 256e6], "time_s": [14.0, 26.0, 46.0]})
    return pd.concat([sizes.assign(workload=one), sizes.assign(workload=two)])


def _by_cores(one, two):
    instructions = {"cores": [1, 2, 4, 8], "instructions": [7.1e9, 4.9e9, 2.7e9, 0.5e9]}
    table = pd.DataFrame(instructions).assign(data_bytes=1e6, time_s=[100.0, 55.0, 32.0, 21.0])
    return pd.concat([table.assign(workload=one), table.assign(workload=two)])


def _swept(one, two):
    rates = [1e5, 2e5, 4e5, 4.1e5, 4.2e5]
    table = pd.DataFrame({"threads": [1, 2, 4, 8, 16], "throughput_ops_s": rates})
    return pd.concat([table.assign(host=one), table.assign(host=two)])


def _scenario(one, two):
    spelt = json.dumps(documented()).replace('"small"', json.dumps(one))
    return json.loads(spelt.replace('"large"', json.dumps(two)))
