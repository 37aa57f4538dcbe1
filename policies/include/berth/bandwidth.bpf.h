/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A limit on CPU time, as cpu.max: so much run time (quota) in every period. What is overdrawn is
 * paid back in later periods.
 *
 * The pool is refilled when it is looked at after the end of a period. Who finds it empty parks the
 * thread until `refill_at`. Pools belong to several CPUs: the caller holds a lock.
 */
#ifndef __BERTH_BANDWIDTH_BPF_H
#define __BERTH_BANDWIDTH_BPF_H

#define BERTH_PERIOD_NS		 100000000ULL /* cpu.max's default */
#define BERTH_BUDGET_NS		 5000000ULL /* at most this much is run before the pool is looked at */
#define BERTH_NO_LIMIT(quota_us) ((quota_us) >> 40)

struct berth_pool {
	u64 quota_ns; /* 0: no limit */
	u64 period_ns;
	s64 left_ns;
	u64 refill_at;
};

static __always_inline void berth_pool_set(struct berth_pool *pool, u64 period_ns, u64 quota_ns)
{
	pool->period_ns = period_ns ?: BERTH_PERIOD_NS;
	pool->quota_ns = quota_ns;
	pool->left_ns = quota_ns;
	pool->refill_at = 0;
}

/* Take what has been run; true: something is left. */
static __always_inline bool berth_pool_use(struct berth_pool *pool, u64 ns, u64 now)
{
	u64 periods;

	if (!pool->quota_ns)
		return true;
	if (!pool->refill_at)
		pool->refill_at = now + pool->period_ns;
	pool->left_ns -= ns;
	if (!time_before(now, pool->refill_at)) {
		periods = (now - pool->refill_at) / pool->period_ns + 1;
		pool->refill_at += periods * pool->period_ns;
		/* Debts of very long ago need not be exact. */
		pool->left_ns += (periods < 1000 ? periods : 1000) * pool->quota_ns;
		if (pool->left_ns > (s64)pool->quota_ns)
			pool->left_ns = pool->quota_ns;
	}
	return pool->left_ns > 0;
}

#endif
