"""What the activities of sar become, by their names in ``sadf -j`` and ``sadf -d``."""

from __future__ import annotations

from typing import NamedTuple

KIB = 1024.0
MS = 1e-3
PERCENT = 0.01


class Field(NamedTuple):
    """A column, and the factor to its unit; several fields of one column are added up."""

    column: str
    factor: float = 1.0


# Shares of CPU time. `usr` is user without guests (-u ALL), `user` with them; `system` has the
# interrupts in it, `sys` has not.
CPU = {
    "user": Field("user_s", PERCENT),
    "usr": Field("user_s", PERCENT),
    "nice": Field("nice_s", PERCENT),
    "system": Field("system_s", PERCENT),
    "sys": Field("system_s", PERCENT),
    "iowait": Field("iowait_s", PERCENT),
    "steal": Field("steal_s", PERCENT),
    "irq": Field("irq_s", PERCENT),
    "soft": Field("softirq_s", PERCENT),
    "idle": Field("idle_s", PERCENT),
    "guest": Field("guest_s", PERCENT),
    "gnice": Field("guest_s", PERCENT),
}

HOST = {
    "process-and-context-switch": {"cswch": Field("context_switches")},
    "paging": {"majflt": Field("major_faults")},
    "memory": {
        "memfree": Field("memory_free_bytes", KIB),
        "avail": Field("memory_available_bytes", KIB),
        "buffers": Field("memory_buffers_bytes", KIB),
        "cached": Field("memory_cached_bytes", KIB),
        "inactive": Field("memory_inactive_bytes", KIB),
        "swpused": Field("swap_used_bytes", KIB),
    },
    "queue": {"runq-sz": Field("run_queue"), "blocked": Field("blocked")},
}

# Totals of the physical disks (-b); those of -d take their place where they are there.
IO = {
    "io-reads": {"rtps": Field("ios_read"), "bread": Field("sectors_read")},
    "io-writes": {"wtps": Field("ios_written"), "bwrtn": Field("sectors_written")},
}

DISK = {
    "tps": Field("disk_ios"),
    "rkB": Field("disk_read_bytes", KIB),
    "wkB": Field("disk_written_bytes", KIB),
    "aqu-sz": Field("disk_queue"),
    "await": Field("disk_wait_s", MS),
    "util-percent": Field("disk_busy_share", PERCENT),
}
# Older names of the same; used where the newer ones are not there.
DISK_BEFORE = {
    "rd_sec": Field("disk_read_bytes", 512.0),
    "wr_sec": Field("disk_written_bytes", 512.0),
    "avgqu-sz": Field("disk_queue"),
}

INTERFACE = {
    "rxpck": Field("network_rx_packets"),
    "txpck": Field("network_tx_packets"),
    "rxkB": Field("network_rx_bytes", KIB),
    "txkB": Field("network_tx_bytes", KIB),
}
INTERFACE_ERRORS = {
    "rxerr": Field("network_errors"),
    "txerr": Field("network_errors"),
    "rxdrop": Field("network_rx_drops"),
    "txdrop": Field("network_tx_drops"),
}

# Size of a page, where the processor has one only.
PAGE_BYTES = {"x86_64": 4096.0, "i686": 4096.0, "s390x": 4096.0}
