"""`ppw hosts`, `ppw datasets` and `ppw demo`: what comes with ppw."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ppw.cli.options import output_options, output_options_of
from ppw.cli.output import emit, say, write
from ppw.cli.types import complete_dataset, complete_host
from ppw.results.text import shown, text_table

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from ppw.catalogue.datasets import DataFile, Dataset
    from ppw.catalogue.hosts import Host


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
def hosts_command(name: str | None, catalogue: tuple[str, ...], format_: str, output: str) -> None:
    """List the machines of the catalogue, or show NAME with the source of each figure."""
    from measurements.table.writing import csv_text
    from ppw.catalogue.hosts import find_host, load_hosts

    if name is not None:
        host = find_host(name, *catalogue)
        printed = {
            "text": lambda: host.summary() + "\n",
            "json": lambda: host.to_json() + "\n",
            "csv": lambda: csv_text(host.to_frame()),
        }
        write(printed[format_](), output)
        return
    write(_list_hosts(list(load_hosts(*catalogue).values()), format_), output)


def _list_hosts(hosts: list[Host], format_: str) -> str:
    from ppw.results.text import text_table

    header = ["name", "family", "cores", "threads", "base_hz", "turbo_hz", "tdp_w", "rapl", "dvfs"]
    values = [[getattr(h, c) for c in header] for h in hosts]
    if format_ == "json":
        rows = [dict(zip(header, row, strict=True)) for row in values]
        from ppw.results.result import write_document

        return write_document("hosts", None, {"hosts": rows}) + "\n"
    if format_ == "csv":
        import pandas as pd

        from measurements.table.writing import csv_text

        return csv_text(pd.DataFrame(values, columns=header))
    units = {"base_hz": "Hz", "turbo_hz": "Hz", "tdp_w": "W"}
    cells = [
        [_cell(v, units.get(c, "")) for c, v in zip(header, row, strict=True)] for row in values
    ]
    titles = [c.removesuffix("_hz").removesuffix("_w") for c in header]
    return f"{text_table(titles, cells)}\n{len(hosts)} hosts; – is a figure without a sure source\n"


def _cell(value: object, unit: str) -> str:

    if isinstance(value, bool):
        return "yes" if value else "no"
    return shown(float(value), unit) if isinstance(value, (int, float)) else str(value or "–")


# `ppw datasets`.


@click.command(
    name="datasets",
    short_help="Public data sets: what there is, its licence, and how to get and read it.",
    epilog="Example: ppw datasets c3o --fetch; ppw datasets --folder data",
)
@click.argument("name", required=False, shell_complete=complete_dataset)
@click.option("--fetch", is_flag=True, help="Get the files of NAME from their origin.")
@click.option(
    "--folder",
    metavar="FOLDER",
    help="Folder of data sets: checked, and fetched to. Default: PPW_DATA_DIR, or a cache of the "
    "user's.",
)
@output_options_of("text", "json", "csv")
def datasets_command(
    name: str | None, fetch: bool, folder: str | None, format_: str, output: str
) -> None:
    """List the public data sets, or show NAME with its licence, files and the commands to read it.

    None comes with ppw: --fetch gets NAME from its makers, whose licence is shown first, and keeps
    what has the checksum of what they published.
    """
    from ppw.catalogue.datasets import data_folder, datasets_by_name, find_dataset, listing

    sets = datasets_by_name()
    if name is None:
        if fetch:
            raise click.UsageError("which data set? Name one: ppw datasets NAME --fetch")
        write(_list_datasets(listing(sets, data_folder(folder)), format_), output)
        return
    dataset = find_dataset(name, sets)
    where = _fetched(dataset, folder) if fetch else data_folder(folder)
    write(_one(dataset, where, format_), output)


def _fetched(dataset: Dataset, folder: str | None) -> Path:
    from pathlib import Path

    from ppw.catalogue.datasets import data_folder, fetch_dataset, licence_text

    # A folder that was named for it may be new.
    where = Path(folder) if folder else data_folder()
    say(f"{dataset.name} is of {dataset.origin}, under {licence_text(dataset)}")

    def each(file: DataFile) -> None:
        say(f"fetching {file.url}")
        if file.sha256 is None:
            say("caveat: its checksum is not known, so what comes is not checked")

    fetch_dataset(dataset, where, each=each)
    return where


def _list_datasets(table: pd.DataFrame, format_: str) -> str:
    if format_ != "text":
        return _data("datasets", table, {}, format_)

    rows = [
        [row["name"], row["kind"], shown(row["size_bytes"], "B"), row["licence"], row["here"]]
        for row in table.to_dict(orient="records")
    ]
    return (
        f"{text_table(['name', 'kind', 'size', 'licence', 'in the folder'], rows)}\n"
        f"{len(rows)} sets, none of which comes with ppw; ppw datasets NAME says more, "
        "--fetch gets it\n"
    )


def _one(dataset: Dataset, folder: Path, format_: str) -> str:
    import pandas as pd

    from ppw.catalogue.datasets import state_of

    states = [state_of(file, folder) for file in dataset.files]
    if format_ != "text":
        columns = ("path", "url", "size", "sha256")
        rows = [{c: getattr(file, c) for c in columns} for file in dataset.files]
        table = pd.DataFrame(rows).assign(state=[str(state) for state in states])
        return _data("dataset", table, _facts(dataset), format_)
    from ppw.results.text import summary_text

    cells = [
        [file.path, "–" if file.size is None else f"{file.size:,}", state]
        for file, state in zip(dataset.files, states, strict=True)
    ]
    facts = [f"{key.replace('_', ' ')}: {said}" for key, said in _facts(dataset).items() if said]
    read = [f"  {one}" for one in dataset.read_with]
    files = text_table([f"in {folder}", "bytes", "state"], cells)
    return summary_text([*facts, "read it there with", *read, files], dataset.quality) + "\n"


def _facts(dataset: Dataset) -> dict[str, str | None]:
    from ppw.catalogue.datasets import licence_text

    return {
        **{key: getattr(dataset, key) for key in ("name", "title", "what")},
        "holds": dataset.kind,
        "origin": dataset.origin,
        "licence": licence_text(dataset),
        "made_from": dataset.made_from,
    }


def _data(kind: str, table: pd.DataFrame, facts: dict[str, str | None], format_: str) -> str:
    from measurements.table.writing import csv_text

    if format_ == "csv":
        return csv_text(table)
    from ppw.results.result import records, write_document

    return write_document(kind, None, {**facts, "rows": records(table)}) + "\n"


@click.command(
    name="demo",
    short_help="The published Atom and Westmere study again, and projections that are checked.",
    epilog="Example: ppw demo --report atom-or-westmere.html; ppw demo --runs runs.csv",
)
@output_options
@click.option(
    "--report",
    default="ppw-demo.html",
    show_default=True,
    metavar="FILE",
    help="Where the report page goes; - for none.",
)
@click.option(
    "--runs",
    metavar="FILE",
    help="Write the runs of the simulated cores there, a table to try the other commands on, and "
    "do nothing else.",
)
def demo_command(format_: str, output: str, report: str, runs: str | None) -> None:
    """Reproduce the published figures of Issa & Figueira 2012, and check projections.

    Two simulated cores are projected from runs at two clocks to higher ones, and held against what
    was simulated there.
    """
    if runs is not None:
        _write_runs(runs)
        return

    from ppw.cli.demo import demo, demo_page

    result = demo()
    emit(result, format_, output, demo_page)
    if report != "-":
        write(demo_page(result).render(), report)
        say(f"report written to {report}")


def _write_runs(target: str) -> None:
    from measurements import write_runs
    from ppw.catalogue.datasets import simulated_sweep
    from ppw.runs.caveats import SIMULATED

    write_runs(simulated_sweep(), target)
    say(f"caveat: {SIMULATED}")
