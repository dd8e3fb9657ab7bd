"""`ppw hosts`, `ppw datasets` and `ppw demo`: what comes with ppw."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import ppw
from ppw import catalogue
from ppw.cli import options as opt, output as out
from ppw.results.text import shown, summary_text, text_table

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

_FORMATS = ("text", "json", "csv")


@dataclass(frozen=True)
class Listing:
    """Part of the catalogue: its text, document and table, each made when it is asked for."""

    summary: Callable[[], str]
    to_json: Callable[[], str]
    to_frame: Callable[[], pd.DataFrame]
    caveats: tuple[str, ...] = ()


# Unit by figure of a host, whose heading is the figure without it.
_HOST_COLUMNS = {
    **dict.fromkeys(("name", "family", "cores", "threads"), ""),
    "base_hz": "Hz",
    "turbo_hz": "Hz",
    "tdp_w": "W",
    **dict.fromkeys(("rapl", "dvfs", "launched"), ""),
}


@opt.question(
    "hosts",
    "Catalogue of machines, with the source of every figure.",
    "ppw hosts 'Xeon X5670'",
    click.argument("name", required=False, shell_complete=opt.complete_host),
    opt.options("""
    --catalogue FOLDER several times: Folder of your own host files (TOML). Default: PPW_HOSTS_DIR.
    """),
    click.option(
        "--where",
        multiple=True,
        metavar="COLUMN=VALUE[,…]",
        help="Select hosts: maker=AMD,cores>=64 or 'launched > 2022'. If = names a figure twice, "
        "either value matches.",
    ),
    formats=_FORMATS,
)
def hosts_command(name: str | None, where: tuple[str, ...], **folders: tuple[str, ...]) -> Listing:
    """List the machines of the catalogue, or show NAME with the source of each figure."""
    if name is not None:
        if where:
            raise click.UsageError("--where selects from the list, and NAME is one host")
        host = ppw.find_host(name, *folders["catalogue"])
        return Listing(host.summary, host.to_json, host.to_frame)
    # Text needs no pandas, which takes longer to load than all the rest: tables are made late.
    hosts = catalogue.hosts.choose_hosts(ppw.load_hosts(*folders["catalogue"]).values(), where)
    rows = [{figure: getattr(host, figure) for figure in _HOST_COLUMNS} for host in hosts]
    columns = list(_HOST_COLUMNS)
    return Listing(
        partial(_hosts_table_text, rows),
        lambda: _document("hosts", hosts=rows),
        lambda: _make_frame(rows, columns),
    )


def _document(kind: str, **parts: Any) -> str:
    """Write a JSON document of parts of the catalogue; a table becomes a list of rows."""
    from ppw.results.result import records, write_document

    lists = {key: records(part) for key, part in parts.items() if hasattr(part, "columns")}
    return write_document(kind, None, parts | lists)


def _make_frame(rows: list[dict[str, Any]], columns: list[str]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(rows, columns=columns)


def _hosts_table_text(rows: list[dict[str, Any]]) -> str:
    texts = [[_figure_text(row[c], unit) for c, unit in _HOST_COLUMNS.items()] for row in rows]
    table = text_table([figure.partition("_")[0] for figure in _HOST_COLUMNS], texts)
    return f"{table}\n{len(rows)} hosts; – marks a figure that has no reliable source"


def _figure_text(value: object, unit: str) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return shown(float(value), unit) if isinstance(value, (int, float)) else str(value or "–")


# `ppw datasets`.
@opt.question(
    "datasets",
    "Public data sets: list, licences, download and commands to read them.",
    "ppw datasets c3o --fetch; ppw datasets --folder data",
    click.argument("name", required=False, shell_complete=opt.complete_dataset),
    opt.options("""
    --fetch: Download the files of NAME from their origin.
    --folder FOLDER: Folder of data sets, for checks and downloads. Default: PPW_DATA_DIR, or the
        user's cache.
    """),
    formats=_FORMATS,
)
def datasets_command(name: str | None, fetch: bool, folder: str | None) -> Listing:
    """List the public data sets, or show NAME with its licence, files and the commands to read it.

    ppw contains none of them. --fetch shows the licence of NAME and then downloads it from its
    publisher. It keeps only files whose checksum is that of the published files.
    """
    if name is not None:
        dataset = catalogue.datasets.find_dataset(name)
        where = _fetch_files(dataset, folder) if fetch else catalogue.datasets.data_folder(folder)
        return _list_files(dataset, where)
    if fetch:
        raise click.UsageError("--fetch needs the name of a data set: ppw datasets NAME --fetch")
    table = ppw.list_datasets(folder)
    text = partial(_datasets_table, table)
    return Listing(text, lambda: _document("datasets", rows=table), lambda: table)


def _fetch_files(dataset: catalogue.datasets.Dataset, folder: str | None) -> Path:
    """Fetch the missing files of a data set, print each source, and return the folder."""
    # A folder that was named for it may be new.
    where = Path(folder) if folder else catalogue.datasets.data_folder()
    licence = catalogue.datasets.licence_text(dataset)
    out.say(f"{dataset.name} is of {dataset.origin}, under {licence}")

    def announce_fetch(file: catalogue.datasets.DataFile) -> None:
        out.say(f"fetching {file.url}")
        if file.sha256 is None:
            out.say("caveat: its checksum is not known, so ppw cannot check the download")

    # Each file is told before it comes: some are gigabytes.
    catalogue.datasets.fetch_dataset(dataset, where, each=announce_fetch)
    return where


def _datasets_table(table: pd.DataFrame) -> str:
    rows = [
        [row["name"], row["kind"], shown(row["size_bytes"], "B"), row["licence"], row["here"]]
        for row in table.to_dict(orient="records")
    ]
    return (
        f"{text_table(['name', 'kind', 'size', 'licence', 'in the folder'], rows)}\n{len(rows)} "
        "sets, none included in ppw; ppw datasets NAME shows details, --fetch downloads it"
    )


def _list_files(dataset: catalogue.datasets.Dataset, folder: Path) -> Listing:
    """List the files of a data set, with what a folder has of them."""
    states = [str(catalogue.datasets.state_of(file, folder)) for file in dataset.files]
    facts = {
        **{key: getattr(dataset, key) for key in ("name", "title", "what")},
        "holds": dataset.kind,
        "origin": dataset.origin,
        "licence": catalogue.datasets.licence_text(dataset),
        "made_from": dataset.made_from,
    }

    def listing_text() -> str:
        sizes = ["–" if file.size is None else f"{file.size:,}" for file in dataset.files]
        rows = [*zip([file.path for file in dataset.files], sizes, states, strict=True)]
        lines = [f"{key.replace('_', ' ')}: {fact}" for key, fact in facts.items() if fact]
        lines += ["read it there with", *(f"  {command}" for command in dataset.read_with)]
        files = text_table([f"in {folder}", "bytes", "state"], rows)
        return summary_text([*lines, files], dataset.quality)

    columns = ["path", "url", "size", "sha256"]
    table = _make_frame([{c: getattr(file, c) for c in columns} for file in dataset.files], columns)
    table = table.assign(state=states)
    return Listing(listing_text, lambda: _document("dataset", **facts, rows=table), lambda: table)


@opt.command(
    "demo",
    "Reproduce the published study of Atom and Westmere, and check projections.",
    "ppw demo --report atom-or-westmere.html; ppw demo --runs runs.csv",
    opt.output_options,
    opt.options("""
    --report FILE (ppw-demo.html): Report page to write; with - ppw writes none.
    --runs FILE: Write only the runs of the simulated cores to this file, to try other commands.
    """),
)
def demo_command(report: str, runs: str | None, **written: Any) -> None:
    """Reproduce the published figures of Issa & Figueira 2012, and check projections.

    It projects two simulated cores from runs at two frequencies to higher ones. Then it compares
    the projections with simulations at these frequencies.
    """
    if runs is not None:
        from ppw.runs.prepare import SIMULATED

        ppw.write_runs(catalogue.datasets.simulated_sweep(), runs)
        out.say_caveats([SIMULATED])
        return
    from ppw.cli.demo import demo

    study = demo()
    out.emit(study, **written)
    if report != "-":
        out.write(study.to_html(), report)
        out.say(f"report written to {report}")
