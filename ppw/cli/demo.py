"""`ppw demo`."""

from __future__ import annotations

import click

from ppw.cli.output import emit, write


@click.command(
    name="demo",
    short_help="The published Atom and Westmere study again, in text and as a report.",
    epilog="Example: ppw demo --report atom-or-westmere.html",
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(["text", "json", "csv", "html"]),
    default="text",
    show_default=True,
)
@click.option(
    "--output", "-o", default="-", metavar="FILE", help="Write there; - is standard output."
)
@click.option(
    "--report",
    default="ppw-demo.html",
    show_default=True,
    metavar="FILE",
    help="Where the report page goes; - for none.",
)
def command(format_: str, output: str, report: str) -> None:
    """Reproduce the published figures of Issa & Figueira 2012 and say what follows from them."""
    from ppw.demo import demo, demo_page

    result = demo()
    emit(result, format_, output, demo_page)
    if report != "-":
        write(demo_page(result).render(), report)
        click.echo(f"ppw: report written to {report}", err=True)
