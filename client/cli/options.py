"""Options that many commands have."""

from __future__ import annotations

from typing import Annotated

import typer

Address = Annotated[
    str | None,
    typer.Option(
        envvar="TENSORD_ADDRESS", help="The daemon's address; by default the one that runs.", show_default=False
    ),
]
Json = Annotated[bool, typer.Option("--json", help="For programs: JSON on stdout.")]
