"""`tensord completion`: the script with which a shell completes commands and options. The parser writes it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from .main import COMPLETION


class Shell(StrEnum):
    """The shells that the parser has a script for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def add(app: typer.Typer) -> None:
    """Register the command."""
    app.command()(completion)


def completion(shell: Annotated[Shell, typer.Argument(help="The shell.", show_default=False)]) -> None:
    """Print the script that completes commands and options in a shell.

    bash: eval "$(tensord completion bash)" in ~/.bashrc. zsh: the same in ~/.zshrc, after compinit. fish: tensord
    completion fish > ~/.config/fish/completions/tensord.fish

    Example: tensord completion bash
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]  # imported there

    typer.echo(get_completion_script(prog_name="tensord", complete_var=COMPLETION, shell=shell.value))
