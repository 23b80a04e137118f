"""What notebooks call their cells, whose code has the names of files that nobody has ever seen.

IPython, and so Jupyter's kernel, is asked as its own tracebacks ask it: the shell's compiler knows which run of which
cell the code is of. The names of older versions have that number, and those of marimo the cell's id. Nothing is
imported for that, and no answer is relied on: a line is described while something else has failed.
"""

from __future__ import annotations

import re
import sys
from typing import Final

_IN_THE_NAME: Final = (
    (re.compile(r"<ipython-input-(\d+)-"), "Cell In[{}]"),
    (re.compile(r"__marimo__cell_(\w+?)_[^/]*$"), "Cell {}"),
)


def cell_of(file: str) -> str:
    """ "Cell In[12]", for the name of a file as code objects have it; "" if that is no cell's."""
    asked = asked_of_ipython(file)
    if asked:
        return asked
    found = ((pattern.search(file), form) for pattern, form in _IN_THE_NAME)
    return next((form.format(match[1]) for match, form in found if match is not None), "")


def asked_of_ipython(file: str) -> str:
    """What the shell of this process calls it; "" if there is no shell, or it knows nothing of it."""
    get_shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    if get_shell is None:
        return ""
    try:
        label, name = get_shell().compile.format_code_name(file)
    except Exception:  # no shell, no such cell, or another version
        return ""
    return f"{label} {name}" if isinstance(label, str) and isinstance(name, str) else ""
