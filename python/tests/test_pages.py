# SPDX-License-Identifier: GPL-2.0-only
"""What README.md and docs/python.md show in Python runs as it stands there."""
import re

from conftest import ROOT

import berth


def blocks(page, begin, end):
    """The indented blocks between two texts of a page."""
    text = (ROOT / page).read_text()
    found = re.findall(r"(?:^    .*\n)+", text[text.index(begin) : text.index(end)], re.M)
    return [re.sub(r"^    ", "", block, flags=re.M) for block in found]


def test_three_lines_give_a_table_and_a_figure(capsys, tmp_path):
    (lines,) = blocks("README.md", "## Three paths", "## Can it be trusted?")
    assert lines in blocks("docs/python.md", "# Berth from Python", "## Scenarios and policies")
    exec(lines, {})
    said = capsys.readouterr().out
    assert said.count("vmfair") == 4 and "mean" in said, said
    assert (tmp_path / "p99.png").read_bytes().startswith(b"\x89PNG")


def test_tables_of_others(capsys):
    names = {"berth": berth}
    shown = blocks("docs/python.md", "## Traces of others", "## Papers and kept records")
    assert len(shown) == 2
    for block in shown:
        exec(block, names)
    said = capsys.readouterr().out
    assert "job-1" in said and "answered" in said, said
