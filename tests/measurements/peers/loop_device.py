"""A loop device of its own for a test, and what the kernel's tracer is set to."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_SETTINGS = (
    "current_tracer",
    "options/bin",
    "options/context-info",
    "saved_cmdlines_size",
    "tracing_on",
    "set_event",
)


@contextmanager
def loop_device(folder: Path, size_bytes: int) -> Iterator[Path]:
    """Lay a device over a file, past the page cache."""
    image = folder / "disk.img"
    with image.open("wb") as file:
        # Without holes, so that reads reach the disk.
        for _ in range(size_bytes >> 20):
            file.write(bytes(1 << 20))
    said = subprocess.run(
        ["losetup", "--direct-io=on", "--show", "--find", str(image)],
        capture_output=True,
        text=True,
        check=True,
    )
    device = Path(said.stdout.strip())
    try:
        yield device
    finally:
        subprocess.run(["losetup", "--detach", str(device)], check=True)


def is_traced(device: Path) -> bool:
    """Whether the kernel traces the device."""
    return Path("/sys/block", device.name, "trace", "enable").read_text().strip() == "1"


def tracer_settings() -> str:
    """What tracefs says, seen from a mount namespace of its own."""
    files = " ".join(f"/sys/kernel/tracing/{name}" for name in _SETTINGS)
    script = f"mount -t tracefs tracefs /sys/kernel/tracing 2>&-; head -v {files}"
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True, check=True
    ).stdout
