# SPDX-License-Identifier: GPL-2.0-only
"""The notebooks run, what they assert holds, and the book shows what they show."""
import importlib.util

import pytest
from conftest import ROOT

spec = importlib.util.spec_from_file_location("pages", ROOT / "python" / "notebooks" / "pages.py")
pages = importlib.util.module_from_spec(spec)
spec.loader.exec_module(pages)

BOOK = ROOT / "docs" / "notebooks"


def test_cells():
    text = "# header\n# %% [markdown]\n# # A\n#\n# b\n\n# %% A figure\nx = 1\n\n# %%\nx\n"
    assert pages.cells(text) == [
        ("markdown", "", "# A\n\nb"), ("code", "A figure", "x = 1"), ("code", "", "x"),
    ]


@pytest.mark.parametrize("path", pages.NOTEBOOKS, ids=lambda path: path.stem)
def test_the_book_shows_what_a_notebook_does(path):
    made = pages.page(path, pages.done(path))
    assert {file.name for file in BOOK.glob(f"{path.stem}*")} == set(made)
    for name, text in made.items():
        assert text == (BOOK / name).read_text(), f"docs/notebooks/{name}: tools/python notebooks writes what it is now"


def test_the_book_has_nothing_else():
    assert {file.name.split("-")[0].split(".")[0] for file in BOOK.iterdir()} == {p.stem for p in pages.NOTEBOOKS}
