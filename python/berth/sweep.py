# SPDX-License-Identifier: GPL-2.0-only
"""Many points of a scenario: run here or on a cluster, kept, resumed, tabulated."""
from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional, Union

from berth import _native
from berth._native import InputError, RunError, Table
from berth.progress import Progress, told
from berth.scenario import Like, Scenario, plain, whole

if TYPE_CHECKING:
    from berth.experiment import Arm

#: All runs of a sweep, in its folder.
FILE = "sweep.parquet"

#: ``{"vm.web.count": [8, 16]}``: all combinations; or a list of points, ``[{"vm.web.count": 8}, ...]``.
Grid = Union[Mapping[str, Iterable[Any]], Sequence[Mapping[str, Any]]]


@dataclass(frozen=True)
class RayEngine:
    """Jobs as tasks of a Ray cluster (``pip install 'berth-sched[ray]'``; ``engine="ray"`` is this with its defaults).

    A Ray that runs in this process is used as it is; else one is joined or started.
    """

    #: Of a cluster to join; without it ``RAY_ADDRESS``, or a new Ray on this machine.
    address: Optional[str] = None
    #: Workers write into ``out`` themselves: the folder is the same on all nodes.
    shared: bool = False
    #: Wall time of a task, s: so many runs go into one, by what runs have taken.
    task_seconds: float = 5.0
    #: How often a task is done again whose worker or node is lost.
    retries: int = 10


def points_of(grid: Grid) -> list[list[tuple[str, Union[int, float, str]]]]:
    """The points of a grid, in order.

    Raises :class:`InputError`: it is empty, or no grid.
    """
    if isinstance(grid, Mapping):
        axes = []
        for address, values in grid.items():
            if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
                raise InputError(f"grid: {address} is {values!r}: a list of values is wanted")
            values = [(str(address), plain(value)) for value in values]
            if not values:
                raise InputError(f"grid: {address} has no values")
            axes.append(values)
        points = [list(point) for point in itertools.product(*axes)] if axes else []
    elif isinstance(grid, (str, bytes)) or not isinstance(grid, Iterable):
        raise InputError("grid: it is a dict of lists, or a list of dicts")
    else:
        points = []
        for point in grid:
            if not isinstance(point, Mapping):
                raise InputError(f"grid: {point!r} is no point: a dict of addresses and values is wanted")
            points.append([(str(address), plain(value)) for address, value in point.items()])
    if not points:
        raise InputError("grid: it is empty; for the scenario as it is there is berth.run")
    return points


class Sweep:
    """What came out of :func:`sweep`: a row for each run, with what is set at its point."""

    def __init__(self, runs: _native.Runs, folder: str):
        self._runs = runs
        #: Where it is kept.
        self.folder = folder

    @property
    def name(self) -> str:
        """The scenario's."""
        return self._runs.name

    @property
    def addresses(self) -> list[str]:
        """What varies, in the order of the grid."""
        return self._runs.addresses

    @property
    def arms(self) -> list[str]:
        return self._runs.arms

    @property
    def metrics(self) -> list[str]:
        """Names of the metrics, as in ``berth sim --json``."""
        return self._runs.metrics

    @property
    def baseline(self) -> Optional[str]:
        """The arm that the scenario compares with, if it names one."""
        return self._runs.baseline

    @property
    def complete(self) -> bool:
        """Every run is there."""
        return self._runs.complete

    @property
    def scenario(self) -> str:
        """The scenario at the first point, every default filled in."""
        return self._runs.scenario

    @property
    def table(self) -> Table:
        """All runs: ``point``, what is set there, ``arm``, ``seed``, a column for each metric, ``job``, ``hash``."""
        return self._runs.table()

    def to_arrow(self) -> Any:
        """As :attr:`table`, a ``pyarrow.Table``, without a copy."""
        return self.table.to_arrow()

    def to_pandas(self) -> Any:
        """As :attr:`table`, a ``pandas.DataFrame``."""
        return self.table.to_pandas()

    def to_polars(self) -> Any:
        """As :attr:`table`, a ``polars.DataFrame``, without a copy."""
        return self.table.to_polars()

    def estimates(self, *metrics: str) -> Table:
        """Mean over the seeds and half of its 95 % interval (Student's t), for each point, arm and metric."""
        return self._runs.estimates(list(metrics) or None)

    def differences(self, *metrics: str, baseline: Optional[str] = None) -> Table:
        """Every arm beside ``baseline`` (the scenario's, else the first) at the same point, paired by seed: difference
        with half of its 95 % interval, and the geometric mean of the ratios with its interval."""
        return self._runs.differences(baseline, list(metrics) or None)

    def plot(
        self,
        metric: Optional[str] = None,
        x: Optional[str] = None,
        *,
        arms: Union[None, str, Sequence[str]] = None,
        log: bool = False,
        ax: Any = None,
    ) -> Any:
        """Means with 95 % intervals over ``x`` (the first that varies), a line for each arm, a panel for each
        combination of what else varies. Gives matplotlib's ``Figure``; ``ax``: draw here (one panel only).

        ``metric``: without it the first ``*.response.p99``, else the first of all. ``log``: on a logarithmic axis.
        """
        from berth.plot import lines

        return lines(self, metric, x, arms, log, ax)

    def __len__(self) -> int:
        return len(self._runs)

    def __repr__(self) -> str:
        rest = "" if self.complete else ", not complete"
        return f"<berth.Sweep {self.name}: {len(self)} runs over {', '.join(self.addresses)}{rest}>"

    def _repr_html_(self) -> str:
        from html import escape

        from berth.plot import UNITS, leading

        metric = leading(self.metrics)
        head = f"<p>{escape(repr(self)[1:-1])}</p>"
        if metric is None:
            return head
        try:
            frame = self.estimates(metric).to_pandas()
        except ImportError:
            return head
        scale, unit = UNITS.get(frame["unit"][0], (1.0, frame["unit"][0]))
        frame = frame.assign(mean=frame["mean"] / scale, half=frame["half"] / scale, unit=unit)
        return head + frame.to_html(index=False, float_format="{:.4g}".format, na_rep="")


def sweep(
    scenario: Like,
    grid: Grid,
    *,
    arms: Union[None, Arm, Iterable[Arm]] = None,
    policies: Union[Arm, Iterable[Arm]] = (),
    seeds: Optional[int] = None,
    engine: Union[str, RayEngine] = "local",
    out: Union[None, str, os.PathLike] = None,
    workers: int = 0,
    checked: bool = False,
    calibrate: bool = True,
    progress: Progress = None,
) -> Sweep:
    """Runs a scenario at every point of a grid, every arm with every seed.

    ``grid``: addresses and values, all combinations, or a list of points. ``arms``, ``policies``, ``seeds``,
    ``checked``, ``calibrate``: as in :func:`run`. ``engine``: ``"local"``, ``"ray"`` or a :class:`RayEngine`; the
    results are the same, byte for byte. ``workers``: runs at once of ``"local"``, 0 is one per CPU.
    ``out``: the folder in which finished runs are kept every few seconds; the same call, or one with a larger grid,
    does only what is missing there [``berth-out/NAME-sweep``]. ``sweep.parquet`` in it has all runs at the end.

    Raises :class:`InputError` before anything runs: a grid that is empty, an address that is none, a policy that does
    not compile. Raises :class:`RunError` if runs fail or the disk is full: what is done is kept; ``results`` has it.
    """
    from berth.experiment import count, names

    if engine == "ray":
        engine = RayEngine()
    if engine != "local" and not isinstance(engine, RayEngine):
        raise InputError(f"engine={engine!r}: it is \"local\" or \"ray\", or a berth.RayEngine")
    if isinstance(engine, RayEngine):
        from berth import cluster

        cluster.installed()
    asked = {
        "arms": names(arms),
        "policies": names(policies, "policies"),
        "seeds": count(seeds),
        "checked": checked,
        "calibrate": calibrate,
        "workers": whole(workers, "workers", 0),
    }
    scenario = Scenario.of(scenario)
    points = points_of(grid)
    with told(progress if not callable(progress) else False, "points read") as tell:
        plan = _native.Sweep.plan(scenario._native, points, asked, tell)
    out = os.fspath(out) if out is not None else os.path.join("berth-out", f"{scenario.name}-sweep")
    kept, notes = plan.resume(out)
    for note in [*plan.warnings, *notes]:
        print(f"note: {note}", file=sys.stderr)
    if kept and progress is not False:
        print(f"note: {kept} of {len(plan)} runs were kept before in {out}", file=sys.stderr)

    def there() -> str:
        return f"{plan.finished} of {len(plan)} runs are kept in {out}, and the same call goes on from there"

    def stopped(why: str) -> RunError:
        error = RunError(why)
        error.results = Sweep(plan.runs(), out)
        return error

    with told(progress, scenario.name) as tell:
        try:
            if engine == "local":
                failures = plan.local(out, tell)
            else:
                failures = cluster.do(plan, out, engine, tell)
        except KeyboardInterrupt:
            print(f"interrupted: {there()}", file=sys.stderr)
            raise
        except RunError as error:
            raise stopped(f"{error}\n  {there()}") from None
    done = Sweep(plan.runs(), out)
    try:
        done._runs.write(os.path.join(out, FILE))
    except RunError as error:
        raise stopped(f"{error}\n  {there()}") from None
    if failures:
        said = f"  {len(done)} of {len(plan)} runs are kept: the exception's `results`"
        raise stopped("\n".join([*failures, said]))
    return done
