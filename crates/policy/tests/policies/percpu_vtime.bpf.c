/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A queue by virtual time for each CPU. A CPU without work walks the other CPUs' queues and takes
 * the first task that may run here; a CPU with work but far ahead of a neighbour in virtual time
 * takes one from it now and then.
 */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

const volatile u32 nr_cpu_ids = 1;
const volatile u64 slice_ns = 3000000;
const volatile u64 stolen_slice_ns = 1000000;

struct cpu_ctx {
	u64 vnow;
	u64 nr_run, nr_stolen, nr_looked;
	u32 next; /* neighbour to look at next */
	u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, struct cpu_ctx);
} cpu_ctxs SEC(".maps");

static struct cpu_ctx *ctx_of(s32 cpu)
{
	u32 key = cpu;

	return bpf_map_lookup_elem(&cpu_ctxs, &key);
}

s32 BPF_STRUCT_OPS(percpu_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	s32 cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, SCX_PICK_IDLE_CORE);

	if (cpu < 0 && bpf_cpumask_test_cpu(prev_cpu, p->cpus_ptr) &&
	    scx_bpf_test_and_clear_cpu_idle(prev_cpu))
		cpu = prev_cpu;
	if (cpu < 0)
		cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
	if (cpu < 0)
		return scx_bpf_pick_any_cpu(p->cpus_ptr, 0);
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns, 0);
	return cpu;
}

void BPF_STRUCT_OPS(percpu_enqueue, struct task_struct *p, u64 enq_flags)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct cpu_ctx *c = ctx_of(cpu);
	u64 vtime = p->scx.dsq_vtime;

	if (!c) {
		scx_bpf_error("CPU %d is beyond cpu_ctxs", cpu);
		return;
	}
	if (time_before(vtime, c->vnow - slice_ns))
		vtime = c->vnow - slice_ns;
	else if (time_after(vtime,
			    c->vnow + 100 * slice_ns)) /* came from a CPU that is far ahead */
		vtime = c->vnow + slice_ns;
	scx_bpf_dsq_insert_vtime(p, cpu, slice_ns, vtime, enq_flags);
	scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
}

/* Take the first task of `from` that may run on `cpu`. */
static bool take(s32 from, s32 cpu)
{
	struct task_struct *p;
	bool taken = false;

	bpf_for_each(scx_dsq, p, from, 0) {
		if (!bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
			continue;
		scx_bpf_dsq_move_set_slice(BPF_FOR_EACH_ITER, stolen_slice_ns);
		if (scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, SCX_DSQ_LOCAL_ON | cpu, 0)) {
			taken = true;
			break;
		}
	}
	return taken;
}

void BPF_STRUCT_OPS(percpu_dispatch, s32 cpu, struct task_struct *prev)
{
	struct cpu_ctx *c = ctx_of(cpu), *o;
	s32 i, other;

	if (!c)
		return;
	if (nr_cpu_ids > 1 && !(c->nr_run & 15)) {
		other = c->next++ % nr_cpu_ids;
		o = ctx_of(other);
		if (o && other != cpu && time_before(o->vnow + 2 * slice_ns, c->vnow) &&
		    scx_bpf_dsq_nr_queued(other) > 1 && take(other, cpu)) {
			c->nr_stolen++;
			return;
		}
	}
	if (scx_bpf_dsq_move_to_local(cpu, 0))
		return;
	bpf_for(i, 1, nr_cpu_ids) {
		other = (cpu + i) % nr_cpu_ids;
		c->nr_looked++;
		if (scx_bpf_dsq_nr_queued(other) > 0 && take(other, cpu)) {
			c->nr_stolen++;
			return;
		}
	}
}

void BPF_STRUCT_OPS(percpu_running, struct task_struct *p)
{
	struct cpu_ctx *c = ctx_of(scx_bpf_task_cpu(p));

	if (!c)
		return;
	c->nr_run++;
	if (time_before(c->vnow, p->scx.dsq_vtime))
		c->vnow = p->scx.dsq_vtime;
}

void BPF_STRUCT_OPS(percpu_stopping, struct task_struct *p, bool runnable)
{
	u64 left = p->scx.slice < slice_ns ? p->scx.slice : slice_ns;

	scx_bpf_task_set_dsq_vtime(p, p->scx.dsq_vtime + (slice_ns - left) * 100 / p->scx.weight);
}

void BPF_STRUCT_OPS(percpu_enable, struct task_struct *p)
{
	struct cpu_ctx *c = ctx_of(scx_bpf_task_cpu(p));

	if (c)
		scx_bpf_task_set_dsq_vtime(p, c->vnow);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(percpu_init)
{
	s32 cpu, err;

	bpf_for(cpu, 0, nr_cpu_ids) {
		err = scx_bpf_create_dsq(cpu, -1);
		if (err) {
			scx_bpf_error("queue of CPU %d: %d", cpu, err);
			return err;
		}
	}
	return 0;
}

void BPF_STRUCT_OPS(percpu_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

/* clang-format off */
SCX_OPS_DEFINE(percpu_ops,
	.select_cpu	= (void *)percpu_select_cpu,
	.enqueue	= (void *)percpu_enqueue,
	.dispatch	= (void *)percpu_dispatch,
	.running	= (void *)percpu_running,
	.stopping	= (void *)percpu_stopping,
	.enable		= (void *)percpu_enable,
	.init		= (void *)percpu_init,
	.exit		= (void *)percpu_exit,
	.timeout_ms	= 5000,
	.name		= "percpu_vtime");
