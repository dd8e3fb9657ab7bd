"""What the package shows: names, lazy imports, and what every result can do."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import pandas as pd
import pytest
from cpio_studies import study
from made_traces import busy
from made_up import ATOM, answered, sweep
from pressure_series import host
from procurement_scenarios import documented
from recordings import recording

import fitting
import measurements
import ppw
from ppw import fleet

ROOT = Path(__file__).resolve().parents[2]
HEAVY = (
    *("pandas", "sklearn", "matplotlib", "scipy", "statsmodels", "jinja2", "click"),
    *("numba", "pyarrow"),
)


@pytest.mark.parametrize("package", [ppw, measurements, fitting], ids=lambda p: p.__name__)
class TestEveryPackage:
    def test_all_is_sorted(self, package):
        assert package.__all__ == sorted(package.__all__)
        assert len(set(package.__all__)) == len(package.__all__)

    def test_every_name_is_there(self, package):
        for name in package.__all__:
            assert getattr(package, name).__name__ == name

    def test_any_other_is_an_attribute_error(self, package):
        with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
            package.nothing  # noqa: B018


def loaded_by(code):
    script = f"import sys\n{code}\nprint(*(m for m in {HEAVY!r} if m in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    return done.stdout.split()


def test_importing_the_package_imports_nothing_heavy():
    assert loaded_by("import ppw, measurements, fitting") == []


def test_a_name_brings_only_what_it_needs():
    assert "pandas" not in loaded_by("import ppw; ppw.PpwError, ppw.CaveatWarning, ppw.Estimate")
    calls = [getattr(ppw, name) for name in ppw.__all__]
    answers = [c.__name__ for c in calls if c.__name__.islower() and "catalogue" not in c.__name__]
    assert {"best_frequency", "check_quality", "compare", "plan", "validate"} <= set(answers)
    brought = loaded_by("import ppw; " + ", ".join(f"ppw.{name}" for name in answers))
    assert "matplotlib" not in brought
    assert "sklearn" not in loaded_by("import ppw; ppw.project, ppw.project_runs")


def replayed():
    with tempfile.TemporaryDirectory() as folder:
        return ppw.replay_trace(busy(100, rate=1000.0), folder + "/scratch", size_bytes=2**22)


def over_fleet(runs):
    with warnings.catch_warnings():
        # ibis calls DuckDB by names that it will drop.
        warnings.simplefilter("ignore")
        return fleet.project(runs, freq=3e9)


BY_CORES = {
    "cores": [1, 2, 4, 8],
    "instructions": [7.1e9, 4.9e9, 2.7e9, 0.5e9],
    "time_s": [100.0, 55.0, 32.0, 21.0],
}


def made(kind):
    runs = sweep(noise=0.02)
    two = pd.concat([runs, sweep(noise=0.02, seed=8, host="rack2")])
    copied = runs.drop(columns=["cycles", "instructions"])
    copied.loc[2, ["time_s", "power_w"]] = copied.loc[0, ["time_s", "power_w"]]
    by_cores = pd.DataFrame(BY_CORES).assign(workload="wordcount", data_bytes=1e6)
    sizes = pd.DataFrame({"data_bytes": [64e6, 128e6, 256e6], "time_s": [14.0, 26.0, 46.0]})
    sweep_once = {"data_bytes": 1e15, "time_s": 86400.0, "cores": 16, "server_power_w": 300.0}
    pair = {"cache": recording(cores=3.0), "batch": recording(cores=2.0, read=1e8)}
    rates = [1e5, 2e5, 4e5, 4.1e5, 4.2e5]
    by_threads = pd.DataFrame({"threads": [1, 2, 4, 8, 16], "throughput_ops_s": rates})
    asked = {"over": "threads", "of": "throughput"}
    curve = ppw.PowerLoadCurve.of_levels([0, 0.5, 1], [60, 80, 120])
    points = {"freq": 3e9, "power_pts": [(1e9, 9.0), (2e9, 12.0)], "power_source": "meter"}
    calls = {
        ppw.Projection: lambda: answered(ppw.project, ATOM, **points),
        ppw.RunsProjection: lambda: answered(ppw.project_runs, runs, freq=3e9),
        ppw.Validation: lambda: answered(ppw.validate, runs),
        ppw.FittedParameters: lambda: answered(ppw.fit_runs, runs),
        ppw.Quality: lambda: answered(ppw.check_quality, copied),
        ppw.BestFrequency: lambda: answered(ppw.best_frequency, runs, draws=200),
        ppw.Calibration: lambda: answered(
            ppw.calibrate,
            runs.assign(meter_power_w=30 + 1.1 * runs["power_w"]),
            sensor="rapl:package",
            reference="meter",
        ),
        ppw.Characterisation: lambda: answered(ppw.characterise, two),
        ppw.CoLocation: lambda: answered(ppw.co_locate, pair),
        ppw.Comparison: lambda: answered(
            ppw.compare, two, {"host": "rack1"}, {"host": "rack2"}, draws=200
        ),
        ppw.CpioProjection: lambda: answered(ppw.project_cpio, study(noise=0.02), cores=16),
        ppw.CyclesPerIO: lambda: answered(ppw.cycles_per_io, study(noise=0.02)),
        ppw.DeviceComparison: lambda: answered(ppw.compare_devices, study(noise=0.02)),
        ppw.ServerSizing: lambda: answered(ppw.size_servers, study(noise=0.02), **sweep_once),
        ppw.CoreCountProjection: lambda: answered(ppw.project_core_count, by_cores, cores=16),
        ppw.DataSizeProjection: lambda: answered(ppw.project_data_size, sizes, data_bytes=512e6),
        ppw.Pairing: lambda: answered(ppw.pair_workloads, pair),
        ppw.RightSizing: lambda: answered(ppw.right_size, recording(cores=6.0)),
        ppw.SweepKnees: lambda: answered(ppw.find_knees, by_threads, **asked),
        ppw.PathLengths: lambda: answered(ppw.path_lengths, by_cores),
        fleet.FleetAnswer: lambda: over_fleet(runs),
        ppw.Plan: lambda: answered(ppw.plan, runs, metric="time", steps="1.2GHz,1.8GHz"),
        ppw.PowerLoads: lambda: answered(ppw.power_loads, [curve]),
        ppw.PressureMatrix: lambda: answered(ppw.pressure_matrix, {"app": host()}),
        ppw.Procurement: lambda: answered(ppw.procure, documented(), draws=200),
        ppw.HalfDrift: lambda: answered(ppw.half_drift, busy(1500), levels=2),
        ppw.LevelChoice: lambda: answered(ppw.choose_level, busy(1500), levels=2),
        ppw.TimeScales: lambda: answered(
            ppw.time_scales, answered(ppw.fit_trace, busy(1500), levels=2), scales=[1, 2]
        ),
        ppw.TraceFidelity: lambda: answered(ppw.validate_trace, busy(1500), busy(1500, seed=2)),
        ppw.TraceModel: lambda: answered(ppw.fit_trace, busy(1500), levels=2),
        ppw.TraceReplay: lambda: answered(replayed),
        ppw.TraceWhatIf: lambda: answered(
            ppw.trace_what_if, busy(1500), cache_bytes=2**20, repeats=2
        ),
    }
    return calls[kind]()


RESULTS = (
    *("BestFrequency", "Calibration", "Characterisation", "CoLocation", "Comparison"),
    *("CoreCountProjection", "CpioProjection", "CyclesPerIO", "DataSizeProjection"),
    *("DeviceComparison", "FittedParameters", "HalfDrift", "LevelChoice", "Pairing"),
    *("PathLengths", "Plan"),
    *("PowerLoads", "PressureMatrix", "Procurement", "Projection", "Quality", "RightSizing"),
    *("RunsProjection", "ServerSizing", "SweepKnees", "TimeScales", "TraceFidelity"),
    *("TraceModel", "TraceReplay", "TraceWhatIf", "Validation"),
)


@pytest.fixture(scope="module", params=[*RESULTS, "FleetAnswer"])
def kind_and_result(request):
    kind = getattr(fleet if request.param == "FleetAnswer" else ppw, request.param)
    return kind, made(kind)


class TestEveryResult:
    def test_is_of_its_class_and_frozen(self, kind_and_result):
        kind, result = kind_and_result
        assert type(result) is kind
        with pytest.raises(AttributeError):
            result.caveats = ()

    def test_comes_back_from_json(self, kind_and_result):
        kind, result = kind_and_result
        document = json.loads(result.to_json())
        assert document["schema_version"] == (3 if kind is ppw.TraceModel else 1)
        assert document["ppw_version"]
        assert document["input_digest"].startswith("sha256:")
        again = kind.from_json(result.to_json())
        assert again.to_json() == result.to_json()
        assert again.summary() == result.summary()
        assert list(again.to_frame().columns) == list(result.to_frame().columns)

    def test_shows_itself(self, kind_and_result):
        _, result = kind_and_result
        assert len(result.summary().splitlines()) > 3
        assert len(result.to_frame()) > 0

    def test_draws_on_axes_of_its_own_or_given(self, kind_and_result):
        from matplotlib.figure import Figure

        _, result = kind_and_result
        own = result.plot()
        axes = Figure().add_subplot()
        assert result.plot(axes) is axes
        assert axes is not own
        for drawn in (own, axes):
            assert drawn.has_data()
            assert drawn.get_ylabel()


def test_every_public_result_is_looped_over():
    assert [n for n in ppw.__all__ if hasattr(getattr(ppw, n), "from_json")] == list(RESULTS)
