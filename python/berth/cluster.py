# SPDX-License-Identifier: GPL-2.0-only
"""A sweep's jobs as tasks of a Ray cluster. Ray places them, does them again where a worker or a node is lost, and
moves what they give; jobs are known by their hash, so that none counts twice."""
from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Optional

from berth import _native
from berth._native import VERSION, InputError, RunError

if TYPE_CHECKING:
    from berth.sweep import RayEngine

#: Runs of a task, at most: what a task gives stays some MB.
MOST = 2000

#: Tasks at the same time, for each CPU of the cluster: one that is done, one that waits.
TASKS_PER_CPU = 2


def installed() -> Any:
    """Ray. Raises :class:`InputError` where it is not installed."""
    try:
        import ray
    except ImportError:
        raise InputError("engine=\"ray\": Ray is not installed: pip install 'berth-sched[ray]'") from None
    return ray


def do(
    plan: _native.Sweep, out: str, engine: RayEngine, tell: Optional[Callable[[int, int], object]]
) -> list[str]:
    """Does all that is to be done. Sentences of runs that failed, one for each cell.

    Raises :class:`InputError`: a node has another version, or cannot load a policy.
    """
    ray = installed()
    if not ray.is_initialized():
        try:
            ray.init(address=engine.address, log_to_driver=False, logging_level="ERROR", include_dashboard=False)
        except (ConnectionError, ValueError) as error:
            raise InputError(f"cannot join or start Ray (address={engine.address!r}): {error}") from error
    same_version(ray)
    folder = os.path.join(os.path.abspath(out), "parts") if engine.shared else None
    task = ray.remote(num_cpus=1, max_retries=engine.retries, scheduling_strategy="SPREAD")(_work)
    todo = deque(plan.todo())
    objects = ray.put(plan.objects())
    pending: dict[Any, list[int]] = {}
    lost: dict[int, int] = {}
    failures: dict[str, str] = {}
    seconds: Optional[float] = None

    def tell_of(whose: str, why: object) -> None:
        failures.setdefault(whose.split(", seed ")[0] + whose.split(", with ")[-1], f"{whose}: {why}")

    while todo or pending:
        most = TASKS_PER_CPU * max(1, int(ray.cluster_resources().get("CPU", 1)))
        for _ in range(min(most - len(pending), len(todo))):
            if not todo:
                break
            numbers = [todo.popleft() for _ in range(_size(len(todo), most, seconds, engine.task_seconds))]
            pending[task.remote(plan.chunk(numbers), objects, folder)] = numbers
        ready, _ = ray.wait(list(pending), num_returns=1, timeout=0.5)
        for ref in ready:
            numbers = pending.pop(ref)
            try:
                name, part, failed, took = ray.get(ref)
            except (ray.exceptions.WorkerCrashedError, ray.exceptions.ObjectLostError,
                    ray.exceptions.OutOfMemoryError, ray.exceptions.NodeDiedError) as error:
                # Ray has given up: once more, each run by itself, so that one that kills its worker is found.
                for number in numbers:
                    lost[number] = lost.get(number, 0) + 1
                    if lost[number] > 1:
                        tell_of(plan.which(number), f"its worker was lost: {error}")
                seconds = engine.task_seconds
                todo.extendleft(n for n in reversed(numbers) if lost[n] == 1)
                continue
            except ray.exceptions.RayTaskError as error:
                cause = error.cause if isinstance(error.cause, Exception) else error
                raise type(cause)(str(cause)) if isinstance(cause, (InputError, RunError)) else error
            seconds = took if seconds is None else 0.5 * (seconds + took)
            if name:
                plan.accept(out, name, part)
            for key, why in failed:
                tell_of(plan.whose(key), why)
        if tell is not None:
            tell(plan.finished, len(plan))
    return list(failures.values())


def _size(left: int, tasks: int, seconds: Optional[float], task_seconds: float) -> int:
    """Runs of the next task, of so many that are left for so many tasks at once. By the wall time that a run has taken;
    the first tasks have one. Towards the end tasks are smaller, down to a tenth, so that no CPU waits for another."""
    if seconds is None:
        return 1
    by_time = max(1, min(MOST, int(task_seconds / max(seconds, 1e-6))))
    return min(left, max(1, by_time // 10, min(by_time, left // tasks)))


def _work(chunk: bytes, objects: dict[str, str], folder: Optional[str]) -> tuple[str, bytes, list, float]:
    """What a worker does."""
    import platform

    try:
        return _native.work(chunk, objects, folder)
    except (InputError, RunError) as error:
        raise type(error)(f"on node {platform.node()}: {error}") from None


def same_version(ray: Any) -> None:
    """Raises :class:`InputError` if a node has no Berth, or another one."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On

    # Inside, so that it goes to the node as it is: there may be no package of this name there.
    def version() -> str:
        try:
            import berth

            return berth.VERSION
        except ImportError as error:
            return f"no Berth ({error})"

    asked = {}
    for node in ray.nodes():
        if node["Alive"] and node["Resources"].get("CPU", 0) >= 1:
            on = On(node_id=node["NodeID"], soft=False)
            of = ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=on)(version).remote()
            asked[of] = f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
    if not asked:
        raise InputError("the Ray cluster has no node with a CPU")
    others = []
    for of, node in asked.items():
        try:
            found = ray.get(of)
        except ray.exceptions.RayError:
            # Gone since it was asked for. Tasks say their version, too.
            continue
        if found != VERSION:
            others.append(f"{node} has {found}")
    if others:
        raise InputError(
            f"the nodes must have this version of Berth, {VERSION}:\n  " + "\n  ".join(sorted(set(others)))
            + "\n  pip install the same wheel on each"
        )
