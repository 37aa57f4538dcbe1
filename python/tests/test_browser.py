# SPDX-License-Identifier: GPL-2.0-only
"""What a notebook shows of results, in a real browser (headless Chromium, where there is one; `make test` has it)."""
import shutil
import subprocess

import PIL.Image
import pytest
from conftest import WORLD

import berth


def browser():
    for name in "chromium-headless-shell", "chromium", "chromium-browser", "google-chrome":
        if shutil.which(name):
            return name
    pytest.skip("no Chromium (apt-get install chromium-headless-shell)")


def test_results_and_sweeps(tmp_path):
    world = berth.Scenario.from_dict(WORLD, name="world")
    results = berth.run(world, seeds=3)
    sweep = berth.sweep(world, {"vm.hog.count": [1, 2]}, seeds=3, out="sweep")
    page = tmp_path / "page.html"
    shown = f"<p id=head>A notebook</p>{results._repr_html_()}{sweep._repr_html_()}"
    page.write_text(f"<!doctype html><meta charset=utf-8><body style='margin:8px'>{shown}</body>")
    picture = tmp_path / "page.png"
    done = subprocess.run(
        [
            browser(), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr",
            f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1000,1100", f"--screenshot={picture}",
            f"file://{page}",
        ],
        check=True, capture_output=True, text=True,
    )
    assert "CONSOLE" not in done.stderr, done.stderr
    # The frame has the report's figures in it, and the table of the sweep is below: neither is blank.
    with PIL.Image.open(picture) as image:
        frame = image.convert("RGB").crop((8, 60, 992, 600))
        below = image.convert("RGB").crop((8, 720, 992, 1000))
    assert len(frame.getcolors(1 << 20)) > 50 and len(below.getcolors(1 << 20)) > 20
