"""What the buyer gets: the command line word by word, and a page that reads on screen and paper.

The golden text is in ``golden/``; write it anew by PPW_WRITE_GOLDEN=1, and read the difference.
"""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from parsed_pages import Parsed
from procurement_scenarios import ROOT, asked, documented, ranged, scenario, server

from ppw.procurement.procure import procure
from ppw.procurement.result import Procurement
from ppw.procurement.schema import schema_text
from ppw.report.procurement_page import _side_by_side, procurement_page, second_figure

GOLDEN = Path(__file__).with_name("golden")
EXAMPLE = ROOT / "examples" / "procurement.toml"


def ppw_command(*arguments, folder):
    """Run a command as users do, with any warning an error."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PPW_", "PYTHONIO"))}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "ppw", *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        cwd=folder,
        env={**kept, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1", "COLUMNS": "100"},
        check=False,
    )
    return done.stdout.decode(), done.stderr.decode(), done.returncode


@pytest.fixture
def folder(tmp_path):
    """Folder with the guide's scenario."""
    text = (ROOT / "docs" / "procurement.md").read_text(encoding="utf-8")
    toml = text.split("```toml\n")[1].split("```")[0]
    (tmp_path / "scenario.toml").write_text(toml, encoding="utf-8")
    return tmp_path


class TestCommandLine:
    def test_golden(self, folder):
        out, err, code = ppw_command("compare", "scenario.toml", folder=folder)
        text = f"$ ppw compare scenario.toml\n{out}"
        golden = GOLDEN / "procurement.txt"
        if "PPW_WRITE_GOLDEN" in os.environ:
            golden.write_text(text, encoding="utf-8")
        assert text == golden.read_text(encoding="utf-8")
        assert (err, code) == ("", 0)

    def test_json_is_the_results_own_and_takes_the_options(self, folder):
        options = "--draws", "300", "--seed", "4", "--level", "0.8"
        out, err, code = ppw_command(
            "compare", "scenario.toml", "--format", "json", *options, folder=folder
        )
        assert (err, code) == ("", 0)
        result = asked(documented(), draws=300, seed=4, level=0.8)
        # Of a table there is no file to name.
        own = result.to_json().replace('"source": "scenario"', '"source": "scenario.toml"')
        assert out == own + "\n"
        assert Procurement.from_json(out).draws == 300

    def test_csv_has_a_row_a_candidate_and_caveats_beside_it(self, folder):
        out, err, code = ppw_command("compare", "scenario.toml", "--format", "csv", folder=folder)
        assert code == 0
        assert [line.split(",")[0] for line in out.splitlines()] == ["candidate", "small", "large"]
        assert all(line.startswith("ppw: caveat: ") for line in err.splitlines())

    def test_the_example_becomes_a_report(self, tmp_path):
        report = tmp_path / "report.html"
        out, err, code = ppw_command(
            "compare", EXAMPLE, "--format", "html", "-o", report, folder=tmp_path
        )
        assert (out, err, code) == ("", "", 0)
        text = report.read_text(encoding="utf-8")
        assert "wimpy at 3.6 GHz" in text
        assert "projected" in text

    def test_the_schema_is_printed(self, tmp_path):
        out, err, code = ppw_command("compare", "--schema", folder=tmp_path)
        assert (out, err, code) == (schema_text(), "", 0)
        assert json.loads(out)["title"] == "Procurement scenario"

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (("scenario.toml", "--a", "host=x"), "--a is for runs tables"),
            (("scenario.toml", "--electricity", "0.2"), "--electricity is for runs tables"),
            (("scenario.toml", "--no-pool"), "--pool is for runs tables"),
            (("scenario.toml", "other.toml"), "one scenario at a time, and 2 files were given"),
            (("scenario.toml", "runs.csv"), "one scenario at a time, and 2 files were given"),
            (("runs.csv", "--a", "host=x"), "Missing option '--b'"),
            (("runs.csv",), "Missing option '--a'"),
            ((), "Missing argument 'RUNS...'"),
        ],
    )
    def test_wrong_usage(self, arguments, said, folder):
        out, err, code = ppw_command("compare", *arguments, folder=folder)
        assert (out, code) == ("", 2)
        assert said in err

    def test_a_scenario_that_is_wrong_is_one_line(self, folder):
        path = folder / "scenario.toml"
        path.write_text(path.read_text().replace("pue = 1.5", "peu = 1.5"), encoding="utf-8")
        out, err, code = ppw_command("compare", "scenario.toml", folder=folder)
        assert (out, code) == ("", 1)
        assert err == (
            "ppw: error: scenario.toml: site.peu: unknown key (did you mean 'pue'?); site.pue is "
            "missing: give energy of the site over energy of servers and network, 1 or more\n"
        )


HOSTILE = ["</script><b>", '"><img src=x onerror=alert(1)>', "a&amp;b", "$\\bad$"]


LONG = [
    *("2 × EPYC 9654 with 384 GB", "rack1 at 2.4 GHz", "rack1 at 3.0 GHz, as projected"),
    *("a quarter of a rack with forty cores", "what we have"),
]


def many(names):
    """Candidates with ranges and carbon, and no room for one of them."""
    made = [
        server(name, rate=60.0 + 40 * i, price=700.0 + 450 * i, embodied_carbon=900.0 - 60 * i)
        for i, name in enumerate(names)
    ]
    site = {"electricity": ranged(0.2, 0.1, 0.4), "grid_carbon": 0.3, "rack_units": 4}
    demand = {"years": 4, "growth_per_year": 0.2, "profile": [0.4, 1.0]}
    return scenario(*made, site={**site, "max_racks": 6}, demand=demand)


@pytest.fixture(scope="module")
def results():
    tables = {"guide": documented(), "five": many(LONG), "hostile": many(HOSTILE)}
    return {name: asked(table) for name, table in {**tables, "one": scenario(server("x"))}.items()}


@pytest.fixture(scope="module")
def pages(results):
    return {name: procurement_page(result) for name, result in results.items()}


@pytest.mark.parametrize("name", ["guide", "five", "hostile", "one"])
class TestPage:
    def test_no_request_leaves_it_and_nothing_breaks_out(self, name, pages):
        parsed = Parsed(pages[name].render())
        tags = [tag for tag, _ in parsed.tags]
        assert not {"link", "iframe", "img", "object", "b", "form"} & set(tags)
        assert set(parsed.scripts) == {"ppw-result", "ppw-sliders", ""}
        assert "<" not in parsed.scripts["ppw-result"] + parsed.scripts["ppw-sliders"]
        for _, attributes in parsed.tags:
            assert not {"src", "action"} & set(attributes)
            assert attributes.get("xlink:href", attributes.get("href", "#")).startswith("#")

    def test_its_json_is_the_results(self, name, pages, results):
        parsed = Parsed(pages[name].render())
        document = json.loads(parsed.scripts["ppw-result"])
        assert document == json.loads(results[name].to_json())

    def test_verdict_first_and_tables_full(self, name, pages, results):
        page = pages[name]
        assert page.verdict == results[name].verdict()
        text = page.render()
        assert text.index('class="verdict"') < text.index("<svg") < text.index("<table>")
        for table in page.tables:
            assert {len(row) for row in table.rows} == {len(table.header)}
        titles = [re.sub(r" \(\d\)", "", table.title) for table in page.tables]
        wanted = ["What to buy", "Money, present value", "Energy", "Carbon"]
        wanted += ["What moves the answer", "Where the answer turns", "What it rests on"]
        left_out = {"one": {"Carbon", "Where the answer turns"}}.get(name, set())
        assert list(dict.fromkeys(titles)) == [t for t in wanted if t not in left_out]

    def test_every_figure_is_labelled(self, name, pages):
        table = pages[name].tables[-1]
        assert table.header[1] == "who says so"
        labels = {row[1] for row in table.rows}
        assert labels <= {"given", "default", "measured", "projected", "catalogue"}
        assert "given" in labels

    def test_the_same_input_gives_the_same_bytes(self, name, pages, results):
        assert procurement_page(results[name]).render() == pages[name].render()


class TestWhatIsDrawn:
    def test_parts_stand_on_each_other_up_to_the_total(self, results):
        axes = results["guide"].plot()
        ends = {}
        for bar in axes.patches:
            place = round(bar.get_y() + bar.get_height() / 2)
            ends[place] = ends.get(place, 0) + bar.get_width()
        totals = results["guide"].costs["tco"] / 1000
        assert [ends[i] for i in sorted(ends)] == pytest.approx(totals.tolist())
        assert axes.get_xlabel() == "total cost (thousand EUR)"

    def test_the_front_is_against_carbon_or_else_energy(self, results):
        assert second_figure(results["five"]) == "carbon"
        assert second_figure(results["one"]) == "energy"

    def test_many_candidates_are_cut_into_tables_that_paper_takes(self, pages):
        tables = [t for t in pages["five"].tables if t.title.startswith("What to buy")]
        assert [t.title for t in tables] == [f"What to buy ({i + 1})" for i in range(len(tables))]
        names = [name for t in tables for name in t.header[1:]]
        assert names == LONG
        # Equal parts: none has two candidates more than another.
        counts = [len(t.header) for t in tables]
        assert max(counts) - min(counts) <= 1
        assert len(pages["one"].figures) == 2


def test_three_candidates_stand_side_by_side(results):
    section = results["guide"].sections()[0]
    names = ["wimpy at 2.4 GHz", "wimpy at 3.6 GHz", "brawny"]
    rows = [[row[0], *(["168,092 … 243,390"] * 3)] for row in section.rows]
    (table,) = _side_by_side(section._replace(header=["figure", *names], rows=rows))
    assert table.title == "What to buy"


# A4 between the browser's margins, in its pixels of 1/96 inch.
PAPER = 718
MEASURE = """
<script>
function measured(frame) {
  const page = frame.contentDocument, wide = e => Math.ceil(e.getBoundingClientRect().width);
  const texts = [...page.querySelectorAll('svg text')].map(e => e.getBoundingClientRect().height);
  const all = kind => [...page.querySelectorAll(kind)].map(wide), whole = page.documentElement;
  return {page: whole.scrollWidth, height: whole.scrollHeight, tables: all('table'),
    svgs: all('svg'), smallest: Math.min(...texts)};
}
addEventListener('load', () => {
  const found = [...document.querySelectorAll('iframe')].map(f => [f.id, measured(f)]);
  document.querySelector('pre').textContent = JSON.stringify(Object.fromEntries(found));
});
</script><pre></pre>
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Lay a page out at several widths at once; what a browser makes of it, by width."""

    def lay_out(text, *widths):
        folder = tmp_path_factory.mktemp("browser")
        frames = "".join(
            f'<iframe id="{w}" style="width:{w}px;height:600px;border:0" '
            f'srcdoc="{html.escape(text)}"></iframe>'
            for w in widths
        )
        source = folder / "wrapper.html"
        source.write_text(f'<meta charset="utf-8">{MEASURE}{frames}', encoding="utf-8")
        done = subprocess.run(
            [
                *("chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"),
                "--disable-background-networking",
                *("--disable-component-update", "--disable-sync"),
                *(f"--user-data-dir={folder / 'profile'}", "--window-size=1400,900"),
                *("--hide-scrollbars", "--dump-dom", source.as_uri()),
            ],
            check=True,
            capture_output=True,
            timeout=120,
        )
        found = re.search(r"<pre>(.*?)</pre>", done.stdout.decode(), re.DOTALL)
        return json.loads(html.unescape(found[1]))

    return lay_out


@pytest.mark.parametrize("name", ["guide", "five"])
def test_it_reads_at_1280_and_400_pixels_and_on_paper(name, pages, browser):
    found = browser(pages[name].render(), 1280, 400, PAPER)
    for width in (1280, 400, PAPER):
        laid_out = found[str(width)]
        # Nothing but a table is wider than the screen, and that has a scroll bar of its own.
        assert laid_out["page"] <= width
        assert max(laid_out["svgs"]) <= width
        assert laid_out["smallest"] >= 7
    # On paper nothing scrolls.
    assert max(found[str(PAPER)]["tables"]) <= PAPER
    assert found["400"]["height"] > found["1280"]["height"]


def test_a_path_and_a_mapping_are_the_same_question(folder):
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        by_path = procure(folder / "scenario.toml", draws=200)
    by_table = asked(documented())
    assert by_path.costs.equals(by_table.costs)
    assert by_path.input_digest == by_table.input_digest
