/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Parameters and the policy's own description, declared once and carried by the object.
 *
 * Each declaration is an ordinary global variable plus one BTF declaration tag on it. A reader
 *finds them without parsing C: walk the BTF for DECL_TAG entries that point at a VAR and whose text
 *starts with "berth:".
 *
 *	berth:param unit=us default=4000 min=100 max=100000 live=0 help=Longest run of a batch
 *thread berth:policy charges=task help=Weighted virtual time per VM
 *
 * Words are separated by one blank; `help` comes last and runs to the end of the text. default, min
 *and max are decimal integers in the stated unit, as the source writes them. live=0: the variable
 *is in .rodata and is set before the object is loaded. live=1: it is in .data.berth and may be
 *written at any time; only the loader writes that section. Limits are the loader's to check: the
 *policy trusts its parameters.
 */
#ifndef __BERTH_PARAM_BPF_H
#define __BERTH_PARAM_BPF_H

#define BERTH_TAG(text) __attribute__((btf_decl_tag(text)))
#define BERTH_PARAM_TAG(unit, dfl, min, max, live, help)                                           \
	BERTH_TAG("berth:param unit=" unit " default=" #dfl " min=" #min " max=" #max              \
		  " live=" #live " help=" help)

/*
 * BERTH_PARAM(u64, slice_us, "us", 4000, 100, 100000, "Longest run of a batch thread")
 *
 * type is u32, u64, s32, s64 or bool; unit is "ns", "us", "ms", "%", "weight" (cgroup cpu.weight),
 * "count" or "bool"; help is one line and says where a published value comes from.
 */
#define BERTH_PARAM(type, name, unit, dfl, min, max, help)                                         \
	BERTH_PARAM_TAG(unit, dfl, min, max, 0, help) const volatile type name = dfl

/* The same, changeable while the policy runs. */
#define BERTH_PARAM_LIVE(type, name, unit, dfl, min, max, help)                                    \
	BERTH_PARAM_TAG(unit, dfl, min, max, 1, help) volatile type name SEC(".data.berth") = dfl

/*
 * BERTH_CHOICE(order, "arrival|weight", 0, "Who comes first")
 *
 * A parameter whose values have names, two or more: what a user writes is the name, what the
 * variable, a u32, holds is its place among them, from 0. Written as: berth:param
 * words=arrival|weight default=0 live=0 help=...
 */
#define BERTH_CHOICE(name, words, dfl, help)                                                       \
	BERTH_TAG("berth:param words=" words " default=" #dfl " live=0 help=" help)                \
	const volatile u32 name = dfl

/*
 * BERTH_POLICY("task", "One sentence on the idea")
 *
 * charges says which run time the policy accounts: "task" (the task clock: p->se.sum_exec_runtime,
 * without interrupt and stolen time), "wall" (differences of scx_bpf_now(), with both), "slice"
 * (what is gone of p->scx.slice) or "none".
 */
#define BERTH_POLICY(charges, help)                                                                \
	BERTH_TAG("berth:policy charges=" charges " help=" help) const volatile u8 berth_policy = 1

/*
 * BERTH_HYPERVISOR("xen")
 *
 * The hypervisor whose rules go with the policy where they are not the policy's own; without it,
 * KVM. "xen": the host takes the CPU from a vCPU that spins (the simulator's host.ple_yield).
 */
#define BERTH_HYPERVISOR(name)                                                                     \
	BERTH_TAG("berth:hypervisor name=" name) const volatile u8 berth_hypervisor = 1

/*
 * BERTH_PRESET(xen34, "xen-3.4", "sampled_burn=1,ratelimit_us=0", "The rules of Xen 3.4")
 *
 * A named set of values for an arm's `preset`; values in the parameters' units, separated by commas
 *without blanks. Parameters that are not named keep their defaults. id only makes the variable's
 *name. Written as: berth:preset name=xen-3.4 set=sampled_burn=1,ratelimit_us=0 help=... The
 *variable is in a section that no loader loads: a preset is a name, and another one makes no other
 *policy.
 */
#define BERTH_PRESET(id, name, values, help)                                                       \
	BERTH_TAG("berth:preset name=" name " set=" values " help=" help)                          \
	const volatile u8 berth_preset_##id SEC(".berth.presets") = 1

/*
 * BERTH_MOST_CPUS(1024)
 *
 * The policy's tables end there: a loader refuses it on a machine with more possible CPUs. Written
 * as: berth:limit cpus=1024
 */
#define BERTH_MOST_CPUS(n) BERTH_TAG("berth:limit cpus=" #n) const volatile u32 berth_most_cpus = n

#endif
