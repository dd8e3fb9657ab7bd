"""Results of SPECpower_ssj2008 with made-up numbers: text report, HTML page, and table of many."""

import csv
import io
from pathlib import Path

DATA = Path(__file__).parent / "data/specpower"

# A made-up server: 1000 ssj_ops a percent of load, 50 W idle and 1.5 W a percent.
TARGETS = range(100, 0, -10)
OPS = {t: 1000 * t for t in TARGETS}
WATTS = {t: 50 + 1.5 * t for t in TARGETS} | {0: 50}
# Σ ssj_ops = 550,000 and Σ W = 11·50 + 1.5·550 = 1375: exactly 400.
SCORE = 400


def text_report(watts=WATTS, score=str(SCORE), extra=""):
    rows = "\n".join(
        f"  {t}% | {t - 0.4 * (t == 100):.1f}% | {OPS[t]:,} | {watts[t]:,} "
        f"| {OPS[t] / watts[t]:,.0f}"
        for t in TARGETS
        if t in watts
    )
    known = {"score": score, "extra": extra, "rows": rows, "idle": watts.get(0, "")}
    return (DATA / "report.txt").read_text(encoding="utf-8").format(**known)


def html_page(watts=WATTS, score=str(SCORE)):
    rows = "".join(
        f"<tr><td>{t}%</td><td>{t}.1%</td><td>{OPS[t]:,}</td><td>{watts[t]:,}</td>"
        f"<td>{OPS[t] / watts[t]:,.0f}</td></tr>\n"
        for t in TARGETS
    )
    known = {"score": score, "rows": rows, "idle": watts[0]}
    return (DATA / "page.html").read_text(encoding="utf-8").format(**known)


def dump(rows=1, score=str(SCORE), watts=WATTS):
    """The table that the site's search of results gives, with its uneven headers."""
    header = ["Benchmark", "Hardware Vendor\t", "System", "Nodes\t", "Result"]
    header += [f"ssj_ops @ {t}% of target load\t" for t in TARGETS]
    header += [f"Average watts{' @ ' if t > 10 else '@'}{t}% of target load\t" for t in TARGETS]
    header += ["Average watts @ active idle\t", "# Cores", "# Chips ", "Memory (GB)"]
    header += ["Processor ", "HW Avail", "Published"]
    cells = ["power_ssj2008", "Made-up", "Pebble 100", "4", score]
    cells += [f"{OPS[t]:.2E}" if t > 50 else str(OPS[t]) for t in TARGETS]
    cells += [str(watts.get(t, "")) for t in (*TARGETS, 0)]
    cells += ["32", "8", "1,024", "Granite", "Jan-2018", "Mar-2018"]
    out = io.StringIO()
    csv.writer(out).writerows([header, *[cells] * rows])
    return out.getvalue()
