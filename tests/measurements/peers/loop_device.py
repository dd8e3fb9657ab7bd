"""A loop device of its own for a test, and what the kernel's tracer is set to."""

import subprocess
from contextlib import contextmanager
from pathlib import Path


def _said(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@contextmanager
def loop_device(folder, size_bytes):
    """Lay a device over a file, past the page cache."""
    image = folder / "disk.img"
    # Without holes, so that reads reach the disk.
    image.write_bytes(bytes(size_bytes))
    device = _said("losetup", "--direct-io=on", "--show", "--find", str(image)).strip()
    try:
        yield Path(device)
    finally:
        _said("losetup", "--detach", device)


def is_traced(device):
    return Path("/sys/block", device.name, "trace", "enable").read_text().strip() == "1"


def tracer_settings():
    """What tracefs says, seen from a mount namespace of its own."""
    names = ("current_tracer", "options/bin", "options/context-info", "saved_cmdlines_size")
    files = (f"/sys/kernel/tracing/{name}" for name in (*names, "tracing_on", "set_event"))
    script = f"mount -t tracefs tracefs /sys/kernel/tracing 2>&-; head -v {' '.join(files)}"
    return _said("unshare", "--mount", "sh", "-c", script)
