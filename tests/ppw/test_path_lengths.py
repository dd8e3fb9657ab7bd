"""Path lengths from counted runs: laws that come back, labels, flat ranges and the command."""

import itertools
from functools import partial

import made_up
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st
from processes import ppw_inside, printed, refused

from fitting import LogPathLength
from ppw.errors import PpwError
from ppw.projection import path_length as pl
from ppw.projection.path_length import PathLengths, path_lengths, widest_flat_range

# Wordcount as published, without its unit: here instructions a byte.
A, B = -31500.0, 70702.0
MB = 1e6
UNITS = st.floats(1e-3, 1e3)
answered = partial(made_up.answered, path_lengths)


def published(sizes=(64 * MB,), **more):
    cores, size = (grid.ravel() for grid in np.meshgrid([1.0, 2, 4, 8], sizes, indexing="ij"))
    counted = {"data_bytes": size, "instructions": size * (A * np.log(cores) + B)}
    return pd.DataFrame({"workload": "wordcount", "cores": cores, **counted, **more})


def by_size(sizes, instructions):
    return pd.DataFrame({"data_bytes": sizes, "instructions": instructions})


class TestAgainstCores:
    def test_the_published_coefficients_come_back(self):
        found = answered(published())
        [row] = found.cores.to_dict(orient="records")
        assert row["a"] == pytest.approx(A, rel=1e-10)
        assert row["b"] == pytest.approx(B, rel=1e-10)
        assert row["positive_up_to"] == pytest.approx(9.436, abs=5e-4)
        assert (row["cores_from"], row["cores_to"], row["runs"]) == (1, 8, 4)
        assert row["scatter"] == pytest.approx(0, abs=1e-10)
        curve = found.curve("wordcount")
        assert isinstance(curve, LogPathLength)
        assert (round(curve.at(9, workload="wordcount")), curve.cores_) == (1489, (1, 8))
        assert "falls to zero at 9.436 cores, which is impossible" in found.caveats[0]

    def test_each_data_size_has_its_own(self):
        found = answered(published(sizes=(64 * MB, 256 * MB)))
        assert list(found.cores["data_bytes"]) == [64 * MB, 256 * MB]
        assert found.curve("wordcount", data_bytes=256 * MB).parameters_["a"] == pytest.approx(A)
        with pytest.raises(PpwError, match=r"several \(64 MB, 256 MB\): choose a data size"):
            found.curve("wordcount")
        with pytest.raises(PpwError, match=r"'sort' against cores: none"):
            found.curve("sort")

    def test_errors_are_those_of_least_squares(self):
        """Oracle: statsmodels."""
        import statsmodels.api as sm

        rng = np.random.default_rng(2012)
        cores = np.repeat([1.0, 2, 4, 8], 3)
        per_byte = 90 - 20 * np.log(cores) + rng.normal(0, 2, cores.size)
        runs = pd.DataFrame({"cores": cores, "data_bytes": 10.0, "instructions": 10 * per_byte})
        fit = sm.OLS(per_byte, sm.add_constant(np.log(cores))).fit()
        row = answered(runs).cores.iloc[0]
        assert [row["b"], row["a"]] == pytest.approx(list(fit.params), rel=1e-9)
        assert [row["b_error"], row["a_error"]] == pytest.approx(list(fit.bse), rel=1e-9)
        assert row["scatter"] == pytest.approx(np.sqrt(fit.mse_resid) / per_byte.mean(), rel=1e-9)


class TestAgainstData:
    @settings(max_examples=max(4, settings.default.max_examples // 2))
    @given(
        st.floats(0, 1e10),
        st.floats(1, 1e4),
        st.lists(st.floats(1e6, 1e10), min_size=2, max_size=6, unique_by=lambda s: round(s, -5)),
    )
    def test_a_line_without_noise_comes_back(self, fixed, per_byte, sizes):
        runs = by_size(sizes, [fixed + per_byte * s for s in sizes])
        [row] = answered(runs).data.to_dict(orient="records")
        scale = fixed + per_byte * max(sizes)
        assert row["instructions_per_byte"] == pytest.approx(per_byte, rel=1e-6, abs=1e-9 * scale)
        assert row["fixed_instructions"] == pytest.approx(fixed, abs=1e-6 * scale)

    def test_by_hand(self):
        # 5 million instructions and 3 a byte.
        found = answered(by_size([1e6, 2e6, 4e6], [8e6, 11e6, 17e6]))
        [row] = found.data.to_dict(orient="records")
        assert row["fixed_instructions"] == pytest.approx(5e6)
        assert row["instructions_per_byte"] == pytest.approx(3)
        assert "5e+06 instructions and 3 ± " in found.verdict()[0]
        assert found.verdict()[0].endswith("a byte, from 1 MB to 4 MB")

    def test_two_sizes_leave_nothing_to_judge_by_and_a_line_below_zero_is_a_caveat(self):
        found = answered(by_size([1e6, 2e6], [8e6, 11e6]))
        assert np.isnan(found.data["per_byte_error"].iloc[0])
        assert "±" not in found.verdict()[0]
        below = answered(by_size([1e6, 2e6, 4e6], [1e6, 4e6, 10e6]))
        assert "grow faster than its data" in below.caveats[0]


class TestLabels:
    def test_counted_emulated_and_estimated_are_told_apart(self):
        runs = by_size([1e6] * 4, [3e6, 4e6, np.nan, np.nan]).assign(
            instructions_label=["counted", "emulated", None, None],
            counted_modes=["user+kernel", "user", None, None],
            command_user_s=[0.1, 0.1, 0.002, np.nan],
            command_system_s=[0.1, 0.1, 0.001, 0.1],
            freq_hz=2e9,
            cpi=[np.nan, np.nan, 1.5, 1.5],
        )
        found = answered(runs)
        kept = pl.with_instructions(runs)
        # 3 ms at 2 GHz are 6e6 cycles, at 1.5 a piece 4e6 instructions.
        assert list(kept["instructions"]) == pytest.approx([3e6, 4e6, 4e6])
        assert list(kept["instructions_label"]) == ["counted", "emulated", "estimated"]
        assert found.points["label"].iloc[0] == "counted/emulated/estimated"
        said = "\n".join(found.caveats)
        assert "instructions of 1 of 3 runs are counted under an emulator" in said
        assert "instructions of 1 of 3 runs are estimated as CPU seconds × frequency / CPI" in said
        assert "counted in user and in user+kernel mode" in said
        assert "1 of 4 runs lack instructions or the data size" in said

    def test_of_a_service_it_is_the_instructions_of_an_operation(self):
        runs = by_size([64.0], [4e9]).assign(throughput_ops_s=1e5, window_s=2.0)
        assert pl.with_instructions(runs)["instructions"].iloc[0] == pytest.approx(20_000)
        assert answered(runs).points["instructions_per_byte"].iloc[0] == pytest.approx(312.5)

    def test_what_cannot_be_answered_is_refused(self):
        with pytest.raises(PpwError, match="count with ppw run count --data SIZE"):
            path_lengths(pd.DataFrame({"time_s": [1.0], "data_bytes": [1e6]}))
        for options in ({"level": 1.0}, {"tolerance": 0.0}):
            with pytest.raises(PpwError, match=next(iter(options))):
                path_lengths(published(), **options)


class TestFlatRange:
    def test_by_hand(self):
        sizes = np.array([64.0, 128, 256, 512, 1024])
        throughput = np.array([80.0, 99, 100, 102, 60])
        found = widest_flat_range(sizes, throughput, tolerance=0.05)
        assert found == (1, 3, pytest.approx(3 / 99))
        # Both pairs of neighbours reach as far: the larger sizes are taken.
        assert widest_flat_range(sizes, throughput, tolerance=0.025)[:2] == (2, 3)
        assert widest_flat_range(sizes, 2.0 ** np.arange(5), tolerance=0.05) is None

    @given(st.lists(st.floats(1, 100), min_size=2, max_size=8), st.floats(0.01, 0.5), UNITS)
    def test_it_is_within_tolerance_cannot_be_extended_and_has_no_unit(
        self, throughput, tolerance, unit
    ):
        sizes = 2.0 ** np.arange(len(throughput))
        rates = np.array(throughput)
        found = widest_flat_range(sizes, rates, tolerance=tolerance)
        if found is None:
            pairs = itertools.pairwise(rates)
            assert all(max(p) / min(p) - 1 > tolerance for p in pairs)
            return
        start, end, _ = found
        inside = rates[start : end + 1]
        assert inside.max() / inside.min() - 1 <= tolerance
        for first, last in ((start - 1, end), (start, end + 1)):
            if first >= 0 and last < len(rates):
                wider = rates[first : last + 1]
                assert wider.max() / wider.min() - 1 > tolerance
        again = widest_flat_range(sizes * unit, rates, tolerance=tolerance)
        assert again[:2] == found[:2]

    def test_groups_differ_in_their_data_size_alone(self):
        sizes = np.array([64, 1024, 2048, 4096]) * MB
        atom = pd.DataFrame({"host": "atom", "data_bytes": sizes, "time_s": 1 + sizes / (20 * MB)})
        wsm = atom.assign(host="wsm", time_s=1 + sizes / (80 * MB))
        found = pl.flat_ranges(pd.concat([atom, wsm]), tolerance=0.05)
        assert list(found["host"]) == ["atom", "wsm"]
        assert list(found["flat_from_bytes"]) == [1024 * MB, 2048 * MB]
        assert list(found["flat_to_bytes"]) == [4096 * MB] * 2
        assert set(found["throughput_unit"]) == {"B/s"}

    def test_of_a_service_only_full_load_counts(self):
        rows = [(64.0, 1e5, 1.0), (1024.0, 1e5, 1.0), (64.0, 2e4, 0.2), (64.0, 3e4, np.nan)]
        runs = pd.DataFrame(rows, columns=["data_bytes", "throughput_ops_s", "load"])
        [row] = pl.flat_ranges(runs, tolerance=0.05).to_dict(orient="records")
        assert (row["flat_from_bytes"], row["flat_to_bytes"]) == (64, 1024)
        assert (row["throughput"], row["throughput_unit"], row["spread"]) == (1e5, "1/s", 0)


class TestResult:
    def test_one_that_never_ends_comes_back(self):
        rising = answered(published().assign(instructions=[1e9, 2e9, 3e9, 4e9]))
        for result in (rising, PathLengths.from_json(rising.to_json())):
            assert result.cores["positive_up_to"].iloc[0] == np.inf

    def test_frame_and_plot_and_no_order_of_rows(self):
        runs = published(sizes=(64 * MB, 256 * MB), time_s=1.0, host="vm")
        result = answered(runs)
        shuffled = answered(runs.sample(frac=1, random_state=1))
        assert shuffled.summary() == result.summary()
        pd.testing.assert_frame_equal(shuffled.points, result.points)
        assert list(result.to_frame()["against"]) == ["cores"] * 2 + ["data size"] * 4
        assert result.plot().get_xlabel() == "cores"
        assert result.plot().get_ylabel() == "instructions per byte"
        assert answered(runs.query("cores == 2")).plot().get_xlabel() == "data size (B)"


def test_command(tmp_path):
    published().to_csv(tmp_path / "runs.csv", index=False)
    text = printed(ppw_inside("pathlength", "runs.csv", cwd=tmp_path))
    assert text == answered(published()).summary() + "\n"
    law = "wordcount at 64 MB: -31,500·ln(n) + 70,702 instructions a byte on 1 to 8 cores"
    assert text.startswith(law + "; it reaches zero at 9.436 cores\nworkload ")
    assert ppw_inside("pathlength", "runs.csv", "--by", "host", cwd=tmp_path).returncode == 2
    (tmp_path / "none.csv").write_text("time_s,data_bytes\n1,2\n")
    done = ppw_inside("pathlength", "none.csv", cwd=tmp_path)
    refused(done, "ppw: error: none.csv: no run has both instructions")
