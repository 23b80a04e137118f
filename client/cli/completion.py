"""`tensord completion`: the script with which a shell completes commands and options. The parser writes it."""

from __future__ import annotations

import click


@click.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")), help="The shell.")
def completion(shell: str) -> None:
    """Print the script that completes commands and options in a shell.

    bash: eval "$(tensord completion bash)" in ~/.bashrc. zsh: the same in ~/.zshrc, after compinit. fish: tensord
    completion fish > ~/.config/fish/completions/tensord.fish

    Example: tensord completion bash
    """
    from click.shell_completion import BashComplete, FishComplete, ZshComplete

    from .application import application
    from .main import COMPLETION

    script = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}[shell]
    click.echo(script(application, {}, "tensord", COMPLETION).source())
