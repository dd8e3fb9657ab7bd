"""Frequencies of the cores and of the uncore: their limits and present values, and fixing them.

cpufreq's files are in kHz; everything here is in Hz. A policy is a set of logical CPUs whose
frequency is set together. Old kernels keep a policy's files below each of its CPUs.

A core frequency is fixed by cpufreq's limits or its userspace governor. The guard
(`measurements.processes.settings_guard`) knows how to restore each setting before it is written.
Every write is read back: the kernel does not always take what it was given.
"""

import errno
import math
import os
import re
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, Self

from measurements.errors import MeasurementError, on_error
from measurements.host import files, processor
from measurements.processes import settings_guard
from measurements.processes.settings_guard import GOVERNOR, LOWER_LIMIT, SPEED, UPPER_LIMIT
from measurements.table.units import frequency_text, implausible_frequency

_HZ_PER_KHZ = 1e3
_UNCORE = {
    "uncore_freq_hz": ("current_freq_khz", max),
    "uncore_min_freq_hz": ("min_freq_khz", min),
    "uncore_max_freq_hz": ("max_freq_khz", max),
}
# acpi-cpufreq lists turbo as a step this much above the highest real one.
_TURBO_MARK_HZ = 1e6
# Cooling devices that work by cpufreq: of ACPI, and of device trees.
_COOLING = ("Processor", "cpufreq", "thermal-cpufreq")


def current_frequencies(sysfs: Path) -> dict[int, float]:
    """Read the last known frequency of each CPU (Hz); {} without cpufreq."""
    found = {}
    for folder in cpu_folder(sysfs).glob("cpu[0-9]*"):
        khz = files.read_number(folder / "cpufreq/scaling_cur_freq")
        if khz and (number := re.fullmatch(r"cpu(\d+)", folder.name)):
            found[int(number[1])] = khz * _HZ_PER_KHZ
    return dict(sorted(found.items()))


def clock_state(sysfs: Path) -> dict[str, files.Value]:
    """Read turbo, driver, governor, limits and preferences of core and uncore frequencies."""
    cpu = cpu_folder(sysfs)
    policies = sorted((cpu / "cpufreq").glob("policy[0-9]*"))
    texts = ("scaling_driver", "scaling_governor", "energy_performance_preference")
    state: dict[str, files.Value | None] = {
        name: files.shared_text(policy / name for policy in policies) for name in texts
    }
    for name, widest in (("scaling_min_freq", min), ("scaling_max_freq", max)):
        state[f"{name}_hz"] = _extreme_hz(widest, (policy / name for policy in policies))
    state["energy_performance_bias"] = files.shared_text(
        cpu.glob("cpu[0-9]*/power/energy_perf_bias")
    )
    state["turbo"] = _read_turbo_state(cpu, policies)
    # The drivers that choose the frequency themselves.
    for driver in ("intel_pstate", "amd_pstate"):
        if mode := files.read_text(cpu / driver / "status"):
            state["pstate_mode"] = mode
    intel = cpu / "intel_pstate"
    state["pstate_min_share"] = files.read_number(intel / "min_perf_pct", 0.01)
    state["pstate_max_share"] = files.read_number(intel / "max_perf_pct", 0.01)
    state["hwp_dynamic_boost"] = files.read_flag(intel / "hwp_dynamic_boost")
    for column, (name, widest) in _UNCORE.items():
        state[column] = _extreme_hz(widest, (cpu / "intel_uncore_frequency").glob(f"*/{name}"))
    return files.without_missing(state)


def _extreme_hz(choose: Callable[[list[float]], float], paths: Iterable[Path]) -> float | None:
    """Choose among the numbers in files of kHz, without zeros (Hz); None without any."""
    khz = [number for number in files.read_numbers(paths) if number]
    return choose(khz) * _HZ_PER_KHZ if khz else None


def _read_turbo_state(cpu: Path, policies: Iterable[Path]) -> bool | None:
    if (no_turbo := files.read_flag(cpu / "intel_pstate/no_turbo")) is not None:
        return not no_turbo
    boost = files.read_flag(cpu / "cpufreq/boost")
    each = [flag for p in policies if (flag := files.read_flag(p / "boost")) is not None]
    # Where it is on for the host, single policies may still be without it.
    if boost is False or not each:
        return boost
    return any(each)


@dataclass(frozen=True, slots=True)
class Policy:
    """Logical CPUs whose frequency is set together, and the frequencies that they can run at."""

    folder: Path
    cpus: tuple[int, ...]  # those of its logical CPUs that are online
    # Such as "acpi-cpufreq", "intel_pstate", "intel_cpufreq" (intel_pstate in passive mode) or
    # "amd-pstate-epp".
    driver: str
    # Range of the processor; the highest moves with turbo under some drivers.
    lowest_hz: float
    highest_hz: float
    # Ascending; empty where the driver takes any frequency of the range.
    steps_hz: tuple[float, ...]
    governors: tuple[str, ...]
    # Entry of acpi-cpufreq's table that stands for turbo; no frequency that can be fixed.
    turbo_mark_hz: float | None = None

    @property
    def name(self) -> str:
        """The kernel's name: "policy0", or "cpu0" by an old kernel."""
        return self.folder.parent.name if self.folder.name == "cpufreq" else self.folder.name

    def refusal(self, freq_hz: float) -> str | None:
        """Say why the frequency cannot be fixed, or None where it can."""
        khz = in_khz(freq_hz)
        if not self.steps_hz:
            if in_khz(self.lowest_hz) <= khz <= in_khz(self.highest_hz):
                return None
            low, high = map(frequency_text, (self.lowest_hz, self.highest_hz))
            return f"is outside the range from {low} to {high}"
        steps = [in_khz(step) for step in self.steps_hz]
        if khz in steps:
            return None
        texts = [frequency_text(step) for step in self.steps_hz]
        if self.turbo_mark_hz is not None and khz == in_khz(self.turbo_mark_hz):
            return f"stands for turbo, whose frequency varies; the highest step is {texts[-1]}"
        at = bisect(steps, khz)
        if at == 0:
            return f"is below the lowest step, {texts[0]}"
        if at == len(steps):
            return f"is above the highest step, {texts[-1]}"
        return f"is not a frequency step; the nearest are {texts[at - 1]} and {texts[at]}"


class FrequencyRange(NamedTuple):
    """Frequencies that several policies share (Hz)."""

    lowest_hz: float  # NaN without any, as the highest
    highest_hz: float
    steps_hz: tuple[float, ...]  # ascending; empty where any frequency of the range can be set


class TurboSwitch(NamedTuple):
    """The files that turn turbo on and off, and what they hold for either."""

    paths: tuple[Path, ...]
    on: str
    off: str


def cpu_folder(sysfs: Path) -> Path:
    """Name the folder of the host's CPUs in a sysfs tree."""
    return sysfs / "devices/system/cpu"


def in_khz(freq_hz: float) -> int:
    """Convert a frequency (Hz) to the integer that cpufreq reads and writes (kHz)."""
    return round(freq_hz / _HZ_PER_KHZ)


def read_hz(path: Path) -> float | None:
    """Read a frequency (Hz); None where the file has no positive number."""
    khz = files.read_number(path)
    return khz * _HZ_PER_KHZ if khz and khz > 0 else None


def read_policies(
    sysfs: Path = Path("/sys"), *, procfs: Path = Path("/proc")
) -> tuple[Policy, ...]:
    """Read the policies of all logical CPUs that are online."""
    cpu = cpu_folder(sysfs)
    # Under an old kernel, CPUs of one policy have links to the folder of the first.
    folders = list((cpu / "cpufreq").glob("policy[0-9]*")) or list(
        {folder.resolve() for folder in cpu.glob("cpu[0-9]*/cpufreq")}
    )
    read = (policy for folder in folders if (policy := _read_policy(folder)).cpus)
    policies = sorted(read, key=lambda policy: policy.cpus)
    if not policies:
        raise MeasurementError(_why_no_frequency_control(sysfs, procfs))
    return tuple(policies)


def _read_policy(folder: Path) -> Policy:
    """Read one policy; it has no CPUs where they are offline or have no range."""
    highest = read_hz(folder / "cpuinfo_max_freq")
    lowest = read_hz(folder / "cpuinfo_min_freq")
    cpus = files.parse_cpu_list(files.read_field(folder / "affected_cpus"))
    driver = files.read_field(folder / "scaling_driver") or "unknown"
    # Steps of turbo are listed even while it is off.
    listed = {
        float(khz) * _HZ_PER_KHZ
        for name in ("scaling_available_frequencies", "scaling_boost_frequencies")
        for khz in files.read_field(folder / name).split()
        if khz.isdecimal()
    }
    steps = sorted(step for step in listed if step <= (highest or 0.0))
    mark = None
    if driver == "acpi-cpufreq" and len(steps) > 1 and steps[-1] - steps[-2] == _TURBO_MARK_HZ:
        mark = steps.pop()
    return Policy(
        folder,
        () if lowest is None or highest is None else cpus,
        driver,
        lowest_hz=lowest or math.nan,
        highest_hz=highest or math.nan,
        steps_hz=tuple(steps),
        governors=tuple(files.read_field(folder / "scaling_available_governors").split()),
        turbo_mark_hz=mark,
    )


def _why_no_frequency_control(sysfs: Path, procfs: Path) -> str:
    where = f"no frequency control under {cpu_folder(sysfs)}"
    if not os.access(cpu_folder(sysfs), os.R_OK | os.X_OK):
        return f"{where}: there is no such folder, or it cannot be read"
    why = (
        "the processor has no such control (as Atom D510 and D525), it is off in the firmware, "
        "or its driver is not loaded (modprobe acpi-cpufreq)"
    )
    if "hypervisor" in processor.cpu_flags(procfs):
        why = "this is a virtual machine, and its host controls the core frequency"
    return f"{where}: {why}; --as-found measures at the present frequency"


def common_frequencies(policies: Sequence[Policy]) -> FrequencyRange:
    """Find the frequencies that all these policies can be fixed at."""
    lowest = max(policy.lowest_hz for policy in policies)
    highest = min(policy.highest_hz for policy in policies)
    tables = [set(policy.steps_hz) for policy in policies if policy.steps_hz]
    steps: list[float] = []
    if tables:
        steps = sorted(s for s in tables[0].intersection(*tables) if lowest <= s <= highest)
        lowest, highest = (steps[0], steps[-1]) if steps else (math.nan, math.nan)
    if not lowest <= highest:
        lowest = highest = math.nan
    return FrequencyRange(lowest, highest, tuple(steps))


def find_turbo(sysfs: Path, policies: Iterable[Policy], *, each: bool) -> TurboSwitch | None:
    """Find the switch of turbo, or None; ``each`` prefers those of single policies."""
    folders = [policy.folder for policy in policies]
    inverse = cpu_folder(sysfs) / "intel_pstate/no_turbo"
    if inverse.exists():
        return TurboSwitch((inverse,), on="0", off="1")
    of_host = cpu_folder(sysfs) / "cpufreq/boost"
    if each or not of_host.exists():
        for name in ("boost", "cpb"):
            paths = tuple(folder / name for folder in folders)
            if paths and all(path.exists() for path in paths):
                return TurboSwitch(paths, on="1", off="0")
    return TurboSwitch((of_host,), on="1", off="0") if of_host.exists() else None


def held_by_heat(sysfs: Path, policies: Iterable[Policy]) -> list[str]:
    """Name the cooling devices that lower the limits of these policies now, for heat."""
    lowered = any((read_hz(p.folder / UPPER_LIMIT) or 0.0) < p.highest_hz for p in policies)
    devices = (sysfs / "class/thermal").glob("cooling_device*") if lowered else ()
    return sorted(
        device.name
        for device in devices
        if files.read_field(device / "type").startswith(_COOLING)
        and files.read_field(device / "cur_state") not in ("", "0")
    )


Method = Literal["auto", "limits", "userspace"]

_USERSPACE = "userspace"
# Shares of the highest frequency that bound every policy of intel_pstate without showing in its
# limits; turning turbo off may lower the first for good.
_SHARES = ("min_perf_pct", "max_perf_pct")
# To which intel_pstate rounds.
_RATIO_HZ = 1e8
_POLICY_FILES = (GOVERNOR, LOWER_LIMIT, UPPER_LIMIT, SPEED)
_RIVALS = "stop what else sets core frequencies here (tuned, power-profiles-daemon, TLP, thermald)"


class FrequencyControl:
    """Set frequencies of this host until it is closed; then every setting is as it was.

    Made by `open` and used as a context manager. With ``dry_run`` nothing is written and no right
    is needed: `writes` is what would be, else every write so far. ``policies`` are those that it
    sets, ``restored`` is what a killed ppw had left and was put back on opening.

    Examples
    --------
    >>> with FrequencyControl.open() as control:  # doctest: +SKIP
    ...     control.turn_turbo(False)
    ...     control.fix(1.8e9)
    """

    def __init__(self, sysfs: Path, procfs: Path, guard: settings_guard.Guard | None) -> None:
        self._sysfs, self._procfs, self._guard = sysfs, procfs, guard
        self._intel_pstate = cpu_folder(sysfs) / "intel_pstate"
        # What a dry run would have written, and what must still be set at a check.
        self._imagined: dict[Path, str] = {}
        self._expected: dict[Path, str] = {}
        self.writes: list[settings_guard.HostSetting] = []
        self.restored = guard.restored if guard else ()
        self.policies = read_policies(self._sysfs, procfs=self._procfs)
        # Read before anything is changed: turning turbo off moves limits too.
        settings = {path: settings_guard.setting_or_none(path) for path in self._settings()}
        self._original = {path: value for path, value in settings.items() if value is not None}

    @classmethod
    def open(
        cls,
        *,
        sysfs: Path = Path("/sys"),
        procfs: Path = Path("/proc"),
        dry_run: bool = False,
        state: Path | None = None,
    ) -> Self:
        """Take control of the frequency of all CPUs; the guard's journal is in ``state``."""
        policies = read_policies(sysfs, procfs=procfs)
        if dry_run:
            return cls(sysfs, procfs, None)
        for policy in policies:
            path = policy.folder / LOWER_LIMIT
            if not os.access(path, os.W_OK):
                read_only = os.statvfs(path).f_flag & os.ST_RDONLY
                error = OSError(errno.EROFS if read_only else errno.EACCES, "")
                raise MeasurementError(refused_write(path, "", error))
        guard = settings_guard.Guard(lock=cpu_folder(sysfs), state=state)
        with on_error(guard.release):
            # While heat lowers the limits, the kernel hides those that were set.
            if devices := held_by_heat(sysfs, policies):
                raise MeasurementError(
                    f"the core frequencies are lowered for heat now ({', '.join(devices)}), so ppw "
                    "cannot read the original limits and could not restore them: let the host cool "
                    "down first"
                )
            return cls(sysfs, procfs, guard)

    @property
    def turbo(self) -> bool | None:
        """Whether turbo is on; None where the kernel does not tell, or it is for some CPUs only."""
        switch = find_turbo(self._sysfs, self.policies, each=False)
        if switch is None:
            return None
        values = {self._read_or_imagine(path) for path in switch.paths}
        if values == {switch.on}:
            return True
        return False if values == {switch.off} else None

    def steps(self) -> FrequencyRange:
        """Find the frequencies at which all policies can be fixed: steps, or a range."""
        return common_frequencies(self.policies)

    def refuse_step(self, freq_hz: float) -> None:
        """Raise `MeasurementError` for a frequency that not all policies can be fixed at."""
        reason = "it is no number" if math.isnan(freq_hz) else implausible_frequency(freq_hz)
        if reason:
            raise MeasurementError(f"the core frequency cannot be fixed at this value: {reason}")
        refusals: dict[str, list[Policy]] = {}
        for policy in self.policies:
            if why := policy.refusal(freq_hz) or self._why_outside_shares(policy, freq_hz):
                refusals.setdefault(why, []).append(policy)
        wanted = frequency_text(freq_hz)
        if reasons := [f"{_policy_names_text(of)}: {wanted} {why}" for why, of in refusals.items()]:
            raise MeasurementError("; ".join(reasons))

    def fix(self, freq_hz: float, *, method: Method = "auto") -> None:
        """Fix the frequency of all CPUs at one of `steps`; it is never rounded to one.

        By two equal limits, or by the userspace governor and its speed; "auto" uses the governor
        only where it is in charge already. Raises `MeasurementError` when the frequency is no step
        of a policy, a write is refused, the kernel takes another frequency, or the guard is lost.
        No policy is written unless all can be.
        """
        self.refuse_step(freq_hz)
        methods = {policy.folder: self._choose_fix(policy, method) for policy in self.policies}
        self._tell_guard(path for policy in self.policies for path in _policy_files(policy))
        self._expected = {p: v for p, v in self._expected.items() if p.name not in _POLICY_FILES}
        for policy in self.policies:
            methods[policy.folder](policy, in_khz(freq_hz))

    def turn_turbo(self, on: bool) -> None:
        """Turn turbo on or off. Steps and limits may change with it: `fix` afterwards."""
        switch = find_turbo(self._sysfs, self.policies, each=False)
        if switch is None:
            raise MeasurementError(
                f"{self.policies[0].driver} under {cpu_folder(self._sysfs)} has no switch "
                "for turbo: set it in the firmware"
            )
        value = switch.on if on else switch.off
        if self.turbo is not on:
            self._tell_guard([*switch.paths, *self._original])
            for path in switch.paths:
                self._write_or_imagine(path, value)
                if self._read_or_imagine(path) != value:
                    raise MeasurementError(refused_write(path, value, OSError(errno.EPERM, "")))
        self._expected = dict.fromkeys(switch.paths, value)
        self.policies = read_policies(self._sysfs, procfs=self._procfs)

    def check(self) -> None:
        """Raise `MeasurementError` where the guard is gone or something changed a setting."""
        if self._guard is not None:
            self._guard.check()
        for path, value in self._expected.items():
            if (now := self._read_or_imagine(path)) != value:
                raise MeasurementError(
                    f"ppw set {path} to {value}, but something changed it to {now}: {_RIVALS}"
                )

    def close(self) -> list[settings_guard.RestoreFailure]:
        """Put everything back; returns what could not be. A second call does nothing."""
        return self._guard.release() if self._guard is not None else []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if unrestored := self.close():
            raise MeasurementError(settings_guard.not_restored(unrestored))

    def _settings(self) -> Iterator[Path]:
        """List the files of all that is changed here, or by the kernel when turbo is switched."""
        for each in (False, True):
            if switch := find_turbo(self._sysfs, self.policies, each=each):
                yield from switch.paths
        if self._intel_pstate_is_active():
            yield from (self._intel_pstate / name for name in _SHARES)
        for policy in self.policies:
            userspace = settings_guard.setting_or_none(policy.folder / GOVERNOR) == _USERSPACE
            # Under other governors there is no speed to put back.
            yield from (p for p in _policy_files(policy) if userspace or p.name != SPEED)

    def _intel_pstate_is_active(self) -> bool:
        return settings_guard.setting_or_none(self._intel_pstate / "status") == "active"

    def _read_or_imagine(self, path: Path) -> str | None:
        return self._imagined.get(path) or settings_guard.setting_or_none(path)

    def _write_or_imagine(self, path: Path, value: str, *, goes_with: Path | None = None) -> None:
        """Write a setting through the guard; in a dry run only remember it."""
        self.writes.append(settings_guard.HostSetting(path, value))
        if self._guard is None:
            self._imagined[path] = value
            return
        try:
            self._guard.change(path, value, goes_with=goes_with)
        except OSError as error:
            raise MeasurementError(refused_write(path, value, error)) from error

    def _tell_guard(self, paths: Iterable[Path]) -> None:
        """Tell the guard what stood in these files at first."""
        known = {path: self._original[path] for path in paths if path in self._original}
        if self._guard is not None:
            self._guard.learn(known.items())

    def _why_outside_shares(self, policy: Policy, freq_hz: float) -> str | None:
        if not self._intel_pstate_is_active():
            return None
        for name, sign, remedy in zip(_SHARES, (-1, 1), (0, 100), strict=True):
            path = self._intel_pstate / name
            bound = policy.highest_hz * float(settings_guard.setting_or_none(path) or "nan") / 100
            if sign * (freq_hz - bound) > _RATIO_HZ:
                return f"is not possible, because {path} limits it: write {remedy} there first"
        return None

    def _choose_fix(self, policy: Policy, method: Method) -> Callable[[Policy, int], None]:
        """Choose how to fix a frequency: by both limits, or by the userspace governor."""
        in_charge = self._read_or_imagine(policy.folder / GOVERNOR) == _USERSPACE
        if method == "limits" or (method == "auto" and not in_charge):
            return self._fix_limits
        if not in_charge and _USERSPACE not in policy.governors:
            raise MeasurementError(
                f"{policy.name} ({policy.driver}) has no userspace governor: load it with modprobe "
                "cpufreq_userspace, or fix the core frequency by limits"
            )
        return self._fix_speed

    def _fix_limits(self, policy: Policy, khz: int) -> None:
        now = self._read_or_imagine(policy.folder / UPPER_LIMIT)
        limits = settings_guard.limits_in_order(policy.folder, str(khz), str(khz), now)
        for path, value in limits:
            self._write_or_imagine(path, value)
        self._verify_and_expect(policy, dict(limits))

    def _fix_speed(self, policy: Policy, khz: int) -> None:
        governor, speed = policy.folder / GOVERNOR, policy.folder / SPEED
        if self._read_or_imagine(governor) != _USERSPACE:
            self._write_or_imagine(governor, _USERSPACE)
        # It takes no speed outside the limits.
        for name, sign in ((LOWER_LIMIT, -1), (UPPER_LIMIT, 1)):
            limit = self._read_or_imagine(policy.folder / name) or ""
            if limit.isdecimal() and sign * (khz - int(limit)) > 0:
                self._write_or_imagine(policy.folder / name, str(khz))
        # The speed is forgotten with the governor, so that putting that back is enough.
        self._write_or_imagine(speed, str(khz), goes_with=governor)
        self._verify_and_expect(policy, {governor: _USERSPACE, speed: str(khz)})

    def _verify_and_expect(self, policy: Policy, values: dict[Path, str]) -> None:
        """Raise unless settings read back as written; remember them for `check`."""
        for path, value in values.items():
            if (now := self._read_or_imagine(path)) != value:
                raise MeasurementError(
                    f"{policy.name} (CPUs {files.cpu_list_text(policy.cpus)}) has {path.name} "
                    f"{now} after {value} was written: {self._why_value_differs(policy, value)}"
                )
        self._expected |= values

    def _why_value_differs(self, policy: Policy, value: str) -> str:
        limit = read_hz(policy.folder / "bios_limit")
        if value.isdecimal() and limit is not None and in_khz(limit) < int(value):
            return f"the firmware allows no more than {frequency_text(limit)} (bios_limit)"
        if self.turbo is False and policy.steps_hz == ():
            return "turbo is off, or heat or a power limit holds it"
        return f"heat or a power limit holds it, or a daemon does: {_RIVALS}"


def refused_write(path: Path, value: str, error: OSError) -> str:
    """Say why the kernel refused a write, and the remedy."""
    if error.errno == errno.EROFS:
        return (
            f"{path} is mounted read-only, as in a container: run ppw on the host, give the "
            "container the right to it (--privileged), or measure with --as-found"
        )
    if error.errno == errno.EPERM and path.name in ("no_turbo", "boost", "cpb"):
        return f"{path} takes no {value}: turbo is off in the firmware, or the processor has none"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"no right to write {path}: run as root (sudo), or measure with --as-found"
    return f"{path} takes no {value!r}: {error.strerror}"


def _policy_files(policy: Policy) -> list[Path]:
    return [policy.folder / name for name in _POLICY_FILES]


def _policy_names_text(policies: list[Policy]) -> str:
    names = [policy.name for policy in policies]
    if len(names) > 3:
        names = [names[0], "…", names[-1]]
    cpus = files.cpu_list_text(cpu for policy in policies for cpu in policy.cpus)
    return f"{', '.join(names)} (CPUs {cpus})"
