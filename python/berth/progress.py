# SPDX-License-Identifier: GPL-2.0-only
"""Progress bars, where somebody looks on."""
from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Optional, Union

#: ``None``: a bar on a terminal or in a notebook; ``True``, ``False``; or a function of (done, all).
Progress = Union[bool, None, Callable[[int, int], object]]


def _somebody() -> bool:
    shell = sys.modules.get("IPython")
    in_notebook = shell is not None and type(shell.get_ipython()).__name__ == "ZMQInteractiveShell"
    return in_notebook or (sys.stderr is not None and sys.stderr.isatty())


@contextmanager
def told(progress: Progress, what: str) -> Iterator[Optional[Callable[[int, int], object]]]:
    """Who is to be told of (done, all), if anybody."""
    if callable(progress):
        yield progress
        return
    if progress is False or (progress is None and not _somebody()):
        yield None
        return
    from tqdm.auto import tqdm

    with tqdm(desc=what, unit="run", leave=False) as bar:

        def tell(done: int, all: int) -> None:
            bar.total = all
            bar.update(done - bar.n)

        yield tell
