"""All commands of the command line, with their options and the examples of their help."""

import re
import shlex

import click

from ppw.cli import main


def walk(command, words=("ppw",)):
    yield words, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from walk(command.get_command(context, name), (*words, name))


# By the words that are typed for it.
COMMANDS = dict(walk(main))
GROUPS = {words: c for words, c in COMMANDS.items() if isinstance(c, click.Group)}


def examples(command):
    """Words of each example of a command's --help."""
    lead, _, rest = " ".join(command.epilog.split()).partition("Example: ppw ")
    assert not lead
    return [shlex.split(text) for text in re.split(r"; ppw ", rest)]


def options(command):
    return [p for p in command.params if isinstance(p, click.Option) and not p.hidden]


def spellings(command):
    """All spellings of a command's options."""
    spelt = {name for p in command.params for name in (*p.opts, *p.secondary_opts)}
    return {name for name in spelt if name.startswith("-")} | {"--help", "--help-all", "-h"}
