"""Projection and sizing: scenarios by hand, intervals, the law to prefer, servers and levers."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from cpio_studies import APPLICATIONS, CLOCK, run, study
from made_up import answered, only

from fitting.cpio_laws import LawScore
from ppw.cpio.comparison import DeviceComparison, compare_devices
from ppw.cpio.projection import CpioProjection, project_cpio
from ppw.cpio.scenarios import (
    CPIO,
    UTILISATION,
    ServerSpec,
    preferred_law,
    project_scenarios,
)
from ppw.cpio.sizing import ServerSizing, amount, count, size_servers, span
from ppw.errors import PpwError

SIZE = {"data_bytes": 1e15, "time_s": 86400.0, "cores": 16, "server_power_w": 300.0}


@pytest.fixture(scope="module")
def made():
    return answered(project_cpio, study(), cores=16)


class TestScenarios:
    @pytest.mark.parametrize("busy", UTILISATION)
    @pytest.mark.parametrize("cost", CPIO)
    def test_by_hand(self, made, busy, cost):
        # "store" at 16 cores; measured at 8.
        utilisation = dict(zip(UTILISATION, (0.83, 0.75, 1.0), strict=True))[busy]
        cpio = dict(zip(CPIO, (20e3, 34e3, 50e3), strict=True))[cost]
        wanted = utilisation * 16 * CLOCK / cpio
        assert made.value(busy, cost, workload="store") == pytest.approx(wanted)

    def test_every_application_has_all_of_them_once(self, made):
        table = made.scenarios
        assert len(table) == len(APPLICATIONS) * 9
        assert not table.duplicated(["workload", "utilisation_scenario", "cpio_scenario"]).any()

    def test_another_clock_scales_rates_in_proportion(self, made):
        fast = answered(project_cpio, study(), cores=16, freq="3GHz")
        ratio = fast.scenarios["iops"] / made.scenarios["iops"]
        assert ratio.tolist() == pytest.approx([1.5] * len(ratio))

    def test_scenarios_need_not_be_ordered(self):
        runs = study(applications={"x": (20e3, -1e3, 0.5, 0.01)})
        made = answered(project_cpio, runs, cores=16)
        assert made.value("full", "today") > made.value("full", "desired")
        assert made.value("projected", "today") > made.value("measured", "today")
        assert only(made.caveats, "fall with cores; their line is held level")

    def test_projected_utilisation_stays_between_its_floor_and_one(self):
        falling = study(applications={"x": (20e3, 1e3, 0.9, -0.1)})
        made = answered(project_cpio, falling, cores=64, floor=0.05)
        rows = made.scenarios.set_index("utilisation_scenario")
        assert (rows.loc["projected", "utilisation"] == 0.05).all()
        assert only(made.caveats, "falls to the floor of 0.05")
        rising = study(applications={"x": (20e3, 1e3, 0.2, 0.05)})
        made = answered(project_cpio, rising, cores=64)
        rows = made.scenarios.set_index("utilisation_scenario")
        assert (rows.loc["projected", "utilisation"] == 1.0).all()
        assert only(made.caveats, "reaches 1 and stays")

    def test_one_core_count_is_enough_for_what_was_measured_only(self):
        made = answered(project_cpio, study(cores=(4,)), cores=64)
        assert only(made.caveats, "nothing can be projected to another")
        assert np.isnan(made.value("projected", "projected", workload="store"))
        assert made.value("full", "today", workload="store") > 0

    def test_far_away_is_said(self, made):
        assert not [c for c in made.caveats if "four times" in c]
        far = answered(project_cpio, study(), cores=4096)
        assert "4096 cores are over four times the most measured (8)" in only(far.caveats, "four")

    def test_network_and_memory_as_measured(self):
        runs = study()
        assert only(answered(project_cpio, runs, cores=16).caveats, "no run counted network bytes")
        moved = 512 * (runs["sectors_read"] + runs["sectors_written"])
        runs = runs.assign(
            network_rx_bytes=0.25 * moved,
            network_tx_bytes=0.5 * moved,
            memory_read_bytes_s=3 * moved / runs["time_s"],
            memory_write_bytes_s=moved / runs["time_s"],
        )
        table = answered(project_cpio, runs, cores=16).scenarios
        ratios = table[["network_bytes_s", "memory_bytes_s"]].div(table["storage_bytes_s"], axis=0)
        np.testing.assert_allclose(ratios, [[0.75, 4.0]] * len(table))

    def test_row_order_changes_nothing(self):
        runs = study(noise=0.03)
        one, two = (
            answered(project_cpio, r, cores=16) for r in (runs, runs.sample(frac=1, random_state=5))
        )
        pd.testing.assert_frame_equal(one.scenarios, two.scenarios)
        pd.testing.assert_frame_equal(one.laws, two.laws)

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"cores": 0}, "cores 0 must be greater than 0"),
            ({"cores": 8, "floor": 0}, "floor 0 is not a utilisation"),
            ({"cores": 8, "level": 2}, "level 2 is not a share"),
            ({"cores": 8, "growth": [-2]}, "growth -2 is not a share above -1"),
            ({"cores": 8, "draws": 3}, "draws 3: take 100 or more"),
        ],
    )
    def test_what_cannot_be_asked(self, options, said):
        with pytest.raises(PpwError, match=said):
            project_cpio(study(), **options)


class TestHowSure:
    def test_intervals_cover_new_runs_as_often_as_they_say(self):
        """Applications alike but for their noise; new runs on the server itself."""
        many = {f"a{i:03}": (20e3, 2e3, 0.9, -0.010) for i in range(400)}
        learnt = study(noise=0.03, applications=many)
        fresh = study(noise=0.03, applications=many, cores=(24,), repeats=1, seed=99)
        options = {"by": None, "floor": 0.01, "network_share": 1.0, "draws": 1000, "seed": 0}
        found = project_scenarios(learnt, ServerSpec(24, None), **options)
        chosen = found.frame("projected", "projected", 0.90).set_index("workload")
        sectors = fresh["sectors_read"] + fresh["sectors_written"]
        truth = (sectors / fresh["time_s"]).set_axis(fresh["workload"])
        inside = (chosen["lower"] <= truth) & (truth <= chosen["upper"])
        assert inside.mean() == pytest.approx(0.90, abs=0.045)

    def test_every_interval_holds_its_value_and_full_utilisation_is_sure(self):
        rows = answered(project_cpio, study(noise=0.02), cores=16).scenarios
        assert (rows["lower"] < rows["iops"]).all()
        assert (rows["iops"] < rows["upper"]).all()
        width = (rows["upper"] - rows["lower"]) / rows["iops"]
        full = rows["utilisation_scenario"] == "full"
        low = rows["utilisation_scenario"] == "projected"
        assert (width[full].to_numpy() < width[low].to_numpy()).all()

    def test_two_runs_have_no_interval_and_that_is_said(self):
        made = answered(project_cpio, study(cores=(1, 8), repeats=1), cores=16)
        assert made.scenarios["lower"].isna().all()
        assert only(made.caveats, "too few runs for an interval")


class TestPreferredLaw:
    def test_the_least_criterion_where_it_is_clear(self):
        scores = {"a": LawScore(2, -50.0, 0.9, 0.5), "b": LawScore(3, -40.0, 0.1, 0.01)}
        assert preferred_law(scores) == ("a", "AICc 10 below the next")

    def test_the_held_out_error_where_it_is_not(self):
        scores = {"a": LawScore(2, -50.0, 0.5, 0.5), "b": LawScore(3, -49.0, 0.5, 0.01)}
        name, why = preferred_law(scores)
        assert name == "b"
        assert why.startswith("AICc does not tell them apart; 1.0% off")

    def test_the_fewest_parameters_where_nothing_tells(self):
        nothing = (np.nan,) * 3
        scores = {"a": LawScore(3, *nothing), "b": LawScore(2, *nothing)}
        assert preferred_law(scores)[0] == "b"

    def test_one_law_of_each_application_is_preferred(self, made):
        chosen = made.laws[made.laws["preferred"]]
        assert sorted(chosen["workload"]) == sorted(APPLICATIONS)
        assert chosen["why"].str.len().gt(0).all()


class TestSizing:
    def sized(self, runs=None, **options):
        return answered(size_servers, study() if runs is None else runs, **{**SIZE, **options})

    def test_by_hand(self):
        made = self.sized(idle_share=0.5, pue=1.2, electricity=0.3, carbon_kg_per_kwh=0.4)
        rows = made.applications.set_index(["workload", "utilisation_scenario", "cpio_scenario"])
        row = rows.loc[("store", "measured", "today")]
        rate = 0.83 * 16 * CLOCK / 34e3
        servers = 1e15 / 512 / (rate * 86400)
        energy = servers * 300 * (0.83 + 0.5 * 0.17) * 24 / 1000 * 1.2
        assert row["servers"] == pytest.approx(servers)
        assert row["kwh"] == pytest.approx(energy)
        assert row["cost"] == pytest.approx(0.3 * energy)
        assert row["carbon_kg"] == pytest.approx(0.4 * energy)
        assert row["j_per_io"] == pytest.approx(energy * 3.6e6 / (1e15 / 512))

    def test_a_total_is_the_mean_of_reciprocals(self):
        made = self.sized()
        rate = made.applications.groupby(["utilisation_scenario", "cpio_scenario"])["iops"]
        mean_of_reciprocals = rate.apply(lambda r: (1 / r).mean())
        total = made.total.set_index(["utilisation_scenario", "cpio_scenario"])["servers"]
        wanted = 1e15 / 512 / 86400 * mean_of_reciprocals
        assert total.sort_index().tolist() == pytest.approx(wanted.sort_index().tolist())
        reciprocal_of_mean = 1e15 / 512 / 86400 / rate.mean()
        assert (total.sort_index() > 1.05 * reciprocal_of_mean.sort_index()).all()

    def test_twice_the_data_and_half_the_time_are_as_many_servers_each(self):
        base = self.sized().total
        assert (self.sized(data_bytes=2e15).total["servers"] / base["servers"]).tolist() == (
            pytest.approx([2.0] * 9)
        )
        half = self.sized(time_s=43200.0).total
        assert (half["servers"] / base["servers"]).tolist() == pytest.approx([2.0] * 9)
        assert half["kwh"].tolist() == pytest.approx(base["kwh"].tolist())

    def test_levers(self):
        made = self.sized(idle_share=0.6, other_power_w=150.0)
        levers = made.levers.set_index("lever")["saved"]
        total = made.total.set_index(["utilisation_scenario", "cpio_scenario"])["kwh"]
        base = total[("projected", "projected")]
        assert levers["as projected"] == 0
        assert levers["cycles per I/O as today"] == pytest.approx(
            1 - total[("projected", "today")] / base
        )
        assert levers["utilisation to 100 %"] == pytest.approx(
            1 - total[("full", "projected")] / base
        )
        assert levers["150 W a server"] == pytest.approx(0.5)
        none = self.sized(idle_share=0.0).total
        both = none.set_index(["utilisation_scenario", "cpio_scenario"])["kwh"]
        assert levers["idle power to zero"] == pytest.approx(
            1 - both[("projected", "projected")] / base
        )
        assert levers["all of these"] == pytest.approx(1 - 0.5 * both[("full", "desired")] / base)

    def test_devices_and_ports(self):
        made = self.sized(
            device_bandwidth_bytes_s=100e6, port_bandwidth_bytes_s=1.25e9, network_share=2.0
        )
        rows = made.applications
        storage = rows["iops"] * 512
        assert rows["devices"].tolist() == np.ceil(storage / 100e6).tolist()
        assert rows["network_ports"].tolist() == np.ceil(2 * storage / 1.25e9).tolist()

    def test_intervals_of_servers_are_those_of_the_rates(self):
        runs = study(noise=0.03)
        rates = answered(project_cpio, runs, cores=16).scenarios
        servers = self.sized(runs).applications
        work = 1e15 / 512 / 86400
        assert servers["lower"].tolist() == pytest.approx(
            (work / rates["upper"]).tolist(), rel=2e-3
        )
        assert servers["upper"].tolist() == pytest.approx(
            (work / rates["lower"]).tolist(), rel=2e-3
        )

    def test_nothing_projected_leaves_todays(self):
        made = self.sized(study(cores=(4,)))
        assert made.levers["lever"].iloc[0] == "as measured and today"
        assert only(made.caveats, "levers start from today's")

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"server_power_w": None}, "give --power-per-core or --server-power"),
            ({"power_per_core_w": 3.0}, "one of the two"),
            ({"idle_share": 1.5}, "idle share 1.5 is not a share"),
            ({"pue": 0.9}, "pue 0.9 is under 1"),
            ({"data_bytes": 0}, "data_bytes 0 must be greater than 0"),
            ({"base": ("low", "today")}, "no scenario"),
            ({"cpio": 3.0}, "measured by the runs"),
        ],
    )
    def test_what_cannot_be_asked(self, options, said):
        with pytest.raises(PpwError, match=said):
            size_servers(study(), **{**SIZE, **options})

    def test_without_runs_cycles_and_clock_are_needed(self):
        with pytest.raises(PpwError, match="cpio and freq are needed"):
            size_servers(**SIZE, cpio=1e4)
        with pytest.raises(PpwError, match="share of the time"):
            size_servers(**SIZE, cpio=1e4, freq=2e9, utilisation=1.1)


class TestWords:
    @pytest.mark.parametrize(
        ("number", "text"),
        [(35e21, "35 ZB"), (20e15, "20 PB"), (1.5e12, "1.5 TB"), (2e9, "2 GB")],
    )
    def test_amounts(self, number, text):
        assert amount(number, "B") == text

    @pytest.mark.parametrize(
        ("seconds", "text"),
        [(365 * 86400, "1 year"), (2.5 * 86400, "2.5 days"), (7200, "2 h"), (1.5, "1.5 s")],
    )
    def test_spans(self, seconds, text):
        assert span(seconds) == text

    def test_servers_are_whole(self):
        assert (count(3.01), count(3.0), count(np.nan)) == ("4", "3", "–")


def device_runs():
    rows = [
        run(10e3, host="a", device="nvme", utilisation=0.8, cores=2),
        run(14e3, host="a", device="sda", utilisation=0.2, cores=2),
        run(12e3, host="b", device="nvme", utilisation=0.6, cores=2),
    ]
    return pd.DataFrame(rows)


def fio_runs():
    """Roofs: 512 kB/s to a sector each; the largest of a device is its roof."""
    return pd.DataFrame(
        {
            "host": ["a", "a", "a", "b"],
            "device": ["nvme", "nvme", "sda", "nvme"],
            "bandwidth_bytes_s": [80e6, 320e6, 30e6, 200e6],
        }
    )


class TestDevices:
    def test_rates_beside_the_roof(self):
        made = answered(compare_devices, device_runs(), roof=fio_runs())
        rows = made.table.set_index(["host", "device"])
        rate = 0.8 * 2 * CLOCK / 10e3
        assert rows.loc[("a", "nvme"), "iops"] == pytest.approx(rate)
        assert rows.loc[("a", "nvme"), "roof_iops"] == pytest.approx(320e6 / 512)
        assert rows.loc[("a", "nvme"), "of_roof"] == pytest.approx(rate * 512 / 320e6)
        assert rows.loc[("a", "sda"), "of_roof"] == pytest.approx(
            0.2 * 2 * CLOCK / 14e3 * 512 / 30e6
        )

    def test_ratios_are_to_the_first_row(self):
        table = answered(compare_devices, device_runs(), roof=fio_runs()).table
        assert table["cpio_ratio"].tolist() == pytest.approx([1.0, 1.4, 1.2])

    def test_a_row_at_its_roof_is_said(self):
        roof = fio_runs().assign(bandwidth_bytes_s=[80e6, 165e6, 60e6, 200e6])
        made = answered(compare_devices, device_runs(), roof=roof)
        assert "1 of 3 rows reach 90%" in only(made.caveats, "reach 90%")

    def test_more_than_the_roof_is_no_roof(self):
        roof = fio_runs().assign(bandwidth_bytes_s=1e6)
        assert only(answered(compare_devices, device_runs(), roof=roof).caveats, "such a roof")

    def test_without_fio_there_is_no_roof_and_that_is_said(self):
        made = answered(compare_devices, device_runs())
        assert made.table["of_roof"].isna().all()
        assert only(made.caveats, "maximum is not known")
        with pytest.raises(PpwError, match="no bandwidth_bytes_s"):
            compare_devices(device_runs(), roof=device_runs())

    def test_a_device_that_fio_did_not_run_on_has_no_roof(self):
        roof = fio_runs()[fio_runs()["host"] == "a"]
        made = answered(compare_devices, device_runs(), roof=roof)
        assert made.table["roof_iops"].isna().tolist() == [False, False, True]
        assert only(made.caveats, "some hosts or devices have no run of fio")

    def test_one_instance_against_several(self):
        rows = [run(10e3, instances=1, cores=4), run(11e3, instances=4, cores=4)]
        table = answered(compare_devices, pd.DataFrame(rows)).table
        assert table["instance_gain"].tolist() == pytest.approx([1.0, 10 / 11])

    def test_memory_bandwidth_that_each_needs(self):
        rows = [
            run(1e4 * c, host="a", device=device, bandwidth_per_core_bytes_s=b)
            for device, rise in (("nvme", 1.3), ("sda", 1.05))
            for b, c in ((4e9, 1.0), (1e9, rise))
        ]
        made = answered(compare_devices, pd.DataFrame(rows))
        assert made.bandwidth["value"].tolist()[:2] == pytest.approx([3e9, 1.5e9])
        said = " ".join(made.verdict())
        assert "nvme: cpio has risen by 10% at 3 GB/s a core" in said
        assert "sda: cpio has not risen by 10% down to 1 GB/s a core" in said

    def test_caveats_of_the_metric_are_there_too(self):
        assert only(answered(compare_devices, device_runs()).caveats, "clock of 3 of 3 runs")


@pytest.mark.parametrize(
    ("kind", "call", "options"),
    [
        (CpioProjection, project_cpio, {"cores": 64, "growth": [0.7], "years": 3}),
        (ServerSizing, size_servers, {**SIZE, "electricity": 0.2}),
        (DeviceComparison, compare_devices, {}),
    ],
)
class TestEveryResult:
    def test_comes_back_from_json(self, kind, call, options):
        result = answered(call, study(noise=0.05), **options)
        again = kind.from_json(result.to_json())
        assert again.to_json() == result.to_json()
        assert again.summary() == result.summary()
        assert list(again.to_frame().columns) == list(result.to_frame().columns)

    def test_draws_on_axes_given(self, kind, call, options):
        from matplotlib.figure import Figure

        result = answered(call, study(noise=0.05), **options)
        axes = Figure().add_subplot()
        assert result.plot(axes) is axes
        assert axes.has_data()
        assert axes.get_ylabel()
