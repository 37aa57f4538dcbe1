# SPDX-License-Identifier: GPL-2.0-only
"""Scenarios from what others have recorded: tables of demands and requests, and the kernel's scheduler
events as `perf` writes them."""
from __future__ import annotations

import csv
import difflib
import itertools
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Optional, Union

import tomli_w

from berth._native import InputError
from berth.scenario import Scenario, native, whole

if TYPE_CHECKING:
    from berth.experiment import Arm

#: Columns of a table.
COLUMNS = "vm", "time", "demand", "request", "vcpus", "class", "weight"

#: Steps of a scenario, at most: beyond it, reading takes longer than running.
MOST_STEPS = 200_000

#: From the last request of a list to the first one again: the longest time that a scenario takes, 100 days.
NEVER_NS = 100 * 86_400 * 10**9

Table = Union[str, os.PathLike, Iterable[Mapping[str, Any]], Any]


def rows(table: Table) -> Iterator[Mapping[str, Any]]:
    """The rows of a CSV or Parquet file, of a table of pandas, Polars, Arrow or Berth, or dicts as they are."""
    if isinstance(table, (str, os.PathLike)):
        path = os.fspath(table)
        if path.lower().endswith(".parquet"):
            try:
                import pyarrow.parquet
            except ImportError:
                raise ImportError("pyarrow is not installed: pip install 'berth-sched[pandas]'") from None
            try:
                found = pyarrow.parquet.read_table(path)
            except (OSError, pyarrow.ArrowException) as error:
                raise InputError(f"cannot read {path}: {error}") from None
            yield from found.to_pylist()
            return
        try:
            # Whatever writes CSV on Windows puts a byte order mark in front.
            with open(path, newline="", encoding="utf-8-sig") as file:
                yield from csv.DictReader(file)
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise InputError(f"cannot read {path}: {error}") from None
        return
    for method, arguments in (("to_dicts", ()), ("to_pylist", ()), ("rows", ()), ("to_dict", ("records",))):
        if hasattr(table, method) and hasattr(table, "columns"):
            yield from getattr(table, method)(*arguments)
            return
    if isinstance(table, Mapping) or not isinstance(table, Iterable):
        raise InputError(f"a table is a file, a data frame or a list of dicts, not a {type(table).__name__}")
    yield from table


def number(row: Mapping[str, Any], column: str, where: str) -> float:
    value = row.get(column)
    try:
        value = float(value)
    except (TypeError, ValueError):
        raise InputError(f"{where}: {column} is {value!r}, no number") from None
    if not math.isfinite(value) or value < 0:
        raise InputError(f"{where}: {column} is {value:g}: it is finite and at least 0")
    return value


def whole_number(row: Mapping[str, Any], column: str, where: str) -> int:
    value = number(row, column, where)
    if not value.is_integer():
        raise InputError(f"{where}: {column} is {value:g}: it is a whole number")
    return int(value)


def absent(row: Mapping[str, Any], column: str) -> bool:
    """There is nothing in this column: not even, as pandas has it, no number."""
    value = row.get(column)
    try:
        return bool(value is None or value == "" or value != value)
    except TypeError:
        # pandas.NA is neither the same as anything nor not.
        return True


def checked(row: Mapping[str, Any], where: str) -> None:
    """Raises :class:`InputError`: a column that nobody knows, or one that is missing."""
    if not isinstance(row, Mapping):
        raise InputError(f"{where}: {row!r} is no row: a dict of columns and values is wanted")
    if None in row:
        raise InputError(f"{where}: it has more values than there are columns")
    for column in row:
        if column not in COLUMNS:
            near = difflib.get_close_matches(str(column), COLUMNS, 1)
            hint = f"; did you mean `{near[0]}`?" if near else ""
            raise InputError(f"there is no column `{column}`{hint}\n  Columns: {', '.join(COLUMNS)}")
    for needed in ("vm",), ("time",), ("demand", "request"):
        if not any(column in row for column in needed):
            missing = " or ".join(f"`{column}`" for column in needed)
            raise InputError(f"the column {missing} is missing\n  Columns: {', '.join(COLUMNS)}")
    if absent(row, "vm"):
        raise InputError(f"{where}: there is no vm")


def nanoseconds(text: str, what: str) -> int:
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(ns|us|ms|s)\s*", str(text))
    ns = float(found[1]) * {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}[found[2]] if found else 0
    if ns < 1:
        raise InputError(f"{what}={text!r}: it is a duration, such as \"10ms\"")
    return round(ns)


def word(name: Any) -> str:
    """A name as scenarios take it."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", str(name)).strip("-") or "vm"


class Vm:
    """What a table says of one VM: from when on it wants how many CPUs; when requests come, and what each takes."""

    def __init__(self, row: Mapping[str, Any]):
        self.row = row
        self.times: list[float] = []
        self.demands: list[tuple[float, float]] = []
        self.requests: list[tuple[float, float]] = []

    def add(self, row: Mapping[str, Any], where: str) -> None:
        time = number(row, "time", where)
        if self.times and time < self.times[-1]:
            back = f"from {self.times[-1]:g} s to {time:g} s"
            raise InputError(f"{where}: {row['vm']} goes back in time, {back}: sort the table by time")
        self.times.append(time)
        if absent(row, "demand") and absent(row, "request"):
            raise InputError(f"{where}: there is neither a demand nor a request")
        if not absent(row, "demand"):
            self.demands.append((time, number(row, "demand", where)))
        if not absent(row, "request"):
            takes = number(row, "request", where)
            if takes == 0:
                raise InputError(f"{where}: request is 0: it takes some CPU time")
            self.requests.append((time, takes))

    @property
    def end(self) -> float:
        """Of its last row, or when its requests can be answered at the earliest."""
        return max([self.times[-1], *(time + takes for time, takes in self.requests)])


def from_table(
    table: Table,
    *,
    cpus: int,
    policies: Union[Arm, Iterable[Arm]] = ("linux", "vmfair"),
    time_scale: float = 1.0,
    tick: str = "10ms",
    name: str = "trace",
) -> Scenario:
    """A scenario of VMs that come, want CPU time or are sent requests, and go as a table says.

    Columns: ``vm`` (a name), ``time`` (s), and ``demand`` (CPUs that it wants from then on, until its next one) or
    ``request`` (one comes at that time, and takes so much CPU time, s); with both columns, a row has one of them or
    both. A VM starts at its first row. It stops at its last, whose demand nobody sees; one with requests stays to the
    end, when the last request of the table could be answered. Besides, in its first row: ``vcpus`` [the largest demand,
    rounded up], ``class`` (``latency``, ``batch``, ...), ``weight``.

    ``cpus``: of the host. ``time_scale``: seconds of the scenario for one of the table: ``1/300`` makes a sample of
    five minutes one second; requests are as much shorter. ``tick``: a demand below one CPU is a part of each tick.

    Demand is spread evenly over the VM's vCPUs and ticks, and each request is a thread of its own in the VM: what the
    table does not say (bursts, who waits for whom) is not there. What a VM does not get in time it still does later.

    Raises :class:`InputError` with the row: an unknown column (with the nearest), times that go backwards, a demand
    beyond the VM's vCPUs.
    """
    step = nanoseconds(tick, "tick")
    cpus = whole(cpus, "cpus", 0)
    time_scale = native(time_scale)
    if not (isinstance(time_scale, (int, float)) and 0 < time_scale < math.inf):
        raise InputError(f"time_scale={time_scale!r}: it is a number above 0")
    vms: dict[str, Vm] = {}
    for at, row in enumerate(rows(table), 1):
        where = f"row {at}"
        checked(row, where)
        vms.setdefault(str(row["vm"]), Vm(row)).add(row, where)
    if not vms:
        raise InputError("the table has no rows")
    begin = min(vm.times[0] for vm in vms.values())

    def scaled(seconds: float) -> int:
        return round(seconds * time_scale * 1e9)

    def ns(time: float) -> int:
        return scaled(time - begin)

    end = ns(max(vm.end for vm in vms.values()))
    if end < 1_000_000:
        raise InputError(f"the table is {end} ns long with time_scale={time_scale:g}: at least 1 ms is wanted")
    made = {"vm": {}, "task": {}, "client": {}}
    steps_in_all = 0
    for called, vm in vms.items():
        key, answer = word(called), f"{word(called)}-answer"
        if key in made["vm"] or key in made["task"] or (vm.requests and answer in made["task"]):
            raise InputError(f"two VMs would be called {key}: {called} is one")
        if not vm.requests and ns(vm.times[-1]) <= ns(vm.times[0]):
            raise InputError(f"{called} has one time only: its last row says when it stops")
        until = vm.demands if not vm.requests else [*vm.demands, (begin + end / (time_scale * 1e9), 0.0)]
        largest = max((demand for _, demand in until[:-1]), default=0.0)
        vcpus = max(1, math.ceil(largest)) if absent(vm.row, "vcpus") else whole_number(vm.row, "vcpus", called)
        if vcpus < 1 or largest > vcpus:
            raise InputError(f"{called} wants {largest:g} CPUs, and has {vcpus} vCPUs")
        group = made["vm"][key] = {"vcpus": vcpus, "tasks": []}
        start = ns(vm.times[0])
        steps: list[str] = []
        if vm.demands and vm.demands[0][0] > vm.times[0]:
            steps.append(f"sleep {ns(vm.demands[0][0]) - start}ns")
        for (time, demand), (then, _) in zip(until, until[1:]):
            more = wanted(ns(then) - ns(time), demand / vcpus, step)
            steps.extend(itertools.islice(more, MOST_STEPS + 1 - steps_in_all - len(steps)))
        steps_in_all += len(steps) + len(vm.requests)
        if steps_in_all > MOST_STEPS:
            said = f"the table makes more than {MOST_STEPS} steps"
            raise InputError(f"{said}: take a longer tick or a smaller time_scale")
        if vm.demands:
            made["task"][key] = {"threads": vcpus, "first": steps, "loop": ["exit"]}
            group["tasks"].append(key)
        if vm.requests:
            # From the VM's start to the first, and so on; after the last none comes in any run.
            at = [start, *(ns(time) for time, _ in vm.requests)]
            gaps = [*(later - earlier for earlier, later in zip(at, at[1:])), NEVER_NS]
            takes = [max(1, scaled(each)) for _, each in vm.requests]
            loop = [f"receive {key}", f"compute {listed(takes)}", "reply"]
            made["task"][answer] = {"per_request": True, "loop": loop}
            made["client"][key] = {"to": key, "sends": f"gap {listed(gaps)}"}
            group["tasks"].append(answer)
        if start:
            group["start"] = f"{start}ns"
        if not vm.requests and ns(vm.times[-1]) < end:
            group["stop"] = f"{ns(vm.times[-1])}ns"
        if not absent(vm.row, "class"):
            group["class"] = str(vm.row["class"])
        if not absent(vm.row, "weight"):
            group["weight"] = whole_number(vm.row, "weight", called)
    lost = ["Bursts below its resolution and who waits for whom are not in a table."]
    if any(vm.demands for vm in vms.values()):
        lost.append("Demand is spread evenly over vCPUs and ticks.")
    if made["client"]:
        lost.append("Each request is a thread of its own, which computes and answers.")
    return of_tables(name, f"{len(vms)} VMs of a table", cpus, end, made, policies, lost)


def listed(values: Iterable[int]) -> str:
    """A list of ns as scenarios take it."""
    return f"values({', '.join(f'{value}ns' for value in values)})"


def wanted(length: int, each: float, tick: int) -> Iterator[str]:
    """Steps of a thread that wants this part of a CPU for so many ns."""
    if length <= 0:
        return
    if each <= 0:
        yield f"sleep {length}ns"
        return
    if each >= 1:
        yield f"compute {length}ns"
        return
    whole, rest = divmod(length, tick)
    compute = round(tick * each)
    for _ in range(whole):
        yield f"compute {compute}ns" if compute else f"sleep {tick}ns"
        yield f"timer every {tick}ns"
    if round(rest * each) > 0:
        yield f"compute {round(rest * each)}ns"
        yield f"sleep {max(1, rest - round(rest * each))}ns"


def of_tables(
    name: str,
    title: str,
    cpus: int,
    measure: int,
    made: Mapping[str, Any],
    policies: Union[Arm, Iterable[Arm]],
    lost: list[str],
) -> Scenario:
    from berth.experiment import names

    tables = {
        "title": title,
        "host": {"cores": cpus},
        "run": {"warmup": "0ms", "measure": f"{measure}ns", "seeds": 3},
        **made,
        "compare": {"policies": names(policies, "policies")},
    }
    words = "".join(f"# {line}\n" for line in lost)
    return Scenario.from_text(words + tomli_w.dumps(tables), name=word(name))


#: `perf sched script` and `perf script`: both forms of the events.
SWITCH = re.compile(
    r"\s(?P<time>\d+\.\d+):\s+(?:sched:)?sched_switch:\s+(?:prev_comm=(?P<comm>.*?) prev_pid=(?P<pid>\d+) "
    r"prev_prio=-?\d+ prev_state=(?P<state>\S+) ==> next_comm=(?P<next>.*?) next_pid=(?P<to>\d+)"
    r"|(?P<comm2>.*?):(?P<pid2>\d+) \[-?\d+\] (?P<state2>\S+) ==> (?P<next2>.*?):(?P<to2>\d+) \[)"
)
WAKE = re.compile(
    r"\s(?P<time>\d+\.\d+):\s+(?:sched:)?sched_wak(?:eup|ing)(?:_new)?:\s+"
    r"(?:comm=(?P<comm>.*?) pid=(?P<pid>\d+)|(?P<comm2>.*?):(?P<pid2>\d+) \[)"
)


def from_perf(
    text: Union[str, os.PathLike],
    *,
    cpus: Optional[int] = None,
    vms: Optional[Mapping[int, str]] = None,
    policies: Union[Arm, Iterable[Arm]] = ("linux", "vmfair"),
    least: float = 0.001,
    name: str = "perf",
) -> Scenario:
    """A scenario from ``perf sched record`` and ``perf sched script``: what each thread ran and how long it slept.

    ``text``: the output, or a file of it. ``cpus``: of the host [those in the recording]. ``vms``: which thread (by
    number) is of which VM; without it threads of one name are one VM. ``least``: threads that ran less than this part
    of the recording are left out.

    What is lost, and said at the head of :meth:`Scenario.show`: time in run queues is taken out (it is what a policy
    changes), whom a thread waits for is a sleep of the recorded length, and caches and frequencies are as they were.

    Raises :class:`InputError` with the line: no event in it, times that go backwards.
    """
    if not isinstance(text, (str, os.PathLike)):
        raise InputError(f"it is the text of perf script or a file of it, not a {type(text).__name__}")
    lines = text
    if isinstance(text, os.PathLike) or "\n" not in text:
        try:
            with open(text, encoding="utf-8", errors="replace") as file:
                lines = file.read()
        except (OSError, ValueError) as error:
            raise InputError(f"cannot read {os.fspath(text)}: {error}") from None
    threads, used, span = recorded(lines)
    cpus = used if cpus is None else whole(cpus, "cpus", 1)
    for pid in vms or ():
        if pid not in threads:
            raise InputError(f"vms: there is no thread {pid!r} in the recording")
    lost = [
        "From perf's scheduler events. Lost: time in run queues, which is what a policy changes; whom a thread waits",
        "for, which is a sleep as long as recorded; caches and frequencies.",
    ]
    groups: dict[str, Any] = {}
    tasks: dict[str, Any] = {}
    out = 0
    for pid, thread in sorted(threads.items()):
        ran = sum(ns for kind, ns in thread.steps if kind == "compute")
        if ran < least * span:
            out += 1
            continue
        vm = word(vms.get(pid, thread.name) if vms is not None else thread.name)
        group = groups.setdefault(vm, {"vcpus": 0, "tasks": []})
        group["vcpus"] += 1
        group["tasks"].append(f"t{pid}")
        steps = [f"{kind} {ns}ns" for kind, ns in thread.steps if ns > 0]
        tasks[f"t{pid}"] = {"threads": 1, "first": steps, "loop": ["exit"]}
    if not tasks:
        raise InputError(f"no thread ran {least:g} of the recording or more")
    if out:
        lost.append(f"Left out: {out} threads that ran less than {least:g} of the time.")
    if sum(len(task["first"]) for task in tasks.values()) > MOST_STEPS:
        raise InputError(f"the recording makes more than {MOST_STEPS} steps: take a part of it (perf script --time)")
    title = f"{len(tasks)} threads of a recording of {span / 1e9:.3g} s"
    return of_tables(name, title, cpus, span, {"vm": groups, "task": tasks}, policies, lost)


class Thread:
    """What one thread did: pairs of ``compute`` or ``sleep`` and ns."""

    def __init__(self, name: str):
        self.name = name
        self.steps: list[tuple[str, int]] = []
        self.since: Optional[int] = None
        self.asleep: Optional[int] = None
        #: It has come or gone: what it did before is known.
        self.switched = False

    def add(self, kind: str, ns: int) -> None:
        # Runs with a wait between them are one.
        if self.steps and self.steps[-1][0] == kind:
            ns += self.steps.pop()[1]
        self.steps.append((kind, ns))

    def wakes(self, at: int) -> None:
        if self.asleep is not None:
            self.add("sleep", at - self.asleep)
            self.asleep = None


def recorded(text: str) -> tuple[dict[int, Thread], int, int]:
    """Threads, how many CPUs they were on, and how long it was, ns."""
    threads: dict[int, Thread] = {}
    cpus = set()
    begin, last = None, 0
    for at, line in enumerate(text.splitlines(), 1):
        switch = SWITCH.search(line)
        wake = None if switch else WAKE.search(line)
        found = switch or wake
        if found is None:
            continue
        now = round(float(found["time"]) * 1e9)
        if begin is None:
            begin = now
        if now < last:
            raise InputError(f"line {at}: time goes backwards, from {last / 1e9:.6f} s to {now / 1e9:.6f} s")
        last = now
        if wake is not None:
            pid = int(wake["pid"] or wake["pid2"])
            thread = threads.get(pid)
            if thread is None:
                # It slept until now, unless it turns out that it ran.
                thread = threads[pid] = Thread(wake["comm"] or wake["comm2"] or "")
                thread.asleep = begin
            thread.wakes(now)
            continue
        cpu = re.search(r"\[(\d+)\]", line)
        if cpu:
            cpus.add(int(cpu[1]))
        pid, to = int(switch["pid"] or switch["pid2"]), int(switch["to"] or switch["to2"])
        thread = threads.setdefault(pid, Thread(switch["comm"] or switch["comm2"] or ""))
        if not thread.switched:
            # It ran before the recording began.
            thread.steps.clear()
            thread.since = begin
        thread.switched = True
        if thread.since is not None:
            thread.add("compute", now - thread.since)
            thread.since = None
        if not (switch["state"] or switch["state2"]).startswith("R"):
            thread.asleep = now
        thread = threads.get(to)
        if thread is None:
            thread = threads[to] = Thread(switch["next"] or switch["next2"] or "")
            # When it woke is not known; it slept until then.
            if now > begin:
                thread.add("sleep", now - begin)
        thread.wakes(now)
        thread.since = now
        thread.switched = True
    if begin is None:
        raise InputError("there is no sched_switch event in it: perf sched record, then perf sched script")
    for thread in threads.values():
        if thread.since is not None and last > thread.since:
            thread.add("compute", last - thread.since)
    threads = {pid: thread for pid, thread in threads.items() if pid != 0 and thread.switched}
    if last - begin < 1_000_000:
        raise InputError(f"the recording is {last - begin} ns long: at least 1 ms is wanted")
    return threads, max(1, len(cpus)), last - begin
