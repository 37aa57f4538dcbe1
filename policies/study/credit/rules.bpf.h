/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Xen's credit scheduler with the rules of 4.4, for policies that change one thing of it. Such a
 * policy includes, in this order:
 *
 *	its parameters, struct berth_stats with CREDIT_STATS in it, VCPU_MORE, PCPU_MORE
 *	"credit/rules.bpf.h"
 *	its own hooks: for each one that differs from Credit's, `#define NAME NAME` and the function
 *	"credit/plain.bpf.h", which has the others; CREDIT_CALLBACKS(name); CREDIT_OPS(name)
 */
#ifndef __BERTH_STUDY_CREDIT_RULES_BPF_H
#define __BERTH_STUDY_CREDIT_RULES_BPF_H

BERTH_PARAM(u64, tslice_ms, "ms", 30, 1, 1000, "Slice and accounting period; the tick is a third");
BERTH_PARAM(u64, ratelimit_us, "us", 1000, 0, 500000,
	    "Whoever got a CPU keeps it this long; 0: off");
BERTH_PARAM(u32, host_weight, "weight", 1000, 1, 10000,
	    "Weight of all threads that belong to no VM, together: dom0");

#define sampled_burn	      false
#define domain_weight	      false
#define zero_on_inactive      false
#define yield_flag	      true
#define tickle_all	      false
#define cyclic_steal	      false
#define old_pick	      false
#define soft_affinity	      true
#define boost_after_migration true
#define boost_on_unpark	      false
#define tick_moves	      true
#define migration_delay_us    0
#define keeps_most(v, d, per) per
#ifndef migrate_for_wakeup
#define migrate_for_wakeup true
#endif
#ifndef rehome_movers
#define rehome_movers false
#endif

#include "berth/credit.bpf.h"
#include "berth/credit_queue.bpf.h"
#include "berth/credit_pick.bpf.h"
#include "berth/credit_core.bpf.h"

#endif
