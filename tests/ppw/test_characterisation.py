"""Hosts side by side: the published ratios, cells that stay empty, watts that are of two scopes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from made_up import answered, only
from matplotlib.figure import Figure

from ppw.characterisation import Characterisation, characterise
from ppw.cli.characterise import command
from ppw.errors import PpwError
from ppw.host_measures import MEASURES, RATIOS, TABLES
from ppw.published import POWER_RATIO, THROUGHPUT_RATIO
from ppw.report.characterisation_page import characterisation_page

GOLDEN = Path(__file__).with_name("golden") / "characterise.txt"
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


@pytest.fixture(scope="module")
def made():
    return answered(characterise, runs())


class TestPublishedRatios:
    def test_speed_up_and_power_ratio(self, made):
        memcached = {"host": "wsm", "workload": "memcached"}
        assert made.value("speed-up", **memcached) == pytest.approx(14.79)
        assert made.value("power ratio", **memcached) == pytest.approx(5.9)
        assert round(made.value("perf/W ratio", **memcached), 2) == 2.51

    def test_speed_up_over_power_ratio_and_over_cost_ratio(self, made):
        for workload in ("memcached", "wordcount"):
            of = {"host": "wsm", "workload": workload}
            faster = made.value("speed-up", **of)
            power, cost = (made.value(f"{kind} ratio", **of) for kind in ("power", "cost"))
            assert made.value("perf/W ratio", **of) == pytest.approx(faster / power)
            assert made.value("perf/$ ratio", **of) == pytest.approx(faster / cost)

    @pytest.mark.parametrize(("ratio", "better"), [(14.78, "wsm"), (14.80, "atom")])
    def test_atom_is_the_better_per_dollar_above_a_price_ratio_of_14_79(self, ratio, better):
        made = answered(characterise, runs(), prices={"atom": 100.0, "wsm": 100.0 * ratio})
        per_dollar = made.value("perf/$ ratio", "wsm", workload="memcached")
        assert ("wsm" if per_dollar > 1 else "atom") == better
        assert made.value("perf/W ratio", "wsm", workload="memcached") > 1

    def test_a_time_is_a_speed_the_other_way_round(self, made):
        assert made.value("speed-up", "wsm", workload="wordcount") == pytest.approx(610 / 50)


class TestCells:
    def test_are_means_of_the_runs_at_the_highest_clock(self, made):
        assert made.value("time", "atom", workload="wordcount") == 610
        assert made.value("power", "atom", workload="wordcount") == 33
        assert made.value("CPI", "atom", workload="memcached") == 6.057
        rows = made.table[(made.table["host"] == "atom") & (made.table["measure"] == "CPI")]
        assert rows["freq_hz"].tolist() == [1.8e9, 1.8e9]
        assert rows["runs"].tolist() == [1, 2]

    def test_of_another_clock(self):
        slow = answered(characterise, runs(), freq="1.66GHz", reference="atom")
        assert slow.value("throughput", "atom", workload="memcached") == 9e4
        assert "wsm" not in set(slow.table["host"])

    def test_misses_are_by_byte_of_input(self, made):
        found = made.value("cache misses per byte", "atom", workload="wordcount")
        assert found == pytest.approx(2e8 / (512 * MIB))

    def test_what_was_not_measured_stays_empty(self, made):
        assert np.isnan(made.value("CPI", "wsm", workload="wordcount"))
        section = next(s for s in made.sections() if s.title == "Processor and memory")
        (row,) = [r for r in section.rows if r[0] == "wordcount" and "CPI" in r]
        assert row[-2:] == ["2.2", ""]
        cells = json.loads(made.to_json())["cells"]
        assert not [c for c in cells if c["value"] is None]
        assert made.to_frame()["value"].notna().all()

    def test_energy_and_watts_come_from_each_other(self):
        frame = runs().drop(columns="power_w").assign(energy_j=lambda r: 40.0 * r["time_s"])
        made = answered(characterise, frame)
        assert made.value("power", "wsm", workload="wordcount") == pytest.approx(40)
        assert np.isnan(made.value("power", "wsm", workload="memcached"))

    def test_runs_below_full_load_do_not_count(self):
        frame = pd.concat([runs(load=1.0), runs(load=0.5), runs(load=np.nan)])
        frame.loc[frame["load"] != 1, ["throughput_ops_s", "time_s"]] = 1.0
        made = answered(characterise, frame)
        assert made.value("speed-up", "wsm", workload="memcached") == pytest.approx(14.79)

    def test_three_hosts_and_no_frequency(self):
        frame = runs().drop(columns="freq_ghz")
        frame = frame[frame["workload"] == "wordcount"]
        third = frame[frame["host"] == "wsm"].assign(host="nhm", time_s=100.0)
        made = answered(characterise, pd.concat([frame, third]))
        assert made.hosts == ("atom", "wsm", "nhm")
        assert made.value("speed-up", "nhm") == pytest.approx(6.1)
        assert made.table["freq_hz"].isna().all()

    def test_cores_that_describe_a_host_do_not_keep_it_apart(self, made):
        assert made.by == ("workload", "data_bytes")
        swept = pd.concat([runs(), runs(cores=1)])
        assert answered(characterise, swept).by == ("workload", "cores", "data_bytes")

    def test_what_one_host_gives_as_time_and_the_other_as_rate_is_no_speed_up(self):
        frame = runs()
        frame = frame[frame["workload"] == "wordcount"]
        frame.loc[frame["host"] == "wsm", ["time_s", "throughput_ops_s"]] = [np.nan, 7.0]
        made = answered(characterise, frame)
        assert np.isnan(made.value("speed-up", "wsm"))
        assert made.value("throughput", "wsm") == 7


class TestReference:
    def test_is_the_slowest_host(self, made):
        assert made.reference == "atom"
        turned = answered(characterise, runs().iloc[::-1])
        assert turned.reference == "atom"
        assert turned.value("speed-up", "wsm", workload="memcached") == pytest.approx(14.79)

    def test_may_be_chosen(self):
        made = answered(characterise, runs(), reference="wsm")
        assert made.hosts == ("wsm", "atom")
        assert made.value("speed-up", "atom", workload="memcached") == pytest.approx(1 / 14.79)

    def test_has_no_ratio_to_itself(self, made):
        ratios = made.table[made.table["table"] == RATIOS]
        assert set(ratios["host"]) == {"wsm"}
        section = next(s for s in made.sections() if s.title == RATIOS)
        assert section.header[-1] == "wsm"
        assert "atom" not in section.header


class TestWattsOfTwoScopes:
    SOURCES = ("meter:wt310", "rapl:package")

    def frame(self):
        frame = runs()
        return frame.assign(
            power_source=frame["host"].map(dict(zip(("atom", "wsm"), self.SOURCES, strict=True)))
        )

    def test_are_not_set_against_each_other(self):
        made = answered(characterise, self.frame())
        for measure in ("power ratio", "perf/W ratio"):
            assert np.isnan(made.value(measure, "wsm", workload="memcached"))
        assert made.value("speed-up", "wsm", workload="memcached") == pytest.approx(14.79)
        said = only(made.caveats, "different scope")
        assert "wsm package, atom wall" in said
        assert "stay empty" in said

    def test_and_say_what_they_are_of(self):
        made = answered(characterise, self.frame())
        (section, *_) = made.sections()
        (row,) = [r for r in section.rows if r[0] == "memcached" and "power" in r]
        assert row[-2:] == ["30 wall", "177 package"]
        worth = next(s for s in made.sections() if s.title.startswith("Performance per watt"))
        (row,) = [r for r in worth.rows if r[0] == "memcached" and "perf/W" in r]
        assert row[-2:] == ["3333 wall", "8356 package"]

    def test_unless_asked_for(self):
        made = answered(characterise, self.frame(), mixed_scope=True)
        assert round(made.value("perf/W ratio", "wsm", workload="memcached"), 2) == 2.51
        said = only(made.caveats, "mixed scope, as asked for")
        assert "wsm package, atom wall" in said

    def test_alike_ones_need_no_word(self, made):
        assert not [c for c in made.caveats if "scope" in c]
        (section, *_) = made.sections()
        (row,) = [r for r in section.rows if r[0] == "memcached" and "power" in r]
        assert row[-2:] == ["30", "177"]

    def test_unknown_ones_are_said(self):
        made = answered(characterise, runs().drop(columns="power_source"))
        assert only(made.caveats, "watts of unknown source")


class TestResult:
    def test_comes_back_from_json(self, made):
        again = Characterisation.from_json(made.to_json())
        assert again.to_json() == made.to_json()
        assert again.summary() == made.summary()
        document = json.loads(made.to_json())
        assert (document["schema_version"], document["kind"]) == (1, "characterisation")
        assert document["input_digest"].startswith("sha256:")

    def test_row_order_changes_nothing(self, made):
        shuffled = answered(characterise, runs().sample(frac=1, random_state=3))
        assert shuffled.to_json() == made.to_json()

    def test_every_table_is_printed_in_its_order(self, made):
        assert [s.title for s in made.sections()] == list(TABLES)
        assert {m.table for m in MEASURES} | {RATIOS} == set(TABLES)

    def test_page(self, made):
        page = characterisation_page(made)
        assert page.document == made.to_json()
        assert [t.title for t in page.tables] == list(TABLES)
        for table in page.tables:
            assert {len(row) for row in table.rows} == {len(table.header)}
        assert page.render() == characterisation_page(made).render()

    def test_draws_on_axes_of_its_own_or_given(self, made):
        axes = Figure().add_subplot()
        assert made.plot(axes) is axes
        assert made.plot().get_xscale() == "log"
        assert {line.get_label() for line in axes.lines} >= {"speed-up", "perf/W ratio"}

    def test_nothing_to_draw(self):
        frame = runs()[["host", "workload", "cpi"]]
        page = characterisation_page(answered(characterise, frame))
        assert page.figures == []
        assert "wsm: nothing to set against it." in page.verdict


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"reference": "atm"}, "no host 'atm' (did you mean 'atom'?)"),
        ({"prices": {"wms": 3.0}}, "no host 'wms' (did you mean 'wsm'?)"),
        ({"prices": {"wsm": 0}}, "price of wsm 0 must be greater than 0"),
        ({"freq": 3e9}, "no host was measured at 3 GHz"),
    ],
)
def test_what_is_not_there(options, said):
    with pytest.raises(PpwError) as caught:
        characterise(runs(), **options)
    assert said in str(caught.value)


def test_one_host_is_no_comparison():
    frame = runs()
    with pytest.raises(PpwError, match="the runs are of one host, 'atom'"):
        characterise(frame[frame["host"] == "atom"])


class TestCommandLine:
    def test_golden(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        runs().to_csv("runs.csv", index=False)
        done = CliRunner().invoke(command, ["runs.csv", "--price", "wsm=7000"])
        assert (done.exit_code, done.stderr) == (0, "")
        text = f"$ ppw characterise runs.csv --price wsm=7000\n{done.stdout}"
        if "PPW_WRITE_GOLDEN" in os.environ:
            GOLDEN.write_text(text, encoding="utf-8")
        assert text == GOLDEN.read_text(encoding="utf-8")

    @pytest.mark.parametrize("format_", ["json", "csv", "html"])
    def test_formats(self, format_, tmp_path):
        path = tmp_path / "runs.csv"
        runs().to_csv(path, index=False)
        done = CliRunner().invoke(command, [str(path), "--format", format_])
        assert done.exit_code == 0
        start = {"json": "{", "csv": "workload,data_bytes,table", "html": "<!DOCTYPE html>"}
        assert done.stdout.startswith(start[format_])

    @pytest.mark.parametrize(
        ("price", "said"),
        [
            ("wsm", "is not HOST=PRICE, such as atom=450"),
            ("wsm=", "is not HOST=PRICE"),
            ("=3", "is not HOST=PRICE"),
            ("wsm=-3", "-3.0 is not in the range x>0"),
            ("wsm=dear", "'dear' is not a price: write a number alone"),
            ("wsm=inf", "'inf' is not a finite number"),
        ],
    )
    def test_a_price_that_is_none(self, price, said):
        done = CliRunner().invoke(command, ["runs.csv", "--price", price])
        assert done.exit_code == 2
        assert said in done.stderr
