"""Results of SPECpower_ssj2008: three forms with made-up numbers, and the shared table."""

import numpy as np
import pandas as pd
import pytest
from specpower_results import OPS, TARGETS, WATTS, dump, html_page, text_report

from measurements.errors import MeasurementError
from measurements.table.specpower import LoadLevel, is_specpower, read_specpower


@pytest.fixture
def read(tmp_path):
    def reader(text, name="result.txt", encoding="utf-8"):
        (tmp_path / name).write_bytes(text.encode(encoding))
        return read_specpower(tmp_path / name)

    return reader


class TestForms:
    def test_text(self, read):
        [result] = read(text_report())
        assert (result.system, result.vendor) == ("Pebble 100", "Made-up Systems, Inc.")
        assert (result.processor, result.year) == ("Granite 9000", 2019)
        assert result.test_date == "Feb 3, 2019"
        counts = (result.nodes, result.chips, result.cores, result.threads, result.memory_gb)
        assert counts == (1, 2, 56, 112, 1024)
        assert result.levels[0] == (1.0, pytest.approx(0.996), 100_000, 200)
        assert result.levels[5] == (0.5, 0.5, 50_000, 125)
        assert result.levels[-1] == LoadLevel(0.0, None, 0.0, 50)
        assert [x.target for x in result.levels] == [*(t / 100 for t in TARGETS), 0]
        assert (result.overall, result.compliant, result.findings) == (400, True, ())
        assert result.computed_overall == pytest.approx(400)

    def test_html(self, read):
        [result] = read(html_page(), "result.html")
        assert (result.system, result.vendor) == ("Pebble 100", "Made-up Systems")
        assert result.year == 2009
        assert (result.nodes, result.chips, result.cores) == (None, 2, 8)
        assert (result.threads, result.memory_gb) == (None, 16)
        assert [x.watts for x in result.levels] == [WATTS[t] for t in (*TARGETS, 0)]
        assert result.levels[0].actual == pytest.approx(1.001)
        assert (result.overall, result.compliant, result.findings) == (400, True, ())
        # Those of the first years are Latin-1.
        [result] = read(html_page().replace("Made-up", "Müller"), "r.html", encoding="latin-1")
        assert result.vendor == "Müller Systems"

    def test_dump(self, read):
        results = read(dump(rows=3), "dump.csv")
        assert [r.source for r in results] == [f"dump.csv, row {n}" for n in (1, 2, 3)]
        result = results[0]
        assert (result.system, result.vendor, result.nodes) == ("Pebble 100", "Made-up", 4)
        assert (result.cores, result.chips, result.memory_gb) == (32, 8, 1024)
        assert (result.test_date, result.year) == ("Mar-2018", 2018)
        assert [x.ops_s for x in result.levels[:10]] == [OPS[t] for t in TARGETS]
        assert [x.watts for x in result.levels] == [WATTS[t] for t in (*TARGETS, 0)]
        assert all(x.actual is None for x in result.levels)
        assert result.overall == 400

    def test_several_files_of_several_forms(self, tmp_path):
        for name, text in (("a.txt", text_report()), ("b.html", html_page()), ("c.csv", dump(2))):
            (tmp_path / name).write_text(text, encoding="utf-8")
        results = read_specpower([tmp_path / n for n in ("a.txt", "b.html", "c.csv")])
        assert [r.overall for r in results] == [400] * 4


class TestWhatIsMissing:
    def test_a_level_without_watts_is_missing_and_never_0(self, read):
        watts = {t: w for t, w in WATTS.items() if t not in (70, 0)}
        [result] = read(dump(watts=watts), "dump.csv")
        assert result.levels[3] == (0.7, None, 70_000, None)
        assert result.levels[-1].target == 0.1
        assert "no power at 70 %, active idle" in result.findings
        assert result.computed_overall is None
        assert result.threads is None
        assert all(level.watts > 0 for level in result.levels if level.watts is not None)

    def test_a_table_without_scores_says_nothing_of_compliance(self, read):
        levels = (*TARGETS, "idle")
        head = ",".join(["hw_model", "x", *(f"watts_{t}" for t in levels)])
        row = ",".join(["s", "x", *(str(WATTS[t]) for t in (*TARGETS, 0))])
        [result] = read(f"{head}\n{row}\n", "t.csv")
        assert (result.overall, result.compliant, result.system) == (None, None, "s")

    def test_a_score_withdrawn_or_an_invalid_report_is_said_and_its_levels_are_kept(self, read):
        invalid = text_report(extra="This result is INVALID: the run was too short.")
        for text in (dump(score="NC"), dump(score="0"), invalid):
            [result] = read(text)
            assert (result.overall, result.compliant) == (None, False)
            assert len(result.levels) == 11
            assert "not compliant: SPEC publishes no score for it" in result.findings

    def test_a_result_of_north_carolina_rounded_to_three_digits_is_compliant(self, read):
        assert "NC" in text_report()
        [result] = read(text_report(score="399"))
        assert (result.compliant, result.findings) == (True, ())


def test_findings(read):
    left_out, rising = "0 W at a level is no reading and is left out", WATTS | {40: 130}
    gone = [dump(watts=WATTS | {30: cell}) for cell in ("", "--", "NC", "n/a")]
    for text, findings in (
        *((text, {"no power at 30 %"}) for text in gone),
        (dump(watts=WATTS | {0: 0}), {left_out, "no power at active idle"}),
        (
            text_report(score="444"),
            {"the published overall score is 444 ssj_ops/W, but its levels give 400"},
        ),
        (text_report(watts=rising), {"power does not fall with the target load throughout"}),
        (text_report().replace("| 60.0%", "| 55.0%"), {"the load reached at 60 % is 55.0%"}),
    ):
        [result] = read(text)
        assert findings <= set(result.findings)


def test_what_is_no_result(read, tmp_path):
    (tmp_path / "runs.csv").write_text("host,load,power_w\na,0.5,100\n")
    page = "<html><body><table><tr><td>Not here: non-compliant</td></tr></table></body></html>"
    (tmp_path / "nc.html").write_text(page)
    (tmp_path / "other.html").write_text(page.replace(": non-compliant", ""))
    for name, said in {
        "runs.csv": r"^runs\.csv: is no SPECpower_ssj2008 result: g",
        "nc.html": r"no result has the power at two load levels: no po",
        "other.html": "is no SPECpower_ssj2008 result",
        "gone.txt": r"gone\.txt: cannot be read: No such file",
    }.items():
        with pytest.raises(MeasurementError, match=said):
            read_specpower(tmp_path / name)
    assert not is_specpower(tmp_path / "runs.csv")
    assert not is_specpower(tmp_path / "gone.txt")
    with pytest.raises(MeasurementError, match="no file"):
        read_specpower([])


@pytest.mark.thirdparty
def test_shared_results(data_dir):
    """Oracle: the ops per watt that are published beside them."""
    path = data_dir / "specpower" / "results_to_2012.csv"
    results = read_specpower(path)
    assert len(results) == 349
    assert all(len(r.levels) == 11 for r in results)
    assert all(x.watts and x.watts > 0 for r in results for x in r.levels)
    assert all(r.system and r.vendor and r.processor for r in results)
    assert {r.year for r in results} <= set(range(2002, 2013))
    assert all(r.cores and r.chips and r.threads and r.threads >= r.cores for r in results)
    published = pd.read_csv(path)
    for target, place in ((100, 0), (50, 5), (10, 9)):
        made = [r.levels[place].ops_s / r.levels[place].watts for r in results]
        off = np.abs(np.array(made) / published[f"opsperwatt_{target}"] - 1)
        assert (off < 0.01).mean() > 0.98
