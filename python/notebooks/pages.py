# SPDX-License-Identifier: GPL-2.0-only
"""Notebooks as pages of the book: each is done in a kernel of its own, and what it shows is written down.

    python pages.py FOLDER     writes them there (tools/python notebooks: into docs/notebooks)

A notebook is a Python file in cells (`# %%`, `# %% [markdown]`; the title of a cell describes its figure), as Jupytext,
VS Code and others read them."""
import html
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import nbclient
import nbformat

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted(path for path in Path(__file__).parent.glob("*.py") if path != Path(__file__).resolve())

#: Columns of a line of output.
WIDTH = 110

#: What the kernel does first, and no reader sees: figures as SVG with the same bytes each time.
SETUP = f"""
import matplotlib, matplotlib_inline.backend_inline
matplotlib.rcParams.update({{"svg.hashsalt": "berth", "svg.fonttype": "none"}})
matplotlib_inline.backend_inline.set_matplotlib_formats("svg")
import pandas
pandas.set_option("display.width", {WIDTH})
"""

#: Matplotlib's black on white, the other way round where the reader's page is dark.
DARK = (
    "@media (prefers-color-scheme: dark){"
    '[style*="fill: #ffffff"]{fill: #101317 !important}'
    '[style*="stroke: #000000"]{stroke: #e8ebef !important}'
    "text,use{fill: #e8ebef}}"
)

#: A notebook that hangs ends after so many seconds, whatever else the machine does.
PATIENCE_S = 1800


class Cell(NamedTuple):
    kind: str
    title: str
    text: str


def cells(text: str) -> list[Cell]:
    """The cells of a file; what stands before the first is no cell."""
    found = []
    for part in re.split(r"^# %%", text, flags=re.M)[1:]:
        head, _, body = part.partition("\n")
        kind = "markdown" if "[markdown]" in head else "code"
        if kind == "markdown":
            body = re.sub(r"^# ?", "", body, flags=re.M)
        found.append(Cell(kind, head.replace("[markdown]", "").strip(), body.strip("\n")))
    return found


def done(path: Path) -> nbformat.NotebookNode:
    """A notebook with its outputs; it runs in an empty folder beside which are the repository's.

    Raises nbclient's ``CellExecutionError`` with the cell and what it said."""
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell(SETUP)]
    for cell in cells(path.read_text()):
        new = nbformat.v4.new_markdown_cell if cell.kind == "markdown" else nbformat.v4.new_code_cell
        notebook.cells.append(new(cell.text, metadata={"title": cell.title}))
    with tempfile.TemporaryDirectory() as folder:
        for name in "policies", "scenarios", "papers":
            os.symlink(ROOT / name, Path(folder) / name)
        # Nothing that somebody has configured, and no runs that were kept before.
        own = {name: f"{folder}/.{name}" for name in ("XDG_CACHE_HOME", "IPYTHONDIR", "JUPYTER_CONFIG_DIR")}
        runner = nbclient.NotebookClient(
            notebook, timeout=PATIENCE_S, startup_timeout=PATIENCE_S, resources={"metadata": {"path": folder}}
        )
        runner.execute(env={**os.environ, **own, "SOURCE_DATE_EPOCH": "0", "PYTHONSAFEPATH": "1"})
    notebook.cells.pop(0)
    return notebook


def drawn(svg: str) -> str:
    """A figure for light pages and dark ones."""
    return svg.rstrip().replace("</style>", DARK + "</style>", 1) + "\n"


def page(path: Path, notebook: nbformat.NotebookNode) -> dict[str, str]:
    """The files of its page, by name."""
    name = path.stem
    made = f"Made by `tools/python notebooks` from python/notebooks/{path.name}; do not edit."
    files, parts = {}, [f"<!-- {made} -->"]
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        for output in cell.outputs:
            data = output.get("data", {})
            if "image/svg+xml" in data:
                figure = f"{name}-{len(files) + 1}.svg"
                files[figure] = drawn(data["image/svg+xml"])
                parts.append(f"![{html.escape(cell.metadata['title'])}]({figure})")
            elif "text/plain" in data or output.get("name") == "stdout":
                text = data.get("text/plain") or output.text
                lines = "\n".join(line.rstrip() for line in text.rstrip().splitlines())
                parts.append(f"```text\n{lines}\n```")
    parts.append(
        f"The notebook is `python/notebooks/{path.name}`: cells in a Python file, which editors and Jupytext open.\n"
        "The tests run it and compare this page, its figures too."
    )
    files[f"{name}.md"] = "\n\n".join(parts) + "\n"
    return files


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for path in NOTEBOOKS:
        for name, text in page(path, done(path)).items():
            (folder / name).write_text(text)
            print(f"{folder / name}: {len(text)} bytes")


if __name__ == "__main__":
    main()
