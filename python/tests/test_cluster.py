# SPDX-License-Identifier: GPL-2.0-only
"""Ray on this machine: the same bytes as here, whatever dies."""
import contextlib
import os
import random
import threading
import time
import types
from pathlib import Path

import pytest
from conftest import ROOT

import berth
from berth import cluster

ray = pytest.importorskip("ray")
#: Of the sweep whose nodes are killed: 2,000, in the continuous integration fewer.
RUNS = int(os.environ.get("BERTH_CLUSTER_RUNS", "2000"))

GRID = {"vm.hog.count": [1, 2], "task.burn.threads": [1, 2]}


@contextlib.contextmanager
def patience():
    """Ray gives a node half a minute to start, which a busy machine may not have: here its clocks are slow."""
    from ray import cluster_utils
    from ray._private import node

    begin = time.time()
    slow = types.SimpleNamespace(**vars(time))
    slow.time = lambda: begin + (time.time() - begin) / 20
    slow.monotonic = lambda: time.monotonic() / 20
    with pytest.MonkeyPatch.context() as patch:
        # A node ends itself whose agent is not there in time.
        patch.setenv("RAY_agent_register_timeout_ms", "600000")
        for module in (cluster_utils, node):
            patch.setattr(module, "time", slow)
        yield


@pytest.fixture
def own_ray():
    """A Ray of this machine and this test: another one may run here."""

    def start(**options):
        own = {"address": "local", "log_to_driver": False, "include_dashboard": False}
        with patience():
            return ray.init(**own, **options)

    yield start
    ray.shutdown()


def joined(made):
    """One more node."""
    with patience():
        return made.add_node(num_cpus=1, include_dashboard=False)


@pytest.fixture
def nodes():
    """Three nodes with a CPU each; the first has the driver and lives."""
    from ray.cluster_utils import Cluster

    made = Cluster()
    joined(made)
    others = [joined(made) for _ in range(2)]
    ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
    yield made, others
    ray.shutdown()
    made.shutdown()


@pytest.mark.cluster
def test_a_small_ray_gives_the_same_bytes(world, own_ray, tmp_path):
    """A Ray of this machine with two workers; a policy of a file goes with the jobs; another version is refused."""
    own = ROOT / "policies" / "gfifo.bpf.c"
    berth.sweep(world, GRID, policies=own, seeds=3, out=tmp_path / "here")
    own_ray(num_cpus=2, logging_level="ERROR")
    told = []
    done = berth.sweep(
        world, GRID, policies=own, seeds=3, out=tmp_path / "ray", engine="ray",
        progress=lambda *at: told.append(at),
    )
    assert done.complete and told[-1] == (36, 36)
    same = [(tmp_path / out / "sweep.parquet").read_bytes() for out in ("here", "ray")]
    assert same[0] == same[1]
    # Written by the workers themselves, in pieces of another size.
    engine = berth.RayEngine(shared=True, task_seconds=0.05)
    berth.sweep(world, GRID, policies=own, seeds=3, out=tmp_path / "shared", engine=engine)
    assert (tmp_path / "shared" / "sweep.parquet").read_bytes() == same[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster, "VERSION", "0.0.0+another")
        with pytest.raises(berth.InputError, match=r"the nodes must have this version of Berth, 0.0.0\+another"):
            berth.sweep(world, GRID, seeds=4, out=tmp_path / "other", engine="ray")
    assert not (tmp_path / "other").exists()

    def dies(*_):
        os._exit(1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster, "_work", dies)
        said = "arm linux, seed 1, with vm.hog.count=3: its worker was lost"
        engine = berth.RayEngine(retries=0)
        with pytest.raises(berth.RunError, match=said) as error:
            berth.sweep(world, {"vm.hog.count": [3]}, arms="linux", seeds=1, out=tmp_path / "lost", engine=engine)
    assert len(error.value.results) == 0 and not error.value.results.complete


def test_a_ray_that_is_not_there(world, monkeypatch):
    def nobody(**_):
        raise ConnectionError("nobody answers")

    monkeypatch.setattr(ray, "init", nobody)
    with pytest.raises(berth.InputError, match=r"cannot join or start Ray \(address='moon:1'\): nobody answers"):
        berth.sweep(world, GRID, engine=berth.RayEngine(address="moon:1"))


@pytest.mark.cluster
def test_a_policy_that_does_not_compile_on_a_node(world, own_ray, tmp_path):
    """Nodes without a C compiler: a policy that is not shipped cannot be made native there."""
    own = ROOT / "policies" / "gfifo.bpf.c"
    text = own.read_text().replace("help=", "help=own ", 1)
    (tmp_path / "own.bpf.c").write_text(text)
    os.symlink(ROOT / "policies" / "include", tmp_path / "include")
    empty = tmp_path / "no-compiler"
    empty.mkdir()
    env = {"BERTH_CC": str(empty / "cc"), "XDG_CACHE_HOME": str(empty)}
    own_ray(num_cpus=1, runtime_env={"env_vars": env})
    with pytest.raises(berth.InputError, match="on node .*own"):
        berth.sweep(world, GRID, arms=tmp_path / "own.bpf.c", seeds=1, out=tmp_path / "s", engine="ray")


@pytest.mark.cluster
def test_nodes_are_killed_at_random(world, nodes, tmp_path):
    """Many runs on three nodes; two are killed and replaced over and over: each result once, the same bytes."""
    made, others = nodes
    grid = {"vm.hog.count": list(range(1, 11)), "task.burn.threads": list(range(1, 6))}
    scenario = world.set("run.measure", "1s")
    # Of fewer runs fewer times: a node takes seconds to start.
    due = list(range(RUNS // 40, RUNS, RUNS * 3 // (20 if RUNS >= 2000 else 10)))
    kill, whole, came = threading.Event(), threading.Event(), {}

    def finished(done, _):
        """The driver waits until the node that was killed is replaced: else a quick sweep would be over first."""
        if due and done >= due[0]:
            del due[: sum(at <= done for at in due)]
            kill.set()
            whole.wait()
            whole.clear()

    def sweep():
        try:
            engine = berth.RayEngine(task_seconds=RUNS / 2000, retries=50)
            came["done"] = berth.sweep(
                scenario, grid, seeds=RUNS // 100, out=tmp_path / "ray", engine=engine, progress=finished
            )
        except BaseException as error:
            came["error"] = error

    # Ray's nodes want signals, which only the main thread has.
    sweeping = threading.Thread(target=sweep)
    sweeping.start()
    luck = random.Random(7)
    killed = 0
    try:
        while sweeping.is_alive():
            if kill.wait(0.05):
                kill.clear()
                made.remove_node(others.pop(luck.randrange(len(others))), allow_graceful=False)
                killed += 1
                others.append(joined(made))
                whole.set()
    finally:
        due.clear()
        whole.set()
        sweeping.join()
    assert "error" not in came, came
    done = came["done"]
    assert killed >= 3 and done.complete and len(done) == RUNS
    assert len({row["job"] for row in done.table.rows()}) == RUNS
    berth.sweep(scenario, grid, seeds=RUNS // 100, out=tmp_path / "here")
    assert (tmp_path / "ray" / "sweep.parquet").read_bytes() == (tmp_path / "here" / "sweep.parquet").read_bytes()
    if report := os.environ.get("BERTH_CLUSTER_KILLED"):
        Path(report).write_text(f"{killed} {RUNS}\n")
