"""Fix the core frequency by cpufreq's limits or its userspace governor, and switch turbo.

The guard (`measurements.processes.settings_guard`) knows how to restore each setting before it is
written. Every write is read back: the kernel does not always take what it was given.
"""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal, Self

from measurements.errors import MeasurementError
from measurements.host import core_frequencies as cpufreq
from measurements.host.files import cpu_list_text
from measurements.processes import settings_guard
from measurements.processes.settings_guard import GOVERNOR, LOWER_LIMIT, SPEED, UPPER_LIMIT
from measurements.table.units import frequency_text, implausible_frequency

Method = Literal["auto", "limits", "userspace"]

_USERSPACE = "userspace"
# Shares of the highest frequency that bound every policy of intel_pstate without showing in its
# limits; turning turbo off may lower the first for good.
_SHARES = ("min_perf_pct", "max_perf_pct")
# To which intel_pstate rounds.
_RATIO_HZ = 1e8
_POLICY_FILES = (GOVERNOR, LOWER_LIMIT, UPPER_LIMIT, SPEED)
_RIVALS = "stop what manages clocks here (tuned, power-profiles-daemon, TLP, thermald)"


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
        self._intel_pstate = cpufreq.cpu_folder(sysfs) / "intel_pstate"
        # What a dry run would have written, and what must still be set at a check.
        self._imagined: dict[Path, str] = {}
        self._expected: dict[Path, str] = {}
        self.writes: list[settings_guard.HostSetting] = []
        self.restored = guard.restored if guard else ()
        self.policies = self._read_policies()
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
        """Take control of the frequency of all logical CPUs.

        ``state`` is the folder of the guard's journal, by default `settings_guard.state_folder`.
        Raises `MeasurementError` when there is no frequency control, no right to it, or another
        ppw has it.
        """
        policies = cpufreq.read_policies(sysfs, procfs=procfs)
        if dry_run:
            return cls(sysfs, procfs, None)
        _refuse_unwritable(policies)
        guard = settings_guard.Guard(lock=cpufreq.cpu_folder(sysfs), state=state)
        try:
            # While heat lowers the limits, the kernel hides those that were set.
            if devices := cpufreq.held_by_heat(sysfs, policies):
                raise MeasurementError(
                    f"the clocks are lowered for heat now ({', '.join(devices)}), so what the "
                    "limits were cannot be told and could not be put back: let the host cool down "
                    "first"
                )
            return cls(sysfs, procfs, guard)
        except BaseException:
            guard.release()
            raise

    @property
    def turbo(self) -> bool | None:
        """Whether turbo is on; None where the kernel does not tell, or it is for some CPUs only."""
        switch = self._turbo_switch()
        if switch is None:
            return None
        values = {self._read(path) for path in switch.paths}
        if values == {switch.on}:
            return True
        return False if values == {switch.off} else None

    def steps(self) -> cpufreq.FrequencyRange:
        """Find the frequencies at which all policies can be fixed: steps, or a range."""
        return cpufreq.common_frequencies(self.policies)

    def refuse_step(self, freq_hz: float) -> None:
        """Raise `MeasurementError` for a frequency that not all policies can be fixed at.

        The message names the steps around it, and the CPUs that cannot take it.
        """
        reason = "it is no number" if math.isnan(freq_hz) else implausible_frequency(freq_hz)
        if reason:
            raise MeasurementError(f"a clock cannot be fixed there: {reason}")
        refusals: dict[str, list[cpufreq.Policy]] = {}
        for policy in self.policies:
            if why := policy.refusal(freq_hz) or self._outside_shares(policy, freq_hz):
                refusals.setdefault(why, []).append(policy)
        wanted = frequency_text(freq_hz)
        if reasons := [f"{_names(those)}: {wanted} {why}" for why, those in refusals.items()]:
            raise MeasurementError("; ".join(reasons))

    def fix(self, freq_hz: float, *, method: Method = "auto") -> None:
        """Fix the frequency of all CPUs at one of `steps`; it is never rounded to one.

        By two equal limits, or by the userspace governor and its speed; "auto" uses the governor
        only where it is in charge already. Raises `MeasurementError` when the frequency is no step
        of a policy, a write is refused, the kernel takes another frequency, or the guard is lost.
        No policy is written unless all can be.
        """
        self.refuse_step(freq_hz)
        methods = {policy.folder: self._method(policy, method) for policy in self.policies}
        self._learn(path for policy in self.policies for path in _policy_files(policy))
        self._expected = {p: v for p, v in self._expected.items() if p.name not in _POLICY_FILES}
        for policy in self.policies:
            methods[policy.folder](policy, cpufreq.in_khz(freq_hz))

    def turn_turbo(self, on: bool) -> None:
        """Turn turbo on or off. Steps and limits may change with it: `fix` afterwards.

        Raises `MeasurementError` when the kernel has no switch, or refuses.
        """
        switch = self._turbo_switch()
        if switch is None:
            raise MeasurementError(
                f"{self.policies[0].driver} under {cpufreq.cpu_folder(self._sysfs)} has no switch "
                "for turbo: set it in the firmware"
            )
        value = switch.on if on else switch.off
        if self.turbo is not on:
            self._learn([*switch.paths, *self._original])
            for path in switch.paths:
                self._write(path, value)
                if self._read(path) != value:
                    raise MeasurementError(refused_write(path, value, OSError(errno.EPERM, "")))
        self._expected = dict.fromkeys(switch.paths, value)
        self.policies = self._read_policies()

    def check(self) -> None:
        """Check that the guard lives and that every setting is still as this control set it.

        Raises `MeasurementError` when the guard is gone, after putting all back, or when something
        else on the host has changed a setting.
        """
        if self._guard is not None:
            self._guard.check()
        for path, value in self._expected.items():
            if (now := self._read(path)) != value:
                raise MeasurementError(
                    f"{path} was set to {value} and is {now}, by something else: {_RIVALS}"
                )

    def close(self) -> list[settings_guard.RestoreFailure]:
        """Put everything back; returns what could not be. A second call does nothing."""
        return self._guard.release() if self._guard is not None else []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if unrestored := self.close():
            raise MeasurementError(settings_guard.not_restored(unrestored))

    def _read_policies(self) -> tuple[cpufreq.Policy, ...]:
        return cpufreq.read_policies(self._sysfs, procfs=self._procfs)

    def _turbo_switch(self) -> cpufreq.TurboSwitch | None:
        return cpufreq.find_turbo(self._sysfs, self.policies, each=False)

    def _settings(self) -> Iterator[Path]:
        """List the files of all that is changed here, or by the kernel when turbo is switched."""
        for each in (False, True):
            if switch := cpufreq.find_turbo(self._sysfs, self.policies, each=each):
                yield from switch.paths
        if self._shares_hold():
            yield from (self._intel_pstate / name for name in _SHARES)
        for policy in self.policies:
            userspace = settings_guard.setting_or_none(policy.folder / GOVERNOR) == _USERSPACE
            # Under other governors there is no speed to put back.
            yield from (p for p in _policy_files(policy) if userspace or p.name != SPEED)

    def _shares_hold(self) -> bool:
        return settings_guard.setting_or_none(self._intel_pstate / "status") == "active"

    def _read(self, path: Path) -> str | None:
        return self._imagined.get(path) or settings_guard.setting_or_none(path)

    def _write(self, path: Path, value: str, *, goes_with: Path | None = None) -> None:
        self.writes.append(settings_guard.HostSetting(path, value))
        if self._guard is None:
            self._imagined[path] = value
            return
        try:
            self._guard.change(path, value, goes_with=goes_with)
        except OSError as error:
            raise MeasurementError(refused_write(path, value, error)) from error

    def _learn(self, paths: Iterable[Path]) -> None:
        known = {path: self._original[path] for path in paths if path in self._original}
        if self._guard is not None:
            self._guard.learn(known.items())

    def _outside_shares(self, policy: cpufreq.Policy, freq_hz: float) -> str | None:
        if not self._shares_hold():
            return None
        for name, sign, remedy in zip(_SHARES, (-1, 1), (0, 100), strict=True):
            path = self._intel_pstate / name
            bound = policy.highest_hz * float(settings_guard.setting_or_none(path) or "nan") / 100
            if sign * (freq_hz - bound) > _RATIO_HZ:
                return f"is kept from the processor by {path}: write {remedy} there first"
        return None

    def _method(
        self, policy: cpufreq.Policy, method: Method
    ) -> Callable[[cpufreq.Policy, int], None]:
        in_charge = self._read(policy.folder / GOVERNOR) == _USERSPACE
        if method == "limits" or (method == "auto" and not in_charge):
            return self._fix_limits
        if not in_charge and _USERSPACE not in policy.governors:
            raise MeasurementError(
                f"{policy.name} ({policy.driver}) has no userspace governor: load it with "
                "modprobe cpufreq_userspace, or fix the clock by limits"
            )
        return self._fix_speed

    def _fix_limits(self, policy: cpufreq.Policy, khz: int) -> None:
        now = self._read(policy.folder / UPPER_LIMIT)
        limits = settings_guard.limits_in_order(policy.folder, str(khz), str(khz), now)
        for path, value in limits:
            self._write(path, value)
        self._expect(policy, dict(limits))

    def _fix_speed(self, policy: cpufreq.Policy, khz: int) -> None:
        governor, speed = policy.folder / GOVERNOR, policy.folder / SPEED
        if self._read(governor) != _USERSPACE:
            self._write(governor, _USERSPACE)
        # It takes no speed outside the limits.
        for name, sign in ((LOWER_LIMIT, -1), (UPPER_LIMIT, 1)):
            limit = self._read(policy.folder / name) or ""
            if limit.isdecimal() and sign * (khz - int(limit)) > 0:
                self._write(policy.folder / name, str(khz))
        # The speed is forgotten with the governor, so that putting that back is enough.
        self._write(speed, str(khz), goes_with=governor)
        self._expect(policy, {governor: _USERSPACE, speed: str(khz)})

    def _expect(self, policy: cpufreq.Policy, values: dict[Path, str]) -> None:
        for path, value in values.items():
            if (now := self._read(path)) != value:
                raise MeasurementError(
                    f"{policy.name} (CPUs {cpu_list_text(policy.cpus)}) has {path.name} {now} "
                    f"after {value} was written: {self._why_other(policy, value)}"
                )
        self._expected |= values

    def _why_other(self, policy: cpufreq.Policy, value: str) -> str:
        limit = cpufreq.read_hz(policy.folder / "bios_limit")
        if value.isdecimal() and limit is not None and cpufreq.in_khz(limit) < int(value):
            return f"the firmware allows no more than {frequency_text(limit)} (bios_limit)"
        if self.turbo is False and policy.steps_hz == ():
            return "turbo is off, or heat or a power limit holds it"
        return f"heat or a power limit holds it, or a daemon does: {_RIVALS}"


def _refuse_unwritable(policies: Iterable[cpufreq.Policy]) -> None:
    for policy in policies:
        path = policy.folder / LOWER_LIMIT
        if not os.access(path, os.W_OK):
            read_only = os.statvfs(path).f_flag & os.ST_RDONLY
            error = OSError(errno.EROFS if read_only else errno.EACCES, "")
            raise MeasurementError(refused_write(path, "", error))


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
        return f"no right to set clocks in {path}: run as root (sudo), or measure with --as-found"
    return f"{path} takes no {value!r}: {error.strerror}"


def _policy_files(policy: cpufreq.Policy) -> list[Path]:
    return [policy.folder / name for name in _POLICY_FILES]


def _names(policies: list[cpufreq.Policy]) -> str:
    names = [policy.name for policy in policies]
    if len(names) > 3:
        names = [names[0], "…", names[-1]]
    cpus = cpu_list_text(cpu for policy in policies for cpu in policy.cpus)
    return f"{', '.join(names)} (CPUs {cpus})"
