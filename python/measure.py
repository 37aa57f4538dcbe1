# SPDX-License-Identifier: GPL-2.0-only
"""The figures of docs/python.md: rates of a sweep here and on Ray, the driver's memory, cost of a run beside the
command line, time of the import. As ratios; writes them into the page."""
import datetime
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COMMAND = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "berth"
RUNS = int(os.environ.get("BERTH_RUNS", "10000"))
#: Where the test that kills nodes says how many it killed, during how many runs.
KILLED = os.environ.get("BERTH_CLUSTER_KILLED")

#: A sweep of so many small runs, in a process of its own: its wall time, and the largest that the process has been.
SWEEP = """
import os, resource, sys, time
import berth
engine, workers, seeds, out = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
if workers == 1:
    # All of it on one core: who gathers what the worker has done is a thread, too.
    os.sched_setaffinity(0, {{min(os.sched_getaffinity(0))}})
sys.path.insert(0, {tests!r})
from conftest import WORLD
world = berth.Scenario.from_dict(WORLD, name="world")
if engine == "ray":
    import ray
    ray.init("local", num_cpus=workers, log_to_driver=False, logging_level="ERROR", include_dashboard=False)
begin = time.monotonic()
grid = {{"vm.hog.count": [1, 2, 3, 4, 5], "task.burn.threads": [1, 2]}}
done = berth.sweep(world, grid, seeds=seeds, workers=workers, engine=engine, out=out, progress=False)
print(time.monotonic() - begin, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, len(done))
"""


def sweep(engine: str, workers: int, out: str) -> tuple[float, float]:
    """Runs per second; MiB."""
    Path(out).parent.mkdir(exist_ok=True)
    code = SWEEP.format(tests=str(ROOT / "python" / "tests"))
    line = [sys.executable, "-P", "-c", code, engine, str(workers), str(RUNS // 20), out]
    # Elsewhere: Ray's workers look in the driver's folder first, and the package's sources are here.
    ended = subprocess.run(line, check=True, stdout=subprocess.PIPE, text=True, cwd=Path(out).parent)
    seconds, memory, runs = ended.stdout.split()
    return int(runs) / float(seconds), float(memory)


def import_s() -> float:
    """Of `import berth`, beside a Python that imports nothing."""
    def took(code: str) -> float:
        begin = time.monotonic()
        subprocess.run([sys.executable, "-P", "-c", code], check=True)
        return time.monotonic() - begin

    return statistics.median(took("import berth") for _ in range(9)) - statistics.median(took("pass") for _ in range(9))


def beside_the_command(folder: str) -> float:
    """Wall time of `berth.run` and its files, by that of the command; both without their start. Pairs by turns."""
    import berth

    def command(seeds: int) -> float:
        line = [COMMAND, "sim", "noisy-neighbour", "--seeds", str(seeds), "--quiet", "--out", folder]
        begin = time.monotonic()
        subprocess.run(line, check=True, capture_output=True)
        return time.monotonic() - begin

    def own(seeds: int) -> float:
        begin = time.monotonic()
        results = berth.run("noisy-neighbour", seeds=seeds)
        results.save(folder)
        str(results)
        return time.monotonic() - begin

    ratios = []
    for _ in range(7):
        theirs = command(40) - command(1)
        ratios.append((own(40) - own(1)) / theirs)
    return statistics.median(ratios)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        # By turns, three times: the machine's own speed changes, too.
        kinds = {"one": ("local", 1), "two": ("local", 2), "ray": ("ray", 2)}
        each = {name: [] for name in kinds}
        for turn in range(3):
            for name, (engine, workers) in kinds.items():
                each[name].append(sweep(engine, workers, f"{folder}/{turn}/{name}"))
        rates = {name: [rate for rate, _ in found] for name, found in each.items()}
        one, ray = (statistics.median(rates[name]) for name in ("one", "ray"))
        cores = statistics.median(two / one / 2 for one, two in zip(rates["one"], rates["two"]))
        beside = statistics.median(ray / two for ray, two in zip(rates["ray"], rates["two"]))
        memory, driver = (max(mib for _, mib in each[name]) for name in ("two", "ray"))
        same = {path.read_bytes() for path in Path(folder).glob("*/*/sweep.parquet")}
        assert len(same) == 1, "the bytes differ"
        cost = beside_the_command(folder)
    on = f"`make cluster`, {datetime.date.today()}, {len(os.sched_getaffinity(0))} CPUs."
    rows = [
        ("import, beyond Python's own start", f"{import_s():.2f} s", "0.3 s at most"),
        ("`berth.run`, wall time by that of `berth sim`", f"{cost:.2f}", "1.03 at most"),
        (f"sweep of {RUNS:,} small runs on one core", f"{one:.0f} runs/s", ""),
        ("the same on two cores, by twice the rate of one", f"{cores:.2f}", "0.9 at least"),
        ("the same on Ray, two workers, by the rate of two cores here", f"{beside:.2f}", "0.8 at least"),
        ("memory of the driver: here, on Ray", f"{memory:.0f} MiB, {driver:.0f} MiB", "500 MiB at most"),
        (
            f"{RUNS:,} such runs on Ray, two workers, measured; 100,000 by calculation",
            f"{RUNS / ray:.0f} s; {100_000 / ray / 60:.1f} min",
            "",
        ),
    ]
    if KILLED:
        killed, runs = Path(KILLED).read_text().split()
        same = "each once, the same bytes"
        rows.append((f"{int(runs):,} runs on three nodes, of which {killed} were killed meanwhile", same, same))
    table = f"{on}\n\n| | measured | goal |\n|---|---|---|\n" + "".join(f"| {a} | {b} | {c} |\n" for a, b, c in rows)
    print(table)
    page = ROOT / "docs" / "python.md"
    text = page.read_text()
    begin, end = "<!-- begin figures (make cluster) -->\n", "<!-- end figures -->"
    old = re.escape(begin) + ".*?" + re.escape(end)
    page.write_text(re.sub(old, lambda _: f"{begin}\n{table}\n{end}", text, flags=re.S))


if __name__ == "__main__":
    main()
