# SPDX-License-Identifier: GPL-2.0-only
import shutil

import pytest
from conftest import ROOT

import berth


def test_an_experiment_of_a_paper(tmp_path):
    done = berth.reproduce("flms", "EF6", quick=True, papers=ROOT / "papers", kept=tmp_path / "kept")
    assert done.quick and [e["id"] for e in done.experiments] == ["EF6"] and not done.claims
    assert done.values and all(v["seeds"] == 2 for v in done.values)
    for wrong, said in (("flm", "flms"), ("none", "none")):
        with pytest.raises(berth.InputError, match=said):
            berth.reproduce(wrong, papers=ROOT / "papers")
    with pytest.raises(berth.InputError, match="no experiment `EF99`"):
        berth.reproduce("flms", "EF99", papers=ROOT / "papers")


def test_kept_records_of_a_real_kernel(tmp_path):
    """One scenario of the set, with its record."""
    source = ROOT / "crates" / "compare" / "set"
    file = sorted(source.glob("*.toml"))
    file = next(f for f in file if (source / "kernel" / f"{f.stem}.json").is_file())
    (tmp_path / "kernel").mkdir()
    shutil.copy(file, tmp_path)
    shutil.copy(source / "kernel" / f"{file.stem}.json", tmp_path / "kernel")
    compared = berth.compare(tmp_path, arms="linux", seeds=1)
    assert len(compared.scenarios) == 1 and "linux" in str(compared)
    with pytest.raises(berth.InputError, match='it is "lab" or "scenario"'):
        berth.compare(tmp_path, costs="none")
    (tmp_path / "kernel" / f"{file.stem}.json").unlink()
    with pytest.raises(berth.InputError, match="has no kept records"):
        berth.compare(tmp_path, arms="linux", seeds=1)
