# SPDX-License-Identifier: GPL-2.0-only
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time

import matplotlib.figure
import numpy
import polars
import pytest
from conftest import ROOT, WORLD

import berth
from berth import cluster
from berth.plot import leading

GRID = {"vm.hog.count": [1, 2], "task.burn.threads": [1, 2]}


@pytest.fixture
def done(world, tmp_path):
    return berth.sweep(world, GRID, seeds=3, out=tmp_path / "sweep")


def test_every_run_is_that_of_berth_run(world, done):
    rows = done.table.rows()
    assert len(rows) == len(done) == 4 * 2 * 3 and done.complete
    assert [r["point"] for r in rows] == sorted(r["point"] for r in rows)
    assert done.addresses == list(GRID) and done.arms == ["linux", "vmfair"]
    for point in (0, 3):
        mine = [r for r in rows if r["point"] == point]
        scenario = world
        for address in GRID:
            scenario = scenario.set(address, mine[0][address])
        kept = json.loads(berth.run(scenario, seeds=3).to_json())["experiments"][0]["runs"]
        assert [(r["arm"], r["seed"], r["hash"]) for r in mine] == [(k["arm"], k["seed"], k["hash"]) for k in kept]
        for row, run in zip(mine, kept):
            assert {name: row[name] for name in done.metrics if row[name] is not None} == run["metrics"]


def test_intervals_and_differences_are_those_of_results(world, done):
    results = berth.run(world.set("vm.hog.count", 2).set("task.burn.threads", 1), seeds=3)
    for mine, theirs in (
        (done.estimates().rows(), results.estimates().rows()),
        (done.differences().rows(), results.differences("linux").rows()),
    ):
        mine = {(r["arm"], r["metric"]): r for r in mine if r["point"] == 2}
        assert len(mine) == len(theirs) > 20
        for row in theirs:
            same = mine[row["arm"], row["metric"]]
            assert all(same[key] == value for key, value in row.items() if key != "variant")
    assert {r["metric"] for r in done.estimates("hog.cpu").rows()} == {"hog.cpu"}
    with pytest.raises(berth.InputError, match="did you mean `hog.cpu`"):
        done.estimates("hog.cpus")
    with pytest.raises(berth.InputError, match="no arm `none`"):
        done.differences(baseline="none")


def test_frames_and_the_file(done, tmp_path):
    frame = done.to_pandas()
    assert frame["vm.hog.count"].dtype == "int64" and len(frame) == 24
    assert done.to_polars().equals(polars.read_parquet(tmp_path / "sweep" / "sweep.parquet"))
    again = berth.load(tmp_path / "sweep")
    assert again.table.rows() == done.table.rows() and again.scenario == done.scenario
    assert again.estimates().rows() == done.estimates().rows() and again.addresses == done.addresses
    first = done.estimates("web.response.p99").rows()[0]
    shown = done._repr_html_()
    cells = "ms", "3", f"{first['mean'] / 1e6:.4g}"
    assert "24 runs" in shown and "\n".join(f"      <td>{cell}</td>" for cell in cells) in shown, shown
    (tmp_path / "sweep" / "sweep.parquet").rename(tmp_path / "z.parquet")
    assert berth.load(tmp_path / "z.parquet").table.rows() == done.table.rows()
    with pytest.raises(berth.InputError, match="has a sweep that is not finished"):
        berth.load(tmp_path / "sweep")
    (tmp_path / "x.parquet").write_bytes(b"no")
    with pytest.raises(berth.InputError, match="is no sweep"):
        berth.load(tmp_path / "x.parquet")
    done.to_polars().write_parquet(tmp_path / "y.parquet", compression="uncompressed")
    with pytest.raises(berth.InputError, match="does not say how it was made"):
        berth.load(tmp_path / "y.parquet")


def test_points_of_a_list_and_values_of_all_kinds(world):
    points = [
        {"task.worker.loop": ["receive users", "compute 100us", "reply"]},
        {"task.burn.ipc": 0.5, "vm.hog.count": numpy.int64(1)},
        {"run.measure": "50ms"},
    ]
    done = berth.sweep(world, points, arms="vmfair", seeds=1)
    rows = done.table.rows()
    assert [r["task.burn.ipc"] for r in rows] == [None, 0.5, None]
    assert [r["vm.hog.count"] for r in rows] == [None, 1, None]
    assert rows[2]["run.measure"] == "50ms" and rows[0]["task.worker.loop"].startswith("[")
    assert done.folder == os.path.join("berth-out", "world-sweep")


def test_workers_and_chunks_do_not_matter(world, done, tmp_path):
    kept = (tmp_path / "sweep" / "sweep.parquet").read_bytes()
    berth.sweep(world, GRID, seeds=3, out=tmp_path / "one", workers=1)
    assert (tmp_path / "one" / "sweep.parquet").read_bytes() == kept
    # As other processes do it: from last to first, in pieces, some twice.
    from berth import _native

    asked = {"arms": [], "policies": [], "seeds": 3, "checked": False, "calibrate": True, "workers": 0}
    plan = _native.Sweep.plan(world._native, berth.sweep.__globals__["points_of"](GRID), asked, None)
    todo = plan.todo()[::-1]
    new = 0
    for begin in range(0, len(todo), 5):
        name, part, failed, seconds = _native.work(plan.chunk(todo[begin : begin + 7]), plan.objects(), None)
        assert not failed and seconds > 0
        new += plan.accept(str(tmp_path / "other"), name, part)
        assert plan.accept(str(tmp_path / "other"), name, part) == 0, "nothing counts twice"
    assert new == len(plan) == plan.finished
    plan.runs().write(str(tmp_path / "other" / "sweep.parquet"))
    assert (tmp_path / "other" / "sweep.parquet").read_bytes() == kept


def test_what_is_there_is_not_run_again(world, done, tmp_path, capsys):
    out = tmp_path / "sweep"
    parts = sorted(p.name for p in (out / "parts").iterdir())
    told = []
    berth.sweep(world, GRID, seeds=3, out=out, progress=lambda *at: told.append(at))
    assert sorted(p.name for p in (out / "parts").iterdir()) == parts
    assert "24 of 24 runs were kept before" in capsys.readouterr().err
    # A larger grid does only what is missing; two points that are the same are one run.
    larger = berth.sweep(world, {"vm.hog.count": [1, 2, 2, 3], "task.burn.threads": [1]}, seeds=3, out=out)
    assert "18 of 24 runs were kept before" in capsys.readouterr().err
    rows = larger.table.rows()
    assert [r["job"] for r in rows if r["point"] == 1] == [r["job"] for r in rows if r["point"] == 2]
    # A part that is cut is not used, and is said.
    part = next((out / "parts").iterdir())
    part.write_bytes(part.read_bytes()[:-9])
    again = berth.sweep(world, GRID, seeds=3, out=out)
    assert "is not used" in capsys.readouterr().err and again.table.rows() == done.table.rows()


def test_parts_of_another_version_are_not_used(world, tmp_path, capsys):
    done = berth.sweep(world, {"vm.hog.count": [1]}, seeds=1, out=tmp_path / "a")
    part = next((tmp_path / "a" / "parts").iterdir())
    text = part.read_bytes()
    version = berth.VERSION.encode()
    assert version in text
    part.write_bytes(text.replace(version, version[:-1] + b"?"))
    again = berth.sweep(world, {"vm.hog.count": [1]}, seeds=1, out=tmp_path / "a")
    assert "are of another version" in capsys.readouterr().err
    assert again.table.rows() == done.table.rows()


@pytest.mark.parametrize(
    ("grid", "said"),
    [
        ({}, "grid: it is empty"),
        ([], "grid: it is empty"),
        ({"vm.hog.count": []}, "vm.hog.count has no values"),
        ({"vm.hog.count": "1,2"}, "a list of values is wanted"),
        ({"vm.hog.count": 3}, "a list of values is wanted"),
        ({"vm.hog.count": [None]}, "NoneType"),
        ({"vm.hog.cout": [1]}, "did you mean `count`?"),
        ({"nowhere": [1]}, "nowhere"),
        ({"vm.hog.count": [1, -2]}, "vm.hog.count=-2"),
        ([3], "3 is no point"),
        ("vm.hog.count", "a dict of lists, or a list of dicts"),
        ({"run.seeds": [2, 3]}, "points cannot differ in seeds"),
        ({"vm.hog.count": numpy.eye(2)}, "not a list"),
    ],
)
def test_a_wrong_grid(world, grid, said):
    with pytest.raises(berth.InputError) as error:
        berth.sweep(world, grid)
    assert said in str(error.value)
    assert not os.path.exists("berth-out"), "nothing was run"


def test_wrong_options(world, monkeypatch):
    for engine in "spark", None, berth.RayEngine:
        with pytest.raises(berth.InputError, match='it is "local" or "ray"'):
            berth.sweep(world, GRID, engine=engine)
    with pytest.raises(berth.InputError, match="workers=-1: it is a whole number"):
        berth.sweep(world, GRID, workers=-1)
    with pytest.raises(berth.InputError, match="bad.bpf.c:1"):
        with open("bad.bpf.c", "w") as file:
            file.write("int x = ;\n")
        berth.sweep(world, GRID, policies="./bad.bpf.c")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(berth.InputError, match=r"pip install 'berth-sched\[ray\]'"):
        berth.sweep(world, GRID, engine="ray")


def test_a_run_that_fails_keeps_the_rest(world, tmp_path):
    """A policy that the watchdog ends: it never dispatches."""
    stuck = (ROOT / "policies" / "gfifo.bpf.c").read_text()
    os.symlink(ROOT / "policies" / "include", "include")
    with open("stuck.bpf.c", "w") as file:
        file.write(stuck_of(stuck))
    grid = {"vm.hog.count": [1, 2]}
    scenario = world.set("run.measure", "60s")
    with pytest.raises(berth.RunError) as error:
        berth.sweep(scenario, grid, arms=["linux", "./stuck.bpf.c"], seeds=1, out=tmp_path / "s")
    said = str(error.value)
    assert "arm stuck, seed 1, with vm.hog.count=1: " in said and "2 of 4 runs are kept" in said, said
    assert error.value.results.arms == ["linux"] and not error.value.results.complete


def stuck_of(text):
    """gfifo without what moves tasks to CPUs."""
    assert "scx_bpf_dsq_move_to_local" in text
    return text.replace("scx_bpf_dsq_move_to_local(", "0 && scx_bpf_dsq_move_to_local(")


def test_a_full_disk_in_the_middle(world, tmp_path):
    """Files may not grow beyond 1 byte once something is kept: what is done is there at the next start."""
    code = f"""
import berth, resource, sys
world = berth.Scenario.from_dict({WORLD!r}, name="world").set("run.measure", "3s")
def full(done, all):
    import os
    if os.path.isdir("out/parts") and os.listdir("out/parts"):
        resource.setrlimit(resource.RLIMIT_FSIZE, (1, 1))
try:
    berth.sweep(world, {{"vm.hog.count": [1, 2, 3]}}, seeds=2000, out="out", progress=full)
except berth.RunError as error:
    print(error)
    print(len(error.results), error.results.complete)
"""
    child = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=1200)
    assert "cannot write out/parts/" in child.stdout, child
    kept = int(child.stdout.split("\n")[1].split(" of ")[0])
    assert child.stdout.split("\n")[2] == f"{kept} False"
    assert "of 12000 runs are kept in out, and the same call goes on from there" in child.stdout and 0 < kept < 12000
    names = os.listdir("out/parts")
    assert names and all(name.endswith(".parquet") for name in names), "nothing half is left"


def test_ctrl_c_and_on(tmp_path):
    code = f"""
import berth, sys
world = berth.Scenario.from_dict({WORLD!r}, name="world").set("run.measure", "2s")
done = berth.sweep(world, {{"vm.hog.count": [1, 2, 3]}}, seeds=int(sys.argv[1]), out="out", progress=False)
print(len(done))
"""

    def begin(seeds):
        line = [sys.executable, "-P", "-c", code, str(seeds)]
        return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    child = begin(5000)
    parts = tmp_path / "out" / "parts"
    for _ in range(600):
        if parts.is_dir() and os.listdir(parts):
            break
        time.sleep(0.1)
    child.send_signal(signal.SIGINT)
    _, said = child.communicate()
    assert child.returncode not in (0, None) and "KeyboardInterrupt" in said
    kept = int(said.split("interrupted: ")[1].split(" of ")[0])
    assert kept > 0 and "the same call goes on from there" in said
    asked = max(1, kept // 6)
    done = berth.sweep(
        berth.Scenario.from_dict(WORLD, name="world").set("run.measure", "2s"),
        {"vm.hog.count": [1]}, seeds=asked, arms="linux", out="out",
    )
    assert len(done) == asked


def test_a_figure(done, tmp_path):
    figure = done.plot("web.response.p99")
    assert isinstance(figure, matplotlib.figure.Figure) and len(figure.axes) == 2
    assert figure._repr_png_().startswith(b"\x89PNG")
    drawn = figure.axes[0].containers[0].lines[0].get_xydata()
    rows = [r for r in done.estimates("web.response.p99").rows() if r["arm"] == "linux" and r["task.burn.threads"] == 1]
    assert drawn.tolist() == [[r["vm.hog.count"], r["mean"] / 1e6] for r in rows]
    assert figure.axes[0].get_ylabel() == "web.response.p99, ms"
    assert figure.axes[0].get_ylim()[0] == 0 and figure.axes[0].get_yscale() == "linear"
    axis = done.plot("web.response.p99", log=True).axes[0]
    means = [r["mean"] / 1e6 for r in rows]
    # All points are inside, and far from the edges.
    assert axis.get_yscale() == "log" and 0 < axis.get_ylim()[0] < min(means) < max(means) < axis.get_ylim()[1]
    for arguments, said in (
        ({"x": "vm.web.count"}, "does not vary"),
        ({"metric": "web.response.p98"}, "did you mean"),
        ({"arms": ["none"]}, "no arm `none`"),
        ({"ax": figure.axes[0]}, "2 panels"),
        ({"arms": "none"}, "no arm `none`"),
    ):
        with pytest.raises(berth.InputError, match=said):
            done.plot(**arguments)
    assert leading(["a.cpu", "web-1.response.p99", "web.response.p99"]) == "web.response.p99" and leading([]) is None


def test_sweeps_into_one_folder_at_once(world, tmp_path):
    """The same in four threads: each has all runs, whoever wrote them, and the file is whole."""
    came = []

    def one():
        try:
            came.append(berth.sweep(world, GRID, seeds=3, out=tmp_path / "one").table.rows())
        except Exception as error:
            came.append(error)

    for _ in range(5):
        threads = [threading.Thread(target=one) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        kept = berth.load(tmp_path / "one").table.rows()
        assert all(rows == kept for rows in came), came
        shutil.rmtree(tmp_path / "one")


def test_a_part_with_wrong_bytes(world, done, tmp_path, capsys):
    """Whatever byte is another one: the part is used or not, and the sweep goes on."""
    from berth import _native

    part = next((tmp_path / "sweep" / "parts").iterdir())
    whole = part.read_bytes()
    asked = {"arms": [], "policies": [], "seeds": 3, "checked": False, "calibrate": True, "workers": 0}
    plan = _native.Sweep.plan(world._native, berth.sweep.__globals__["points_of"](GRID), asked, None)
    luck = random.Random(1)
    unused = 0
    for _ in range(1500):
        wrong = bytearray(whole)
        wrong[luck.randrange(len(whole) // 2, len(whole))] = luck.randrange(256)
        part.write_bytes(wrong)
        _, notes = plan.resume(str(tmp_path / "sweep"))
        unused += len(notes)
    assert unused > 100


def test_chunks_by_measured_time():
    many = 10**6
    assert cluster._size(many, 4, None, 5.0) == 1
    assert cluster._size(many, 4, 0.05, 5.0) == 100
    assert cluster._size(many, 4, 60.0, 5.0) == 1
    assert cluster._size(many, 4, 1e-9, 5.0) == cluster.MOST
    # Towards the end smaller ones: all CPUs are done at about the same time.
    assert cluster._size(200, 4, 0.05, 5.0) == 50
    assert cluster._size(20, 4, 0.05, 5.0) == 10
    assert cluster._size(3, 4, 0.05, 5.0) == 3
