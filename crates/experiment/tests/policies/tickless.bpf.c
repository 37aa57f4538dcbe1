/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Slices without end, and a timer on one CPU that takes the others from tasks that have had their
 * slice while somebody waits. Which CPU that is, and that it begins, the loader says by programs
 * that it runs: without them the timer never fires, and who runs goes on. The queue is in the order
 * of weighted virtual time.
 */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

const volatile bool smt_enabled = true;
const volatile u64 slice_ns = 20000000;
const volatile u64 tick_freq;
const volatile u64 preferred_cpus[1024];

#define SHARED	  0
#define PERIOD_NS 1000000

struct cpu_arg {
	s32 cpu_id;
};

struct task_ctx {
	u64 since;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_ctx);
} tasks SEC(".maps");

struct ticker {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ticker);
} tickers SEC(".maps");

private(PRIMARY) struct bpf_cpumask __kptr *primary;

u64 vnow, nr_fired;

s32 BPF_STRUCT_OPS(tickless_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	bool idle = false;
	s32 cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &idle);

	if (idle)
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, SCX_SLICE_INF, 0);
	return cpu;
}

void BPF_STRUCT_OPS(tickless_enqueue, struct task_struct *p, u64 enq_flags)
{
	u64 vtime = p->scx.dsq_vtime;

	if (time_before(vtime, vnow - slice_ns))
		vtime = vnow - slice_ns;
	scx_bpf_dsq_insert_vtime(p, SHARED, SCX_SLICE_INF, vtime, enq_flags);
}

void BPF_STRUCT_OPS(tickless_dispatch, s32 cpu, struct task_struct *prev)
{
	scx_bpf_dsq_move_to_local(SHARED, 0);
}

void BPF_STRUCT_OPS(tickless_running, struct task_struct *p)
{
	struct task_ctx *t = bpf_task_storage_get(&tasks, p, 0, 0);

	if (t)
		t->since = scx_bpf_now();
	if (time_before(vnow, p->scx.dsq_vtime))
		vnow = p->scx.dsq_vtime;
}

void BPF_STRUCT_OPS(tickless_stopping, struct task_struct *p, bool runnable)
{
	struct task_ctx *t = bpf_task_storage_get(&tasks, p, 0, 0);
	u64 used;

	if (!t)
		return;
	used = scx_bpf_now() - t->since;
	scx_bpf_task_set_dsq_vtime(p, p->scx.dsq_vtime + used * 100 / p->scx.weight);
}

void BPF_STRUCT_OPS(tickless_enable, struct task_struct *p)
{
	scx_bpf_task_set_dsq_vtime(p, vnow);
}

s32 BPF_STRUCT_OPS(tickless_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	return bpf_task_storage_get(&tasks, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE) ? 0 : -ENOMEM;
}

static int on_timer(void *map, int *key, struct bpf_timer *timer)
{
	s32 cpu;

	__sync_fetch_and_add(&nr_fired, 1);
	bpf_for(cpu, 0, scx_bpf_nr_cpu_ids()) {
		struct task_struct *p;
		struct task_ctx *t;

		if (!scx_bpf_dsq_nr_queued(SHARED))
			break;
		bpf_rcu_read_lock();
		p = scx_bpf_cpu_curr(cpu);
		t = p ? bpf_task_storage_get(&tasks, p, 0, 0) : NULL;
		if (t && time_after(scx_bpf_now(), t->since + slice_ns))
			scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
		bpf_rcu_read_unlock();
	}
	bpf_timer_start(timer, PERIOD_NS, BPF_F_TIMER_CPU_PIN);
	return 0;
}

/* A negative number: no CPU. */
SEC("syscall")
int enable_primary_cpu(struct cpu_arg *input)
{
	struct bpf_cpumask *mask, *old;
	s32 cpu = input->cpu_id;

	mask = bpf_cpumask_create();
	if (!mask)
		return -ENOMEM;
	if (cpu >= 0)
		bpf_cpumask_set_cpu(cpu, mask);
	old = bpf_kptr_xchg(&primary, mask);
	if (old)
		bpf_cpumask_release(old);
	return 0;
}

SEC("syscall")
int start_timer(struct cpu_arg *input)
{
	struct bpf_cpumask *mask;
	struct ticker *t;
	bool here = false;
	u32 key = 0;

	bpf_rcu_read_lock();
	mask = primary;
	if (mask)
		here = bpf_cpumask_test_cpu(bpf_get_smp_processor_id(),
					    (const struct cpumask *)mask);
	bpf_rcu_read_unlock();
	if (!here || input->cpu_id != bpf_get_smp_processor_id())
		return -EINVAL;
	t = bpf_map_lookup_elem(&tickers, &key);
	return t ? bpf_timer_start(&t->timer, PERIOD_NS, BPF_F_TIMER_CPU_PIN) : -ESRCH;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(tickless_init)
{
	struct ticker *t;
	u32 key = 0;
	s32 err;

	if (!primary)
		return -EINVAL; /* the loader's programs come first */
	err = scx_bpf_create_dsq(SHARED, -1);
	if (err)
		return err;
	t = bpf_map_lookup_elem(&tickers, &key);
	if (!t)
		return -ESRCH;
	bpf_timer_init(&t->timer, &tickers, CLOCK_MONOTONIC);
	return bpf_timer_set_callback(&t->timer, on_timer);
}

void BPF_STRUCT_OPS(tickless_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

/* clang-format off */
SCX_OPS_DEFINE(tickless_ops,
	.select_cpu	= (void *)tickless_select_cpu,
	.enqueue	= (void *)tickless_enqueue,
	.dispatch	= (void *)tickless_dispatch,
	.running	= (void *)tickless_running,
	.stopping	= (void *)tickless_stopping,
	.enable		= (void *)tickless_enable,
	.init_task	= (void *)tickless_init_task,
	.init		= (void *)tickless_init,
	.exit		= (void *)tickless_exit,
	.timeout_ms	= 5000,
	.name		= "tickless");
