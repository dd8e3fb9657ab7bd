"""Putting settings of the kernel back, in an order that the kernel accepts at every step.

Turbo comes first, since it decides how far the limits reach; then the governor; then the limits,
with the lower one never above the upper; then the speed, which only one governor takes and only
within the limits.

The guard imports this module in a process that must start at once: nothing but small modules of
the standard library here.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

LOWER_LIMIT = "scaling_min_freq"
UPPER_LIMIT = "scaling_max_freq"
GOVERNOR = "scaling_governor"
SPEED = "scaling_setspeed"

_TURBO = ("no_turbo", "boost", "cpb")
_ORDER = {GOVERNOR: 3, LOWER_LIMIT: 4, UPPER_LIMIT: 4, SPEED: 5}
# What they show is what holds now, which may be less than what was asked for: equal is no proof
# that the right value was asked for.
_ALWAYS_WRITTEN = (LOWER_LIMIT, UPPER_LIMIT, SPEED)

_ATTEMPTS = 3
_PAUSE_S = 0.05


class Setting(NamedTuple):
    """A file and the text that it is to hold."""

    path: Path
    value: str


class Unrestored(NamedTuple):
    """A setting that could not be put back, and why."""

    path: Path
    value: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path} should be {self.value!r}: {self.reason}"


def read_setting(path: Path) -> str:
    """Text of a setting without the line's end. Raises OSError."""
    return path.read_bytes().decode(errors="replace").strip()


def shown(path: Path) -> str | None:
    """Text of a setting, or None where it cannot be read."""
    try:
        return read_setting(path)
    except OSError:
        return None


def write_setting(path: Path, value: str) -> None:
    """Write a setting, in one write as the kernel wants it. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    try:
        os.write(descriptor, f"{value}\n".encode())
    finally:
        os.close(descriptor)


def restore(
    settings: Iterable[Setting], *, wait: Callable[[float], None] = time.sleep
) -> list[Unrestored]:
    """Put settings back and read them again; returns those that are not what they should be.

    A setting whose file is gone, as that of a CPU that was taken offline, is among them. Between
    attempts it waits, as ``wait`` does when called with seconds.
    """
    ordered = sorted(settings, key=lambda setting: _rank(setting.path))
    left: list[Unrestored] = []
    for attempt in range(_ATTEMPTS):
        if attempt:
            wait(_PAUSE_S)
        errors = _write_all(ordered)
        left = [found for setting in ordered if (found := _amiss(setting, errors))]
        if not left:
            break
    return left


def limits_in_order(
    folder: Path, lower: str, upper: str, upper_now: str | None
) -> tuple[Setting, Setting]:
    """Order the writes of a policy's two limits so that they never cross.

    Parameters
    ----------
    folder : Path
        Of the policy.
    lower, upper : str
        What the limits are to be (kHz).
    upper_now : str or None
        What the upper one is.
    """
    low, high = Setting(folder / LOWER_LIMIT, lower), Setting(folder / UPPER_LIMIT, upper)
    try:
        rises = int(lower) > int(upper_now or "")
    except ValueError:
        rises = False
    return (high, low) if rises else (low, high)


def _rank(path: Path) -> int:
    if path.name in _TURBO:
        # A switch for all CPUs sets those of the policies too, so theirs come after it.
        return 1 if path.parent.name.startswith("policy") else 0
    return _ORDER.get(path.name, 2)


def _write_all(ordered: Sequence[Setting]) -> dict[Path, str]:
    """Write all, each pair of limits in its order; returns the errors by path."""
    values = {setting.path: setting.value for setting in ordered}
    errors: dict[Path, str] = {}
    done: set[Path] = set()
    for setting in ordered:
        due: Sequence[Setting] = [setting]
        folder, name = setting.path.parent, setting.path.name
        if name in (LOWER_LIMIT, UPPER_LIMIT):
            lower, upper = values.get(folder / LOWER_LIMIT), values.get(folder / UPPER_LIMIT)
            if lower is not None and upper is not None:
                due = limits_in_order(folder, lower, upper, shown(folder / UPPER_LIMIT))
        for one in due:
            if one.path not in done:
                done.add(one.path)
                _write(one, errors)
    return errors


def _write(setting: Setting, errors: dict[Path, str]) -> None:
    try:
        always = setting.path.name in _ALWAYS_WRITTEN
        if always or read_setting(setting.path) != setting.value:
            write_setting(setting.path, setting.value)
    except OSError as error:
        errors[setting.path] = error.strerror or str(error)


def _amiss(setting: Setting, errors: dict[Path, str]) -> Unrestored | None:
    try:
        now = read_setting(setting.path)
    except OSError as error:
        return Unrestored(*setting, f"cannot be read: {error.strerror}")
    if now == setting.value:
        return None
    refusal = f", and refuses: {errors[setting.path]}" if setting.path in errors else ""
    return Unrestored(*setting, f"it is {now!r}{refusal}")
