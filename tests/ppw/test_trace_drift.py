"""Halves of a trace, and throughput against time scale, on loads whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest
from block_traces import ArrayTrace, made

from ppw.errors import PpwError
from ppw.traces.drift import HalfDrift, half_drift
from ppw.traces.fit import fit_trace
from ppw.traces.time_scales import TimeScales, time_scales

pytestmark = pytest.mark.filterwarnings("ignore::ppw.errors.CaveatWarning")


def figure(drift, name):
    return drift.table.set_index("figure").loc[name]


class TestHalves:
    def test_a_steady_load_drifts_little(self):
        drift = half_drift(ArrayTrace(made(8000)))
        assert abs(figure(drift, "reads")["drift"]) < 0.03
        assert figure(drift, "requests a second")["model_off"] == pytest.approx(0, abs=0.06)

    def test_a_load_that_turns_is_as_far_from_its_model_as_from_itself(self):
        columns = made(8000)
        op = np.where(np.arange(8000) < 4000, 0, 1).astype(np.uint8)
        time = columns.time_s.copy()
        time[4000:] = time[3999] + (time[4000:] - time[3999]) / 2
        drift = half_drift(ArrayTrace(columns._replace(op=op, time_s=time)))
        assert figure(drift, "reads")["drift"] == -1
        assert figure(drift, "reads")["model_off"] == 1
        assert figure(drift, "requests a second")["drift"] == pytest.approx(0.5, abs=0.05)
        assert figure(drift, "requests a second")["model_off"] == pytest.approx(-0.5, abs=0.05)

    def test_goes_through_json(self):
        drift = half_drift(ArrayTrace(made(400)), seed=3, levels=2)
        again = HalfDrift.from_json(drift.to_json())
        assert (again.to_json(), again.summary()) == (drift.to_json(), drift.summary())
        assert drift.plot().get_xlabel() == "distance from the second half"

    def test_too_few_are_refused(self):
        with pytest.raises(PpwError, match="no halves"):
            half_drift(ArrayTrace(made(60)))


class TestTimeScales:
    def test_what_is_completed_levels_off(self):
        model = fit_trace(ArrayTrace(made(4000)))
        scales = time_scales(model, scales=[1, 0.01, 10, 0.001])
        table = scales.table
        assert list(table["time_scale"]) == [10, 1, 0.01, 0.001]
        assert table["offered"].to_numpy() * table["time_scale"].to_numpy() == pytest.approx(
            model.rate
        )
        assert table["completed"][0] == pytest.approx(table["offered"][0], rel=0.05)
        assert table["completed"][3] == pytest.approx(table["completed"][2], rel=0.1)
        assert table["completed"][3] < table["offered"][3] / 2
        assert "falls behind" in scales.verdict()

    def test_goes_through_json(self):
        scales = time_scales(fit_trace(ArrayTrace(made(400))), scales=[2.0], device="ssd")
        again = TimeScales.from_json(scales.to_json())
        assert (again.to_json(), again.summary()) == (scales.to_json(), scales.summary())
        assert "keeps up" in scales.verdict()
        assert scales.plot().get_ylabel() == "requests a second"

    @pytest.mark.parametrize("options", [{"scales": []}, {"scales": [0]}, {"device": "tape"}])
    def test_what_cannot_be_is_refused(self, options):
        with pytest.raises(PpwError):
            time_scales(fit_trace(ArrayTrace(made(400))), **options)
