# SPDX-License-Identifier: GPL-2.0-only
import os
import shutil
from pathlib import Path

import pytest

import berth

ROOT = Path(__file__).resolve().parents[2]

#: A client, VMs that take all they get, and times that are no round numbers; a run takes some ms.
WORLD = {
    "run": {"warmup": "10ms", "measure": "100ms", "seeds": 2},
    "host": {"cores": 2},
    "vm": {
        "web": {"class": "latency", "vcpus": 2, "tasks": ["worker"]},
        "hog": {"count": 2, "vcpus": 2, "tasks": ["burn"]},
    },
    "task": {
        "worker": {"loop": ["receive users", "compute exp(301.7us)", "reply"]},
        "burn": {"model": "busy"},
    },
    "client": {"users": {"to": "web", "sends": "poisson(401/s)"}},
    "compare": {"policies": ["linux", "vmfair"]},
}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Nothing is written where somebody works."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def world():
    return berth.Scenario.from_dict(WORLD, name="world")


@pytest.fixture(scope="session")
def command():
    """The command line, where it was built: what the package is held against."""
    folder = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    found = [folder / kind / "berth" for kind in ("release", "debug")]
    found = [path for path in found if path.is_file()] or [shutil.which("berth")]
    if found[0] is None:
        pytest.skip("there is no berth: cargo build -p berth-cli")
    return str(found[0])
