# SPDX-License-Identifier: GPL-2.0-only
"""What type checkers are told of the native module is what it has: every name, every parameter, every default."""
import ast
import inspect
from pathlib import Path

import berth
from berth import _native

STUBS = ast.parse((Path(berth.__file__).parent / "_native.pyi").read_text())

#: Names that every class or module has, or that Rust's methods for operators bring along.
EVERYWHERE = {"__doc__", "__module__", "__new__", "__all__"}


def parameters(function: ast.FunctionDef) -> list[tuple[str, bool]]:
    """Names in their order, and whether they may be left out."""
    given = function.args
    assert not (given.vararg or given.kwarg or given.kwonlyargs or given.posonlyargs), function.name
    least = len(given.args) - len(given.defaults)
    return [(each.arg, number >= least) for number, each in enumerate(given.args) if each.arg != "self"]


def had(function) -> list[tuple[str, bool]]:
    every = inspect.signature(function).parameters.values()
    return [(each.name, each.default is not inspect.Parameter.empty) for each in every if each.name != "self"]


def is_a(function: ast.FunctionDef, decorator: str) -> bool:
    return any(isinstance(each, ast.Name) and each.id == decorator for each in function.decorator_list)


def names(body: list[ast.stmt]) -> dict[str, ast.stmt]:
    found = {}
    for each in body:
        if isinstance(each, (ast.FunctionDef, ast.ClassDef)):
            found[each.name] = each
        elif isinstance(each, ast.AnnAssign):
            found[each.target.id] = each
    return found


def public(of: dict) -> set[str]:
    """Those of a class or module, without what Python itself gives each."""
    own = {"__len__", "__arrow_c_stream__", "_repr_html_"}
    return {name for name in of if name in own or not name.startswith("_")} - EVERYWHERE


def test_every_name():
    told = names(STUBS.body)
    assert public(vars(_native)) == set(told)
    for name, each in told.items():
        if isinstance(each, ast.ClassDef) and not issubclass(getattr(_native, name), Exception):
            assert public(vars(getattr(_native, name))) == set(names(each.body)), name


def test_every_signature():
    for name, each in names(STUBS.body).items():
        there = getattr(_native, name)
        if isinstance(each, ast.FunctionDef):
            assert parameters(each) == had(there), name
        elif isinstance(each, ast.ClassDef) and issubclass(there, Exception):
            bases = [base.id for base in each.bases]
            assert bases == [base.__name__ for base in there.__bases__], name
        elif isinstance(each, ast.ClassDef):
            for method, stub in names(each.body).items():
                has = inspect.getattr_static(there, method)
                of = f"{name}.{method}"
                if not isinstance(stub, ast.FunctionDef) or is_a(stub, "property"):
                    assert inspect.isdatadescriptor(has), of
                else:
                    assert isinstance(has, staticmethod) == is_a(stub, "staticmethod"), of
                    if not method.startswith("__"):
                        assert parameters(stub) == had(getattr(there, method)), of
