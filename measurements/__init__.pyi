from collections.abc import Callable, Mapping
from typing import Any

from .errors import BadRunsError as BadRunsError, MeasurementError as MeasurementError
from .imports.importing import import_runs as import_runs
from .table.checks import check_runs as check_runs, identity_columns as identity_columns
from .table.reading import read_runs as read_runs, tidy_runs as tidy_runs
from .table.units import parse_frequency as parse_frequency, parse_quantity as parse_quantity
from .table.writing import write_runs as write_runs

def load_late(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]: ...
