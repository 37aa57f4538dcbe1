/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * vCPUs that belong to a NUMA node each, and how often they read memory, for policies that choose
 * the node: inside it they are under Credit. A pCPU that has had nobody for `lend_ms` may take one
 * of another node; it is lent until somebody of that node wants the pCPU, or it sleeps.
 *
 * The includer defines, before this header, the parameter `lend_ms`, a counter `lent`, and the
 * hooks
 *
 *	settle(p, v)		p is about to be queued: v's home, if it has none yet
 *
 * and calls nodes_prepare() in prepare(), nodes_started() in started(), nodes_read() where a vCPU
 * stops or goes on, nodes_cpus_changed() in cpus_changed(), nodes_forget() when an affinity
 * changes.
 */
#ifndef __CREDIT_NODES_BPF_H
#define __CREDIT_NODES_BPF_H

#define MOST_NODES BERTH_MEMORY_NODES
/* Counters that say more than so many instructions or reads a nanosecond have jumped. */
#define MOST_A_NS  160

/* vcpus: that belong there, as counted last; cpus: online. */
struct room {
	u32 vcpus;
	u32 cpus;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MOST_NODES);
	__type(key, u32);
	__type(value, struct room);
} rooms_by_node SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct timer);
} lending SEC(".maps");

static u64 nodes_epoch = 1; /* changes with the CPUs that are online */

static __always_inline void settle(struct task_struct *p, struct vcpu *v);

static __always_inline struct room *room_of(u32 node)
{
	return bpf_map_lookup_elem(&rooms_by_node, &node);
}

static __always_inline u32 node_of(s32 cpu)
{
	struct berth_cpu *topo = berth_cpu(cpu);

	return topo ? topo->node : 0;
}

static __always_inline bool is_guest(struct vcpu *v)
{
	return v->slot != HOST && v->role == BERTH_ROLE_VCPU;
}

/* Has had nobody for so long that it may take anybody. */
static __always_inline bool is_starving(struct pcpu *c)
{
	return !c->curr && scx_bpf_now() - c->ran_at >= lend_ms * MS;
}

static __always_inline bool is_home(struct vcpu *v, s32 cpu)
{
	return !v->home || v->astray || v->home == node_of(cpu) + 1 || v->lent == cpu + 1;
}

#define may_use may_use
static __always_inline bool may_use(struct task_struct *p, struct vcpu *v, s32 cpu)
{
	struct pcpu *c;

	if (!bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
		return false;
	if (is_home(v, cpu))
		return true;
	c = pcpu_at(cpu);
	return c && is_starving(c);
}

#define narrow narrow
static __always_inline void narrow(struct vcpu *v, struct cpu_set *set)
{
	struct cpu_set *there = v->home && !v->astray ? node_cpus(v->home - 1) : NULL;
	bool lent = v->lent && has(set, v->lent - 1);

	if (there)
		keep_both(set, there);
	if (lent)
		put(set, v->lent - 1, true);
}

/* On which nodes v may run, and whether its home is one. */
static __noinline int fit(struct task_struct *p, struct vcpu *v)
{
	struct choice *s = choice_here();
	struct cpu_set *there;
	u32 node;

	if (!p || !v || !s)
		return 0;
	v->fits_epoch = nodes_epoch;
	v->nodes = 0;
	read_mask(&s->zone, p->cpus_ptr);
	keep_both(&s->zone, &online_cpus);
	bpf_for(node, 0, berth_nr_nodes) {
		there = node_cpus(node);
		if (there && count_both(there, &s->zone))
			v->nodes |= 1U << (node & (MOST_NODES - 1));
	}
	return 0;
}

static __always_inline bool may_live(struct vcpu *v, u32 node)
{
	return v->nodes >> (node & (MOST_NODES - 1)) & 1;
}

#define refresh refresh
static __always_inline void refresh(struct task_struct *p, struct vcpu *v)
{
	if (v->fits_epoch != nodes_epoch)
		fit(p, v);
	settle(p, v);
	v->astray = v->home && !may_live(v, v->home - 1);
}

/* Of the CPUs that p may use, the one where fewest wait or run. */
#define rehome rehome
static __noinline s32 rehome(struct task_struct *p, struct vcpu *v, s32 cpu)
{
	struct choice *s = choice_here();
	u32 least = ~0U, n;
	s32 at, found = cpu;
	struct pcpu *c;

	if (!p || !v || !s)
		return cpu;
	usable(&s->zone, p, v);
	keep_both(&s->zone, &online_cpus);
	bpf_for(at, 0, berth_nr_cpus) {
		c = pcpu_at(at);
		if (!c || !has(&s->zone, at))
			continue;
		n = scx_bpf_dsq_nr_queued(at) + (c->curr != 0);
		if (n >= least)
			continue;
		least = n;
		found = at;
	}
	return found;
}

/* v, which runs on c, has counted up to now. */
static __noinline int nodes_read(struct vcpu *v, struct pcpu *c, s32 cpu)
{
	u64 now = scx_bpf_now(), instructions, loads, remote, most;
	struct berth_reads reads;
	u32 on = node_of(cpu) + 1;

	if (!v || !c)
		return 0;
	c->ran_at = now;
	if (v->slot == HOST || bpf_get_smp_processor_id() != cpu || berth_read_memory(&reads)) {
		c->counted = 0;
		return 0;
	}
	if (c->counted) {
		instructions = reads.instructions - c->instructions;
		loads = reads.loads - c->loads;
		remote = reads.remote - c->remote;
		most = (now - c->counted_at + MS) * MOST_A_NS;
		if (v->read_on != on) {
			v->read_on = on;
			v->instructions = v->loads = v->remote = 0;
		}
		if (instructions <= most && loads <= most && remote <= loads) {
			v->instructions += instructions;
			v->loads += loads;
			v->remote += remote;
		}
	}
	c->instructions = reads.instructions;
	c->loads = reads.loads;
	c->remote = reads.remote;
	c->counted_at = now;
	c->counted = 1;
	return 0;
}

/* v begins to run on c: what was counted before was another one's. */
static __always_inline void nodes_started(struct vcpu *v, struct pcpu *c, s32 cpu)
{
	bool starving = is_starving(c);
	struct berth_reads reads;

	c->ran_at = scx_bpf_now();
	c->counted =
		v->slot != HOST && bpf_get_smp_processor_id() == cpu && !berth_read_memory(&reads);
	if (c->counted) {
		c->instructions = reads.instructions;
		c->loads = reads.loads;
		c->remote = reads.remote;
		c->counted_at = c->ran_at;
	}
	if (is_home(v, cpu)) {
		if (v->lent != cpu + 1)
			v->lent = 0;
		return;
	}
	if (starving) {
		v->lent = cpu + 1;
		berth_count(lent);
		return;
	}
	/* Its home changed while it waited. Who comes back at once would be sent for ever. */
	if (v->sent == epoch + 1)
		return;
	v->sent = epoch + 1;
	set_flag(v, VF_MIGRATING);
	scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
}

/* v's turn on cpu is over, or it sleeps: it is lent no longer if somebody waits there. */
static __always_inline void nodes_return(struct vcpu *v, s32 cpu, bool sleeps)
{
	if (v->lent && (sleeps || scx_bpf_dsq_nr_queued(cpu) > 0))
		v->lent = 0;
}

/* v belongs to that node from now on, and leaves another one's CPU. */
static __always_inline void leave_for(u32 index, struct vcpu *v, u32 node)
{
	struct pcpu *c;

	v->home = node + 1;
	v->lent = 0;
	v->astray = !may_live(v, node);
	c = pcpu_at(v->cpu);
	if (!c || c->curr != index || is_home(v, v->cpu))
		return;
	set_flag(v, VF_MIGRATING);
	scx_bpf_kick_cpu(v->cpu, SCX_KICK_PREEMPT);
}

/* The node with most room of those on which v may live, + 1; the lowest of equals. */
__noinline u32 roomiest(u32 nodes)
{
	s32 most = -(1 << 30), free;
	struct room *room;
	u32 node, found = 0;

	bpf_for(node, 0, berth_nr_nodes) {
		room = room_of(node);
		if (!room || !(nodes >> (node & (MOST_NODES - 1)) & 1))
			continue;
		free = (s32)room->cpus - (s32)room->vcpus;
		if (free <= most)
			continue;
		most = free;
		found = node + 1;
	}
	return found;
}

static __always_inline void nodes_cpus_changed(void)
{
	struct cpu_set *there;
	struct room *room;
	u32 node;

	bpf_for(node, 0, berth_nr_nodes) {
		there = node_cpus(node);
		room = room_of(node);
		if (there && room)
			room->cpus = count_both(there, &online_cpus);
	}
	nodes_epoch++;
}

static __always_inline void nodes_forget(struct vcpu *v)
{
	v->fits_epoch = 0;
}

/* CPUs that have had nobody for long look elsewhere. */
static int lend_over(void *map, u32 *key, struct bpf_timer *timer)
{
	const struct cpumask *idle;
	struct pcpu *c;
	s32 cpu;

	if (waiting > 0) {
		idle = scx_bpf_get_idle_cpumask();
		bpf_for(cpu, 0, berth_nr_cpus) {
			c = pcpu_at(cpu);
			if (c && bpf_cpumask_test_cpu(cpu, idle) && is_starving(c))
				scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
		}
		scx_bpf_put_idle_cpumask(idle);
	}
	bpf_timer_start(timer, lend_ms ? lend_ms * MS : MS, 0);
	return 0;
}

static __always_inline s32 nodes_prepare(void)
{
	u32 cpu, zero = 0;
	struct timer *t;
	struct pcpu *c;

	if (berth_nr_nodes > MOST_NODES) {
		scx_bpf_error("more than %u NUMA nodes", MOST_NODES);
		return -E2BIG;
	}
	bpf_for(cpu, 0, berth_nr_cpus) {
		c = pcpu_at(cpu);
		if (c)
			c->ran_at = scx_bpf_now();
	}
	nodes_cpus_changed();
	t = bpf_map_lookup_elem(&lending, &zero);
	if (!t)
		return -ENOENT;
	bpf_timer_init(&t->timer, &lending, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&t->timer, lend_over);
	return bpf_timer_start(&t->timer, lend_ms ? lend_ms * MS : MS, 0);
}

#endif
