"""Counters of perf: its documented output of several versions, and the real program here.

The files under ``data/perf`` are in the format that each version prints: ``vm-6.1`` was recorded,
the others are written by hand, since no machine at hand has counters. Each is there twice, as JSON
and as separated fields, so that the two readers check each other.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from peers.sysfs_host import bare_machine, xeon

from measurements import MeasurementError
from measurements.counters import (
    CLOCK_EVENTS,
    EVENTS,
    EVENTS_BY_MODE,
    Counters,
    PerfCounters,
    check_perf,
    read_counters,
)
from measurements.perf.events import parse_event
from measurements.perf.figures import summarize
from measurements.perf.output import Count, parse_output

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).resolve().parent
DATA = HERE / "data/perf"
RECORDED = sorted(path.stem for path in DATA.glob("*.json"))
WHOLE_MACHINE = ("hybrid-6.5-system", "intel-6.14-per-core", "intel-6.1-per-cpu")
SOFTWARE = ("task-clock", "page-faults", "context-switches", "duration_time")


def recorded(name: str, ending: str = "json") -> Counters:
    return read_counters(DATA / f"{name}.{ending}", whole_machine=name in WHOLE_MACHINE)


def counted(text: str, *, whole_machine: bool = False) -> Counters:
    return summarize(parse_output(text), whole_machine=whole_machine)


def line(event: str, value: object, **keys: object) -> str:
    record = {"counter-value": str(value), "unit": "", "event": event, **keys}
    return json.dumps({**record, "event-runtime": 1_000_000_000, "pcnt-running": 100.0, **keys})


# What versions and processors print


def test_intel_events_on_too_few_counters() -> None:
    figures = recorded("intel-5.19-process")
    assert (figures.instructions, figures.cycles) == (20.48e9, 26.624e9)
    assert figures.modes == "user+kernel"
    assert figures.cpi == pytest.approx(1.3)
    assert figures.task_clock_s == pytest.approx(8.123456789)
    assert figures.elapsed_s == pytest.approx(8.125)
    assert figures.freq_achieved_hz == pytest.approx(26.624e9 / 8.123456789)
    assert figures.llc_misses == 61.44e6
    assert figures.llc_event == "LLC-load-misses+LLC-store-misses"
    assert figures.llc_mpki == pytest.approx(3.0)
    assert figures.running == pytest.approx(0.45)
    assert figures.events["LLC-load-misses"].running == pytest.approx(0.667)
    (caveat,) = figures.caveats
    assert "cache misses: on a counter 45% of the time" in caveat
    assert "too little to trust" in caveat


def test_amd_modes_apart_and_no_last_level_event() -> None:
    figures = recorded("amd-6.1-modes")
    assert (figures.instructions, figures.cycles) == (10e9, 14e9)
    assert (figures.instructions_user, figures.instructions_kernel) == (9e9, 1e9)
    assert (figures.cycles_user, figures.cycles_kernel) == (10.8e9, 3.2e9)
    assert figures.modes == "user+kernel"
    assert figures.freq_achieved_hz == pytest.approx(3.5e9)
    assert (figures.llc_misses, figures.llc_event) == (120e6, "cache-misses")
    # Of two that run together, 6.1 prints 99 for 99.97 percent: that is not worth a word.
    assert [caveat.partition(":")[0] for caveat in figures.caveats] == [
        "not supported",
        "cache-misses stands for last-level misses",
    ]
    assert "LLC-load-misses" in figures.caveats[0]


def test_arm_names_its_last_level_by_its_unit() -> None:
    figures = recorded("arm-6.8-process")
    assert figures.cpi == pytest.approx(25 / 30)
    assert figures.freq_achieved_hz == pytest.approx(2.5e9)
    assert (figures.llc_misses, figures.llc_event) == (45e6, "LLC-load-misses")
    assert figures.by_core_type == {}
    assert figures.caveats == ()


def test_hybrid_cores_of_one_program_are_weighted_by_the_time_on_each() -> None:
    # 1.5 s at 3 GHz on large cores and 0.5 s at 2 GHz on small ones, which perf scales up as if
    # each had been the whole run: its two figures must not simply be added.
    figures = recorded("hybrid-6.12-process")
    assert figures.by_core_type == {
        "cpu_core": {"instructions": pytest.approx(6e9), "cycles": pytest.approx(4.5e9)},
        "cpu_atom": {"instructions": pytest.approx(1e9), "cycles": pytest.approx(1e9)},
    }
    assert figures.instructions == pytest.approx(7e9)
    assert figures.cycles == pytest.approx(5.5e9)
    assert figures.llc_misses == pytest.approx(14e6)
    assert figures.freq_achieved_hz == pytest.approx(2.75e9)
    assert figures.running == pytest.approx(1.0)
    (caveat,) = figures.caveats
    assert "cpu_atom 18%, cpu_core 82%" in caveat
    assert figures.columns()["cycles_cpu_atom"] == pytest.approx(1e9)


def test_the_documented_hybrid_example_is_the_work_of_the_small_core() -> None:
    # A loop bound to a small core, of perf's page on hybrid processors: the large core's share is
    # 0.43 %, its scaled figure a third of the total.
    scaled = {"cpu_core": (233066666, 0.43), "cpu_atom": (604097080, 99.57)}
    lines = (
        line(f"{pmu}/cycles/", v, **{"event-runtime": int(share * 1e7), "pcnt-running": share})
        for pmu, (v, share) in scaled.items()
    )
    expected = 0.0043 * 233066666 + 0.9957 * 604097080
    assert counted("\n".join(lines)).cycles == pytest.approx(expected)


def test_hybrid_cores_that_share_counters_are_weighted_by_time_and_not_by_luck() -> None:
    # Half of the time on each kind. On the small cores instructions had a counter for a fifth of
    # it; that must not take weight from them.
    times = {"cpu_core": (500, 500), "cpu_atom": (500, 100)}
    text = "\n".join(
        line(f"{pmu}/{event}/", 8e9, **{"event-runtime": t * 10**6, "pcnt-running": t / 10})
        for pmu, runtimes in times.items()
        for event, t in zip(("cycles", "instructions"), runtimes, strict=True)
    )
    figures = counted(text)
    assert figures.by_core_type["cpu_atom"]["instructions"] == pytest.approx(4e9)
    assert figures.running == pytest.approx(0.6)


def test_hybrid_cores_of_a_whole_machine_add_up() -> None:
    figures = recorded("hybrid-6.5-system")
    assert figures.cycles == 18685492e3 + 25562035e3
    assert figures.instructions == 15489913e3 + 38790161e3
    assert figures.running == pytest.approx(0.54)
    # 2 GHz of the time stamp counter, and half as much again while not halted.
    assert figures.freq_achieved_hz == pytest.approx(3e9)


def test_an_event_that_one_kind_of_core_lacks_has_no_total() -> None:
    lines = [line(f"{pmu}/cycles/", 1e9) for pmu in ("cpu_core", "cpu_atom")]
    lines += [line("cpu_core/instructions/", 1e9), line("cpu_atom/instructions/", "<not counted>")]
    figures = counted("\n".join(lines))
    assert figures.instructions is None
    assert figures.cpi is None
    assert figures.cycles == pytest.approx(1e9)
    assert any("instructions: not counted on cpu_atom" in c for c in figures.caveats)


def test_a_program_that_never_was_on_the_small_cores_lacks_nothing() -> None:
    lines = [line(f"cpu_core/{event}/", 2e9) for event in ("instructions", "cycles")]
    lines += [line(f"cpu_atom/{event}/", "<not counted>") for event in ("instructions", "cycles")]
    figures = counted("\n".join(lines))
    assert (figures.instructions, figures.cycles, figures.cpi) == (2e9, 2e9, 1.0)


def test_cores_and_cpus_apart_are_summed_and_kept() -> None:
    cores = recorded("intel-6.14-per-core")
    assert (cores.instructions, cores.cycles) == (6e9, 8.4e9)
    assert cores.parts["S0-D0-C1"]["instructions"] == 2e9
    # Idle time is in the task clock of whole CPUs: it gives no clock.
    assert cores.freq_achieved_hz is None
    assert any("msr/aperf/" in caveat for caveat in cores.caveats)
    cpus = recorded("intel-6.1-per-cpu")
    assert (cpus.instructions, cpus.cycles, cpus.task_clock_s) == (4e9, 4.8e9, 2.0)
    assert cpus.elapsed_s == pytest.approx(1.0005)
    assert set(cpus.parts) == {"CPU0", "CPU1"}


def test_intervals_are_summed_and_one_that_slept_costs_nothing() -> None:
    figures = recorded("intel-6.1-interval")
    assert (figures.instructions, figures.cycles) == (3e9, 4.5e9)
    assert figures.task_clock_s == pytest.approx(1.5)
    assert figures.elapsed_s == pytest.approx(2.700310922)
    assert figures.caveats == ()


def test_an_interval_that_lost_one_event_leaves_no_total_of_it() -> None:
    text = (DATA / "intel-6.1-interval.json").read_text().replace("500000.000000", "<not counted>")
    figures = counted(text)
    assert figures.llc_misses is None
    assert figures.instructions == 3e9
    assert any("not counted: LLC-load-misses" in caveat for caveat in figures.caveats)


def test_user_mode_alone_gives_cpi_but_no_clock() -> None:
    figures = recorded("intel-6.1-user-only")
    assert (figures.instructions, figures.cycles, figures.modes) == (8e9, 6e9, "user")
    assert figures.cpi == 0.75
    assert figures.llc_mpki == pytest.approx(0.5)
    assert figures.freq_achieved_hz is None
    assert any("kernel.perf_event_paranoid" in caveat for caveat in figures.caveats)


def test_too_many_events_are_scaled_and_said_so() -> None:
    figures = recorded("intel-6.1-overloaded")
    assert (figures.llc_misses, figures.llc_event) == (9e6, "cache-misses")
    assert figures.running == pytest.approx(0.1)
    text = "\n".join(figures.caveats)
    assert "not counted: LLC-load-misses" in text
    assert "instructions: on a counter 40% of the time and scaled up; too little" in text
    assert "cycles: on a counter 70% of the time and scaled up\n" in text


def test_a_machine_without_counters_has_time_and_no_zeros() -> None:
    figures = recorded("vm-6.1-unsupported")
    assert figures.columns() == {"task_clock_s": pytest.approx(0.034855216)}
    assert figures.events["page-faults"].value == 834.0
    assert figures.events["cycles"].missing == "not supported"
    assert "instructions, cycles, LLC-load-misses, cache-misses" in figures.caveats[0]


@pytest.mark.parametrize("name", [n for n in RECORDED if n != "vm-6.1-unsupported"])
def test_json_and_separated_fields_say_the_same(name: str) -> None:
    ours, other = recorded(name).columns(), recorded(name, "csv").columns()
    assert set(other) == set(ours)
    for column, value in ours.items():
        # Separated fields have times to a hundredth of a millisecond only.
        assert other[column] == (
            value if isinstance(value, str) else pytest.approx(value, rel=1e-5)
        )
    lines, fields = (parse_output((DATA / f"{name}.{end}").read_text()) for end in ("json", "csv"))
    assert [c._replace(value=None) for c in fields.counts] == [
        c._replace(value=None) for c in lines.counts
    ]
    assert recorded(name, "csv").caveats == recorded(name).caveats


@pytest.mark.parametrize("name", RECORDED)
def test_every_recording_is_read_without_a_strange_line(name: str) -> None:
    for ending in ("json", "csv"):
        assert parse_output((DATA / f"{name}.{ending}").read_text()).strange == ()


def test_every_recording_survives_a_cut_at_any_place() -> None:
    for path in sorted(DATA.glob("*-process.json")):
        text = path.read_text()
        whole = parse_output(text).counts
        for end in range(0, len(text), 7):
            counts = parse_output(text[:end]).counts
            assert counts == whole[: len(counts)], (path.name, end)


def test_the_elapsed_time_is_one_however_many_cpus_show_it() -> None:
    for cpus in (["0"], ["0", "1"]):
        lines = [line("duration_time", 5e8, unit="ns", cpu=cpu) for cpu in cpus]
        # A core without it, as of perf stat --per-core.
        lines += [line("duration_time", "<not counted>", unit="ns", cpu="7")]
        lines += [line("cycles", 1e9, cpu="7")]
        assert counted("\n".join(lines)).elapsed_s == pytest.approx(0.5)


# Names


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("instructions", ("", "instructions", "both")),
        ("instructions:u", ("", "instructions", "user")),
        ("cycles:ku", ("", "cycles", "both")),
        ("cycles:kpp", ("", "cycles", "kernel")),
        ("cycles:HG", ("", "cycles", "both")),
        ("LLC-load-misses:u", ("", "llc-load-misses", "user")),
        ("cpu_core/instructions/", ("cpu_core", "instructions", "both")),
        ("cpu_atom/cycles/u", ("cpu_atom", "cycles", "user")),
        ("cpu_atom/cycles/:k", ("cpu_atom", "cycles", "kernel")),
        ("inst_retired.any", ("", "inst_retired.any", "both")),
        ("armv8_pmuv3_0/inst_retired/", ("armv8_pmuv3_0", "inst_retired", "both")),
        ("cpu/event=0x3c,umask=0x0/", ("cpu", "event=0x3c,umask=0x0", "both")),
        ("r1a8", ("", "r1a8", "both")),
        ("", ("", "", "both")),
    ],
)
def test_names_of_events_are_taken_apart(name: str, expected: tuple[str, str, str]) -> None:
    assert parse_event(name) == expected


@pytest.mark.parametrize("event", ["cpu-cycles", "cpu_clk_unhalted.thread", "cpu/cycles/"])
def test_cycles_go_by_several_names(event: str) -> None:
    assert counted(line(event, 5e9)).cycles == 5e9


def test_an_event_asked_for_twice_is_counted_once() -> None:
    twice = [line("cycles", 5e9), line("cycles", 5e9), line("cpu/cycles/", 5e9)]
    assert counted("\n".join(twice)).cycles == 5e9


# Figures that are not there


@pytest.mark.parametrize("value", ["<not counted>", "<not supported>", ""])
@pytest.mark.parametrize("event", ["instructions", "cycles", "LLC-load-misses", "task-clock"])
def test_what_was_not_counted_is_missing(event: str, value: str) -> None:
    figures = counted(f"{line(event, value)}\n{line('page-faults', 3)}")
    assert figures.columns() == {}
    assert figures.events[event].value is None
    # perf prints 100 % for what never ran.
    count = parse_output(line(event, value)).counts[0]
    assert (count.runtime_s, count.running) == (None, None)


@pytest.mark.parametrize("event", ["instructions", "cycles", "cycles:u"])
def test_counters_that_stand_still_count_nothing(event: str) -> None:
    figures = counted(line(event, "0.000000"))
    assert (figures.instructions, figures.cycles, figures.cycles_user) == (None, None, None)
    assert figures.caveats == (f"counted 0, so not counted: {event} (counters that stand still)",)


def test_no_misses_are_a_figure() -> None:
    text = "\n".join([line("instructions", 1e9), line("LLC-load-misses", "0.000000")])
    assert counted(text).llc_mpki == 0.0


def test_a_program_that_never_entered_the_kernel_has_both_modes() -> None:
    lines = [line(f"{e}:u", 2e9) for e in ("instructions", "cycles")]
    lines += [line(f"{e}:k", 0.0) for e in ("instructions", "cycles")]
    figures = counted("\n".join(lines))
    assert (figures.instructions, figures.modes, figures.cycles_kernel) == (2e9, "user+kernel", 0.0)
    assert figures.caveats == ()


def test_cpi_is_of_one_mode() -> None:
    lines = [line("instructions:u", 1e9), line("cycles", 9e9), line("cycles:u", 2e9)]
    figures = counted("\n".join(lines))
    assert (figures.cpi, figures.modes) == (2.0, "user")


@pytest.mark.parametrize("cycles", [1e6, 1e12])
def test_a_clock_that_no_core_has_is_no_clock(cycles: float) -> None:
    text = f"{line('cycles', cycles)}\n{line('task-clock', 1000.0, unit='msec')}"
    assert counted(text).freq_achieved_hz is None
    assert counted(text).cycles == cycles


def test_a_program_without_cycles_has_its_clock_by_its_registers() -> None:
    figures = {"msr/tsc/": 4e9, "msr/aperf/": 3e9, "msr/mperf/": 2e9, "cycles": "<not supported>"}
    lines = [line(event, value) for event, value in figures.items()]
    lines.append(line("task-clock", 2000.0, unit="msec"))
    assert counted("\n".join(lines)).freq_achieved_hz == pytest.approx(3e9)


@pytest.mark.parametrize(
    ("unit", "seconds"), [("msec", 2.0), ("ns", 2e-6), ("nsec", 2e-6), ("usec", 2e-3), ("sec", 2e3)]
)
def test_the_task_clock_is_read_in_its_unit(unit: str, seconds: float) -> None:
    assert counted(line("task-clock", 2000, unit=unit)).task_clock_s == pytest.approx(seconds)


def test_a_task_clock_of_no_unit_is_not_guessed() -> None:
    assert counted(line("task-clock", 2000)).task_clock_s is None


# Lines that are not as they should be


@pytest.mark.parametrize(
    "text",
    [
        "WARNING: events were regrouped to match PMUs",
        "Some events weren't counted. Try disabling the NMI watchdog:",
        '{"counter-value" : "12',
        '{"counter-value" : "12.0", "unit" : ""}',
        '{"counter-value" : "12.0", "unit" : "", "event" : 7}',
        '{"counter-value" : "-12.0", "unit" : "", "event" : "cycles"}',
        '{"counter-value" : "1e400", "unit" : "", "event" : "cycles"}',
        '{"counter-value" : "twelve", "unit" : "", "event" : "cycles"}',
        '["counter-value"]',
        "{]",
        "        12,345      cycles      #  1.2 GHz",
        ";",
        "1;2;3;4;5",
    ],
)
def test_a_strange_line_is_told_and_harms_no_other(text: str) -> None:
    output = parse_output(f"{line('cycles', 7)}\n{text}\n{line('instructions', 8)}")
    assert output.strange == (text.strip(),)
    assert [(c.event, c.value) for c in output.counts] == [("cycles", 7.0), ("instructions", 8.0)]


def test_many_strange_lines_are_told_shortly() -> None:
    figures = counted("\n".join([line("cycles", 7), *(f"noise {n} {'x' * 999}" for n in range(9))]))
    assert len(figures.caveats) == 4
    assert figures.caveats[-1] == "and 6 more such lines"
    assert all(len(caveat) < 200 for caveat in figures.caveats)


@pytest.mark.parametrize(
    "text",
    [
        '{"metric-value" : 0.35, "metric-unit" : "stalled cycles per insn"}',
        '{"metric-value" : "9.5", "metric-unit" : "%  tma_retiring", "metric-threshold" : "bad"}',
        '{"core" : "S0-D0-C0", "aggregate-number" : 1, "metric-value" : nan, "metric-unit" : "x"}',
        ";;;;;0.35;stalled cycles per insn",
        "S0;2;;;;;;0.35;stalled cycles per insn",
        "# started on Tue Mar  4 10:12:31 2025",
        "",
    ],
)
def test_metrics_and_comments_are_passed_over(text: str) -> None:
    assert parse_output(text) == ((), ())


def test_a_count_and_its_metric_on_one_line_are_read() -> None:
    text = line("cycles", 7) + ' {"metric-value" : -nan, "metric-unit" : "(null)"} ' + line("r1", 2)
    assert [(c.event, c.value) for c in parse_output(text).counts] == [("cycles", 7), ("r1", 2)]


def test_repeats_and_cgroups_have_a_field_more() -> None:
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


def as_json(counts: list[tuple[str, float | None, int, int]], mark: str) -> str:
    lines = (
        f'{{"counter-value" : "{"<not counted>" if v is None else f"{v:.6f}"}", "unit" : "", '
        f'"event" : "{event}", "event-runtime" : {run}, "pcnt-running" : {share / 100:.2f}, '
        f'"metric-value" : 0.5}}'
        for event, v, run, share in counts
    )
    return "\n".join(lines).replace(".", mark)


def as_fields(counts: list[tuple[str, float | None, int, int]], mark: str) -> str:
    lines = (
        f"{'<not counted>' if v is None else f'{v:.6f}'};;{event};{run};{share / 100:.2f};;"
        for event, v, run, share in counts
    )
    return "\n".join(lines).replace(".", mark)


@given(st.lists(COUNTS, min_size=1, max_size=6), st.sampled_from(".,"), st.sampled_from(".,"))
def test_both_forms_and_both_decimal_marks_are_read_alike(
    counts: list[tuple[str, float | None, int, int]], mark: str, other: str
) -> None:
    read = parse_output(as_json(counts, mark))
    assert read.strange == ()
    assert read == parse_output(as_fields(counts, other))
    for (event, value, run, share), count in zip(counts, read.counts, strict=True):
        assert (count.event, count.value) == (event, value)
        if value is not None:
            assert count.runtime_s == pytest.approx(run * 1e-9)
            assert count.running == pytest.approx(share / 10000)


@given(st.text(max_size=200))
def test_no_text_at_all_brings_the_reader_down(text: str) -> None:
    figures = counted(text)
    assert figures.cpi is None or figures.cpi > 0


@given(
    st.lists(
        st.builds(
            Count,
            event=st.sampled_from(
                ["instructions", "cycles", "cpu_core/cycles/", "cpu_atom/cycles/"]
            ),
            value=st.none() | st.just(0.0) | st.floats(1e-6, 1e15),
            missing=st.just("not counted"),
            unit=st.just(""),
            runtime_s=st.none() | st.floats(0, 1e6),
            running=st.none() | st.floats(0, 1),
            part=st.sampled_from(["", "CPU0", "CPU1"]),
            interval_s=st.none() | st.sampled_from([1.0, 2.0]),
        ),
        max_size=12,
    ),
    st.booleans(),
)
def test_figures_are_finite_and_never_zero_for_missing(counts: list[Count], whole: bool) -> None:
    output = parse_output("")._replace(counts=tuple(counts))
    columns = summarize(output, whole_machine=whole).columns()
    numbers = [value for value in columns.values() if isinstance(value, float)]
    assert all(math.isfinite(number) for number in numbers)
    if not any(c.value for c in counts if "cycles" in c.event):
        assert "cycles" not in columns


# Files


def test_several_executions_are_added(tmp_path: Path) -> None:
    paths = [tmp_path / "0", tmp_path / "1"]
    for path, value in zip(paths, (3, 4), strict=True):
        path.write_text(f"{line('cycles', value)}\n{line('duration_time', 5, unit='ns')}\n")
    figures = PerfCounters().read(*paths)
    assert figures.cycles == 7.0
    assert figures.elapsed_s == pytest.approx(10e-9)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "SIGINT"),
        ("# started on Tue Mar  4 10:12:31 2025\n\n", "perf started, but wrote no counts"),
        ("        12,345      cycles\n", "perf stat -j -o FILE"),
        ("\xff\xfe\x00", "no counts"),
    ],
)
def test_a_file_without_counts_is_refused_with_the_remedy(
    tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "counts"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(MeasurementError, match=said) as refused:
        read_counters(path)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MeasurementError, match="message on stderr"):
        read_counters(tmp_path / "none")


@pytest.mark.parametrize(
    "settings",
    [{"events": ()}, {"system_wide": True, "cpus": "0"}, {"per_cpu": True}],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(MeasurementError):
        PerfCounters(**settings)  # type: ignore[arg-type]


def test_whole_cpus_and_a_process_are_not_both_counted(tmp_path: Path) -> None:
    with pytest.raises(MeasurementError):
        PerfCounters(system_wide=True).attach(1, tmp_path / "counts")


# The real perf


def run(counters: PerfCounters, command: list[str], into: Path, **more: object) -> int:
    done = subprocess.run(
        counters.wrap(command, into),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
        **more,  # type: ignore[call-overload]
    )
    return int(done.returncode)


BUSY = [sys.executable, "-S", "-c", "import time\nwhile time.process_time() < 0.25: pass"]


@pytest.mark.parametrize("as_json", [True, False])
def test_the_task_clock_is_the_cpu_time_that_the_kernel_charges(
    tmp_path: Path, as_json: bool
) -> None:
    into = tmp_path / "counts"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start_s = time.monotonic()
    assert run(PerfCounters(SOFTWARE, json=as_json), BUSY, into) == 0
    elapsed_s = time.monotonic() - start_s
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Of perf itself too, which takes some ten milliseconds.
    charged_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    figures = PerfCounters(SOFTWARE).read(into)
    assert figures.task_clock_s == pytest.approx(charged_s, abs=0.1)
    assert 0.25 <= (figures.task_clock_s or 0.0) <= charged_s + 0.005
    assert figures.elapsed_s is not None
    assert (figures.task_clock_s or 0) - 0.01 <= figures.elapsed_s <= elapsed_s
    faults = figures.events["page-faults"].value or 0.0
    assert 10 <= faults <= after.ru_minflt + after.ru_majflt - before.ru_minflt - before.ru_majflt
    assert figures.caveats == ()


def test_events_without_a_counter_are_missing_here_and_exit_0(tmp_path: Path) -> None:
    into = tmp_path / "counts"
    wanted = PerfCounters(EVENTS_BY_MODE)
    assert run(wanted, ["true"], into) == 0
    figures = wanted.read(into)
    assert (figures.task_clock_s or 0) > 0
    if not check_perf(wanted).hardware:
        assert figures.instructions is None
        assert set(figures.columns()) == {"task_clock_s"}
        assert figures.caveats[0].startswith("not supported: instructions:u")


@pytest.mark.parametrize(
    ("script", "status"),
    [("exit 7", 7), ("exit 255", 255), ("kill -SEGV $$", 139), ("kill -KILL $$", 137)],
)
def test_the_status_is_that_of_the_command(tmp_path: Path, script: str, status: int) -> None:
    into = tmp_path / "counts"
    assert run(PerfCounters(SOFTWARE), ["sh", "-c", script], into) == status
    assert (PerfCounters().read(into).task_clock_s or 0) > 0


def test_a_command_that_is_not_there_has_the_status_of_a_shell(tmp_path: Path) -> None:
    assert run(PerfCounters(SOFTWARE), [str(tmp_path / "no")], tmp_path / "counts") == 127


def test_arguments_reach_the_command_as_they_are(tmp_path: Path) -> None:
    odd = ["a b", "$HOME", "'", '"', "*", ";", "--", "-o", "\\", ""]
    said = tmp_path / "said"
    script = "import sys; open(sys.argv[1], 'w').write(repr(sys.argv[2:]))"
    command = [sys.executable, "-S", "-c", script, str(said), *odd]
    assert run(PerfCounters(SOFTWARE), command, tmp_path / "counts") == 0
    assert said.read_text() == repr(odd)


def test_output_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    into = tmp_path / "no" / "counts"
    assert run(PerfCounters(SOFTWARE), ["true"], into) == 255
    with pytest.raises(MeasurementError, match="could not write"):
        PerfCounters().read(into)
    # perf exits 0 on a full disk.
    assert run(PerfCounters(SOFTWARE), ["true"], Path("/dev/full")) == 0


def wait_for(happened: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not happened():
        assert time.monotonic() < until, "it never happened"
        time.sleep(0.01)


def counts_something(pid: int) -> bool:
    """Whether a process has opened counters; perf opens and closes files as it tries events."""
    opened = 0
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            opened += "perf_event" in str(link.readlink())
    return opened >= len(SOFTWARE) - 1


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_a_run_ended_early_keeps_its_counts_on_sigint_only(
    tmp_path: Path, ending: signal.Signals
) -> None:
    into, started = tmp_path / "counts", tmp_path / "started"
    script = f"touch {started}; exec sleep 60"
    process = subprocess.Popen(
        PerfCounters(SOFTWARE).wrap(["sh", "-c", script], into),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_for(started.exists)
        os.killpg(process.pid, ending)
        process.wait(timeout=30)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if ending == signal.SIGINT:
        assert (PerfCounters().read(into).task_clock_s or 0) > 0
    else:
        with pytest.raises(MeasurementError, match=r"wrote no counts.*SIGINT"):
            PerfCounters().read(into)


def test_a_process_that_is_already_there_is_counted_to_its_end(tmp_path: Path) -> None:
    into, go = tmp_path / "counts", tmp_path / "go"
    script = f"while [ ! -e {go} ]; do sleep 0.02; done; {sys.executable} -S -c 'sum(range(10**7))'"
    child = subprocess.Popen(["sh", "-c", script])
    perf = subprocess.Popen(
        PerfCounters(SOFTWARE).attach(child.pid, into),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(lambda: counts_something(perf.pid))
        go.touch()
        assert child.wait(timeout=30) == 0
        assert perf.wait(timeout=30) == 0
    finally:
        for process in (child, perf):
            if process.poll() is None:
                process.kill()
                process.wait()
    assert (PerfCounters().read(into).task_clock_s or 0) > 0.005


@pytest.mark.parametrize("as_json", [True, False])
def test_whole_cpus_are_counted_apart(tmp_path: Path, as_json: bool) -> None:
    into = tmp_path / "counts"
    counters = PerfCounters(SOFTWARE, system_wide=True, per_cpu=True, json=as_json)
    assert run(counters, ["sleep", "0.1"], into) == 0
    figures = counters.read(into)
    online = os.sysconf("SC_NPROCESSORS_ONLN")
    assert set(figures.parts) == {f"CPU{n}" for n in range(online)}
    # Idle or not, every CPU was counted for as long as the run took.
    assert figures.task_clock_s == pytest.approx(online * (figures.elapsed_s or 0), rel=0.1)
    one = PerfCounters(SOFTWARE, cpus="0")
    assert run(one, ["sleep", "0.1"], into) == 0
    assert one.read(into).task_clock_s == pytest.approx(one.read(into).elapsed_s, rel=0.1)


@pytest.fixture(scope="module")
def german(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment in a locale whose decimal sign is a comma."""
    folder = tmp_path_factory.mktemp("locales")
    made = ["localedef", "-i", "de_DE", "-f", "UTF-8", str(folder / "de_DE.UTF-8")]
    subprocess.run(made, check=True, capture_output=True)
    return {**os.environ, "LOCPATH": str(folder), "LC_ALL": "de_DE.UTF-8"}


@pytest.mark.parametrize("options", [[], ["-I", "40"], ["-I", "40", "--summary"], ["-a", "-A"]])
@pytest.mark.parametrize("form", ["-j", "-x;"])
def test_perf_in_another_locale_is_read(
    tmp_path: Path, german: dict[str, str], form: str, options: list[str]
) -> None:
    into = tmp_path / "counts"
    events = ",".join(SOFTWARE)
    command = ["perf", "stat", form, *options, "-o", str(into), "-e", events, "--", "sleep", "0.1"]
    subprocess.run(command, env=german, check=True, timeout=60)
    output = parse_output(into.read_text())
    assert "0,0" in into.read_text() or ",00" in into.read_text()
    assert output.strange == ()
    figures = summarize(output, whole_machine="-a" in options)
    assert figures.elapsed_s is not None
    assert 0.1 <= figures.elapsed_s < 10
    assert figures.task_clock_s is not None
    if "-a" not in options:
        assert 0 < figures.task_clock_s < 0.1


# What can be counted here


def test_this_machine_says_what_it_counts_and_why_not_the_rest() -> None:
    support = check_perf()
    assert support.counters is not None
    assert {"task-clock", "duration_time"} <= set(support.counters.events)
    assert support.counters.json is True
    assert Path(support.counters.program).is_absolute()
    if not support.hardware:
        (reason,) = support.reasons
        assert "virtual PMU" in reason or "no driver" in reason
        assert "--metric time" in reason
        assert "\n" not in reason


def test_what_is_checked_runs(tmp_path: Path) -> None:
    wanted = PerfCounters(EVENTS + CLOCK_EVENTS, system_wide=True)
    counters = check_perf(wanted).counters
    assert counters is not None
    assert counters.system_wide
    assert run(counters, ["true"], tmp_path / "counts") == 0
    assert not any("not supported" in c for c in counters.read(tmp_path / "counts").caveats)


def test_an_event_that_perf_does_not_know_is_left_out() -> None:
    support = check_perf(PerfCounters(("task-clock", "no-such-event")))
    assert support.counters is not None
    assert support.counters.events == ("task-clock",)
    assert support.reasons == ("perf does not know here: no-such-event",)
    nothing = check_perf(PerfCounters(("no-such-event",)))
    assert nothing.counters is None
    assert "perf knows none of no-such-event" in nothing.reasons[0]


def test_without_the_program_the_packages_are_named() -> None:
    support = check_perf(PerfCounters(program="no-such-perf"))
    assert (support.counters, support.hardware) == (None, False)
    assert "apt install linux-perf" in support.reasons[0]
    assert "--metric time" in support.reasons[0]


def stand_in(folder: Path, script: str) -> str:
    """Program that stands in for perf where the real one cannot be brought to do it."""
    program = folder / "perf"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return str(program)


def test_ubuntus_wrapper_without_its_kernel_is_told(tmp_path: Path) -> None:
    said = "WARNING: perf not found for kernel 6.8.0-60"
    program = stand_in(tmp_path, f"echo '{said}' >&2; exit 2")
    (reason,) = check_perf(PerfCounters(program=program)).reasons
    assert said in reason
    assert "linux-tools-$(uname -r)" in reason


def test_a_program_that_does_not_start_is_told(tmp_path: Path) -> None:
    program = tmp_path / "perf"
    program.write_bytes(b"\x7fELF\x02")
    program.chmod(0o755)
    (reason,) = check_perf(PerfCounters(program=str(program))).reasons
    assert "does not work" in reason


def test_an_old_perf_is_asked_for_separated_fields(tmp_path: Path) -> None:
    real = shutil.which("perf")
    # As before 5.19: no -j in the usage, and an error when it is given.
    program = stand_in(
        tmp_path,
        f'for a in "$@"; do [ "$a" = -j ] && exit 129; done\n'
        f'[ "$2" = -h ] && {{ {real} "$@" 2>&1 | grep -v -- --json-output; exit 129; }}\n'
        f'exec {real} "$@"',
    )
    counters = check_perf(PerfCounters(SOFTWARE, program=program)).counters
    assert counters is not None
    assert counters.json is False
    into = tmp_path / "counts"
    assert run(counters, ["true"], into) == 0
    assert ";msec;task-clock;" in into.read_text()
    assert (counters.read(into).task_clock_s or 0) > 0


def printing(folder: Path, text: str) -> str:
    """Program that prints the given counts, whatever it is to count."""
    (folder / "counts").write_text(text)
    script = (
        '[ "$2" = -h ] && { echo "Usage: perf stat -j, --json-output"; exit 129; }\n'
        'while [ "$1" != -o ]; do shift; done\n'
        f'cp "{folder}/counts" "$2"'
    )
    return stand_in(folder, script)


def test_a_hybrid_processor_counts_under_other_names(tmp_path: Path) -> None:
    program = printing(tmp_path, (DATA / "hybrid-6.12-process.json").read_text())
    wanted = PerfCounters(("instructions", "cycles", "LLC-load-misses"), program=program)
    support = check_perf(wanted)
    assert support.counters == replace(wanted, program=program)
    assert (support.hardware, support.reasons) == (True, ())


def test_single_events_that_a_processor_lacks_are_left_out(tmp_path: Path) -> None:
    program = printing(tmp_path, (DATA / "amd-6.1-modes.json").read_text())
    support = check_perf(PerfCounters(EVENTS_BY_MODE, program=program))
    assert support.counters is not None
    assert "LLC-load-misses" not in support.counters.events
    assert support.hardware
    assert support.reasons == (
        "the processor does not count LLC-load-misses: the rest is measured",
    )


@pytest.mark.parametrize(
    ("printed", "taken"),
    [
        ({"cpu_core/cycles/": 5, "cpu_atom/cycles/": "<not supported>"}, True),
        ({"cpu_core/cycles/": "<not supported>", "cpu_atom/cycles/": "<not supported>"}, False),
        ({"cycles:u": "<not supported>"}, False),
        # Too short a trial says nothing against an event.
        ({"cycles:u": "<not counted>"}, True),
    ],
)
def test_an_event_is_taken_where_any_kind_of_core_counts_it(
    tmp_path: Path, printed: dict[str, object], taken: bool
) -> None:
    lines = [line(event, value) for event, value in printed.items()]
    program = printing(tmp_path, "\n".join([*lines, line("task-clock", 5, unit="msec")]))
    support = check_perf(PerfCounters(("cycles", "task-clock"), program=program))
    assert support.counters is not None
    assert ("cycles" in support.counters.events) is taken
    assert support.hardware is taken


def test_user_mode_alone_is_told_with_its_remedy(tmp_path: Path) -> None:
    program = printing(tmp_path, (DATA / "intel-6.1-user-only.json").read_text())
    host = bare_machine(tmp_path)
    host.put("proc/sys/kernel/perf_event_paranoid", 2)
    wanted = PerfCounters(("instructions", "cycles", "task-clock"), program=program)
    (reason,) = check_perf(wanted, procfs=host.procfs).reasons
    assert "kernel.perf_event_paranoid is 2" in reason
    assert "sysctl kernel.perf_event_paranoid=1" in reason
    asked = replace(wanted, events=("instructions:u", "cycles:u"))
    assert check_perf(asked, procfs=host.procfs).reasons == ()


def test_a_machine_without_a_driver_is_not_called_virtual(tmp_path: Path) -> None:
    program = printing(tmp_path, (DATA / "vm-6.1-unsupported.json").read_text())
    host = xeon(tmp_path / "host")
    (reason,) = check_perf(
        PerfCounters(program=program), sysfs=host.sysfs, procfs=host.procfs
    ).reasons
    assert "no driver for this processor's counters" in reason


@pytest.mark.parametrize(
    ("files", "wide", "said"),
    [
        ({"sys/kernel/perf_event_paranoid": "4"}, False, "sysctl kernel.perf_event_paranoid=2"),
        ({"sys/kernel/perf_event_paranoid": "2"}, True, "sysctl kernel.perf_event_paranoid=0"),
        ({"sys/kernel/perf_event_paranoid": "2",
          "self/status": "CapEff:\t000001ffffffffff\nSeccomp:\t2"}, True, "--cap-add PERFMON"),
        ({"sys/kernel/perf_event_paranoid": "1",
          "self/status": "CapEff:\t0000000000000000\nSeccomp:\t2"}, False, "--cap-add PERFMON"),
        ({"sys/kernel/perf_event_paranoid": "4",
          "self/status": "CapEff:\t0000000000000000\nSeccomp:\t2"}, False, "paranoid=2"),
        ({"sys/kernel/perf_event_paranoid": "4",
          "self/status": "CapEff:\t0000004000000000\nSeccomp:\t0"}, False, "No luck"),
        ({"sys/kernel/perf_event_paranoid": "-1", "self/status": "CapEff:\tx"}, False, "No luck"),
        ({}, False, "CONFIG_PERF_EVENTS"),
    ],
)  # fmt: skip
def test_a_refusal_names_who_refused(
    tmp_path: Path, files: dict[str, str], wide: bool, said: str
) -> None:
    usage = '[ "$2" = -h ] && { echo "Usage: perf stat"; exit 129; }'
    program = stand_in(tmp_path, f"{usage}\nprintf 'Error:\\nNo luck today.\\n' >&2; exit 255")
    host = bare_machine(tmp_path)
    for path, text in files.items():
        host.put(f"proc/{path}", text)
    counters = PerfCounters(program=program, system_wide=wide)
    (reason,) = check_perf(counters, procfs=host.procfs).reasons
    assert said in reason
    assert "--metric time" in reason
    assert "\n" not in reason


def reasons_under(prefix: list[str], call: str) -> list[str]:
    """Reasons that `check_perf` gives in a process that is started in another way."""
    script = (
        "import json; from measurements.counters import *; "
        f"print(json.dumps(check_perf({call}).reasons))"
    )
    done = subprocess.run(
        [*prefix, sys.executable, "-c", script],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return list(json.loads(done.stdout))


def test_the_real_system_call_filter_of_a_container_is_recognized() -> None:
    filtered = [sys.executable, str(HERE / "peers/seccomp.py")]
    (reason,) = reasons_under(filtered, "")
    assert "--cap-add PERFMON" in reason
    assert "No permission to enable" in reason


def test_the_real_refusal_without_capabilities_names_the_setting() -> None:
    paranoid = int(Path("/proc/sys/kernel/perf_event_paranoid").read_text())
    bare = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--"]
    reasons = reasons_under(bare, "PerfCounters(('task-clock',), system_wide=True)")
    if paranoid <= 0:
        assert reasons == []
    else:
        (reason,) = reasons
        assert f"kernel.perf_event_paranoid is {paranoid}" in reason
        assert "whole CPUs" in reason
