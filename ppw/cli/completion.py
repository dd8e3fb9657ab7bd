"""Tab completion: the scripts that shells load, and file names where ppw knows nothing better."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
)

from ppw.cli.choices import OneOf

if TYPE_CHECKING:
    from collections.abc import Callable

VARIABLE = "_PPW_COMPLETE"


class _OrFiles(ShellComplete):
    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[str]]:
        """Complete as click does; where that finds nothing, after a command, files."""
        found = super().get_completions(args, incomplete)
        if found or not args or incomplete.startswith("-"):
            return found
        return [CompletionItem(incomplete, type="file")]


class _Bash(_OrFiles, BashComplete):
    pass


class _Zsh(_OrFiles, ZshComplete):
    pass


class _Fish(_OrFiles, FishComplete):
    pass


SHELLS: dict[str, type[ShellComplete]] = {"bash": _Bash, "zsh": _Zsh, "fish": _Fish}


def answer_shells() -> None:
    """Have click answer the scripts' questions by these classes."""
    for name, shell in SHELLS.items():
        add_completion_class(shell, name)


def completion_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --completion, which prints the script of a shell and does nothing else."""
    return click.option(
        "--completion",
        type=OneOf(list(SHELLS)),
        expose_value=False,
        is_eager=True,
        callback=_print_script,
        help='Print tab completion for a shell; in its start-up file: eval "$(ppw --completion '
        'bash)", or zsh; for fish: ppw --completion fish | source.',
    )(function)


def _print_script(ctx: click.Context, param: click.Parameter, shell: str | None) -> None:
    if shell is None or ctx.resilient_parsing:
        return
    click.echo(SHELLS[shell](ctx.command, {}, "ppw", VARIABLE).source())
    ctx.exit()
