"""The subcommands by name."""

from __future__ import annotations

from ppw.cli.lazy import LazyGroup

COMMANDS = (
    *("best", "calibrate", "characterise", "check", "colocate", "compare", "cpio", "datasets"),
    *("demo", "fit", "fleet", "hosts", "knee", "measure", "pathlength", "plan", "powerload"),
    *("pressure", "project", "rightsize", "run", "sample", "sensors", "size", "trace"),
    "validate",
)


class Commands(LazyGroup):
    """The commands of `ppw`, each in ``ppw.cli.<name>``."""

    prefix = "ppw.cli."
    members = dict.fromkeys(COMMANDS, "")
