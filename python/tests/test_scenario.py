# SPDX-License-Identifier: GPL-2.0-only
import subprocess
import sys

import numpy
import pytest
from conftest import ROOT, WORLD

import berth


def test_a_ready_scenario_a_file_and_a_dict():
    ready = berth.Scenario.load("noisy-neighbour")
    assert ready.name == "noisy-neighbour" and ready.arms == ["linux", "credit", "vmfair", "flms"]
    file = berth.Scenario.load(ROOT / "scenarios" / "noisy-neighbour.toml")
    assert file.text() == ready.text()
    assert "noisy-neighbour" in berth.scenarios()
    made = berth.Scenario.from_dict(WORLD, name="world")
    assert made.name == "world" and made.arms == ["linux", "vmfair"]
    # The order of arms is the dict's, also where it is not the alphabet's.
    other = {**WORLD, "host": {"cores": numpy.int64(2)}, "compare": {"policies": numpy.array(["vmfair", "credit"])}}
    assert berth.Scenario.from_dict(other).arms == ["vmfair", "credit"]


def test_what_is_shown_is_a_scenario_again(capsys):
    scenario = berth.Scenario.load("weights")
    scenario.show()
    assert capsys.readouterr().out == scenario.text()
    full = scenario.text(full=True)
    assert "# default" in full and berth.Scenario.from_text(full, name="weights").text(full=True).splitlines()[2:]


def test_set_gives_another_scenario():
    one = berth.Scenario.load("noisy-neighbour")
    two = one.set("vm.web.count", 8).set("task.worker.threads", numpy.int64(3))
    assert "count = 2 " in one.text() and one.text() != two.text()
    lines = two.text().splitlines()
    assert any(line.startswith("count = 8 ") and "command line" in line for line in lines), two.text()
    assert any(line.startswith("threads = 3 ") for line in lines)
    assert "vm.web.count=8" in repr(two)
    for policies in ["linux", "gfifo"], ("linux", "gfifo"), numpy.array(["linux", "gfifo"]):
        assert berth.Scenario.load("consolidation").set("compare.policies", policies).arms == ["linux", "gfifo"]
    # What is between quotes stays as it is; a whole number may be a float, as in a grid.
    assert repr(one.set("vm.web.count", numpy.float64(3))) == "<berth.Scenario noisy-neighbour vm.web.count=3>"
    loop = berth.Scenario.from_dict(WORLD).set("task.worker.loop", ["receive  users", "reply"])
    assert "receive  users" in repr(loop)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: berth.Scenario.load("noisy-neigbour"), "did you mean `noisy-neighbour`?"),
        (lambda: berth.Scenario.load("none.toml"), "none.toml"),
        (lambda: berth.Scenario.load("weights").set("vm.web.count", 2), "vm.web"),
        (lambda: berth.Scenario.load("noisy-neighbour").set("vm.web.cout", 2), "did you mean `count`?"),
        (lambda: berth.Scenario.load("noisy-neighbour").set("vm.web.count", -1), "vm.web.count=-1"),
        (lambda: berth.Scenario.load("noisy-neighbour").set("vm.web.count", None), "NoneType"),
        (lambda: berth.Scenario.load("noisy-neighbour").set("vm.web.count", object()), "object"),
        (lambda: berth.Scenario.load("noisy-neighbour").set("vm.web.count", numpy.eye(2)), "not a list"),
        (lambda: berth.Scenario.load("noisy-neighbour").set("vm.web.count", [{"a": "b" * 200}]), "no value"),
        (lambda: berth.Scenario.from_dict(WORLD, name="../x"), "name='../x'"),
        (lambda: berth.Scenario.from_dict(WORLD, name=""), "name=''"),
        (lambda: berth.Scenario.from_dict({"vm": {"web": {"vcpu": 1}}}), "did you mean `vcpus`?"),
        (lambda: berth.Scenario.from_dict({"vm": {"web": None}}), "no scenario"),
        (lambda: berth.Scenario.from_dict(7), "no scenario"),
        (lambda: berth.Scenario.from_text("[vm.web\n"), "scenario scenario:1"),
        (lambda: berth.run(7), "not a int"),
        (lambda: berth.policy("vmfare"), "did you mean `vmfair`?"),
        (lambda: berth.policy("./none.bpf.c"), "none.bpf.c"),
    ],
)
def test_wrong_input_is_said_as_the_command_line_says_it(wrong, said):
    with pytest.raises(berth.InputError) as error:
        wrong()
    assert said in str(error.value), error.value


def test_the_text_is_the_command_lines(command):
    done = subprocess.run([command, "sim", "noisy-neighbour", "--set", "vm.web.cout=2"], capture_output=True, text=True)
    with pytest.raises(berth.InputError) as error:
        berth.Scenario.load("noisy-neighbour").set("vm.web.cout", 2)
    assert done.stderr.removeprefix("error: ").strip() == str(error.value).strip()


def test_policies():
    known = {policy.name: policy for policy in berth.policies()}
    assert {"vmfair", "credit", "flms"} <= known.keys()
    vmfair = known["vmfair"]
    assert vmfair.help and not vmfair.study and any(p["name"] == "slice_us" for p in vmfair.parameters)
    assert any(policy.presets for policy in known.values())
    own = berth.policy(ROOT / "policies" / "gfifo.bpf.c")
    assert own.help == known["gfifo"].help


def test_import_is_quick_and_brings_nothing_heavy():
    heavy = "pandas", "polars", "pyarrow", "matplotlib", "ray", "numpy", "tqdm"
    code = f"import sys, berth; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
