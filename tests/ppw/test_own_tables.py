"""Tables as users keep them: titles, holes, their own headers, Excel."""

import csv
import io

import openpyxl
import pytest
from processes import ppw_inside

import ppw
from measurements.table.headers import map_to_paste, rename_headers

HEADERS = {
    "en": [
        "Machine",
        "Program",
        "Clock (GHz)",
        "# cores",
        "Runtime (min)",
        "Wall power (W)",
        "Notes",
    ],
    "de": ["Rechner", "Programm", "Takt (GHz)", "Kerne", "Laufzeit [s]", "Leistung (W)", "Notiz"],
    "fr": ["Serveur", "Programme", "Fréquence (GHz)", "vCPU", "Durée (s)", "Puissance (W)", "Note"],
}


def rows(language):
    """108 runs: 4 hosts × 9 workloads × 3 frequencies, three holes, and a blank last row."""
    found = [
        [f"h{h}", f"w{w}", f, 8, (30 + 10 * w) * (0.3 + 1.7 / f) / (1 + 0.2 * h), 50 + 20 * f, None]
        for h in range(4) for w in range(9) for f in (1.2, 1.8, 2.4)
    ]  # fmt: skip
    for row in found if language == "en" else ():
        row[4] /= 60
    found[5][5], found[17][5], found[40][4], found[41][6] = None, "-", None, "again"
    return [HEADERS[language], *found, [None] * 7]


def as_csv(language):
    text = io.StringIO()
    writer = csv.writer(text, delimiter="," if language == "en" else ";")
    cells = ([c if language == "en" or not isinstance(c, float) else str(c).replace(".", ",")
              for c in row] for row in rows(language))  # fmt: skip
    writer.writerows([["Lab, March"] if language == "en" else ["Labor 3"], [], *cells])
    return text.getvalue().encode()


def as_workbook(language):
    book, content = openpyxl.Workbook(), io.BytesIO()
    for row in [["Lab 3"], [], *rows(language)]:
        book.active.append(row)
    book.save(content)
    return content.getvalue()


@pytest.mark.parametrize("language", HEADERS)
@pytest.mark.parametrize("make", [as_csv, as_workbook])
def test_the_first_question_to_a_table_with_holes_is_answered_with_power(tmp_path, language, make):
    (tmp_path / "mine").write_bytes(make(language))
    done = ppw_inside("project", "mine", "--freq", "3GHz", "--format", "csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(",power,") == 36
    said = done.stderr.splitlines()[0]
    ignored = f"ignored {HEADERS[language][6]}"
    for part in ('power_w←"', "host←", ignored, "3 of 108 runs incomplete"):
        assert part in said
    assert "2 runs without power_w: left out of what needs it" in done.stderr
    checked = ppw_inside("check", "mine", cwd=tmp_path)
    # Title, blank line and header stand above.
    assert "  44  h1    w4" in checked.stdout


@pytest.mark.cases(
    "headers, column, taken",
    (["pkg_watts"], "power_w", "pkg_watts"),
    (["Wall power (W)", "Notes"], "power_w", "Wall power (W)"),
    (["Idle power (W)", "PSU (W)"], "power_w", "PSU (W)"),
    (["CPU time (s)", "Batch [min]"], "time_s", "Batch [min]"),
    (["Wall power (W)", "CPU power (W)"], "power_w", None),
    (["power_min", "cpu_s", "p99 (ms)", "memory (MHz)"], "time_s", None),
)
def test_a_header_with_a_unit_is_taken_where_it_is_the_only_one(headers, column, taken):
    found = {r.canonical: h for h, r in rename_headers(headers, {}, "t").items()}
    assert found.get(column) == taken


def test_of_two_headers_with_the_unit_the_choice_is_offered_to_paste(tmp_path):
    headers = ["Wall power (W)", "CPU power (W)"]
    pasted = "--map power_w='Wall power (W)'"
    assert map_to_paste("power_w", headers).startswith(pasted)
    (tmp_path / "t.csv").write_text(f"host,freq_ghz,{','.join(headers)}\na,1,5,4\na,2,9,8\n")
    done = ppw_inside("fit", "t.csv", "--metric", "power", cwd=tmp_path)
    assert pasted in done.stderr.splitlines()[0]
    assert pasted in done.stderr.splitlines()[1]


def test_lines_are_those_of_the_file_whatever_stands_between(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('# lab\n\nhost,freq_ghz,time_s,note\na,1,5,"x\ny"\n\n,,,\na,2,-3,\n')
    with pytest.raises(ppw.PpwError, match=r"line 8, column time_s: -3 must"):
        ppw.read_runs(path)


def test_numbers_with_french_and_german_thousands_are_read(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("host;freq_ghz;time_s\na;1,2;1 234,5\na;1,8;1.034,5\na;2,4;902,25\n")
    assert ppw.read_runs(path)["time_s"].tolist() == [1234.5, 1034.5, 902.25]


def test_a_column_a_workload_is_read_by_the_option_that_the_line_offers(tmp_path):
    header = "Rechner;Takt (GHz);sort;word count;Notiz"
    text = f"Labor 3\n\n{header}\na;1,2;100,5;20,2;x\na;2,4;55;-;\n;;;;\n"
    (tmp_path / "t.csv").write_text(text)
    refused = ppw_inside("check", "t.csv", cwd=tmp_path)
    assert refused.returncode == 1
    option = "--map time_s='sort+word count'"
    assert option in refused.stderr.splitlines()[0]
    runs = ppw.read_runs(tmp_path / "t.csv", columns={"time_s": "sort+word count"})
    assert runs["workload"].tolist() == ["sort", "word count"] * 2
    assert runs["freq_hz"].tolist() == [1.2e9, 1.2e9, 2.4e9, 2.4e9]
    assert runs["time_s"].dropna().tolist() == [100.5, 20.2, 55]
    assert runs["source_row"].tolist() == [1, 1, 2, 2]
    assert "1 of 4 runs incomplete" in runs.attrs["read"][0]


def test_times_and_powers_of_one_workload_become_one_run(tmp_path):
    headers = ["sort time (ms)", "grep time (s)", "sort power (W)", "grep power (W)"]
    (tmp_path / "t.csv").write_text(f"host,freq_ghz,{','.join(headers)}\na,1.2,9000,4,50,51\n")
    wide = {"time_s": "+".join(headers[:2]), "power_w": "+".join(headers[2:])}
    runs = ppw.read_runs(tmp_path / "t.csv", columns=wide)
    rows = runs[["workload", "time_s", "power_w"]].to_numpy().tolist()
    assert rows == [["sort", 9, 50], ["grep", 4, 51]]
    for power in ("sort power (W)+sort time (ms)", "grep power (W)+cat"):
        with pytest.raises(ppw.PpwError, match="--map"):
            ppw.read_runs(tmp_path / "t.csv", columns=wide | {"power_w": power})
    with pytest.raises(ppw.PpwError, match="does not name each workload once in time_s and power"):
        ppw.read_runs(tmp_path / "t.csv", columns=wide | {"power_w": "sort power (W)+freq_ghz"})


def test_a_run_without_frequency_is_left_out_and_counted(tmp_path):
    text = "host,freq_ghz,time_s\na,1.2,9\na,n/a,8\na,2.4,5\na,1.8,7\n"
    (tmp_path / "t.csv").write_text(text)
    done = ppw_inside("project", "t.csv", "--freq", "3GHz", cwd=tmp_path)
    assert "1 run without freq_hz: left out of the answer" in done.stdout
    assert "unusable_value  freq_hz: missing" in ppw_inside("check", "t.csv", cwd=tmp_path).stdout
    (tmp_path / "none.csv").write_text("host,freq_ghz,time_s\na,,9\na,,8\n")
    assert "missing" in ppw_inside("project", "none.csv", "--freq", "3GHz", cwd=tmp_path).stderr


def test_a_damaged_workbook_is_refused_in_a_line(tmp_path):
    (tmp_path / "t.xlsx").write_bytes(as_workbook("en")[:3000])
    with pytest.raises(ppw.PpwError, match="broken Excel workbook"):
        ppw.read_runs(tmp_path / "t.xlsx")
