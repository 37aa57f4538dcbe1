# SPDX-License-Identifier: GPL-2.0-only
# %% [markdown]
# # A paper's figure, redrawn
#
# Figure 1 of the FLMS paper ([what it reports, what came out](../papers/flms.md)) asks how long a ping to one VM takes
# beside others on one CPU, under Xen's Credit: nobody computes (group 1), the others compute (group 2), all compute,
# the pinged one too (group 3). `berth.reproduce` runs the paper's experiment as Berth has it, EF1, and gives the cells
# of its tables. This notebook runs in Berth's repository, where the folder `papers` is.

# %%
import matplotlib.pyplot as plt
import pandas

import berth

GROUPS = {"others idle": "0.75", "others compute": "C0", "all compute": "C1"}

done = berth.reproduce("flms", "EF1")
cells = pandas.DataFrame(done.values)
cells = cells[cells.run.isin(GROUPS)].copy()
cells["others"] = cells.variant.str.split("=").str[1].astype(int)
cells["ms"], cells["plus_minus"] = cells["mean"] / 1e6, cells["half"] / 1e6
credit = cells[cells.arm == "credit"]
print(credit.pivot(index="run", columns="others", values="ms").round(2))

# %% Figure 1 of the paper, redrawn: mean round trip by the number of other VMs, three groups
figure, axis = plt.subplots(figsize=(7, 3.5), layout="constrained")
for at, (group, colour) in enumerate(GROUPS.items()):
    rows = credit[credit.run == group].sort_values("others")
    axis.bar(rows.others + 0.27 * (at - 1), rows.ms, 0.25, yerr=rows.plus_minus, capsize=2, color=colour, label=group)
axis.set_xticks(sorted(credit.others.unique()))
axis.set_xlabel("other VMs")
axis.set_ylabel("mean round trip, ms")
axis.legend(title="Credit, 95 % CI over 10 seeds")
plt.show()

# %% [markdown]
# The first group is there, at 0.11 ms: too low to be seen. The third grows by a slice's worth with every VM: the pinged
# VM burns its credit, is hardly ever boosted, and waits for the others. What is kept as the verdicts on the
# paper's claims about this figure, with the reasons on the paper's page:

# %%
for claim in done.claims:
    print(f"{claim['id']:20} {claim['kept']}")

# %% [markdown]
# The paper has no bars for its own policy here. The experiment runs it too, so the question is one line away:

# %%
other = cells[cells.arm == "flms"]
print(other.pivot(index="run", columns="others", values="ms").round(2))

# %%
means = cells.set_index(["arm", "run", "others"]).ms
assert all(0.1 < means["credit", "others idle", n] < 0.12 for n in (1, 2, 3, 4))
assert all(means["credit", "all compute", n + 1] > means["credit", "all compute", n] + 5 for n in (1, 2, 3))
assert all(means["flms", "all compute", n] < 0.6 * means["credit", "all compute", n] for n in (1, 2, 3, 4))
