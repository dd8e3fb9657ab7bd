"""The command line of cycles per I/O word by word, and its pages as a browser lays them out.

The golden texts are in ``golden/``; write them anew by PPW_WRITE_GOLDEN=1, and read the difference.
"""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner
from cpio_studies import run, study
from made_up import answered
from timeseries_logs import CPU_HEADER, plot_log, written

from ppw.cli.cpio import command as cpio
from ppw.cli.numbers import Share
from ppw.cli.quantities import ByteRate, Bytes, Seconds
from ppw.cli.size import command as size
from ppw.cpio.comparison import compare_devices
from ppw.cpio.cycles import cycles_per_io
from ppw.cpio.projection import project_cpio
from ppw.cpio.sizing import size_servers
from ppw.errors import PpwError
from ppw.report.cpio_page import cpio_page, cpio_projection_page, devices_page, sizing_page

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).with_name("golden")
SIZE = ["--data", "20PB", "--time", "30d", "--cores", "16", "--server-power", "400W"]
COMMANDS = {
    "cpio": (cpio, ["runs.csv"]),
    "cpio-project": (cpio, ["project", "runs.csv", "--cores", "16", "--growth", "70%,0.9"]),
    "cpio-compare": (cpio, ["compare", "runs.csv", "--roof", "fio.csv"]),
    "size": (
        size,
        ["runs.csv", *SIZE, "--idle-share", "60%", "--pue", "1.3", "--electricity", "0.2"],
    ),
    "size-typed": (size, [*SIZE, "--cpio", "12047", "--utilisation", "47%", "--freq", "2GHz"]),
}
OPTIONS = {"cpio-project": ["--years", "5"], "size": ["--other-power", "200W"]}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder with runs, and those of fio; rounded, so as not to hang on a last bit."""
    monkeypatch.chdir(tmp_path)
    runs = study(noise=0.02).assign(host="rack1", device="nvme0n1")
    runs.round(3).to_csv("runs.csv", index=False)
    roof = {"host": ["rack1"], "device": ["nvme0n1"], "bandwidth_bytes_s": [800e6]}
    pd.DataFrame(roof).to_csv("fio.csv", index=False)
    return tmp_path


def asked(command, *arguments):
    done = CliRunner().invoke(command, [*map(str, arguments)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


class TestCommandLine:
    @pytest.mark.parametrize("name", COMMANDS)
    def test_golden(self, name, folder):
        command, arguments = COMMANDS[name]
        arguments = [*arguments, *OPTIONS.get(name, [])]
        done = asked(command, *arguments)
        assert (done.exit_code, done.stderr) == (0, "")
        text = f"$ ppw {command.name} {' '.join(arguments)}\n{done.stdout}"
        golden = GOLDEN / f"{name}.txt"
        if "PPW_WRITE_GOLDEN" in os.environ:
            golden.write_text(text, encoding="utf-8")
        assert text == golden.read_text(encoding="utf-8")

    @pytest.mark.parametrize("name", ["cpio", "cpio-project", "cpio-compare", "size"])
    @pytest.mark.parametrize("format_", ["json", "csv", "html"])
    def test_formats(self, name, format_, folder):
        command, arguments = COMMANDS[name]
        done = asked(command, *arguments, "--format", format_)
        assert done.exit_code == 0
        start = {"json": "{", "csv": "host,workload,device,", "html": "<!DOCTYPE html>"}
        assert done.stdout.startswith(start[format_])

    def test_options_may_stand_before_the_runs(self, folder):
        first = asked(cpio, "--level", "0.5", "runs.csv")
        assert first.stdout == asked(cpio, "runs.csv", "--level", "0.5").stdout
        assert "50% interval" in first.stdout

    def test_help_lists_what_is_typed(self):
        text = asked(cpio, "--help").stdout
        assert "project" in text
        assert "compare" in text
        assert "[project|compare] RUNS..." in text
        assert "device_kind" in asked(cpio, "study", "--help").stdout

    @pytest.mark.parametrize(
        ("command", "arguments", "said"),
        [
            (cpio, ["runs.csv", "--window", "5min"], "--window and --cpus are for --logs"),
            (cpio, ["runs.csv", "--logs"], "logs tell no clock: give --clock"),
            (cpio, ["project", "runs.csv"], "Missing option '--cores'"),
            (cpio, ["project", "runs.csv", "--cores", "8", "--growth", "much"], "is not a share"),
            (size, ["runs.csv", "--data", "3XB"], "is not a quantity in B"),
            (size, ["runs.csv", "--data", "0TB"], "must be more than 0"),
            (size, ["runs.csv", "--idle-share", "half"], "is not a share such as 0.7 or 70%"),
            (size, ["--utilisation", "50"], "'50' is more than the whole: write 50% or 0.5"),
            (size, ["--utilisation", "0"], "Invalid value for '--utilisation'"),
            (size, ["--idle-share", "50"], "'50' is more than the whole: write 50% or 0.5"),
        ],
    )
    def test_wrong_usage(self, command, arguments, said, folder):
        done = asked(command, *arguments)
        assert (done.exit_code, done.stdout) == (2, "")
        assert said in done.stderr

    @pytest.mark.parametrize(
        ("kind", "text", "value"),
        [
            (Bytes(), "35ZB", 35e21),
            (Bytes(), "1.5 TiB", 1.5 * 2**40),
            (Bytes(), "20GB", 20e9),
            (Seconds(), "1y", 365 * 86400.0),
            (Seconds(), "30d", 30 * 86400.0),
            (Seconds(), "8h", 8 * 3600.0),
            (ByteRate(), "500MB/s", 5e8),
            (Share(), "70%", 0.7),
        ],
    )
    def test_large_amounts(self, kind, text, value):
        assert kind.convert(text, None, None) == pytest.approx(value)

    @pytest.mark.parametrize("said", [["--logs"], []], ids=["said", "seen"])
    def test_a_log_is_read_by_windows(self, folder, said):
        """A series of ppw's own: 1.6 s busy of 4 at 2 GHz, and 2000 sectors, in each window."""
        lines = ["time_s,interval_s,host,cpus,user_s,system_s,idle_s,sectors_read,sectors_written"]
        lines += [f"{1_000_000_001 + i},1,node,2,0.5,0.3,1.2,1000,0" for i in range(8)]
        (folder / "log.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        options = [*said, "--clock", "2GHz", "--window", "2s", "--format", "json"]
        done = asked(cpio, "log.csv", *options)
        assert done.exit_code == 0
        (point,) = json.loads(done.stdout)["points"]
        assert (point["host"], point["cores"], point["runs"]) == ("node", 2, 4)
        assert point["cpio"] == pytest.approx(1.6 * 2e9 / 2000)
        with pytest.raises(PpwError, match="is a log of a host, no runs table"):
            asked(size, "log.csv", *SIZE)

    @pytest.mark.parametrize(
        ("command", "before", "after"),
        [
            (cpio, ["project"], ["--cores", "8"]),
            (cpio, ["compare"], []),
            (size, [], SIZE),
        ],
    )
    def test_a_log_becomes_a_table_as_it_is_said(self, folder, command, before, after):
        header = f"{CPU_HEADER} [DSK]ReadKBTot [DSK]WriteKBTot"
        rows = [(f"15:06:4{n}", "50 0 0 0 0 0 0 50 1000 0") for n in range(3)]
        written(folder / "db7.tab", plot_log(rows, header))
        with pytest.raises(PpwError, match="is a log of a host, no runs table") as refused:
            asked(command, *before, "db7.tab", *after)
        said = re.search(
            r"make one by ppw cpio (db7\.tab .* (\S+)), with its clock", str(refused.value)
        )
        assert asked(cpio, *said[1].split()).exit_code == 0
        made = said[2]
        assert asked(command, *before, made, *after).exit_code == 0
        told = json.loads(asked(cpio, made, "--format", "json").stdout)["points"][0]
        # 2 of 4 CPUs at the clock of the sentence, and 2000 sectors a second.
        assert (told["cpio"], told["iops"]) == pytest.approx((2 * 2.4e9 / 2000, 2000))

    def test_cpus_are_for_a_log_that_does_not_say(self, folder):
        header = f"{CPU_HEADER} [DSK]ReadKBTot [DSK]WriteKBTot"
        rows = [(f"15:06:4{n}", "50 0 0 0 0 0 0 50 1000 0") for n in range(3)]
        written(folder / "says.tab", plot_log(rows, header))
        written(folder / "silent.tab", plot_log(rows, header, comments=""))
        options = ["--clock", "2GHz", "--format", "json"]
        done = asked(cpio, "says.tab", *options, "--cpus", "8")
        assert (done.exit_code, done.stdout) == (2, "")
        assert "says.tab: says 4 CPUs, and --cpus 8" in done.stderr
        logs = ["says.tab"], ["says.tab", "--cpus", "4"], ["silent.tab", "--cpus", "4"]
        for log in logs:
            (point,) = json.loads(asked(cpio, *log, *options).stdout)["points"]
            # 2 of 4 CPUs at 2 GHz, and 2000 sectors a second.
            assert point["cpio"] == pytest.approx(2 * 2e9 / 2000)

    @pytest.mark.thirdparty
    def test_a_log_of_another_program_is_known_by_itself(self, data_dir):
        log = str(data_dir / "collectl" / "raw" / "demo_1123.tab.gz")
        named = asked(cpio, log, "--logs", "--clock", "2.6GHz")
        assert named.exit_code == 0
        assert asked(cpio, log, "--clock", "2.6GHz").stdout == named.stdout
        assert "give --clock, such as --clock 2.4GHz" in asked(cpio, log).stderr


HOSTILE = ["</script><b>", "<!--<script>", '"><img src=x onerror=alert(1)>', "a&amp;b", "$\\bad$"]


def made(runs):
    fio = pd.DataFrame({"bandwidth_bytes_s": [900e6]})
    size = {
        "data_bytes": 2e16,
        "time_s": 3e6,
        "cores": 16,
        "server_power_w": 400.0,
        "idle_share": 0.6,
    }
    return {
        "study": (answered(cycles_per_io, runs), cpio_page),
        "project": (
            answered(project_cpio, runs, cores=16, growth=[0.7], years=5),
            cpio_projection_page,
        ),
        "compare": (answered(compare_devices, runs, roof=fio), devices_page),
        "size": (answered(size_servers, runs, **size), sizing_page),
    }


@pytest.fixture(scope="module")
def results():
    return made(study(noise=0.03).assign(host="rack1", device="nvme0n1"))


@pytest.mark.parametrize("name", ["study", "project", "compare", "size"])
class TestPage:
    def test_its_json_is_the_results(self, name, results):
        result, page = results[name]
        text = page(result).render()
        (inside,) = re.findall(r'id="ppw-result">(.*?)</script>', text, re.DOTALL)
        assert json.loads(inside) == json.loads(result.to_json())

    def test_verdict_first_and_tables_full(self, name, results):
        result, page = results[name]
        built = page(result)
        assert list(built.verdict) == result.verdict()
        text = built.render()
        assert text.index('class="verdict"') < text.index("<svg") < text.index("<table>")
        for table in built.tables:
            assert table.rows
            assert {len(row) for row in table.rows} == {len(table.header)}

    def test_the_same_input_gives_the_same_bytes(self, name, results):
        result, page = results[name]
        assert page(result).render() == page(result).render()


def test_the_papers_figures_are_on_the_page(results):
    result, page = results["study"]
    assert len(page(result).figures) == 4
    result, page = results["project"]
    assert [t.title for t in page(result).tables] == ["Scenarios", "Laws", "Growth of the market"]
    result, page = results["size"]
    assert page(result).tables[0].title == "Energy"


def test_no_workload_name_breaks_out():
    rows = [run(1e4 * n, cores=n, workload=name, device="x") for name in HOSTILE for n in (1, 2, 4)]
    for result, page in made(pd.DataFrame(rows)).values():
        text = page(result).render()
        assert text.count("<script") == 1
        assert "<b>" not in text
        assert "<img" not in text


def test_bars_of_cpio_stand_on_a_decade(results):
    from matplotlib.figure import Figure

    from ppw.report.cpio_figures import plot_breakdown, plot_cpio_by_application

    result = results["study"][0]
    axes = plot_cpio_by_application(result, Figure().add_subplot())
    assert axes.get_xscale() == "log"
    assert axes.get_xlim()[0] == pytest.approx(1e4)
    bars = plot_breakdown(result, Figure().add_subplot()).patches
    ends = {}
    for bar in bars:
        ends[bar.get_y()] = ends.get(bar.get_y(), 0.0) + bar.get_width()
    assert list(ends.values()) == pytest.approx([100.0, 100.0])


MEASURE = """
<script>
addEventListener('load', () => {
  const found = [...document.querySelectorAll('iframe')].map(f => {
    const page = f.contentDocument, wide = e => Math.ceil(e.getBoundingClientRect().width);
    const texts = [...page.querySelectorAll('svg text')];
    const outside = texts.filter(e => {
      const r = e.getBoundingClientRect(), s = e.closest('svg').getBoundingClientRect();
      return r.left < s.left - 1 || r.right > s.right + 1;
    });
    return [f.id, {page: page.documentElement.scrollWidth,
      svgs: [...page.querySelectorAll('svg')].map(wide), outside: outside.map(e => e.textContent),
      smallest: Math.min(...texts.map(e => e.getBoundingClientRect().height))}];
  });
  document.querySelector('pre').textContent = JSON.stringify(Object.fromEntries(found));
});
</script><pre></pre>
"""


def laid_out(pages, folder):
    """Lay pages out at 1280 and 400 pixels in one browser; what it makes of them."""
    frames = "".join(
        f'<iframe id="{name} {w}" style="width:{w}px;height:600px;border:0" '
        f'srcdoc="{html.escape(text)}"></iframe>'
        for name, text in pages.items()
        for w in (1280, 400)
    )
    source = folder / "wrapper.html"
    source.write_text(f'<meta charset="utf-8">{MEASURE}{frames}', encoding="utf-8")
    done = subprocess.run(
        [
            *("chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"),
            *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
            *(f"--user-data-dir={folder / 'profile'}", "--window-size=1400,900"),
            *("--hide-scrollbars", "--dump-dom", source.as_uri()),
        ],
        check=True,
        capture_output=True,
        timeout=120,
    )
    (found,) = re.findall(r"<pre>(.*?)</pre>", done.stdout.decode(), re.DOTALL)
    return json.loads(html.unescape(found))


def test_pages_read_at_1280_and_400_pixels(results, tmp_path):
    pages = {name: page(result).render() for name, (result, page) in results.items()}
    found = laid_out(pages, tmp_path)
    assert len(found) == 8
    for name, page in found.items():
        width = int(name.split()[1])
        assert page["page"] <= width
        assert max(page["svgs"]) <= width
        assert page["outside"] == []
        assert page["smallest"] >= 7


def test_a_wrong_file_is_one_line(tmp_path):
    (tmp_path / "runs.csv").write_text("time_s,user_s\n1,2\n", encoding="utf-8")
    code = (
        "import ppw.cli.commands as c, ppw.cli, sys\n"
        "c.COMMANDS = (*c.COMMANDS, 'cpio')\nsys.argv = ['ppw', 'cpio', 'runs.csv']\n"
        "ppw.cli.console()\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("ppw: error: runs.csv: no column system_s")
    assert done.stderr.count("\n") == 1
