"""`ppw hosts`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ppw.cli.choices import complete_host
from ppw.cli.options import output_options_of
from ppw.cli.output import write

if TYPE_CHECKING:
    from ppw.hosts import Host


@click.command(
    name="hosts",
    short_help="The catalogue of machines, every figure with its source.",
    epilog="Example: ppw hosts 'Xeon X5670'",
)
@click.argument("name", required=False, shell_complete=complete_host)
@click.option(
    "--catalogue",
    multiple=True,
    metavar="FOLDER",
    help="Folder of TOML files of your own; also from PPW_HOSTS_DIR.",
)
@output_options_of("text", "json", "csv")
def command(name: str | None, catalogue: tuple[str, ...], format_: str, output: str) -> None:
    """List the machines of the catalogue, or show NAME with the source of each figure."""
    from measurements.spreadsheets import csv_text
    from ppw.hosts import find_host, load_hosts

    if name is not None:
        host = find_host(name, *catalogue)
        printed = {
            "text": lambda: host.summary() + "\n",
            "json": lambda: host.to_json() + "\n",
            "csv": lambda: csv_text(host.to_frame()),
        }
        write(printed[format_](), output)
        return
    write(_listing(list(load_hosts(*catalogue).values()), format_), output)


def _listing(hosts: list[Host], format_: str) -> str:
    from ppw.result import write_document
    from ppw.tables import text_table

    header = ["name", "family", "cores", "threads", "base_hz", "turbo_hz", "tdp_w", "rapl", "dvfs"]
    values = [[getattr(h, c) for c in header] for h in hosts]
    if format_ == "json":
        rows = [dict(zip(header, row, strict=True)) for row in values]
        return write_document("hosts", None, {"hosts": rows}) + "\n"
    if format_ == "csv":
        import pandas as pd

        from measurements.spreadsheets import csv_text

        return csv_text(pd.DataFrame(values, columns=header))
    units = {"base_hz": "Hz", "turbo_hz": "Hz", "tdp_w": "W"}
    cells = [
        [_cell(v, units.get(c, "")) for c, v in zip(header, row, strict=True)] for row in values
    ]
    titles = [c.removesuffix("_hz").removesuffix("_w") for c in header]
    return f"{text_table(titles, cells)}\n{len(hosts)} hosts; – is a figure without a sure source\n"


def _cell(value: object, unit: str) -> str:
    from ppw.estimate import shown

    if isinstance(value, bool):
        return "yes" if value else "no"
    return shown(float(value), unit) if isinstance(value, (int, float)) else str(value or "–")
