"""Names that would act where they are shown: in a terminal, a page, a plot, a spreadsheet."""

import csv
import io

import pandas as pd
from hypothesis import HealthCheck, given, settings, strategies as st

import ppw
from measurements.table.reading import unguard_text
from measurements.table.writing import csv_text, guard_text
from ppw.results.text import plot_label, printable, printable_lines, shown_name

SIGNS = "=+-@\t\r\n＝＋－＠"

hostile_texts = st.text(
    st.one_of(
        st.sampled_from("\x1b\x07\r\n\t\x85\x9b\u2028\u202e\u2066\ufeff<>&\"'`$\\_=+-@;,|"),
        st.characters(exclude_categories=("Cs",), exclude_characters="\0"),
    ),
    min_size=1,
    max_size=60,
)


def acting(text):
    """List the characters of a text that do more than print, line ends apart."""
    return {c for c in set(text) if not c.isprintable() and c != "\n"}


class TestWriting:
    @given(st.text())
    def test_what_is_written_prints_and_is_spelt_as_python_spells_it(self, text):
        assert printable(text).isprintable()
        assert printable_lines(text).count("\n") == text.count("\n")
        assert shown_name(text).isprintable()
        assert len(shown_name(text)) <= 48
        alike = text.replace("\\", "").replace("'", "")
        assert printable(alike) == repr(alike)[1:-1]

    @given(st.text(st.characters(exclude_categories=("C", "Z")), max_size=48))
    def test_what_prints_is_written_as_it_is(self, text):
        assert printable(text) == shown_name(text) == text

    def test_of_a_long_name_both_ends_stay(self):
        name = shown_name("rack" + "0" * 500 + "17")
        assert name.startswith("rack")
        assert name.endswith("17")
        assert "…" in name

    def test_labels_of_plots_have_no_mathematics_and_are_not_hidden(self):
        assert plot_label("$\\bad$") == r"\$\bad\$"
        assert plot_label("_one") == " _one"


class TestSpreadsheets:
    @given(st.text() | hostile_texts)
    def test_a_text_comes_back_and_is_no_formula(self, text):
        written = guard_text(text)
        assert unguard_text(written) == text
        if written and written[0] in SIGNS:
            float(written)

    @given(st.floats(allow_nan=False, allow_infinity=False) | st.integers())
    def test_numbers_stay_numbers(self, number):
        assert guard_text(repr(number)) == repr(number)

    @given(st.lists(hostile_texts, min_size=1, max_size=8))
    def test_tables_come_back_by_two_readers(self, names):
        frame = pd.DataFrame({"name": names, "=1+1": range(len(names))})
        text = csv_text(frame)
        rows = list(csv.reader(io.StringIO(text, newline="")))
        assert [unguard_text(cell) for cell in rows[0]] == ["name", "=1+1"]
        assert [unguard_text(row[0]) for row in rows[1:]] == names
        table = pd.read_csv(io.StringIO(text, newline=""), keep_default_na=False, dtype={0: str})
        assert [unguard_text(name) for name in table["name"].astype(str)] == names
        assert table["'=1+1"].tolist() == list(range(len(names)))

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(names=st.lists(hostile_texts, min_size=1, max_size=8))
    def test_runs_tables_come_back_from_files(self, names, tmp_path):
        runs = pd.DataFrame({"workload": names, "time_s": 1.5, "freq_hz": 1e9, "mine": names})
        path = tmp_path / "runs.csv"
        ppw.write_runs(runs, path)
        again = ppw.read_runs(path)
        assert again["workload"].tolist() == names
        assert again["time_s"].eq(1.5).all()
