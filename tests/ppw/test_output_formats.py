"""The format of an answer, where the ending of its file says one."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from ppw.cli.options import output_options, output_options_of


def chosen(add, *arguments):
    """Format and file that a command with these options is called with."""
    found = []
    command = add(lambda format_, output: found.append((format_, output)))
    done = CliRunner().invoke(click.command()(command), arguments, standalone_mode=False)
    assert done.exception is None
    return found[0]


@pytest.mark.parametrize(
    ("arguments", "form"),
    [
        ((), "text"),
        (("-o", "-"), "text"),
        (("-o", "x.json"), "json"),
        (("--output", "there/x.model.json"), "json"),
        (("-o", "x.CSV"), "csv"),
        (("-o", "x.html"), "html"),
        (("-o", "x.txt"), "text"),
        (("-o", "x.csv.gz"), "text"),
        (("-o", "json"), "text"),
        (("-o", "x.html", "--format", "json"), "json"),
        (("--format", "text", "-o", "x.html"), "text"),
    ],
)
def test_the_ending_says_the_format_unless_one_is_given(arguments, form):
    assert chosen(output_options, *arguments)[0] == form


def test_a_command_keeps_to_the_formats_it_has():
    few = output_options_of("text", "json")
    with pytest.raises(click.BadParameter, match=r"x.html: .html is not written: end it in .json"):
        click.command()(few(lambda format_, output: None)).main(
            ["-o", "x.html"], standalone_mode=False
        )
    assert chosen(few, "-o", "x.html", "--format", "text") == ("text", "x.html")
    assert chosen(few, "-o", "x.json") == ("json", "x.json")
