"""`ppw datasets`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ppw.cli.choices import complete_dataset
from ppw.cli.options import output_options_of
from ppw.cli.output import say, write

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from ppw.datasets.registry import DataFile, Dataset


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
def command(name: str | None, fetch: bool, folder: str | None, format_: str, output: str) -> None:
    """List the public data sets, or show NAME with its licence, files and the commands to read it.

    None comes with ppw: --fetch gets NAME from its makers, whose licence is shown first, and keeps
    what has the checksum of what they published.
    """
    from ppw.datasets.loading import listing
    from ppw.datasets.local import data_folder
    from ppw.datasets.registry import find_dataset, known_datasets

    sets = known_datasets()
    if name is None:
        if fetch:
            raise click.UsageError("which data set? Name one: ppw datasets NAME --fetch")
        write(_listing(listing(sets, data_folder(folder)), format_), output)
        return
    dataset = find_dataset(name, sets)
    where = _fetched(dataset, folder) if fetch else data_folder(folder)
    write(_one(dataset, where, format_), output)


def _fetched(dataset: Dataset, folder: str | None) -> Path:
    from pathlib import Path

    from ppw.datasets.fetching import fetch_dataset
    from ppw.datasets.loading import licence_text
    from ppw.datasets.local import data_folder

    # A folder that was named for it may be new.
    where = Path(folder) if folder else data_folder()
    say(f"{dataset.name} is of {dataset.origin}, under {licence_text(dataset)}")

    def each(file: DataFile) -> None:
        say(f"fetching {file.url}")
        if file.sha256 is None:
            say("caveat: its checksum is not known, so what comes is not checked")

    fetch_dataset(dataset, where, each=each)
    return where


def _listing(table: pd.DataFrame, format_: str) -> str:
    if format_ != "text":
        return _data("datasets", table, {}, format_)
    from ppw.estimate import shown
    from ppw.tables import text_table

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

    from ppw.datasets.local import state_of

    states = [state_of(file, folder) for file in dataset.files]
    if format_ != "text":
        columns = ("path", "url", "size", "sha256")
        rows = [{c: getattr(file, c) for c in columns} for file in dataset.files]
        table = pd.DataFrame(rows).assign(state=[str(state) for state in states])
        return _data("dataset", table, _facts(dataset), format_)
    from ppw.tables import summary_text, text_table

    cells = [
        [file.path, "–" if file.size is None else f"{file.size:,}", state]
        for file, state in zip(dataset.files, states, strict=True)
    ]
    facts = [f"{key.replace('_', ' ')}: {said}" for key, said in _facts(dataset).items() if said]
    read = [f"  {one}" for one in dataset.read_with]
    files = text_table([f"in {folder}", "bytes", "state"], cells)
    return summary_text([*facts, "read it there with", *read, files], dataset.quality) + "\n"


def _facts(dataset: Dataset) -> dict[str, str | None]:
    from ppw.datasets.loading import licence_text

    return {
        **{key: getattr(dataset, key) for key in ("name", "title", "what")},
        "holds": dataset.kind,
        "origin": dataset.origin,
        "licence": licence_text(dataset),
        "made_from": dataset.made_from,
    }


def _data(kind: str, table: pd.DataFrame, facts: dict[str, str | None], format_: str) -> str:
    from measurements.spreadsheets import csv_text
    from ppw.result import records, write_document

    if format_ == "csv":
        return csv_text(table)
    return write_document(kind, None, {**facts, "rows": records(table)}) + "\n"
