"""Results of SPECpower_ssj2008 with made-up numbers: text report, HTML page, and table of many."""

import csv
import io

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
    return f"""SPECpower_ssj2008
Made-up Systems, Inc. Pebble 100      SPECpower_ssj2008 = {score} overall ssj_ops/watt

Test Sponsor:  Made-up Systems, Inc.     SPEC License #:  0      Test Method:  Single Node
Tested By:  Made-up Systems              Test Location:  Durham, NC, USA
Test Date:  Feb 3, 2019                  Publication:  Mar 6, 2019
{extra}
Benchmark Results Summary
=========================
 Performance | Power | Performance to Power Ratio
 Target Load | Actual Load | ssj_ops | Average Active Power (W) |
{rows}
    Active Idle | | 0 | {watts.get(0, "")} | 0
    sum of ssj_ops / sum of power = | {score}

Aggregate SUT Data
==================
 # of Nodes | # of Chips | # of Cores | # of Threads | Total RAM (GB) | # of OS Images
 1 | 2 | 56 | 112 | 1,024 | 1

System Under Test
=================
 Hardware Vendor:               Made-up Systems, Inc.
 Model:                         Pebble 100
 CPU Name:                      Granite 9000
"""


def html_page(watts=WATTS, score=str(SCORE)):
    rows = "".join(
        f"<tr><td>{t}%</td><td>{t}.1%</td><td>{OPS[t]:,}</td><td>{watts[t]:,}</td>"
        f"<td>{OPS[t] / watts[t]:,.0f}</td></tr>\n"
        for t in TARGETS
    )
    return f"""<!DOCTYPE html><html><head><title>Made-up</title>
<script>var x = "<td>9999</td> non-compliant";</script></head><body>
<table class="resultHeader"><tbody>
<tr><td>Made-up Systems Pebble&nbsp;100</td>
<td>SPECpower_ssj2008 = {score} overall ssj_ops/watt</td></tr>
<tr><td><a href="#s">Test Sponsor:</a></td><td>Made-up Systems</td>
<td><a href="#l">Test Location:</a></td><td>Durham, NC, USA</td></tr>
<tr><td>Test Date:</td><td>Feb 3, 2009</td><td>Publication:</td><td>Mar 6, 2009</td></tr>
</tbody></table>
<div id="resultsSummary" class="resultsTable"><table><thead>
<tr><th colspan="3">Performance</th><th rowspan="2">Average Active Power (W)</th>
<th rowspan="2">Performance to Power Ratio</th></tr>
<tr><th>Target Load</th><th>Actual Load</th><th>ssj_ops</th></tr></thead><tbody>
{rows}<tr><td colspan="2">Active Idle</td><td>0</td><td>{watts[0]}</td><td>0</td></tr>
<tr><td colspan="4">&#8721;ssj_ops / &#8721;power =</td><td>{score}</td></tr>
</tbody></table></div>
<h3>System Under Test</h3><table>
<tr><td>Hardware Vendor:</td><td>Made-up Systems</td></tr>
<tr><td>Model:</td><td>Pebble 100</td></tr>
<tr><td>CPU Name:</td><td>Granite 1000</td></tr>
<tr><td>CPU(s) Enabled:</td><td>8 cores, 2 chips, 4 cores/chip</td></tr>
<tr><td>Memory Amount (GB):</td><td>16</td></tr>
</table></body></html>"""


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
