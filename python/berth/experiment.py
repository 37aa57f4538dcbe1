# SPDX-License-Identifier: GPL-2.0-only
"""One scenario run; kept results; papers and kept records of a real kernel."""
from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from typing import Any, Optional, Union

from berth import _native
from berth._native import InputError, Policy, Results
from berth.progress import Progress, told
from berth.scenario import Like, Scenario, native, whole
from berth.sweep import FILE, Sweep

#: An arm of the scenario, a shipped policy's name, a policy's file, or a :class:`berth.Policy`.
Arm = Union[str, os.PathLike, Policy]


def names(arms: Union[None, Arm, Iterable[Arm]], what: str = "arms") -> list[str]:
    """Arms as the command line names them."""
    if arms is None:
        return []
    if isinstance(arms, (str, bytes, os.PathLike, Policy)) or not isinstance(arms, Iterable):
        arms = [arms]
    found = []
    for arm in arms:
        name = arm.name if isinstance(arm, Policy) else os.fspath(arm) if isinstance(arm, os.PathLike) else arm
        if not isinstance(name, str):
            raise InputError(f"{what}: {arm!r} is none: it is a name, a file or a berth.Policy")
        found.append(name)
    if not found and what == "arms":
        raise InputError("arms is empty: leave it out for all arms of the scenario")
    return found


def count(seeds: Optional[int]) -> Optional[int]:
    """The number of seeds."""
    if seeds is None:
        return None
    seeds = native(seeds)
    if isinstance(seeds, bool) or not isinstance(seeds, int):
        raise InputError(f"seeds={seeds!r}: it is a number N, for seeds 1 to N; one seed is seed=7")
    return whole(seeds, "seeds", 1)


def path(of: Union[None, str, os.PathLike]) -> Optional[str]:
    return None if of is None else os.fspath(of)


def run(
    scenario: Like,
    *,
    arms: Union[None, Arm, Iterable[Arm]] = None,
    policies: Union[Arm, Iterable[Arm]] = (),
    seeds: Optional[int] = None,
    seed: Optional[int] = None,
    workers: int = 0,
    checked: bool = False,
    calibrate: bool = True,
    kept: Union[None, str, os.PathLike] = None,
    trace: Union[None, str, os.PathLike] = None,
    trace_span: str = "all",
    progress: Progress = None,
) -> Results:
    """Runs every arm with every seed in the simulator: what ``berth sim`` does.

    ``arms``: only these (arms of the scenario, shipped policies, files); ``policies``: these besides.
    ``seeds``: seeds 1 to N; ``seed``: this one. ``workers``: runs at once, 0 is one per CPU; results do not depend on
    it.
    ``checked``: interpret policies and check each of their accesses. ``calibrate``: fit what ``[calibrate]`` asks for.
    ``kept``: a folder in which each run is kept as it is finished, and looked for before.
    ``trace``: a file for ui.perfetto.dev, of one arm and one seed; ``trace_span``: ``"8.1s..8.3s"``, or ``"all"``.

    Raises :class:`InputError` before anything runs, and :class:`RunError` if a run fails: its ``results`` has the rest.
    At Ctrl-C what is finished is kept, and the same call goes on from there.
    """
    options = {
        "arms": names(arms),
        "policies": names(policies, "policies"),
        "seeds": count(seeds),
        # Tables have it as Arrow's int64.
        "seed": None if seed is None else whole(seed, "seed", 0, 2**63 - 1),
        "workers": whole(workers, "workers", 0),
        "checked": checked,
        "calibrate": calibrate,
        "kept": path(kept),
        "trace": path(trace),
        "span": trace_span,
    }
    if seed is not None and seeds is not None:
        raise InputError("seeds and seed: say one of them")
    with told(progress, "berth") as tell:
        return _native.run(Scenario.of(scenario)._native, options, tell)


def load(folder: Union[str, os.PathLike], *, place: Optional[str] = None) -> Union[Results, Sweep]:
    """What was kept in a folder: by ``berth sim`` or :meth:`Results.save` (``berth-out/NAME``), or by a sweep.

    ``place``: ``sim``, ``lab`` or ``host``, where a folder has results of several.
    Raises :class:`InputError`: there is nothing, or another version wrote it.
    """
    folder = os.fspath(folder)
    file = folder if os.path.isfile(folder) else os.path.join(folder, FILE)
    if os.path.isfile(file) and file.endswith(".parquet"):
        return Sweep(_native.Runs.read(file), os.path.dirname(file) or ".")
    if os.path.isdir(os.path.join(folder, "parts")):
        raise InputError(f"{folder} has a sweep that is not finished: the same call of berth.sweep goes on from there")
    if os.path.isfile(folder):
        folder = os.path.dirname(folder) or "."
    return _native.load(folder, place)


class Comparison:
    """Simulator beside kept records of a real kernel, judged by bounds that were written down before."""

    def __init__(self, scenarios: list[dict[str, Any]], text: str):
        #: Of each scenario: what ``berth compare --json`` says.
        self.scenarios = scenarios
        self._text = text

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"<berth.Comparison of {len(self.scenarios)} scenarios>"


def compare(
    what: Union[Results, str, os.PathLike],
    other: Optional[Results] = None,
    *,
    arms: Union[None, Arm, Sequence[Arm]] = None,
    seeds: Optional[int] = None,
    costs: str = "lab",
    workers: int = 0,
) -> Union[_native.Table, Comparison]:
    """Two results beside each other (:meth:`Results.compare`); or a folder of scenarios with kept records of a real
    kernel, such as ``crates/compare/set``: each is simulated and judged, as ``berth compare`` does.

    ``costs``: those of the lab's VM (``"lab"``), or the ``"scenario"``'s own.
    Raises :class:`InputError`: the folder has no records.
    """
    if isinstance(what, Results):
        if not isinstance(other, Results):
            raise InputError("compare: results are compared with results, berth.compare(a, b)")
        return what.compare(other)
    if costs not in ("lab", "scenario"):
        raise InputError(f"costs={costs!r}: it is \"lab\" or \"scenario\"")
    workers = whole(workers, "workers", 0)
    found, text = _native.compare_records(os.fspath(what), names(arms), count(seeds), costs == "lab", workers)
    return Comparison(json.loads(found), text)


class Reproduced:
    """What came out of a paper's experiments."""

    def __init__(self, told: dict[str, Any]):
        self.paper: str = told["paper"]
        self.version: str = told["version"]
        #: Short runs, of which nothing is judged.
        self.quick: bool = told["quick"]
        #: Of each experiment: ``id``, ``title`` and ``runs``.
        self.experiments: list[dict[str, Any]] = told["experiments"]
        #: What the paper reports, and what came of it.
        self.claims: list[dict[str, Any]] = told["claims"]

    @property
    def values(self) -> list[dict[str, Any]]:
        """All cells of all tables: ``experiment``, ``run``, ``variant``, ``arm``, ``metric``, ``mean``, ``half`` (of
        the 95 % interval), ``seeds``; times in ns. ``pandas.DataFrame(r.values)`` is a table of them."""
        return [
            {"experiment": experiment["id"], "run": run["name"], **value}
            for experiment in self.experiments
            for run in experiment["runs"]
            for value in run["values"]
        ]

    def __repr__(self) -> str:
        return f"<berth.Reproduced {self.paper}: {len(self.experiments)} experiments, {len(self.claims)} claims>"


def reproduce(
    paper: str,
    experiment: Optional[str] = None,
    *,
    quick: bool = False,
    workers: int = 0,
    papers: Union[str, os.PathLike] = "papers",
    kept: Union[None, str, os.PathLike] = None,
) -> Reproduced:
    """Does a paper's experiments and judges its claims: what ``berth reproduce`` does, without writing pages.

    ``quick``: short runs with two seeds, of which nothing is judged. ``papers``: the folder of papers, in Berth's
    repository. ``kept``: the folder of kept runs; without it the user's, which the command line has too.
    """
    workers = whole(workers, "workers", 0)
    told_of = _native.reproduce(paper, experiment, quick, workers, os.fspath(papers), path(kept))
    return Reproduced(json.loads(told_of))
