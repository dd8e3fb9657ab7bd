"""Hosts side by side: the published ratios, cells that stay empty, watts that are of two scopes."""

import json

import numpy as np
import pandas as pd
import pytest
from golden_runs import golden
from made_up import answered, only
from processes import ppw_inside

from ppw.cli.demo import POWER_RATIO, THROUGHPUT_RATIO
from ppw.decision.characterise import MEASURES, RATIOS, TABLES, characterise
from ppw.decision.report import characterisation_page
from ppw.errors import PpwError

MIB = 2**20


def runs(**columns):
    """Memcached and Wordcount on two hosts: by the published ratios, and with figures to check."""
    rate, watts = 1e5 * THROUGHPUT_RATIO, 30.0 * POWER_RATIO
    missing = np.nan
    rows = [
        ("atom", "memcached", 1.80, missing, 1e5, 30.0, 6.057, missing, missing, 1.2),
        ("atom", "memcached", 1.66, missing, 9e4, 29.0, 6.519, missing, missing, 1.3),
        ("atom", "wordcount", 1.80, 600.0, missing, 32.0, 2.10, 1e8, 512, missing),
        ("atom", "wordcount", 1.80, 620.0, missing, 34.0, 2.30, 3e8, 512, missing),
        ("wsm", "memcached", 2.27, missing, rate, watts, 3.05, missing, missing, 0.8),
        ("wsm", "wordcount", 2.27, 50.0, missing, 190.0, missing, missing, 512, missing),
    ]
    names = ["host", "workload", "freq_ghz", "time_s", "throughput_ops_s"]
    names += ["power_w", "cpi", "llc_misses", "data_mib", "latency_p99_ms"]
    frame = pd.DataFrame(rows, columns=names).assign(power_source="meter:wt310")
    frame["memory_bandwidth_bytes_s"] = frame["host"].map({"atom": 4e9, "wsm": 3e10})
    frame["family"] = frame["host"].map({"atom": "Bonnell", "wsm": "Westmere"})
    frame["cores"] = frame["host"].map({"atom": 2, "wsm": 12})
    frame["price"] = frame["host"].map({"atom": 450.0, "wsm": 6000.0})
    return frame.assign(**columns)


def described(frame=None, **options):
    return answered(characterise, runs() if frame is None else frame, **options)


@pytest.fixture(scope="module")
def made():
    return described()


def row_of(made, title, workload, measure):
    (section,) = [s for s in made.printed_tables() if s.title.startswith(title)]
    (row,) = [r for r in section.rows if r[0] == workload and measure in r]
    return row[-2:]


MEMCACHED = {"host": "wsm", "workload": "memcached"}


class TestPublishedRatios:
    def test_speed_up_over_power_ratio_and_over_cost_ratio(self, made):
        assert made.value("speed-up", **MEMCACHED) == pytest.approx(14.79)
        assert made.value("power ratio", **MEMCACHED) == pytest.approx(5.9)
        assert round(made.value("perf/W ratio", **MEMCACHED), 2) == 2.51
        # A time is a speed the other way round.
        assert made.value("speed-up", "wsm", workload="wordcount") == pytest.approx(610 / 50)
        for workload in ("memcached", "wordcount"):
            of = {"host": "wsm", "workload": workload}
            faster = made.value("speed-up", **of)
            power, cost = (made.value(f"{kind} ratio", **of) for kind in ("power", "cost"))
            assert made.value("perf/W ratio", **of) == pytest.approx(faster / power)
            assert made.value("perf/$ ratio", **of) == pytest.approx(faster / cost)

    @pytest.mark.parametrize(("ratio", "better"), [(14.78, "wsm"), (14.80, "atom")])
    def test_atom_is_the_better_per_dollar_above_a_price_ratio_of_14_79(self, ratio, better):
        made = described(prices={"atom": 100.0, "wsm": 100.0 * ratio})
        assert ("wsm" if made.value("perf/$ ratio", **MEMCACHED) > 1 else "atom") == better
        assert made.value("perf/W ratio", **MEMCACHED) > 1


class TestCells:
    def test_are_means_of_the_runs_at_the_highest_clock(self, made):
        assert made.value("time", "atom", workload="wordcount") == 610
        assert made.value("power", "atom", workload="wordcount") == 33
        assert made.value("CPI", "atom", workload="memcached") == 6.057
        rows = made.table[(made.table["host"] == "atom") & (made.table["measure"] == "CPI")]
        assert (rows["freq_hz"].tolist(), rows["runs"].tolist()) == ([1.8e9, 1.8e9], [1, 2])
        # Misses are by byte of input.
        found = made.value("cache misses per byte", "atom", workload="wordcount")
        assert found == pytest.approx(2e8 / (512 * MIB))

    def test_of_another_clock(self):
        slow = described(freq="1.66GHz", reference="atom")
        assert slow.value("throughput", "atom", workload="memcached") == 9e4
        assert "wsm" not in set(slow.table["host"])

    def test_what_was_not_measured_stays_empty(self, made):
        assert np.isnan(made.value("CPI", "wsm", workload="wordcount"))
        assert row_of(made, "Processor and memory", "wordcount", "CPI") == ["2.2", ""]
        cells = json.loads(made.to_json())["cells"]
        assert not [c for c in cells if c["value"] is None]
        assert made.to_frame()["value"].notna().all()

    def test_energy_and_watts_come_from_each_other(self):
        frame = runs().drop(columns="power_w").assign(energy_j=lambda r: 40.0 * r["time_s"])
        made = described(frame)
        assert made.value("power", "wsm", workload="wordcount") == pytest.approx(40)
        assert np.isnan(made.value("power", **MEMCACHED))

    def test_runs_below_full_load_do_not_count(self):
        frame = pd.concat([runs(load=1.0), runs(load=0.5), runs(load=np.nan)])
        frame.loc[frame["load"] != 1, ["throughput_ops_s", "time_s"]] = 1.0
        assert described(frame).value("speed-up", **MEMCACHED) == pytest.approx(14.79)
        # Where none is marked as full, those without a mark count.
        held = runs(load=0.5).assign(throughput_ops_s=1.0, time_s=1.0)
        unmarked = described(pd.concat([runs(), held]))
        assert unmarked.value("speed-up", **MEMCACHED) == pytest.approx(14.79)

    def test_three_hosts_and_no_frequency(self):
        frame = runs().drop(columns="freq_ghz")
        frame = frame[frame["workload"] == "wordcount"]
        third = frame[frame["host"] == "wsm"].assign(host="nhm", time_s=100.0)
        made = described(pd.concat([frame, third]))
        assert made.hosts == ("atom", "wsm", "nhm")
        assert made.value("speed-up", "nhm") == pytest.approx(6.1)
        assert made.table["freq_hz"].isna().all()

    def test_cores_that_describe_a_host_do_not_keep_it_apart(self, made):
        assert made.by == ("workload", "data_bytes")
        swept = described(pd.concat([runs(), runs(cores=1)]))
        assert swept.by == ("workload", "cores", "data_bytes")

    def test_what_one_host_gives_as_time_and_the_other_as_rate_is_no_speed_up(self):
        frame = runs()[lambda r: r["workload"] == "wordcount"]
        frame.loc[frame["host"] == "wsm", ["time_s", "throughput_ops_s"]] = [np.nan, 7.0]
        made = described(frame)
        assert np.isnan(made.value("speed-up", "wsm"))
        assert made.value("throughput", "wsm") == 7


class TestReference:
    def test_is_the_slowest_host_whatever_the_order_of_rows(self, made):
        assert made.reference == "atom"
        for frame in (runs().iloc[::-1], runs().sample(frac=1, random_state=3)):
            assert described(frame).to_json() == made.to_json()

    def test_may_be_chosen_and_has_no_ratio_to_itself(self):
        turned = described(reference="wsm")
        assert turned.hosts == ("wsm", "atom")
        assert turned.value("speed-up", "atom", workload="memcached") == pytest.approx(1 / 14.79)
        assert set(turned.table.loc[turned.table["table"] == RATIOS, "host"]) == {"atom"}
        (section,) = [s for s in turned.printed_tables() if s.title == RATIOS]
        assert section.header[-1] == "atom"
        assert "wsm" not in section.header


class TestWattsOfTwoScopes:
    SOURCES = {"atom": "meter:wt310", "wsm": "rapl:package"}  # noqa: RUF012
    FRAME = runs().assign(power_source=lambda r, sources=SOURCES: r["host"].map(sources))

    def test_are_not_set_against_each_other(self):
        made = described(self.FRAME)
        for measure in ("power ratio", "perf/W ratio"):
            assert np.isnan(made.value(measure, **MEMCACHED))
        assert made.value("speed-up", **MEMCACHED) == pytest.approx(14.79)
        said = only(made.caveats, "different scope")
        assert "wsm package, atom wall" in said
        assert "stay empty" in said
        power = row_of(made, made.printed_tables()[0].title, "memcached", "power")
        assert power == ["30 wall", "177 package"]
        worth = row_of(made, "Performance per watt", "memcached", "perf/W")
        assert worth == ["3333 wall", "8356 package"]

    def test_unless_asked_for(self):
        made = described(self.FRAME, mixed_scope=True)
        assert round(made.value("perf/W ratio", **MEMCACHED), 2) == 2.51
        different = only(made.caveats, "power of different scope is compared")
        assert "wsm package, atom wall" in different

    def test_alike_ones_need_no_word_and_unknown_ones_are_said(self, made):
        assert "scope" not in " ".join(made.caveats)
        assert row_of(made, made.printed_tables()[0].title, "memcached", "power") == ["30", "177"]
        unknown = described(runs().drop(columns="power_source"))
        assert only(unknown.caveats, "power of unknown source")


def test_a_page_has_every_table_and_a_figure_where_there_is_something_to_draw(made):
    assert [t.title for t in characterisation_page(made).tables] == list(TABLES)
    assert {m.table for m in MEASURES} | {RATIOS} == set(TABLES)
    axes = made.plot()
    assert axes.get_xscale() == "log"
    assert {line.get_label() for line in axes.lines} >= {"speed-up", "perf/W ratio"}
    page = characterisation_page(described(runs()[["host", "workload", "cpi"]]))
    assert page.figures == []
    assert "wsm: nothing to set against it." in page.verdict


@pytest.mark.cases(
    "frame, options, said",
    (runs(), {"reference": "atm"}, r"no host 'atm' \(did you mean 'atom'\?\)"),
    (runs(), {"prices": {"wms": 3.0}}, r"no host 'wms' \(did you mean 'wsm'\?\)"),
    (runs(), {"prices": {"wsm": 0}}, "price of wsm 0 must be greater than 0"),
    (runs(), {"freq": 3e9}, "no host was measured at 3 GHz"),
    (runs()[:4], {}, "the runs are of one host, 'atom'"),
)
def test_what_is_not_there(frame, options, said):
    with pytest.raises(PpwError, match=said):
        characterise(frame, **options)


def test_golden_and_other_formats(tmp_path):
    runs().to_csv(tmp_path / "runs.csv", index=False)
    golden("characterise runs.csv --price wsm=7000", tmp_path)
    start = {"json": "{", "csv": "workload,data_bytes,table", "html": "<!DOCTYPE html>"}
    for name, said in start.items():
        done = ppw_inside("characterise", "runs.csv", "--format", name, cwd=tmp_path)
        assert (done.returncode, done.stdout[: len(said)]) == (0, said)
