"""Calibrated watts: known laws come back, labels, storage, and the command as users meet it."""

import functools
import io
import json
import threading
import warnings
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pandas as pd
import pytest
from golden_runs import golden
from made_up import answered, only, sweep
from processes import ppw_inside, printed, refused, worked

import ppw
from fitting.errors import OutOfRangeError
from measurements import MeasurementError
from ppw.errors import CaveatWarning, PpwError, UnknownColumnError
from ppw.power.calibrated_runs import calibration_file, power_labels
from ppw.power.calibration import source_power

OFFSET, SLOPE = 38.0, 1.14
METER, DRAM = "meter_wt310e_power_w", "rapl_dram_power_w"


def both(*, seed=7, scatter=1.0, host="rack7", steps=(1.2, 1.8, 2.4, 3.0), bend=0.0):
    """Runs of a host that RAPL and a meter saw: meter = 38 W + 1.14·(package + memory)."""
    rng = np.random.default_rng(seed)
    rows = []
    for workload, base in (("grep", 20.0), ("sort", 45.0)):
        for ghz in steps:
            beside = scatter * rng.standard_normal()
            for repeat in range(4):
                package = base + 18 * ghz + 0.6 * rng.standard_normal()
                memory = 4 + ghz + 0.1 * rng.standard_normal()
                whole = package + memory
                meter = OFFSET + SLOPE * whole + beside + bend * (whole - 75) ** 2
                rows.append((host, workload, ghz, repeat, package, memory, meter))
    names = ["host", "workload", "freq_ghz", "repeat", "rapl_package_power_w"]
    runs = pd.DataFrame(rows, columns=[*names, "rapl_dram_power_w", METER])
    package, time = runs["rapl_package_power_w"], 60 / runs["freq_ghz"]
    runs[METER] += 0.4 * rng.standard_normal(len(runs))
    return runs.assign(
        time_s=time,
        power_w=package,
        energy_j=package * time,
        idle_power_w=15.0,
        power_source="rapl:package",
        power_label="measured",
        rapl_core_power_w=0.7 * package,
    )


TWO_HOSTS = pd.concat([both(), both(host="rack8", seed=1)])


def metered(change):
    """Runs of which the meter read otherwise."""
    runs = both()
    return runs.assign(**{METER: change(runs[METER])})


def three_levels():
    runs = both(steps=(1.2, 3.0))
    return runs[(runs["workload"] == "sort") | (runs["freq_ghz"] == 1.2)]


def calibrated(runs=None, **options):
    asked = {"sensor": "rapl", "reference": "meter:wt310e", **options}
    return answered(ppw.calibrate, both() if runs is None else runs, **asked)


@pytest.fixture(scope="module")
def known():
    return calibrated()


def applied(runs, calibration, **options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CaveatWarning)
        table = ppw.apply_calibration(runs=runs, calibration=calibration, **options)
    return table, [str(w.message) for w in caught]


class TestCalibrate:
    def test_the_law_comes_back_within_its_interval(self, known):
        assert known.offset_interval_w[0] < OFFSET < known.offset_interval_w[1]
        assert known.slope_interval[0] < SLOPE < known.slope_interval[1]
        assert (known.host, known.runs, len(known.table)) == ("rack7", 32, 8)
        assert known.sensor == "rapl:package+rapl:dram"
        assert known.sensor_columns == ("rapl_package_power_w", "rapl_dram_power_w")
        assert (known.caveats, known.measured_until) == ((), None)

    def test_levels_are_what_is_repeated(self, known):
        assert (known.by, set(known.table["runs"])) == (("workload", "freq_hz"), {4})
        assert known.table["sensor_w"].is_monotonic_increasing
        fitted = known.offset_w + known.slope * known.table["sensor_w"]
        np.testing.assert_allclose(known.table["fitted_w"], fitted)
        assert len(calibrated(by=[]).table) == 32
        sort = both()[lambda runs: runs["workload"] == "sort"]
        assert calibrated(sort, by=["freq_hz"]).by == ("freq_hz",)
        # Where nothing tells levels apart, every run is one.
        bare = calibrated(both()[["rapl_package_power_w", METER]], sensor="rapl:package")
        assert (bare.by, len(bare.table), bare.host) == ((), 32, None)
        assert only(bare.caveats, "no load level was repeated")

    def test_a_coarse_reference(self):
        runs = both().round({METER: -1})
        fine, coarse = (calibrated(runs, reference_resolution=r) for r in (0.0, 10.0))
        assert coarse.line.run_error > fine.line.run_error
        assert coarse.reference_resolution_w == 10

    def test_the_latest_start_is_kept(self):
        times = [f"2025-03-0{1 + i % 3}T10:00:00Z" for i in range(32)]
        assert calibrated(both().assign(started_at=times)).measured_until == times[2]

    def test_runs_without_a_figure_of_one_are_left_out(self):
        runs = both()
        runs.loc[[0, 5, 8], METER] = [np.nan, np.nan, 0.0]
        runs.loc[7, "rapl_dram_power_w"] = np.nan
        result = calibrated(runs)
        assert result.runs == 28
        assert only(result.caveats, "4 of 32 runs left out: no power of rapl:package+rapl:dram or")

    def test_one_host_of_several_is_chosen(self):
        assert calibrated(TWO_HOSTS, host="rack8").host == "rack8"

    @pytest.mark.cases(
        "runs, options, said",
        (TWO_HOSTS, {}, "runs of rack7, rack8: a calibration is for one host"),
        (TWO_HOSTS, {"host": "rack9"}, "no run of host 'rack9'; the hosts are rack7, rack8"),
        (metered(lambda watts: 120 + watts % 1), {}, "does not clearly increase with rapl:pa"),
        (metered(lambda watts: np.nan), {}, "no run has power of both"),
        (metered(lambda watts: [*watts[:4], "n/k", *watts[5:]]), {}, f"row 5, column {METER}"),
        (both(), {"sensor": "meter"}, "are the same power"),
    )
    def test_what_is_no_calibration_is_refused(self, runs, options, said):
        with pytest.raises((PpwError, MeasurementError), match=said):
            calibrated(runs, **options)


class TestCaveats:
    @pytest.mark.cases(
        "runs, said",
        (both(bend=0.01, scatter=0.3), "one that gets steeper (P = "),
        (three_levels(), "3 load levels only, so intervals are wide"),
        (metered(lambda watts: 19 + watts / 2), "rises by less than rapl:package+rapl:dram, w"),
        (metered(lambda watts: watts - 60), "would be below zero where rapl"),
    )
    def test_what_is_odd_is_said(self, runs, said):
        assert only(calibrated(runs).caveats, said)

    def test_an_outlier_is_named_and_drawn(self):
        runs = both(scatter=0.3)
        runs.loc[(runs["workload"] == "sort") & (runs["freq_ghz"] == 1.8), METER] -= 20
        result = calibrated(runs)
        assert "sort, 1.8 GHz (-1" in only(result.caveats, "far off the line of the others")
        assert result.summary().count(" *") == 1
        labels = [text.get_text() for text in result.plot().get_legend().get_texts()]
        assert labels == ["90% of runs", "calibration", "levels", "far off"]


class TestSources:
    @pytest.mark.cases(
        "asked, label, columns",
        ("rapl", "rapl:package+rapl:dram", ("rapl_package_power_w", DRAM)),
        ("rapl:package", "rapl:package", ("rapl_package_power_w",)),
        ("rapl:core", "rapl:core", ("rapl_core_power_w",)),
        ("rapl:core+rapl:dram", "rapl:core+rapl:dram", ("rapl_core_power_w", DRAM)),
        ("meter", "meter:wt310e", (METER,)),
        ("meter:wt310e", "meter:wt310e", (METER,)),
    )
    def test_labels_find_their_columns(self, asked, label, columns):
        found = source_power(both(), asked)
        assert (found.label, found.columns) == (label, columns)
        np.testing.assert_allclose(found.watts, both()[list(columns)].sum(axis=1))

    def test_numbered_packages_are_added_and_their_parts_are_not(self):
        watts = {"package_0": 40.0, "package_1": 50.0, "package_0_core": 30.0, "psys": 120.0}
        runs = pd.DataFrame({f"rapl_{k}_power_w": [v] for k, v in watts.items()})
        assert source_power(runs, "rapl").watts.tolist() == [90.0]
        assert source_power(runs, "rapl:psys").watts.tolist() == [120.0]
        # Memory that is never counted is no part.
        assert source_power(both().assign(rapl_dram_power_w=np.nan), "rapl").label == "rapl:package"

    def test_the_main_source_needs_no_column_of_its_own(self):
        runs = both().drop(columns=["rapl_package_power_w", "rapl_dram_power_w"])
        found = source_power(runs, "rapl")
        assert (found.label, found.columns) == ("rapl:package", ("power_w",))
        runs.loc[0, "power_source"] = "ipmi:dcmi"
        assert np.isnan(source_power(runs, "rapl").watts[0])

    @pytest.mark.cases(
        "asked, changed, said",
        ("ipmi", {}, "no power of 'ipmi', which would be in column ipmi_power_w; the sources"),
        ("rapl:x+meter", {}, "no power of 'rapl:x'"),
        ("rapl:package+rapl:package", {}, "adds one sensor twice"),
        ("", {}, "no power of ''"),
        ("meter", {"meter_b_power_w": 1.0}, "'meter' may be meter:wt310e, meter:b"),
    )
    def test_what_is_not_there_or_may_be_two(self, asked, changed, said):
        with pytest.raises(UnknownColumnError, match=said):
            source_power(both().assign(**changed), asked)


def unmetered(**options):
    """Later runs of the same host, which no meter saw."""
    return both(seed=20, **options).drop(columns=METER)


class TestApply:
    def test_watts_are_what_the_meter_would_have_read(self, known):
        later = unmetered()
        later.loc[3, "energy_j"] = np.nan
        table, said = applied(later, known)
        assert set(table["power_label"]) == {"calibrated"}
        assert set(table["power_source"]) == {"rapl:package+rapl:dram→meter:wt310e"}
        meter = both(seed=20)[METER].to_numpy()
        inside = table["power_lower_w"].lt(meter) & table["power_upper_w"].gt(meter)
        assert inside.mean() > 0.8
        np.testing.assert_allclose(table["power_w"], meter, rtol=0.05)
        assert only(said, "idle_power_w of 32 rows is left out")
        # Energy goes with the watts.
        seconds = table["energy_j"] / table["power_w"]
        assert np.isnan(seconds[3])
        np.testing.assert_allclose(seconds.drop(3), table["time_s"].drop(3))
        # A second time changes nothing.
        twice, said = applied(table, known)
        pd.testing.assert_frame_equal(twice, table)
        assert said == []

    def test_idle_power_goes_along_where_it_is_the_sensors(self):
        calibration = calibrated(sensor="rapl:package")
        table, said = applied(unmetered(), calibration)
        expected = calibration.offset_w + 15 * calibration.slope
        np.testing.assert_allclose(table["idle_power_w"], expected)
        assert said == []

    def test_beyond_the_range_they_are_estimated(self, known):
        later = unmetered(steps=(1.2, 4.5))
        table, said = applied(later, known)
        fast = (later["freq_ghz"] == 4.5) & (later["workload"] == "sort")
        assert set(table["power_label"][fast]) == {"estimated"}
        assert set(table["power_label"][later["freq_ghz"] == 1.2]) == {"calibrated"}
        width = table["power_upper_w"] - table["power_lower_w"]
        assert width[fast].min() > width[~fast].max()
        assert "rows are estimated, not calibrated" in only(said, "estimated")
        with pytest.raises(OutOfRangeError, match="was calibrated from"):
            applied(later, known, extrapolate=False)

    def test_what_the_reference_measured_stays(self, known):
        runs = unmetered()
        metered = runs["workload"] == "grep"
        runs.loc[metered, ["power_source", "power_w"]] = ["meter:wt310e", 99.0]
        table, _ = applied(runs, known)
        assert set(table["power_label"][metered]) == {"measured"}
        assert set(table["power_w"][metered]) == {99.0}
        assert set(table["power_label"][~metered]) == {"calibrated"}

    def test_other_hosts_stay_as_they_are(self, known):
        runs = pd.concat([unmetered(), unmetered(host="rack8")], ignore_index=True)
        table, _ = applied(runs, known)
        labels = table.groupby("host")["power_label"].unique()
        assert (list(labels["rack7"]), list(labels["rack8"])) == (["calibrated"], ["measured"])
        pd.testing.assert_series_equal(table["power_w"][32:], runs["power_w"][32:])
        with pytest.raises(PpwError, match="is of host 'rack7', and the runs are of rack8: calib"):
            applied(unmetered(host="rack8"), known)

    def test_runs_without_a_host(self, known):
        table, said = applied(unmetered().drop(columns="host"), known)
        assert set(table["power_label"]) == {"calibrated"}
        assert only(said, "the runs name no host")
        nameless = calibrated(both().drop(columns="host"))
        assert only(applied(unmetered(), nameless)[1], "the calibration names no host")

    def test_rows_without_the_sensor_stay_as_they_are(self, known):
        runs = unmetered()
        runs.loc[0, ["rapl_dram_power_w"]] = np.nan
        runs.loc[1, ["rapl_package_power_w", "power_w", "power_label"]] = np.nan
        table, said = applied(runs, known)
        assert table["power_label"].isna().tolist() == [False, True] + [False] * 30
        same = ["power_w", "power_label"]
        assert list(table.loc[0, same]) == [runs.loc[0, "power_w"], "measured"]
        assert np.isnan(table.loc[0, "power_lower_w"])
        assert only(said, "2 rows have no power of rapl:package+rapl:dram and stay")

    def test_a_table_of_the_sensor_alone_gets_watts_and_says_what_they_are(self):
        names = ["rapl_package_power_w", METER]
        calibration = calibrated(both()[names], sensor="rapl:package")
        sensor = both(seed=20)[names[:1]]
        table, said = applied(sensor, calibration)
        assert said == []
        fitted = calibration.offset_w + calibration.slope * sensor[names[0]]
        np.testing.assert_allclose(table["power_w"], fitted)
        assert set(table["power_label"]) <= {"calibrated", "estimated"}
        assert set(table["power_source"]) == {"rapl:package→meter:wt310e"}
        assert "energy_j" not in table

    def test_watts_that_would_be_negative_are_left(self):
        result = calibrated(metered(lambda watts: watts - 60))
        low = unmetered().assign(rapl_package_power_w=5.0, rapl_dram_power_w=2.0)
        table, said = applied(low, result)
        assert set(table["power_label"]) == {"measured"}
        assert "is not above zero there" in only(said, "32 rows stay as they were")

    def test_the_input_is_not_touched_and_its_digest_not_kept(self, tmp_path, known):
        path = tmp_path / "later.csv"
        unmetered().to_csv(path, index=False)
        runs = ppw.read_runs(path)
        before, digest = runs.copy(), runs.attrs["digest"]
        table, _ = applied(runs, known)
        pd.testing.assert_frame_equal(runs, before)
        assert runs.attrs["digest"] == digest != table.attrs["digest"]
        assert applied(runs, known)[0].attrs == table.attrs

    def test_it_can_be_written_and_projected(self, tmp_path, known):
        ppw.write_runs(applied(unmetered(), known)[0], tmp_path / "runs.csv")
        read = ppw.read_runs(tmp_path / "runs.csv")
        assert set(read["power_label"]) == {"calibrated"}
        projected = answered(ppw.project, read, freq="3.6GHz", metric="power").table
        # 38 W + 1.14·(base + 18·3.6 + 4 + 3.6): 144 and 172 W.
        ends = projected[["lower", "upper"]].to_numpy()
        assert ends[0][0] < 143.8 < ends[0][1]
        assert ends[1][0] < 172.3 < ends[1][1]

    def test_every_watt_has_a_label(self):
        bare = pd.DataFrame({"power_w": [1.0, np.nan], "power_label": [None, None]})
        for table in (bare, bare.drop(columns="power_label")):
            assert power_labels(table).fillna("none").tolist() == ["measured", "none"]
        assert power_labels(bare.assign(power_label="estimated")).tolist() == ["estimated"] * 2

    def test_results_say_that_watts_are_calibrated(self):
        runs = sweep(workloads=("sort",)).assign(power_label="measured")
        asked = {"freq": 3e9, "interval": "t", "metric": "power"}
        assert "calibrated" not in " ".join(answered(ppw.project, runs, **asked).caveats)
        runs.loc[:3, "power_label"] = ["calibrated"] * 3 + ["estimated"]
        said = only(answered(ppw.project, runs, **asked).caveats, "calibrated")
        assert said.startswith("not all power is measured: 1 of 8 are estimated and 3 of 8 are")


def test_a_document_has_a_whole_line_and_null_for_no_curvature():
    document = json.loads(calibrated(three_levels()).to_json())
    assert document["curvature_p"] is None
    assert np.isnan(ppw.Calibration.from_json(json.dumps(document)).curvature_p)
    del document["line"]["slope"]
    with pytest.raises(PpwError, match="has no whole line"):
        ppw.Calibration.from_json(json.dumps(document))


class TestStore:
    @pytest.fixture(autouse=True)
    def folder(self, tmp_path, monkeypatch):
        monkeypatch.setenv("PPW_CONFIG_DIR", str(tmp_path))
        return tmp_path

    def test_what_is_saved_is_loaded(self, folder, known):
        path = ppw.save_calibration(known)
        assert path == folder / "calibrations" / "rack7.json"
        assert ppw.load_calibration("rack7").to_json() == known.to_json()
        assert [p.name for p in path.parent.iterdir()] == ["rack7.json"]

    def test_the_platforms_folder(self, monkeypatch, tmp_path):
        monkeypatch.delenv("PPW_CONFIG_DIR")
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
        # The place is read when it is asked for.
        assert calibration_file("a") == tmp_path / "config" / "ppw" / "calibrations" / "a.json"

    def test_a_new_one_of_the_same_pair_takes_the_place_of_the_old(self, known):
        new = calibrated(both(seed=3))
        for result in (known, new, calibrated(sensor="rapl:core")):
            ppw.save_calibration(result)
        with pytest.raises(PpwError, match="several of the saved calibrations fit: choose with"):
            ppw.load_calibration("rack7")
        with pytest.raises(PpwError, match=r"no saved .*rapl:core→meter:wt310e"):
            ppw.load_calibration("rack7", sensor="ipmi")
        kept = ppw.load_calibration("rack7", sensor="rapl:package+rapl:dram", reference="meter")
        assert kept.to_json() == new.to_json()
        assert ppw.load_calibration("rack7", sensor="rapl:core").sensor == "rapl:core"

    @pytest.mark.parametrize("host", ["../../etc/x", ".hidden", "a b/ç", "..", "CON"])
    def test_names_of_hosts_lead_nowhere_else(self, host, folder, known):
        path = ppw.save_calibration(replace(known, host=host))
        assert path.parent == folder / "calibrations"
        assert not path.name.startswith(".")
        # No two hosts have one file.
        assert unquote(path.stem) == host
        assert ppw.load_calibration(host).host == host

    def test_runs_without_a_host_need_its_name(self):
        result = calibrated(both().drop(columns="host"))
        with pytest.raises(PpwError, match="give the name of the host with --host"):
            ppw.save_calibration(result)
        path = ppw.save_calibration(result, host="rack9")
        assert json.loads(path.read_text())["host"] == "rack9"
        assert ppw.load_calibration("rack9").offset_w == result.offset_w

    @pytest.mark.parametrize("content", [b"{}", b"\xff\xfe", b'{"schema_version": 1}', b""])
    def test_a_damaged_file_is_named(self, content, known):
        path = ppw.save_calibration(known)
        path.write_bytes(content)
        for call in (ppw.load_calibration, lambda _: ppw.save_calibration(known)):
            with pytest.raises(PpwError, match=r"rack7\.json: .*(delete|correct)"):
                call("rack7")
        assert path.read_bytes() == content

    def test_a_folder_that_cannot_be_written(self, folder, known):
        (folder / "calibrations").write_text("a file")
        with pytest.raises(PpwError, match=r"cannot be written: .*PPW_CONFIG_DIR"):
            ppw.save_calibration(known)

    def test_readers_see_the_old_or_the_new_and_nothing_between(self, known):
        pair = known, calibrated(both(seed=3))
        ppw.save_calibration(known)
        done, seen = threading.Event(), set()

        def look():
            while not done.is_set():
                seen.add(ppw.load_calibration("rack7").to_json())

        reader = threading.Thread(target=look)
        reader.start()
        for i in range(30):
            ppw.save_calibration(pair[i % 2])
        done.set()
        reader.join(60)
        assert seen
        assert seen <= {result.to_json() for result in pair}


@pytest.fixture
def run(tmp_path):
    both().round(3).to_csv(tmp_path / "runs.csv", index=False)
    return functools.partial(ppw_inside, "calibrate", cwd=tmp_path, PPW_CONFIG_DIR="config")


ASKED = ("runs.csv", "--sensor", "rapl", "--reference", "meter:wt310e")


class TestCommandLine:
    def test_golden(self, run, tmp_path):
        golden(f"calibrate {' '.join(ASKED)}", tmp_path)

    def test_json_is_the_result(self, run, tmp_path):
        options = "--format json --level 0.8 --reference-resolution 100mW"
        text = printed(run(*ASKED, *options.split()))
        runs = ppw.read_runs(tmp_path / "runs.csv")
        asked = {"level": 0.8, "reference_resolution": 0.1}
        assert text == calibrated(runs, **asked).to_json() + "\n"

    def test_csv_has_a_row_a_level_and_html_is_one_page(self, run):
        text = printed(run(*ASKED, "--format", "csv", "--by", "workload,freq_hz"))
        assert pd.read_csv(io.StringIO(text))["reference_w"].gt(80).tolist() == [True] * 8
        assert "Host rack7: meter:wt310e = " in printed(run(*ASKED, "--format", "html"))

    def test_save_then_use_for_runs_that_no_meter_saw(self, run, tmp_path):
        kept = run(*ASKED, "--save")
        where = Path("config") / "calibrations" / "rack7.json"
        assert kept.stderr == f"ppw: calibration saved to {where}\n"
        unmetered().drop(columns="idle_power_w").to_csv(tmp_path / "later.csv", index=False)
        done = run("later.csv", "--stored", "--apply", "out.parquet")
        assert (done.returncode, done.stdout) == (0, kept.stdout)
        assert done.stderr == "ppw: runs written to out.parquet: 32 calibrated\n"
        table = ppw.read_runs(tmp_path / "out.parquet")
        np.testing.assert_allclose(table["power_w"], both(seed=20)[METER], 0.05)

    def test_which_host_is_asked_where_runs_do_not_tell(self, run, tmp_path):
        run(*ASKED, "--save")
        for table, said in (
            (TWO_HOSTS, "the runs name 2 hosts: choose one host with --host"),
            (both().drop(columns="host"), "the runs name no host: choose"),
        ):
            table.to_csv(tmp_path / "later.csv", index=False)
            refused(run("later.csv", "--stored"), said)
            assert run("later.csv", "--stored", "--host", "rack7").returncode == 0

    def test_caveats_of_the_table_go_to_standard_error(self, run):
        done = worked(run(*ASKED, "--apply", "-", "-o", "result.txt"))
        assert done.stdout.startswith("host,workload,freq_hz,")
        assert done.stderr.startswith("ppw: caveat: idle_power_w of 32 rows is left out")
        assert done.stderr.endswith("ppw: runs written to -: 32 calibrated\n")
