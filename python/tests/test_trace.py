# SPDX-License-Identifier: GPL-2.0-only
import numpy
import pandas
import polars
import pytest

import berth

#: Two VMs: half a CPU for a second, then one and a half; a quarter, for the last second only.
ROWS = [
    {"vm": "a", "time": 100.0, "demand": 0.5},
    {"vm": "a", "time": 101.0, "demand": 1.5},
    {"vm": "b", "time": 101.0, "demand": 0.25},
    {"vm": "a", "time": 102.0, "demand": 0.0},
    {"vm": "b", "time": 102.0, "demand": 0.0},
]


def work(scenario, arm="linux"):
    """CPU time of useful work, s."""
    results = berth.run(scenario, arms=arm, seeds=1)
    return {r["metric"]: r["value"] / 1e9 for r in results.metrics.rows() if r["metric"].endswith(".work")}


@pytest.mark.parametrize("form", ["dicts", "csv", "parquet", "pandas", "polars"])
def test_a_vm_gets_what_the_table_says(form, tmp_path):
    """With CPUs to spare each VM computes the integral of its demand: 0.5 + 1.5 s and 0.25 s."""
    table = ROWS
    if form == "csv":
        pandas.DataFrame(ROWS).to_csv(tmp_path / "t.csv", index=False)
        table = tmp_path / "t.csv"
    if form == "parquet":
        pandas.DataFrame(ROWS).to_parquet(tmp_path / "t.parquet")
        table = tmp_path / "t.parquet"
    if form in ("pandas", "polars"):
        table = {"pandas": pandas, "polars": polars}[form].DataFrame(ROWS)
    scenario = berth.Scenario.from_table(table, cpus=4)
    got = work(scenario)
    assert got["a.work"] == pytest.approx(2.0, rel=0.02) and got["b.work"] == pytest.approx(0.25, rel=0.05)
    assert "not in a table" in scenario.text()


def test_time_is_scaled_and_the_rest_is_taken_over():
    rows = [{"vm": "x/1", "time": t, "demand": 0.5, "vcpus": 4, "weight": 200, "class": "latency"} for t in (0, 600)]
    scenario = berth.Scenario.from_table(rows, cpus=2, time_scale=1 / 300, policies=["credit"])
    assert scenario.arms == ["credit"]
    text = scenario.text(full=True)
    for line in ("vcpus = 4 ", "weight = 200 ", 'class = "latency" ', "cores = 2 "):
        assert any(found.startswith(line) for found in text.splitlines()), line
    assert work(scenario, "credit")["x-1.work"] == pytest.approx(1.0, rel=0.02)


#: Requests of 10, 30 and 20 ms to one VM; to another a single one, while it wants a quarter of a CPU.
REQUESTS = [
    {"vm": "a", "time": 5.0, "request": 0.010, "demand": None},
    {"vm": "a", "time": 5.1, "request": 0.030},
    {"vm": "b", "time": 5.2, "request": None, "demand": 0.25},
    {"vm": "b", "time": 5.3, "request": 0.005, "demand": ""},
    {"vm": "a", "time": 5.4, "request": 0.020, "demand": float("nan")},
]


def metrics(scenario, arm="linux"):
    return {r["metric"]: r["value"] for r in berth.run(scenario, arms=arm, seeds=1).metrics.rows()}


def test_tables_as_others_write_them(tmp_path):
    """With a byte order mark, with lines of Windows, in capitals; numbers and gaps of NumPy and pandas."""
    plain = berth.Scenario.from_table(ROWS, cpus=4).text()
    frame = pandas.DataFrame(ROWS)
    frame.to_csv(tmp_path / "t.csv", index=False, encoding="utf-8-sig", lineterminator="\r\n")
    frame.to_parquet(tmp_path / "T.PARQUET")
    for table in (
        tmp_path / "t.csv",
        tmp_path / "T.PARQUET",
        frame.convert_dtypes().assign(vm=frame.vm.astype("category"), request=pandas.NA, weight=pandas.NA),
        [{**row, "weight": pandas.NA} for row in ROWS],
    ):
        assert berth.Scenario.from_table(table, cpus=numpy.int64(4), time_scale=numpy.float32(1)).text() == plain
    policies = [berth.policy("gfifo"), "linux"]
    assert berth.Scenario.from_table(ROWS, cpus=4, policies=policies).arms == ["gfifo", "linux"]
    assert berth.Scenario.from_table(ROWS, cpus=4, policies="gfifo").arms == ["gfifo"]


@pytest.mark.parametrize("form", ["dicts", "csv", "pandas"])
def test_requests_come_when_the_table_says(form, tmp_path):
    """With CPUs to spare each takes as long as it computes."""
    table = REQUESTS
    if form != "dicts":
        table = pandas.DataFrame(REQUESTS)
    if form == "csv":
        table.to_csv(tmp_path / "t.csv", index=False)
        table = tmp_path / "t.csv"
    scenario = berth.Scenario.from_table(table, cpus=4)
    # The last request begins after 400 ms, and takes 20.
    assert 'measure = "420000000ns"' in scenario.text() and 'start = "200000000ns"' in scenario.text()
    got = metrics(scenario.set("run.measure", "500ms"))
    assert (got["a.response.count"], got["b.response.count"]) == (3, 1)
    assert got["a.response.mean"] == pytest.approx(20e6, rel=0.02)
    assert got["a.response.max"] == pytest.approx(30e6, rel=0.02)
    assert got["a.work"] == pytest.approx(60e6, rel=0.02)
    assert got["b.work"] == pytest.approx(0.25 * 220e6 + 5e6, rel=0.05)


def test_requests_that_meet_wait():
    """On one CPU the second waits for the first, whichever they are of; and all is shorter by the scale."""
    rows = [{"vm": "a", "time": 0.0, "request": 2.0}, {"vm": "a", "time": 1.0, "request": 4.0}]
    scenario = berth.Scenario.from_table(rows, cpus=1, time_scale=0.01, policies=["fcfs"])
    got = metrics(scenario.set("run.measure", "100ms").set("vm.a.guest", "none"), "fcfs")
    # Done after 20 and 60 ms; the second came at 10.
    assert got["a.response.max"] == pytest.approx(50e6, rel=0.01)
    assert got["a.response.mean"] == pytest.approx(35e6, rel=0.01)


@pytest.mark.parametrize(
    ("rows", "arguments", "said"),
    [
        ([{**ROWS[0], "demnd": 1}], {}, "there is no column `demnd`; did you mean `demand`?"),
        ([{"vm": "a", "time": 1}], {}, "the column `demand` or `request` is missing"),
        ([{"vm": "a", "demand": 1}], {}, "the column `time` is missing"),
        ([{"vm": "a", "time": 1, "demand": None, "request": ""}], {}, "row 1: there is neither a demand nor a request"),
        ([{"vm": "a", "time": 1, "request": 0}], {}, "row 1: request is 0"),
        ([{"vm": "a", "time": 1, "request": "long"}], {}, "row 1: request is 'long', no number"),
        ([{"vm": "a", "time": t, "request": 1} for t in (2, 1)], {}, "row 2: a goes back in time"),
        ([{"vm": "a", "time": 1, "request": 1e-6}], {}, "at least 1 ms"),
        ([{"vm": vm, "time": 0, "request": 1} for vm in ("a", "a-answer")], {}, "two VMs would be called a-answer"),
        ([ROWS[1], ROWS[0]], {}, "row 2: a goes back in time, from 101 s to 100 s"),
        ([{**ROWS[0], "demand": "much"}], {}, "row 1: demand is 'much', no number"),
        ([{**ROWS[0], "time": float("nan")}], {}, "row 1: time is nan"),
        ([{**ROWS[0], "demand": -1}], {}, "at least 0"),
        ([ROWS[0]], {}, "too|long|one time"),
        ([], {}, "no rows"),
        ([{**row, "vcpus": 1} for row in ROWS], {}, "a wants 1.5 CPUs, and has 1 vCPUs"),
        (ROWS, {"tick": "often"}, "it is a duration"),
        (ROWS, {"tick": "1ns"}, "more than 200000 steps"),
        (ROWS, {"time_scale": 0}, "a number above 0"),
        (ROWS, {"time_scale": 1e-9}, "at least 1 ms"),
        (ROWS, {"cpus": 0}, "cores"),
        (ROWS, {"policies": ["vmfare"]}, ""),
        ("none.csv", {}, "cannot read none.csv"),
        ("none.parquet", {}, "cannot read none.parquet"),
        (__file__, {}, "there is no column"),
        ([{**ROWS[0], "vm": None}], {}, "row 1: there is no vm"),
        ([{**ROWS[0], "vm": float("nan")}], {}, "row 1: there is no vm"),
        ([{**ROWS[0], None: ["9"]}], {}, "row 1: it has more values than there are columns"),
        ([{**row, "vcpus": 2.5} for row in ROWS], {}, "a: vcpus is 2.5: it is a whole number"),
        ([{**row, "weight": 1.5} for row in ROWS], {}, "a: weight is 1.5: it is a whole number"),
        (ROWS, {"cpus": 2.5}, "cpus=2.5: it is a whole number"),
        (ROWS, {"cpus": None}, "cpus=None: it is a whole number"),
        (ROWS, {"tick": 10}, "it is a duration"),
        (ROWS, {"tick": "1.2.3ms"}, "it is a duration"),
        (ROWS, {"policies": [3]}, "policies: 3 is none"),
        (pandas.Series([1.0]), {}, "row 1: 1.0 is no row"),
        (7, {}, "a table is a file, a data frame or a list of dicts"),
    ],
)
def test_wrong_tables(rows, arguments, said):
    import re

    with pytest.raises(berth.InputError) as error:
        berth.run(berth.Scenario.from_table(rows, **{"cpus": 4, **arguments}))
    assert any(part in str(error.value) for part in said.split("|")) or re.search(said, str(error.value)), error.value


#: Thread 10 runs 2 ms, sleeps 3 ms (woken at 5 ms, waits 1 ms), runs 1 ms; 20 runs meanwhile, is preempted and ends.
PERF = """\
   swapper     0 [000]  1.000000: sched:sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> \
next_comm=CPU 0/KVM next_pid=10 next_prio=120
 CPU 0/KVM    10 [000]  1.002000: sched:sched_switch: prev_comm=CPU 0/KVM prev_pid=10 prev_prio=120 prev_state=S ==> \
next_comm=make next_pid=20 next_prio=120
   swapper     0 [001]  1.005000: sched:sched_wakeup: comm=CPU 0/KVM pid=10 prio=120 target_cpu=000
      make    20 [000]  1.006000: sched:sched_switch: make:20 [120] R ==> CPU 0/KVM:10 [120]
 CPU 0/KVM    10 [000]  1.007000: sched:sched_switch: CPU 0/KVM:10 [120] S ==> make:20 [120]
      make    20 [000]  1.009000: sched:sched_switch: make:20 [120] S ==> swapper/0:0 [120]
"""


def test_perf(tmp_path):
    (tmp_path / "perf.txt").write_text(PERF)
    scenario = berth.from_perf(tmp_path / "perf.txt")
    assert scenario.text() == berth.from_perf(PERF).text()
    text = scenario.text()
    assert text.startswith("# From perf's scheduler events. Lost: time in run queues")
    # By hand, from the events: 2 ms, 3 ms asleep (not the millisecond in the queue), 1 ms; 2 ms asleep, 4 + 2 ms.
    lines = [line.strip() for line in text.splitlines()]
    steps = [line.strip('",') for line in lines if line.startswith(('"compute', '"sleep'))]
    expected = "compute 2000000ns, sleep 3000000ns, compute 1000000ns, sleep 2000000ns, compute 6000000ns"
    assert ", ".join(steps) == expected
    # With a CPU for each; on one, the recording's whole time would have to be work.
    got = work(berth.from_perf(PERF, cpus=2))
    assert got["CPU-0-KVM.work"] == pytest.approx(0.003, rel=0.01)
    assert got["make.work"] == pytest.approx(0.006, rel=0.01)
    two = berth.from_perf(PERF, vms={10: "web", 20: "web"}, cpus=2)
    assert "[vm.web]" in two.text() and "vcpus = 2" in two.text()


def test_a_wait_before_the_first_run_is_taken_out():
    """Thread 10 is woken at 3 ms and runs from 4 ms on; 20 runs since before, though it is woken meanwhile."""
    head = "swapper     0 [000]  1.000000: sched:sched_switch: swapper/0:0 [120] R ==> x:30 [120]"
    text = f"""{head}
         x    30 [000]  1.002000: sched:sched_wakeup: comm=own pid=20 prio=120 target_cpu=001
         x    30 [000]  1.003000: sched:sched_waking: web:10 [120] CPU:000
         x    30 [000]  1.003000: sched:sched_wakeup: web:10 [120] CPU:000
         x    30 [000]  1.003500: sched:sched_wakeup: never:40 [120] CPU:000
         x    30 [000]  1.004000: sched:sched_switch: x:30 [120] R ==> web:10 [120]
       web    10 [000]  1.006000: sched:sched_switch: web:10 [120] S ==> x:30 [120]
       own    20 [001]  1.008000: sched:sched_switch: own:20 [120] S ==> swapper/1:0 [120]
"""
    lines = [line.strip().strip(',').strip('"') for line in berth.from_perf(text, least=0).text().splitlines()]
    steps = {}
    for line in lines:
        if line.startswith("[task."):
            steps = {**steps, line: []}
        if line.startswith(("compute", "sleep")):
            steps[list(steps)[-1]].append(line)
    assert steps == {
        "[task.t10]": ["sleep 3000000ns", "compute 2000000ns"],
        "[task.t20]": ["compute 8000000ns"],
        "[task.t30]": ["compute 6000000ns"],
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nothing\nhere\n", "no sched_switch event"),
        ("none.txt", "cannot read none.txt"),
        ("none\0", "cannot read none"),
        (PERF.encode(), "not a bytes"),
        (PERF + PERF, "line 7: time goes backwards"),
        ("\n".join(PERF.splitlines()[:1]) + "\n", "at least 1 ms"),
    ],
)
def test_wrong_recordings(text, said):
    with pytest.raises(berth.InputError, match=said):
        berth.from_perf(text)
    with pytest.raises(berth.InputError, match="no thread ran"):
        berth.from_perf(PERF, least=1.0)
    for vms in {"10": "web"}, {99: "web"}:
        with pytest.raises(berth.InputError, match="vms: there is no thread .* in the recording"):
            berth.from_perf(PERF, vms=vms)
    with pytest.raises(berth.InputError, match="cpus=0: it is a whole number"):
        berth.from_perf(PERF, cpus=0)
