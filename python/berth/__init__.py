# SPDX-License-Identifier: GPL-2.0-only
"""Berth's simulator of vCPU schedulers as a library.

    >>> import berth
    >>> sweep = berth.sweep("consolidation", grid={"vm.web.count": [8, 16, 24]}, arms=["linux", "vmfair"], seeds=5)
    >>> sweep.plot("web.response.p99")

What there is: :class:`Scenario` (ready ones: :func:`scenarios`), :class:`Policy` (shipped ones: :func:`policies`),
:func:`run` for one scenario, :func:`sweep` for many points of one, :func:`load` for what was kept,
:func:`compare` and :func:`reproduce` for papers and kept records of a real kernel.

Wrong input raises :class:`InputError`, a run that fails :class:`RunError`; their text is the command line's.
Times are ns, rates 1/s; the metrics are those of ``berth sim --json`` (docs/results.md).
"""
from berth._native import (
    VERSION,
    BerthError,
    InputError,
    Policy,
    Results,
    RunError,
    Table,
    policies,
    policy,
)
from berth.experiment import Comparison, Reproduced, compare, load, reproduce, run
from berth.scenario import Scenario, scenarios
from berth.sweep import RayEngine, Sweep, sweep
from berth.trace import from_perf

#: There may be nothing.
RunError.results = None

#: The version of Berth; ``VERSION`` has also what its results depend on.
__version__ = VERSION.split("+")[0]

__all__ = [
    "BerthError",
    "Comparison",
    "InputError",
    "Policy",
    "RayEngine",
    "Reproduced",
    "Results",
    "RunError",
    "Scenario",
    "Sweep",
    "Table",
    "VERSION",
    "compare",
    "from_perf",
    "load",
    "policies",
    "policy",
    "reproduce",
    "run",
    "scenarios",
    "sweep",
]
