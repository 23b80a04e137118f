"""`python -m tensord.client.cli`."""

from __future__ import annotations

from .main import main

main()
