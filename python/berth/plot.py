# SPDX-License-Identifier: GPL-2.0-only
"""Figures of sweeps, with matplotlib."""
from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Optional, Union

from berth._native import InputError

if TYPE_CHECKING:
    from berth.sweep import Sweep

#: Panels of a figure, at most.
PANELS = 12

#: Times are shown in ms.
UNITS = {"ns": (1e6, "ms"), "CPU": (1.0, "CPUs"), "1/s": (1.0, "1/s"), "1": (1.0, "")}


def leading(metrics: Sequence[str]) -> Optional[str]:
    """The metric that a reader asks for first."""
    # Of a group of VMs (`web`) before those of its members (`web-1`).
    first = sorted((m for m in metrics if m.endswith(".response.p99")), key=len)
    return (first or list(metrics) or [None])[0]


def lines(
    sweep: Sweep,
    metric: Optional[str],
    x: Optional[str],
    arms: Union[None, str, Sequence[str]],
    log: bool,
    ax: Any,
) -> Any:
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ImportError:
        raise ImportError("matplotlib is not installed: pip install 'berth-sched[plot]'") from None

    class Drawn(Figure):
        """Shown by notebooks without pyplot, which nobody need close."""

        def _repr_png_(self) -> bytes:
            png = io.BytesIO()
            self.savefig(png, format="png", dpi=100)
            return png.getvalue()

    arms = [arms] if isinstance(arms, str) else arms
    metric = metric or leading(sweep.metrics)
    if metric is None:
        raise InputError("the sweep has no runs to draw")
    if not sweep.addresses:
        raise InputError("nothing varies in the sweep: there is nothing to draw over")
    x = x or sweep.addresses[0]
    if x not in sweep.addresses:
        raise InputError(f"{x} does not vary in the sweep; what does: {', '.join(sweep.addresses)}")
    for arm in arms or ():
        if arm not in sweep.arms:
            raise InputError(f"there is no arm `{arm}` in the sweep; its arms: {', '.join(sweep.arms)}")
    rows = sweep.estimates(metric).rows()
    others = [a for a in sweep.addresses if a != x]
    panels = list(dict.fromkeys(tuple(row[a] for a in others) for row in rows))
    if len(panels) > (PANELS if ax is None else 1):
        raise InputError(
            f"{len(panels)} panels, one for each combination of {', '.join(others)}, are too many: sweep fewer values, "
            "or draw from .to_pandas()"
        )
    if ax is None:
        across = min(len(panels), 3)
        down = -(-len(panels) // across)
        figure = Drawn(figsize=(1 + 4.2 * across, 0.6 + 3.2 * down), layout="constrained")
        axes = figure.subplots(down, across, squeeze=False, sharey=True).flatten()
    else:
        figure, axes = ax.figure, [ax]
    scale, unit = UNITS.get(rows[0]["unit"], (1.0, rows[0]["unit"]))
    words = any(isinstance(row[x], str) for row in rows)
    ticks = list(dict.fromkeys(row[x] for row in rows))
    for at, (panel, axis) in enumerate(zip(panels, axes)):
        for number, arm in enumerate(arms or sweep.arms):
            mine = [r for r in rows if r["arm"] == arm and tuple(r[a] for a in others) == panel]
            if not words:
                mine.sort(key=lambda row: row[x])
            axis.errorbar(
                [ticks.index(r[x]) if words else r[x] for r in mine],
                [r["mean"] / scale for r in mine],
                yerr=[(r["half"] or 0.0) / scale for r in mine],
                label=arm,
                marker="o",
                markersize=4,
                capsize=3,
                color="0.45" if arm == sweep.baseline else f"C{number % 10}",
            )
        if words:
            axis.set_xticks(range(len(ticks)), [str(tick) for tick in ticks])
        elif len(ticks) <= 10:
            axis.set_xticks(ticks)
        elif all(isinstance(tick, int) for tick in ticks):
            axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.set_xlabel(x)
        if at % max(1, min(len(panels), 3)) == 0:
            axis.set_ylabel(f"{metric}, {unit}" if unit else metric)
        axis.set_title(", ".join(f"{a} = {v}" for a, v in zip(others, panel)), fontsize="small")
        if log:
            axis.set_yscale("log")
        else:
            axis.set_ylim(bottom=min(0, axis.get_ylim()[0]))
        axis.grid(alpha=0.3)
    for axis in list(axes)[len(panels) :]:
        axis.set_visible(False)
    n = max(row["n"] for row in rows)
    axes[0].legend(title="95 % CI over seeds" if n > 1 else "one seed", fontsize="small", title_fontsize="small")
    return figure
