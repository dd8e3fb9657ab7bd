"""What the package shows: names, lazy imports, and what every result and its page can do."""

import csv
import io
import json
import re
import subprocess
import sys

import pandas as pd
import pytest
from conftest import HOSTILE, PLAIN
from hypothesis import HealthCheck, assume, given, settings
from made_results import PAGES
from made_up import few_examples
from matplotlib.figure import Figure
from parsed_pages import Parsed
from processes import ROOT
from test_hostile_names import SIGNS, acting, hostile_texts

import fitting
import measurements
import ppw
from measurements.table.reading import unguard_text
from measurements.table.writing import csv_text, guard_text
from ppw import fleet

HEAVY = ["pandas", "sklearn", "matplotlib", "scipy", "statsmodels", "jinja2", "click"]
HEAVY += ["numba", "pyarrow"]
KINDS = [name for name in ppw.__all__ if hasattr(getattr(ppw, name), "from_json")]


def every(kinds):
    """Parametrize a test by kinds of results; a replay is made by fio."""
    marks = {"TraceReplay": pytest.mark.peer("fio")}
    return pytest.mark.parametrize("kind", [pytest.param(k, marks=marks.get(k, ())) for k in kinds])


@pytest.mark.parametrize("package", [ppw, measurements, fitting], ids=lambda p: p.__name__)
def test_every_name_of_a_package_is_there_and_sorted(package):
    assert package.__all__ == sorted(set(package.__all__))
    for name in package.__all__:
        if name != "__version__":
            assert getattr(package, name).__name__ == name
    with pytest.raises(AttributeError, match=r"attribute '?nothing"):
        package.nothing  # noqa: B018


def test_a_name_brings_only_what_it_needs_and_the_package_itself_nothing_heavy():
    answers = [name for name in ppw.__all__ if name.islower() and "catalogue" not in name]
    assert {"best", "check", "compare", "plan", "project", "validate"} <= set(answers)
    stages = ["import ppw, measurements, fitting", "ppw.PpwError, ppw.CaveatWarning, ppw.Estimate"]
    stages += ["ppw.project_points, ppw.project", ", ".join(f"ppw.{name}" for name in answers)]
    told = f"print(*(m for m in {HEAVY!r} if m in sys.modules))"
    script = "\n".join(["import sys", *(f"{stage}\n{told}" for stage in stages)])
    words = [sys.executable, "-W", "error", "-c", script]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=ROOT)
    package, errors, projections, everything = done.stdout.split("\n")[:-1]
    assert package == ""
    assert "pandas" not in errors
    assert "sklearn" not in projections
    assert "matplotlib" not in everything


def test_every_result_but_of_points_has_a_page():
    assert len(KINDS) > 30
    assert sorted([*PAGES, "Projection"]) == KINDS


@every([*KINDS, "FleetAnswer"])
class TestEveryResult:
    """About names that would act where they are shown, beside the same about plain ones."""

    def test_is_frozen_and_comes_back_from_json(self, kind, results, documents):
        result, one = results(kind, HOSTILE), getattr(fleet if kind == "FleetAnswer" else ppw, kind)
        assert type(result) is one
        with pytest.raises(AttributeError):
            result.caveats = ()
        document = json.loads(text := documents(kind, HOSTILE))
        assert document["schema_version"] == (4 if kind == "TraceModel" else 1)
        assert document["ppw_version"]
        assert document["input_digest"].startswith("sha256:")
        again = one.from_json(text)
        assert (again.to_json(), again.summary()) == (text, result.summary())
        assert list(again.to_frame().columns) == list(result.to_frame().columns)

    def test_draws_on_axes_of_its_own_or_given(self, kind, results):
        own = results(kind).plot()
        axes = Figure().add_subplot()
        assert results(kind).plot(axes) is axes
        assert axes is not own
        for drawn in (own, axes):
            assert drawn.has_data()
            assert drawn.get_ylabel()

    def test_says_nothing_that_acts(self, kind, results, documents):
        plain, hostile = results(kind), results(kind, HOSTILE)
        assert acting(hostile.summary()) == set()
        # A line end in a name makes no line.
        assert len(hostile.summary().splitlines()) == len(plain.summary().splitlines()) > 3
        assert acting(documents(kind, HOSTILE)) == set()

    def test_keeps_the_names_in_json_and_csv(self, kind, results, documents):
        document = json.dumps(json.loads(documents(kind, HOSTILE)))
        for name, other in zip(HOSTILE, PLAIN, strict=True):
            if f'"{other}"' in documents(kind):
                assert json.dumps(name) in document
        frame = results(kind, HOSTILE).to_frame().reset_index(drop=True)
        rows = list(csv.DictReader(io.StringIO(csv_text(frame), newline="")))
        assert len(rows) == len(frame) > 0
        for column in (c for c in frame if frame[c].dtype.kind not in "iufb"):
            written = [row[guard_text(column)] for row in rows]
            cells = ["" if pd.isna(cell) else str(cell) for cell in frame[column]]
            assert [unguard_text(cell) for cell in written] == cells
            for cell in written:
                assert cell[:1] not in SIGNS or not cell or float(cell) is not None


@every(KINDS)
@settings(few_examples, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(one=hostile_texts, two=hostile_texts)
def test_documents_of_others_say_nothing_that_acts(kind, documents, one, two):
    assume(one != two)
    text = documents(kind)
    for old, new in zip(PLAIN, (one, two), strict=True):
        text = text.replace(old, json.dumps(new)[1:-1])
    again = getattr(ppw, kind).from_json(text)
    assert acting(again.summary()) == set()
    assert acting(again.to_json()) == set()


def elements(tags):
    """The kinds of elements of a page, each with the names of its attributes."""
    return {(tag, name) for tag, attributes in tags for name in (None, *attributes)}


@every(PAGES)
class TestEveryPage:
    def test_no_name_breaks_out_and_no_request_leaves_it(self, kind, pages):
        _, text = pages(kind, HOSTILE)
        parsed = Parsed(text)
        assert elements(parsed.tags) <= elements(Parsed(pages(kind)[1]).tags)
        # Of the scripts that act, the first is Vega's own and the last is that of ppw.
        *_, own = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
        text = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL) + own
        assert acting(text) == set()
        # A browser leaves a script whose text opens "<!--<script" only at a second end.
        assert not [name for name, said in parsed.scripts.items() if name and "<" in said]
        for tag, attributes in parsed.tags:
            assert tag not in ("link", "iframe", "img", "object", "embed", "base", "form")
            assert not {"src", "srcset", "action", "data", "poster"} & set(attributes)
            for name in ("href", "xlink:href"):
                assert attributes.get(name, "#").startswith(("#", "data:image/png;base64,"))
            assert not [name for name in attributes if name.startswith("on")]
        assert "@import" not in "".join(parsed.styles)
        assert re.findall(r"url\(\s*['\"]?(?!#)[^)]*\)", text) == []

    def test_it_holds_the_json_and_its_verdict_stands_before_the_evidence(self, kind, pages):
        for page, text in (pages(kind, HOSTILE), pages(kind)):
            parsed = Parsed(text)
            first, *_ = [attributes for tag, attributes in parsed.tags if tag == "script"]
            assert first == {"type": "application/json", "id": "ppw-result"}
            assert json.loads(parsed.scripts["ppw-result"]) == json.loads(page.document)
        assert text.index('class="verdict"') < text.index("<table>")
        words = " ".join(parsed.words)
        assert [said for said in (*page.verdict, *page.caveats) if said not in words] == []
        assert page.title
        assert page.digest in text
        for table in page.tables:
            assert {len(row) for row in table.rows} <= {len(table.header)}
