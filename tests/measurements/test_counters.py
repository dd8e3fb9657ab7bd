"""Counters of perf: its documented output of several versions, and the real program here.

The files under ``data/perf`` are in the format that each version prints: ``vm-6.1`` was recorded,
the others are written by hand, since no machine at hand has counters. Each is there twice, as JSON
and as separated fields, so that the two readers check each other.
"""

import json
import math
import os
import resource
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from peers.hadoop import program
from peers.sysfs_host import bare_machine, xeon
from refusals import refusal

from measurements import MeasurementError
from measurements.counters.command import EVENTS, PerfCounters, check_perf, read_counters
from measurements.counters.figures import Count, parse_event, parse_output, summarize

DATA = Path(__file__).resolve().parent / "data/perf"
WHOLE_MACHINE = ("hybrid-6.5-system", "intel-6.14-per-core", "intel-6.1-per-cpu")
SOFTWARE = ("task-clock", "page-faults", "context-switches", "duration_time")


EVENTS_BY_MODE = (
    *("instructions:u", "instructions:k", "cycles:u", "cycles:k"),
    *("LLC-load-misses", "cache-misses", "task-clock", "duration_time"),
)
CLOCK_EVENTS = ("msr/tsc/", "msr/aperf/", "msr/mperf/")


def counted(*lines, whole_machine=False):
    return summarize(parse_output("\n".join(lines)), whole_machine=whole_machine)


def line(event, value, **keys):
    record = {"counter-value": str(value), "unit": "", "event": event}
    record |= {"event-runtime": 1_000_000_000, "pcnt-running": 100.0, **keys}
    return json.dumps(record)


HYBRID = {
    "cpu_core": pytest.approx({"instructions": 6e9, "cycles": 4.5e9}),
    "cpu_atom": pytest.approx({"instructions": 1e9, "cycles": 1e9}),
}
RECORDED = {
    "intel-5.19-process": (
        {"instructions": 20.48e9, "cycles": 26.624e9, "modes": "user+kernel", "cpi": 1.3,
         "task_clock_s": 8.123456789, "elapsed_s": 8.125, "llc_misses": 61.44e6, "llc_mpki": 3.0,
         "freq_achieved_hz": 26.624e9 / 8.123456789, "running": 0.45,
         "llc_event": "LLC-load-misses+LLC-store-misses"},
        ["cache misses: counted 45% of the time and scaled up to the run, which is too little"]),
    # Of two that run together, 6.1 prints 99 for 99.97 percent: that is not worth a word.
    "amd-6.1-modes": (
        {"instructions": 10e9, "instructions_user": 9e9, "instructions_kernel": 1e9,
         "cycles": 14e9, "cycles_user": 10.8e9, "cycles_kernel": 3.2e9, "modes": "user+kernel",
         "freq_achieved_hz": 3.5e9, "llc_misses": 120e6, "llc_event": "cache-misses"},
        ["not supported: LLC-load-misses", "cache-misses is taken as last-level"]),
    "arm-6.8-process": (
        {"cpi": 25 / 30, "freq_achieved_hz": 2.5e9, "by_core_type": {}, "llc_misses": 45e6,
         "llc_event": "LLC-load-misses"}, []),
    # 1.5 s at 3 GHz on large cores and 0.5 s at 2 GHz on small ones, which perf scales up as if
    # each had been the whole run: its two figures must not simply be added.
    "hybrid-6.12-process": (
        {"by_core_type": HYBRID, "instructions": 7e9, "cycles": 5.5e9, "llc_misses": 14e6,
         "freq_achieved_hz": 2.75e9, "running": 1.0}, ["cpu_atom 18%, cpu_core 82%"]),
    # 2 GHz of the time stamp counter, and half as much again while not halted.
    "hybrid-6.5-system": (
        {"cycles": 18685492e3 + 25562035e3, "instructions": 15489913e3 + 38790161e3,
         "running": 0.54, "freq_achieved_hz": 3e9}, None),
    # Idle time is in the task clock of whole CPUs: it gives no clock.
    "intel-6.14-per-core": (
        {"instructions": 6e9, "cycles": 8.4e9, "freq_achieved_hz": None}, ["msr/aperf/"]),
    "intel-6.1-per-cpu": (
        {"instructions": 4e9, "cycles": 4.8e9, "task_clock_s": 2.0, "elapsed_s": 1.0005}, None),
    # One of its intervals slept.
    "intel-6.1-interval": (
        {"instructions": 3e9, "cycles": 4.5e9, "task_clock_s": 1.5, "elapsed_s": 2.700310922}, []),
    "intel-6.1-user-only": (
        {"instructions": 8e9, "cycles": 6e9, "modes": "user", "cpi": 0.75, "llc_mpki": 0.5,
         "freq_achieved_hz": None}, ["kernel.perf_event_paranoid"]),
    "intel-6.1-overloaded": (
        {"llc_misses": 9e6, "llc_event": "cache-misses", "running": 0.1},
        ["not counted: LLC-load-misses",
         "instructions: counted 40% of the time and scaled up to the run, which",
         "cycles: counted 70% of the time and scaled up",
         "cache misses: counted 10%", "cache-misses is taken"]),
    "vm-6.1-unsupported": (
        {"task_clock_s": 0.034855216, "instructions": None, "cycles": None, "cpi": None},
        ["instructions, cycles, LLC-load-misses, cache-misses"]),
}  # fmt: skip


def recorded(name, ending="json"):
    return read_counters(DATA / f"{name}.{ending}", whole_machine=name in WHOLE_MACHINE)


@pytest.mark.parametrize("name", RECORDED)
def test_recordings_have_the_figures_worked_by_hand_in_both_forms(name):
    expected, caveats = RECORDED[name]
    ours, other = (recorded(name, ending) for ending in ("json", "csv"))
    for attribute, value in expected.items():
        found = getattr(ours, attribute)
        assert found == (pytest.approx(value) if isinstance(value, float) else value), attribute
    if caveats is not None:
        for caveat, said in zip(ours.caveats, caveats, strict=True):
            assert said in caveat
    lines, fields = (parse_output((DATA / f"{name}.{end}").read_text()) for end in ("json", "csv"))
    assert lines.strange == fields.strange == ()
    if name != "vm-6.1-unsupported":
        # Separated fields have times to a hundredth of a millisecond only.
        theirs = other.columns()
        for column, value in ours.columns().items():
            near = value if isinstance(value, str) else pytest.approx(value, rel=1e-5)
            assert theirs.pop(column) == near
        assert theirs == {}
        assert other.caveats == ours.caveats
        without = [[c._replace(value=None) for c in form.counts] for form in (lines, fields)]
        assert without[0] == without[1]


def test_all_recordings_are_in_the_table_and_parts_of_them_are_kept():
    assert set(RECORDED) == {path.stem for path in DATA.iterdir()}
    assert recorded("intel-5.19-process").events["LLC-load-misses"].running == pytest.approx(0.667)
    assert recorded("hybrid-6.12-process").columns()["cycles_cpu_atom"] == pytest.approx(1e9)
    without = recorded("vm-6.1-unsupported")
    assert without.columns() == {"task_clock_s": pytest.approx(0.034855216)}
    assert without.events["page-faults"].value == 834.0
    assert without.events["cycles"].missing == "not supported"


def test_an_interval_that_lost_one_event_leaves_no_total_of_it():
    text = (DATA / "intel-6.1-interval.json").read_text().replace("500000.000000", "<not counted>")
    figures = counted(text)
    assert (figures.llc_misses, figures.instructions) == (None, 3e9)
    assert any("not counted: LLC-load-misses" in caveat for caveat in figures.caveats)


def test_every_recording_survives_a_cut_at_any_place():
    for path in sorted(DATA.glob("*-process.json")):
        text = path.read_text()
        whole = parse_output(text).counts
        for end in range(0, len(text), 7):
            counts = parse_output(text[:end]).counts
            assert counts == whole[: len(counts)], (path.name, end)


def test_names_of_events_are_taken_apart():
    for name, expected in {
        "inst_retired.any": ("", "inst_retired.any", "both"),
        "cycles:ku": ("", "cycles", "both"),
        "cycles:kpp": ("", "cycles", "kernel"),
        "cycles:HG": ("", "cycles", "both"),
        "LLC-load-misses:u": ("", "llc-load-misses", "user"),
        "cpu_atom/cycles/u": ("cpu_atom", "cycles", "user"),
        "cpu_atom/cycles/:k": ("cpu_atom", "cycles", "kernel"),
        "armv8_pmuv3_0/inst_retired/": ("armv8_pmuv3_0", "inst_retired", "both"),
        "cpu/event=0x3c,umask=0x0/": ("cpu", "event=0x3c,umask=0x0", "both"),
        "": ("", "", "both"),
    }.items():
        assert parse_event(name) == expected


LOST, UNSUPPORTED = "<not counted>", "<not supported>"


def both(value, *units):
    """Lines of instructions and cycles, of each unit or mode."""
    return [line(unit.format(e), value) for e in ("instructions", "cycles") for unit in units]


def on(unit, event, value, share, of_ms=1000):
    """Line of an event that had a counter for a share (%) of the time."""
    runtimes = {"event-runtime": int(share * of_ms * 1e4), "pcnt-running": share}
    return line(f"{unit}/{event}/", value, **runtimes)


def clocked(cycles, **more):
    others = (line(event, value) for event, value in more.items())
    return [line("cycles", cycles), line("task-clock", 2000.0, unit="msec"), *others]


REGISTERS = {"msr/tsc/": 4e9, "msr/aperf/": 3e9, "msr/mperf/": 2e9}
BY_HAND = {
    # A loop bound to a small core, of perf's page on hybrid processors: the large core's share is
    # 0.43 %, its scaled figure a third of the total.
    "the documented hybrid example": (
        [on("cpu_core", "cycles", 233066666, 0.43), on("cpu_atom", "cycles", 604097080, 99.57)],
        {"cycles": 0.0043 * 233066666 + 0.9957 * 604097080}),
    # Half of the time on each kind. On the small cores instructions had a counter for a fifth of
    # it; that must not take weight from them.
    "hybrid cores that share counters": (
        [on(unit, event, 8e9, 10 if unit + event == "cpu_atominstructions" else 50)
         for unit in ("cpu_core", "cpu_atom") for event in ("cycles", "instructions")],
        {"running": 0.6, "by_core_type": dict.fromkeys(
            ("cpu_core", "cpu_atom"), pytest.approx({"instructions": 4e9, "cycles": 4e9}))}),
    "an event that one kind of core lacks has no total": (
        [line("cpu_core/cycles/", 1e9), line("cpu_atom/cycles/", 1e9),
         line("cpu_core/instructions/", 1e9), line("cpu_atom/instructions/", LOST)],
        {"instructions": None, "cpi": None, "cycles": 1e9,
         "caveats": ("instructions: not counted on cpu_atom",)}),
    "a program that never was on the small cores lacks nothing": (
        [*both(2e9, "cpu_core/{}/"), *both(LOST, "cpu_atom/{}/")],
        {"instructions": 2e9, "cycles": 2e9, "cpi": 1.0}),
    **{f"cycles as {name}": ([line(name, 5e9)], {"cycles": 5e9})
       for name in ("cpu-cycles", "cpu_clk_unhalted.thread", "cpu/cycles/")},
    "an event that is asked for twice": (
        [line("cycles", 5e9), line("cycles", 5e9), line("cpu/cycles/", 5e9)], {"cycles": 5e9}),
    **{f"a task clock in {unit!r}": ([line("task-clock", 2000, unit=unit)], {"task_clock_s": s})
       for unit, s in zip(("msec", "ns", "nsec", "usec", "sec", ""),
                          (2.0, 2e-6, 2e-6, 2e-3, 2e3, None), strict=True)},
    # A core may be without it, as of perf stat --per-core.
    **{f"elapsed time that {cpus} show": (
        [*(line("duration_time", 5e8, unit="ns", cpu=cpu) for cpu in cpus),
         line("duration_time", LOST, unit="ns", cpu="7"), line("cycles", 1e9, cpu="7")],
        {"elapsed_s": 0.5}) for cpus in ("0", "01")},
    "no misses are a figure": (
        [line("instructions", 1e9), line("LLC-load-misses", "0.000000")], {"llc_mpki": 0.0}),
    "a program that never entered the kernel has both modes": (
        [*both(2e9, "{}:u"), *both(0.0, "{}:k")],
        {"instructions": 2e9, "modes": "user+kernel", "cycles_kernel": 0.0, "caveats": ()}),
    "cpi is of one mode": (
        [line("instructions:u", 1e9), line("cycles", 9e9), line("cycles:u", 2e9)],
        {"cpi": 2.0, "modes": "user"}),
    **{f"a clock that no core has: {cycles}": (
        clocked(cycles), {"freq_achieved_hz": None, "cycles": cycles}) for cycles in (2e6, 2e12)},
    "a clock by the registers": (
        clocked(UNSUPPORTED, **REGISTERS), {"freq_achieved_hz": 3e9}),
}  # fmt: skip


@pytest.mark.parametrize(("lines", "expected"), BY_HAND.values(), ids=BY_HAND)
def test_figures_worked_by_hand(lines, expected):
    figures = counted(*lines)
    for attribute, value in expected.items():
        found = getattr(figures, attribute)
        if attribute == "caveats" and value:
            assert any(value[0] in caveat for caveat in found)
        else:
            assert found == (pytest.approx(value) if isinstance(value, float) else value)


@pytest.mark.parametrize("value", [LOST, UNSUPPORTED, ""])
@pytest.mark.parametrize("event", ["instructions", "cycles", "LLC-load-misses", "task-clock"])
def test_what_was_not_counted_is_missing(event, value):
    figures = counted(line(event, value), line("page-faults", 3))
    assert figures.columns() == {}
    assert figures.events[event].value is None
    # perf prints 100 % for what never ran.
    count = parse_output(line(event, value)).counts[0]
    assert (count.runtime_s, count.running) == (None, None)


def test_counters_that_stand_still_count_nothing():
    for event in ("instructions", "cycles", "cycles:u"):
        figures = counted(line(event, "0.000000"))
        assert (figures.instructions, figures.cycles, figures.cycles_user) == (None, None, None)
        said = f"these counters stayed at 0, so they are taken as not counted: {event}"
        assert figures.caveats == (said,)


def test_a_strange_line_is_told_and_harms_no_other():
    for text in (
        "WARNING: events were regrouped to match PMUs",
        '{"counter-value" : "12',
        '{"counter-value" : "12.0", "unit" : "", "event" : 7}',
        '{"counter-value" : "-12.0", "unit" : "", "event" : "cycles"}',
        '{"counter-value" : "1e400", "unit" : "", "event" : "cycles"}',
        '{"counter-value" : "twelve", "unit" : "", "event" : "cycles"}',
        '["counter-value"]',
        "{]",
        "        12,345      cycles      #  1.2 GHz",
        ";",
        "1;2;3;4;5",
    ):
        output = parse_output(f"{line('cycles', 7)}\n{text}\n{line('instructions', 8)}")
        assert output.strange == (text.strip(),)
        found = [(c.event, c.value) for c in output.counts]
        assert found == [("cycles", 7.0), ("instructions", 8.0)]
    # Many are told shortly.
    figures = counted(line("cycles", 7), *(f"noise {n} {'x' * 999}" for n in range(9)))
    assert len(figures.caveats) == 4
    assert figures.caveats[-1] == "and 6 more such lines"
    assert all(len(caveat) < 200 for caveat in figures.caveats)


def test_metrics_and_comments_are_passed_over_and_a_count_beside_a_metric_is_read():
    for text in (
        '{"metric-value" : 0.35, "metric-unit" : "stalled cycles per insn"}',
        '{"metric-value" : "9.5", "metric-unit" : "%  tma_retiring", "metric-threshold" : "bad"}',
        '{"core" : "S0-D0-C0", "aggregate-number" : 1, "metric-value" : nan, "metric-unit" : "x"}',
        ";;;;;0.35;stalled cycles per insn",
        "S0;2;;;;;;0.35;stalled cycles per insn",
        "# started on Tue Mar  4 10:12:31 2025",
        "",
    ):
        assert parse_output(text) == ((), ()), text
    text = line("cycles", 7) + ' {"metric-value" : -nan, "metric-unit" : "(null)"} ' + line("r1", 2)
    assert [(c.event, c.value) for c in parse_output(text).counts] == [("cycles", 7), ("r1", 2)]


def test_repeats_and_cgroups_have_a_field_more():
    fields = parse_output("0.38;msec;task-clock;0.94%;383699;100.00;0.568;CPUs utilized").counts
    assert fields[0][:2] == ("task-clock", 0.38)
    assert (fields[0].runtime_s, fields[0].running) == (pytest.approx(383699e-9), 1.0)
    (group,) = parse_output("CPU1;5;;cycles;/app;1000;50.00;;").counts
    assert (group.part, group.running) == ("CPU1 /app", 0.5)
    (group,) = parse_output(line("cycles", 5, cpu="1", cgroup="/app")).counts
    assert group.part == "CPU1 /app"


NAMES = st.sampled_from(["instructions", "cycles:u", "LLC-load-misses", "cpu_core/cycles/"])
VALUES = st.none() | st.floats(0, 1e18).map(lambda v: round(v, 6))
COUNTS = st.tuples(NAMES, VALUES, st.integers(0, 10**15), st.integers(0, 10000))
AS_JSON = (
    '{{"counter-value" : "{}", "unit" : "", "event" : "{}", "event-runtime" : {}, '
    '"pcnt-running" : {:.2f}, "metric-value" : 0.5}}'
)


@given(st.lists(COUNTS, min_size=1, max_size=6), st.sampled_from(".,"), st.sampled_from(".,"))
def test_both_forms_and_both_decimal_marks_are_read_alike(counts, mark, other):
    rows = [
        ("<not counted>" if v is None else f"{v:.6f}", event, run, share / 100)
        for event, v, run, share in counts
    ]
    forms = AS_JSON, "{};;{};{};{:.2f};;"
    lines, fields = ("\n".join(form.format(*row) for row in rows) for form in forms)
    read = parse_output(lines.replace(".", mark))
    assert read.strange == ()
    assert read == parse_output(fields.replace(".", other))
    for (event, value, run, share), count in zip(counts, read.counts, strict=True):
        assert (count.event, count.value) == (event, value)
        if value is not None:
            assert count.runtime_s == pytest.approx(run * 1e-9)
            assert count.running == pytest.approx(share / 10000)


PARSED = st.builds(
    Count,
    event=st.sampled_from(["instructions", "cycles", "cpu_core/cycles/", "cpu_atom/cycles/"]),
    value=st.none() | st.just(0.0) | st.floats(1e-6, 1e15),
    missing=st.just("not counted"),
    unit=st.just(""),
    runtime_s=st.none() | st.floats(0, 1e6),
    running=st.none() | st.floats(0, 1),
    part=st.sampled_from(["", "CPU0", "CPU1"]),
    interval_s=st.none() | st.sampled_from([1.0, 2.0]),
)


@given(st.lists(PARSED, max_size=12), st.booleans())
def test_figures_are_finite_and_never_zero_for_missing(counts, whole):
    output = parse_output("")._replace(counts=tuple(counts))
    columns = summarize(output, whole_machine=whole).columns()
    assert all(math.isfinite(value) for value in columns.values() if isinstance(value, float))
    if not any(c.value for c in counts if "cycles" in c.event):
        assert "cycles" not in columns


def test_several_executions_are_added(tmp_path):
    paths = [tmp_path / "0", tmp_path / "1"]
    for path, value in zip(paths, (3, 4), strict=True):
        path.write_text(f"{line('cycles', value)}\n{line('duration_time', 5, unit='ns')}\n")
    figures = PerfCounters().read(*paths)
    assert (figures.cycles, figures.elapsed_s) == (7.0, pytest.approx(10e-9))


def test_a_file_without_counts_is_refused_with_the_remedy(tmp_path):
    path = tmp_path / "counts"
    for text, said in (
        (None, "message on stderr"),
        (b"", "SIGINT"),
        (b"# started on Tue Mar  4 10:12:31 2025\n\n", "perf started, but it wrote no counts"),
        (b"        12,345      cycles\n", "perf stat -j -o FILE"),
        (b"\xff\xfe\x00", "no counts"),
    ):
        if text is not None:
            path.write_bytes(text)
        message = refusal(partial(read_counters, path))
        assert said in message
        assert str(path) in message


def test_settings_that_contradict_each_other_are_refused(tmp_path):
    with pytest.raises(MeasurementError):
        PerfCounters(events=())
    with pytest.raises(MeasurementError):
        PerfCounters(system_wide=True).attach(1, tmp_path / "counts")


@pytest.fixture
def into(tmp_path):
    return tmp_path / "counts"


def run(counters, command, into):
    wrapped = counters.wrap(command, into)
    return subprocess.run(wrapped, stdin=subprocess.DEVNULL, capture_output=True).returncode


@pytest.mark.peer("perf")
class TestRealPerf:
    @pytest.mark.parametrize("as_json", [True, False])
    def test_the_task_clock_is_the_cpu_time_that_the_kernel_charges(self, into, as_json):
        busy = "import time\nwhile time.process_time() < 0.25: pass"
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        start_s = time.monotonic()
        counters = PerfCounters(SOFTWARE, json=as_json)
        assert run(counters, [sys.executable, "-S", "-c", busy], into) == 0
        elapsed_s = time.monotonic() - start_s
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        # Of perf itself too, which takes some ten milliseconds.
        charged_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
        figures = PerfCounters(SOFTWARE).read(into)
        assert figures.task_clock_s == pytest.approx(charged_s, abs=0.1)
        assert 0.25 <= figures.task_clock_s <= charged_s + 0.005
        assert figures.task_clock_s - 0.01 <= figures.elapsed_s <= elapsed_s
        charged = after.ru_minflt + after.ru_majflt - before.ru_minflt - before.ru_majflt
        assert 10 <= figures.events["page-faults"].value <= charged
        assert figures.caveats == ()

    def test_status_and_arguments_are_those_of_the_command(self, tmp_path, into):
        for script, status in {"exit 7": 7, "kill -SEGV $$": 139, "kill -KILL $$": 137}.items():
            assert run(PerfCounters(SOFTWARE), ["sh", "-c", script], into) == status
            assert PerfCounters().read(into).task_clock_s > 0
        odd = ["a b", "$HOME", "'", '"', "*", ";", "--", "-o", "\\", ""]
        said = tmp_path / "said"
        script = "import sys; open(sys.argv[1], 'w').write(repr(sys.argv[2:])); sys.exit(255)"
        command = [sys.executable, "-S", "-c", script, str(said), *odd]
        assert run(PerfCounters(SOFTWARE), command, into) == 255
        assert said.read_text() == repr(odd)
        # Neither a command nor a file that is not there can be counted.
        assert run(PerfCounters(SOFTWARE), [str(tmp_path / "no")], into) == 127
        into = tmp_path / "no" / "counts"
        assert run(PerfCounters(SOFTWARE), ["true"], into) == 255
        with pytest.raises(MeasurementError, match="could not write"):
            PerfCounters().read(into)
        # perf exits 0 on a full disk.
        assert run(PerfCounters(SOFTWARE), ["true"], Path("/dev/full")) == 0

    @pytest.mark.parametrize("as_json", [True, False])
    def test_whole_cpus_are_counted(self, into, as_json):
        counters = PerfCounters(SOFTWARE, system_wide=True, json=as_json)
        assert run(counters, ["sleep", "0.1"], into) == 0
        figures = counters.read(into)
        online = os.sysconf("SC_NPROCESSORS_ONLN")
        # Idle or not, every CPU was counted for as long as the run took.
        assert figures.task_clock_s == pytest.approx(online * figures.elapsed_s, rel=0.1)

    def test_perf_in_a_locale_with_a_decimal_comma_is_read(self, tmp_path, into):
        made = ["localedef", "-i", "de_DE", "-f", "ISO-8859-1", str(tmp_path / "de_DE")]
        subprocess.run(made, check=True, capture_output=True)
        german = {**os.environ, "LOCPATH": str(tmp_path), "LC_ALL": "de_DE"}
        kinds = [], ["-I", "40"], ["-I", "40", "--summary"], ["-a", "-A"]
        for form, options in product(("-j", "-x;"), kinds):
            command = ["perf", "stat", form, *options, "-o", into, "-e", ",".join(SOFTWARE)]
            subprocess.run([*command, "--", "sleep", "0.1"], env=german, check=True)
            text = into.read_text()
            assert "0,0" in text or ",00" in text
            assert parse_output(text).strange == ()
            figures = counted(text, whole_machine="-a" in options)
            # Intervals may leave some milliseconds out; a sign that is not read leaves out more.
            assert 0.08 <= figures.elapsed_s < 60
            assert 0 < figures.task_clock_s < (60 if "-a" in options else 0.1)

    def test_this_machine_says_what_it_counts_and_why_not_the_rest(self, into):
        support = check_perf()
        assert {"task-clock", "duration_time"} <= set(support.counters.events)
        assert support.counters.json is True
        assert Path(support.counters.program).is_absolute()
        # Events without a counter are missing and do not fail the run.
        assert run(PerfCounters(EVENTS_BY_MODE), ["true"], into) == 0
        figures = PerfCounters().read(into)
        assert figures.task_clock_s > 0
        if not support.hardware:
            (reason,) = support.reasons
            assert "virtual PMU" in reason or "no driver" in reason
            assert set(figures.columns()) == {"task_clock_s"}
            assert figures.caveats[0].startswith("not supported: instructions:u")
        counters = check_perf(PerfCounters(EVENTS + CLOCK_EVENTS, system_wide=True)).counters
        assert counters.system_wide
        assert run(counters, ["true"], into) == 0
        assert not any("not supported" in c for c in counters.read(into).caveats)
        support = check_perf(PerfCounters(("task-clock", "no-such-event")))
        assert support.counters.events == ("task-clock",)
        assert support.reasons == ("perf does not know these events here: no-such-event",)

    def test_real_refusals_name_what_refused(self):
        paranoid = int(Path("/proc/sys/kernel/perf_event_paranoid").read_text())
        plain = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--", sys.executable, "-c"]
        code = "import json; from measurements.counters.command import PerfCounters, check_perf; "
        code += "found = check_perf(PerfCounters(('task-clock',), system_wide=True)); "
        code += "print(json.dumps(found.reasons))"
        reasons = json.loads(subprocess.check_output([*plain, code]))
        assert len(reasons) == (paranoid > 0)
        for reason in reasons:
            assert f"kernel.perf_event_paranoid is {paranoid}" in reason
            assert "whole CPUs" in reason


def stand_in(folder, script):
    """Program that stands in for perf where the real one cannot be brought to do it."""
    return str(program(folder, "perf", script))


def printing(folder, text):
    (folder / "printed").write_text(text)
    usage = '[ "$2" = -h ] && { echo "Usage: perf stat -j, --json-output"; exit 129; }'
    into = 'while [ "$1" != -o ]; do shift; done'
    return stand_in(folder, f'{usage}\n{into}\ncp "{folder}/printed" "$2"')


def test_a_program_that_is_not_there_or_does_not_work_is_told(tmp_path):
    support = check_perf(PerfCounters(program="no-such-perf"))
    assert (support.counters, support.hardware) == (None, False)
    assert "apt install linux-perf" in support.reasons[0]
    assert "--metric time" in support.reasons[0]
    # Ubuntu's wrapper without its kernel.
    said = "WARNING: perf not found for kernel 6.8.0-60"
    program = stand_in(tmp_path, f"echo '{said}' >&2; exit 2")
    (reason,) = check_perf(PerfCounters(program=program)).reasons
    assert said in reason
    assert "linux-tools-$(uname -r)" in reason
    Path(program).write_bytes(b"\x7fELF\x02")
    (reason,) = check_perf(PerfCounters(program=program)).reasons
    assert "does not work" in reason


def test_events_that_a_stand_in_does_not_know_are_left_out_and_old_ones_have_no_json(tmp_path):
    program = stand_in(
        tmp_path,
        '[ "$2" = -h ] && { echo "Usage: perf stat"; exit 129; }\n'
        'case "$*" in *" -j "*|*no-such-event*) echo "event syntax error" >&2; exit 129;; esac\n'
        'while [ "$1" != -o ]; do shift; done\n'
        'echo "0.38;msec;task-clock;383699;100.00;;" >"$2"',
    )
    support = check_perf(PerfCounters(("task-clock", "no-such-event"), program=program))
    assert (support.counters.events, support.counters.json) == (("task-clock",), False)
    assert support.reasons == ("perf does not know these events here: no-such-event",)
    nothing = check_perf(PerfCounters(("no-such-event",), program=program))
    assert nothing.counters is None
    assert (
        "perf knows none of these events: no-such-event: event syntax error" in nothing.reasons[0]
    )


def of(name):
    return (DATA / f"{name}.json").read_text()


def cycles_and_time(**printed):
    return "\n".join([*(line(*c) for c in printed.items()), line("task-clock", 5, unit="msec")])


CORE, ATOM = "cpu_core/cycles/", "cpu_atom/cycles/"


def test_events_that_the_processor_lacks_are_left_out(tmp_path):
    for text, wanted, lacking in (
        # Counted under other names.
        (of("hybrid-6.12-process"), ("instructions", "cycles", "LLC-load-misses"), ()),
        (of("amd-6.1-modes"), EVENTS_BY_MODE, ("LLC-load-misses",)),
        # Taken where any kind of core counts it; too short a trial says nothing against it.
        (cycles_and_time(**{CORE: 5, ATOM: UNSUPPORTED}), ("cycles", "task-clock"), ()),
        (cycles_and_time(**{"cycles:u": LOST}), ("cycles:u", "task-clock"), ()),
        (cycles_and_time(**{CORE: UNSUPPORTED, ATOM: UNSUPPORTED}), ("cycles", "task-clock"), None),
        (cycles_and_time(**{"cycles:u": UNSUPPORTED}), ("cycles", "task-clock"), None),
    ):
        program = printing(tmp_path, text)
        support = check_perf(PerfCounters(wanted, program=program))
        left = tuple(e for e in wanted if e not in (("cycles",) if lacking is None else lacking))
        assert support.counters == PerfCounters(left, program=program)
        assert support.hardware is (lacking is not None)
        if lacking is not None:
            said = ("the processor does not count LLC-load-misses: the rest is measured",)
            assert support.reasons == said * len(lacking)


def test_user_mode_alone_is_told_with_its_remedy(tmp_path):
    program = printing(tmp_path, of("intel-6.1-user-only"))
    host = bare_machine(tmp_path)
    host.put("proc/sys/kernel/perf_event_paranoid", 2)
    wanted = PerfCounters(("instructions", "cycles", "task-clock"), program=program)
    (reason,) = check_perf(wanted, procfs=host.procfs).reasons
    assert "kernel.perf_event_paranoid is 2" in reason
    assert "sysctl kernel.perf_event_paranoid=1" in reason
    asked = replace(wanted, events=("instructions:u", "cycles:u"))
    assert check_perf(asked, procfs=host.procfs).reasons == ()


def test_a_machine_without_counters_is_told_apart_from_a_virtual_one(tmp_path):
    wanted = PerfCounters(program=printing(tmp_path, of("vm-6.1-unsupported")))
    host = xeon(tmp_path / "host")
    for flags, said in (("fpu", "no driver for this pro"), ("fpu hypervisor", "its virtual PMU")):
        host.put("proc/cpuinfo", f"flags\t: {flags}")
        (reason,) = check_perf(wanted, sysfs=host.sysfs, procfs=host.procfs).reasons
        assert said in reason


def test_a_refusal_names_who_refused(tmp_path):
    usage = '[ "$2" = -h ] && { echo "Usage: perf stat"; exit 129; }'
    program = stand_in(tmp_path, f"{usage}\nprintf 'Error:\\nNo luck today.\\n' >&2; exit 255")
    host = bare_machine(tmp_path)
    # What a row does not say is as it was.
    for paranoid, capable, filtered, wide, said in (
        (None, None, None, False, "CONFIG_PERF_EVENTS"),
        (4, None, None, False, "sysctl kernel.perf_event_paranoid=2"),
        (2, None, None, True, "sysctl kernel.perf_event_paranoid=0"),
        (2, "000001ffffffffff", 2, True, "--cap-add PERFMON"),
        (1, "0000000000000000", 2, False, "--cap-add PERFMON"),
        (4, "0000000000000000", 2, False, "paranoid=2"),
        (4, "0000004000000000", 0, False, "No luck"),
        (2, "x", 0, False, "No luck"),
    ):
        if paranoid is not None:
            host.put("proc/sys/kernel/perf_event_paranoid", paranoid)
        if capable is not None:
            host.put("proc/self/status", f"CapEff:\t{capable}\nSeccomp:\t{filtered}")
        counters = PerfCounters(program=program, system_wide=wide)
        (reason,) = check_perf(counters, procfs=host.procfs).reasons
        assert said in reason
        assert "--metric time" in reason
        assert "\n" not in reason
