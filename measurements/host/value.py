"""What a column of a host's state may hold."""

from __future__ import annotations

Value = float | str | bool
