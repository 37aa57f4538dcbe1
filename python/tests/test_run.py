# SPDX-License-Identifier: GPL-2.0-only
import json
import os
import signal
import subprocess
import sys
import threading
import time

import numpy
import polars
import pyarrow
import pytest
from conftest import ROOT, WORLD

import berth


@pytest.fixture(scope="module")
def results():
    return berth.run(berth.Scenario.from_dict(WORLD, name="world"), seeds=3)


def test_the_same_bytes_as_the_command(world, command, tmp_path):
    (tmp_path / "world.toml").write_text(world.text())
    scenario = berth.Scenario.load("world.toml").set("vm.web.vcpus", 1)
    berth.run(scenario, seeds=2, arms=["linux", "gfifo"]).save("own")
    arguments = ["--set", "vm.web.vcpus=1", "--arm", "linux,gfifo", "--seeds", "2"]
    subprocess.run([command, "sim", "world.toml", *arguments], check=True, capture_output=True)
    own, other = [json.loads((tmp_path / out / "world" / "sim.json").read_text()) for out in ("own", "berth-out")]
    made = own["provenance"].pop("command")
    assert made == "berth sim world.toml --set vm.web.vcpus=1 --arm linux --arm gfifo --seeds 2"
    other["provenance"].pop("command")
    assert own == other
    rows = [(tmp_path / out / "world" / "sim.csv").read_text().splitlines() for out in ("own", "berth-out")]
    assert rows[0][1:] == rows[1][1:] and (tmp_path / "own" / "world" / "report.html").is_file()


def test_there_and_back(results, tmp_path):
    report = results.save(tmp_path)
    assert str(report) == str(tmp_path / "world" / "1" / "report.html")
    again = berth.load(tmp_path / "world")
    assert again.to_json() == results.to_json() and again.name == "world"
    assert berth.load(tmp_path / "world" / "sim.json").to_json() == results.to_json()
    with pytest.raises(berth.InputError, match="no results in"):
        berth.load(tmp_path / "world", place="lab")
    with pytest.raises(berth.InputError, match="there is no place `moon`"):
        berth.load(tmp_path / "world", place="moon")
    with pytest.raises(berth.InputError, match="no results in"):
        berth.load(tmp_path)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "sim.json").write_text("{}")
    with pytest.raises(berth.InputError, match="not a results file"):
        berth.load(tmp_path / "broken")


def test_tables_are_the_files_rows(results):
    kept = json.loads(results.to_json())["experiments"][0]
    assert len(results) == 6 and results.arms == ["linux", "vmfair"] and results.complete
    table = results.to_pandas()
    assert list(table) == ["place", "variant", "arm", "seed", "metric", "unit", "value"]
    for run in kept["runs"]:
        mine = table[(table.arm == run["arm"]) & (table.seed == run["seed"])].set_index("metric").value
        assert all(mine[name] == value for name, value in run["metrics"].items())
        waited = {(w["waiter"], w["cause"]): w["ns"] for w in run["waits"]}
        rows = [r for r in results.waits.rows() if (r["arm"], r["seed"]) == (run["arm"], run["seed"])]
        assert {(r["waiter"], r["cause"]): r["ns"] for r in rows} == waited
    worst = results.worst_waits.rows()
    assert len(worst) == sum(len(run["worst"]) for run in kept["runs"])
    assert all(r["ns"] == r["to_ns"] - r["from_ns"] and len(r["behind"]) == len(r["behind_ns"]) for r in worst)
    histogram = [r for r in results.histograms.rows() if r["arm"] == "linux" and r["time"] == "web.response"]
    linux = [r for r in results.metrics.rows() if r["arm"] == "linux"]
    counted = [r["value"] for r in linux if r["metric"] == "web.response.count"]
    assert sum(r["count"] for r in histogram) == sum(counted)
    assert len(results.series) == sum(len(v) for run in kept["runs"] for v in run["series"].values())


def test_arrow_is_not_copied(results):
    """The same buffers, by their addresses, whoever takes the table."""
    metrics = results.metrics

    def address(table):
        return table.column("value").chunk(0).buffers()[1].address

    assert address(pyarrow.table(metrics)) == address(metrics.to_arrow())
    frame = metrics.to_polars()
    assert isinstance(frame, polars.DataFrame) and frame.height == len(metrics)
    assert frame["value"].to_list() == [row["value"] for row in metrics.rows()]


def test_intervals_by_hand(results):
    """Mean, Student's t with two degrees of freedom (4.302653), paired difference: ten lines of arithmetic."""
    frame = results.to_pandas()
    frame = frame[frame.metric == "hog.cpu"].sort_values("seed")
    values = {arm: frame[frame.arm == arm].value for arm in results.arms}
    row = next(r for r in results.estimates().rows() if (r["arm"], r["metric"]) == ("vmfair", "hog.cpu"))
    assert row["n"] == 3 and row["mean"] == pytest.approx(values["vmfair"].mean(), rel=1e-12)
    assert row["half"] == pytest.approx(4.302653 * values["vmfair"].std() / 3**0.5, rel=1e-9)
    difference = values["vmfair"].to_numpy() - values["linux"].to_numpy()
    row = next(r for r in results.differences("linux").rows() if (r["arm"], r["metric"]) == ("vmfair", "hog.cpu"))
    assert row["difference"] == pytest.approx(difference.mean()) and row["other"] == "linux"
    assert row["difference_half"] == pytest.approx(4.302653 * difference.std(ddof=1) / 3**0.5)
    assert row["differs"] == (abs(row["difference"]) > row["difference_half"])
    with pytest.raises(berth.InputError, match="no arm `none`"):
        results.differences("none")


def test_compare(results, world):
    same = berth.compare(results, berth.run(world, seeds=3))
    assert len(same) == len(results.estimates()) and all(r["difference"] == 0 for r in same.rows())
    other = results.compare(berth.run(world.set("vm.web.vcpus", 1), seeds=2))
    assert {r["n"] for r in other.rows()} == {2}
    with pytest.raises(berth.InputError, match="nothing to compare"):
        results.compare(berth.run(world, arms="gfifo", seeds=1))
    with pytest.raises(berth.InputError, match="results are compared with results"):
        berth.compare(results, "x")


def test_words_and_figures(results):
    assert "vmfair" in str(results) and "response time" in str(results)
    page = results._repr_html_()
    assert page.startswith("<iframe srcdoc=") and "&lt;svg" not in page and "<svg" in page
    assert "Who web waited for" in page or "waited for whom" in page.lower()


def test_a_policy_of_ones_own(world, tmp_path):
    text = (ROOT / "policies" / "gfifo.bpf.c").read_text()
    include = ROOT / "policies" / "include"
    (tmp_path / "my.bpf.c").write_text(text)
    os.symlink(include, tmp_path / "include")
    results = berth.run(world, arms=["linux", tmp_path / "my.bpf.c"], seeds=1)
    assert results.arms == ["linux", "my"]
    values = {r["metric"]: r["value"] for r in results.metrics.rows() if r["arm"] == "my"}
    shipped = berth.run(world, arms="gfifo", seeds=1)
    assert values == {r["metric"]: r["value"] for r in shipped.metrics.rows()}
    (tmp_path / "bad.bpf.c").write_text("int x = ;\n")
    with pytest.raises(berth.InputError, match="bad.bpf.c:1"):
        berth.run(world, arms="./bad.bpf.c")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"arms": "vmfare"}, "did you mean `vmfair`?"),
        ({"arms": []}, "arms is empty"),
        ({"arms": 3}, "arms: 3 is none"),
        ({"arms": [None]}, "arms: None is none"),
        ({"policies": b"linux"}, "policies: b'linux' is none"),
        ({"seeds": 0}, "seeds=0: it is a whole number from 1"),
        ({"seeds": "3"}, "it is a number N"),
        ({"seeds": numpy.arange(3)}, "it is a number N"),
        ({"seeds": 2**40}, "seeds=1099511627776: it is a whole number from 1 to 4294967295"),
        ({"seed": -1}, "seed=-1: it is a whole number from 0"),
        ({"seed": 2**63}, "seed=9223372036854775808: it is a whole number from 0"),
        ({"seed": 1.5}, "seed=1.5: it is a whole number"),
        ({"workers": -1}, "workers=-1: it is a whole number"),
        ({"seeds": 2, "seed": 1}, "say one of them"),
        ({"trace": "x.pftrace"}, "--trace is of one run, and this would be 4 runs"),
        ({"trace": "x.pftrace", "trace_span": "2s..1s", "arms": "linux", "seed": 1}, "ends before it begins"),
    ],
)
def test_wrong_options(world, arguments, said):
    with pytest.raises(berth.InputError) as error:
        berth.run(world, **arguments)
    assert said in str(error.value)


def test_a_trace(world, tmp_path):
    berth.run(world, arms="vmfair", seed=1, trace=tmp_path / "t.pftrace", trace_span="20ms..60ms")
    assert (tmp_path / "t.pftrace").stat().st_size > 1000


def test_kept_runs_are_not_done_again(world, tmp_path):
    first = berth.run(world, kept=tmp_path / "kept")
    files = list((tmp_path / "kept").rglob("*.json"))
    assert len(files) == 4
    assert berth.run(world, kept=tmp_path / "kept").to_json() == first.to_json()


def test_progress_is_told_and_may_stop_it(world):
    told = []
    berth.run(world, progress=lambda done, all: told.append((done, all)))
    assert told[-1] == (4, 4)

    def enough(done, all):
        raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        berth.run(world, seeds=200, progress=enough)


def test_other_threads_go_on(world):
    """The lock is free while the simulator runs: another thread counts meanwhile."""
    counted = []
    ended = threading.Event()

    def count():
        while not ended.is_set():
            counted.append(time.monotonic())
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    begin = time.monotonic()
    berth.run(world.set("run.measure", "5s"), seeds=4)
    end = time.monotonic()
    ended.set()
    thread.join()
    assert sum(begin < at < end for at in counted) > 10


def test_ctrl_c(tmp_path):
    """SIGINT in the middle of a long run: KeyboardInterrupt, soon, and the process can go on."""
    code = f"""
import berth, sys
world = berth.Scenario.from_dict({WORLD!r}, name="world").set("run.measure", "100000s")
try:
    berth.run(world, progress=False)
except KeyboardInterrupt:
    print("interrupted", flush=True)
print(len(berth.run(world.set("run.measure", "100ms"), seeds=1)))
"""
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    child = subprocess.Popen([sys.executable, "-P", "-c", code], stdout=subprocess.PIPE, text=True, env=env)
    time.sleep(2)
    assert child.poll() is None
    child.send_signal(signal.SIGINT)
    assert child.communicate()[0].split() == ["interrupted", "2"]
    assert child.returncode == 0
