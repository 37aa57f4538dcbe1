/* SPDX-License-Identifier: GPL-2.0-only */
/* forger: a first-in first-out policy that writes nonsense into the kernel's iterators on its
 * stack. */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";

#define QUEUE 7

u64 seen, walked;

static __always_inline void forge_queue(u32 task)
{
	struct bpf_iter_scx_dsq it;
	u32 *words = (u32 *)&it;

	if (!bpf_iter_scx_dsq_new(&it, QUEUE, 0)) {
		words[4] = task;
		if (bpf_iter_scx_dsq_next(&it))
			seen++;
	}
	bpf_iter_scx_dsq_destroy(&it);
}

static __always_inline void forge_groups(u32 flags, u32 next, u32 top)
{
	struct bpf_iter_css it;
	u32 *words = (u32 *)&it;

	words[0] = next;
	words[1] = flags;
	words[2] = top;
	words[3] = 0;
	if (bpf_iter_css_next(&it))
		walked++;
	bpf_iter_css_destroy(&it);
}

void BPF_STRUCT_OPS(forger_enqueue, struct task_struct *p, u64 enq_flags)
{
	scx_bpf_dsq_insert(p, QUEUE, SCX_SLICE_DFL, enq_flags);
}

void BPF_STRUCT_OPS(forger_dispatch, s32 cpu, struct task_struct *prev)
{
	u32 flags;

	forge_queue(1000000);
	forge_queue(0x7fffffff);
	forge_queue(0);
	bpf_for(flags, 0, 5) {
		forge_groups(flags, 0, ~0U);
		forge_groups(flags, ~0U - 1, 0);
		forge_groups(flags, 1000000, 1000000);
	}
	scx_bpf_dsq_move_to_local(QUEUE, 0);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(forger_init)
{
	return scx_bpf_create_dsq(QUEUE, -1);
}

SCX_OPS_DEFINE(forger_ops, .enqueue = (void *)forger_enqueue, .dispatch = (void *)forger_dispatch,
	       .init = (void *)forger_init, .name = "forger");
