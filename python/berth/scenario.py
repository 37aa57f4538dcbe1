# SPDX-License-Identifier: GPL-2.0-only
"""Scenarios: loaded, made from a dict, changed."""
from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Union

import tomli_w

from berth import _native
from berth._native import InputError

#: What a scenario can be given as: itself, a ready one's name or a file, or a dict with a file's tables.
Like = Union["Scenario", str, os.PathLike, Mapping[str, Any]]


def native(value: Any) -> Any:
    """As Python has it, also inside of lists and tables: numbers and arrays of NumPy or pandas, paths."""
    if hasattr(value, "tolist"):
        return native(value.tolist())
    if isinstance(value, Mapping):
        return {key: native(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [native(each) for each in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def whole(value: Any, what: str, least: int, most: int = 2**32 - 1) -> int:
    """A whole number, also one of NumPy. Raises :class:`InputError`."""
    value = native(value)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InputError(f"{what}={value!r}: it is a whole number from {least} to {most}")
    return value


def plain(value: Any) -> int | float | str:
    """A value as the simulator takes it: a whole number, a number, or a TOML value's text.

    Booleans become ``true`` and ``false``, lists TOML arrays; numbers of NumPy are what they are in Python, and a whole
    number may be a float.
    """
    value = native(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, (int, float, str)):
        return value
    if isinstance(value, list):
        try:
            text = tomli_w.dumps({"v": value})
        except TypeError as error:
            raise InputError(f"{value!r} is no value of a scenario: {error}") from None
        if text.startswith("v = "):
            return " ".join(line.strip() for line in text.removeprefix("v = ").splitlines())
    raise InputError(f"{value!r} is no value of a scenario: it is a {type(value).__name__}")


class Scenario:
    """What is run: a host, its VMs, their work, and the policies that are compared.

    It does not change: :meth:`set` gives another one.
    """

    def __init__(self, native: _native.Scenario):
        self._native = native

    @staticmethod
    def load(what: str | os.PathLike) -> Scenario:
        """A ready scenario by name (see :func:`berth.scenarios`), or a file of one.

        Raises :class:`InputError`: there is none; with the nearest name.
        """
        return Scenario(_native.Scenario.load(os.fspath(what)))

    @staticmethod
    def from_dict(
        tables: Mapping[str, Any], *, name: str = "scenario", folder: str | os.PathLike | None = None
    ) -> Scenario:
        """A scenario from a dict with the tables of a scenario's file (docs/scenarios.md).

        ``folder`` is where files lie that it names. Raises :class:`InputError` with the line of :meth:`show`.
        """
        try:
            text = tomli_w.dumps(native(dict(tables)))
        except (TypeError, AttributeError, ValueError, RecursionError) as error:
            raise InputError(f"the dict is no scenario: {error}") from None
        return Scenario.from_text(text, name=name, folder=folder)

    @staticmethod
    def from_text(text: str, *, name: str = "scenario", folder: str | os.PathLike | None = None) -> Scenario:
        """A scenario from the text of a file. Raises :class:`InputError` with file, line and nearest name."""
        if not isinstance(name, str) or name in ("", ".", "..") or "/" in name:
            raise InputError(f"name={name!r}: results are in a folder of this name")
        scenario = Scenario(_native.Scenario.from_text(name, text, None if folder is None else os.fspath(folder)))
        scenario._native.arms()
        return scenario

    @staticmethod
    def from_table(table: Any, *, cpus: int, **options: Any) -> Scenario:
        """A scenario of VMs that come, want CPU time and go as a table says: see :func:`berth.trace.from_table`."""
        from berth import trace

        return trace.from_table(table, cpus=cpus, **options)

    @staticmethod
    def of(like: Like) -> Scenario:
        """Whatever a scenario can be given as."""
        if isinstance(like, Scenario):
            return like
        if isinstance(like, Mapping):
            return Scenario.from_dict(like)
        if isinstance(like, (str, os.PathLike)):
            return Scenario.load(like)
        raise InputError(f"a scenario is a name, a file, a dict or a berth.Scenario, not a {type(like).__name__}")

    def set(self, address: str, value: Any) -> Scenario:
        """Another scenario, with this value changed: ``set("vm.web.count", 8)``, ``set("task.job.period", "2ms")``.

        Raises :class:`InputError`: the address leads nowhere (with the nearest), or the value is none for it.
        """
        return Scenario(self._native.with_set(f"{address}={plain(value)}"))

    def show(self, full: bool = False) -> None:
        """Prints it; ``full``: with every default filled in, and where each value comes from."""
        print(self._native.text(full), end="")

    def text(self, full: bool = False) -> str:
        """What :meth:`show` prints: itself a scenario."""
        return self._native.text(full)

    @property
    def name(self) -> str:
        """Its name: that of its folder of results."""
        return self._native.name

    @property
    def arms(self) -> list[str]:
        """Names of the arms that it compares, in order."""
        return self._native.arms()

    def __repr__(self) -> str:
        changes = "".join(f" {change}" for change in self._native.changes)
        return f"<berth.Scenario {self.name}{changes}>"


def scenarios() -> dict[str, str]:
    """The ready scenarios: name and what each asks."""
    return dict(_native.scenarios())
