/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Jobs: what a thread does between one admission and the next, how much CPU time it has had since,
 * and how much it is expected to take.
 *
 * Who knows the size of a job says so in berth_jobs: thread id -> struct berth_job, written before
 * the thread starts, wakes or goes on for it. The policy takes the record out when it has read it;
 * a record is a new job, and 0 in it means that nothing is known of its size. Berth's simulator
 * fills the map for tasks whose scenario says `estimate`. Everything here works without: sizes are
 * learned. Who tells of every job of a thread says that, too (BERTH_JOB_EACH).
 *
 * When does a job begin? With unit=task when its thread does, and never again: blocks are part of
 * the job. With unit=request also with every record, and, unless each job of the thread is told of,
 * after a sleep of at least the mean service time: a thread that serves for ever would be one
 * endless job else. Of a thread that takes its next request without having slept, the record counts
 * from when the policy next looks at it, at the end of its slice or when it next wakes.
 *
 * A policy defines before this header, as far as it has a use for it,
 *
 *	JOBS_ESTIMATES	it orders by sizes: parameters `estimate`, `learn` and `alpha`
 *	JOBS_LAMBDA	default of `lambda_us`; its slices are parts of the mean service time
 *	JOBS_UNIT	default of `unit`: 0 task, 1 request
 *	JOB_FIELDS	what else it keeps of a job
 *
 * Names of threads are classes for what is learned, digits left out: worker/1 and worker/2 are one.
 * Names whose hashes agree in ten bits share a class.
 */
#ifndef __BERTH_JOBS_BPF_H
#define __BERTH_JOBS_BPF_H

#include "berth/param.bpf.h"

#define BERTH_JOB_VERSION 1
#define BERTH_JOB_EACH	  1 /* in flags: the thread's other jobs have records, too */

/* 16 bytes, value of berth_jobs. */
struct berth_job {
	u32 version;
	u32 flags;
	u64 size_ns; /* CPU time it will take, as far as the teller knows; 0: it does not */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u32);
	__type(value, struct berth_job);
} berth_jobs SEC(".maps");

/* The default, a macro, as its value. */
#define JOBS_CHOICE(name, words, dfl, help) BERTH_CHOICE(name, words, dfl, help)

enum { UNIT_TASK, UNIT_REQUEST };

JOBS_CHOICE(unit, "task|request", JOBS_UNIT,
	    "What a job is: all that a thread ever does, or what it does for a request");

#ifdef JOBS_ESTIMATES
enum { ESTIMATE_LABEL, ESTIMATE_EMA, ESTIMATE_NONE };
enum { LEARN_NAME, LEARN_THREAD };

JOBS_CHOICE(estimate, "label|ema|none", JOBS_ESTIMATES,
	    "Sizes of jobs: as told (else learned), a learned mean, or none");
BERTH_CHOICE(learn, "name|thread", 0,
	     "Whose jobs a mean is learned from: of threads of the same name, or each thread's own "
	     "(a connection's)");
BERTH_PARAM(u64, alpha, "%", 20, 1, 100, "Part of the last job in the learned mean");
#endif

#ifdef JOBS_LAMBDA
BERTH_PARAM(
	u64, lambda_us, "us", JOBS_LAMBDA, 0, 100000000,
	"Mean service time, in parts of which slices are told; 0: learned from the last thousand "
	"jobs or so");
#endif

#ifndef JOB_FIELDS
#define JOB_FIELDS
#endif

#define FIRST_LAMBDA 10000000 /* ns, until something is learned */
#define WINDOW	     1000     /* jobs */
#define NAMES	     1024

struct job {
	u64 estimate;	/* CPU time it is expected to take in all, ns */
	u64 since;	/* the thread's CPU time at its admission */
	u64 turn_since; /* the same when what it may use at its level began */
	u64 slept_at;	/* 0: it does not sleep */
	u64 came_at;	/* admitted */
	u64 queued_at;
	u64 place; /* number of its arrival where the order of arrivals counts */
	u64 mean;  /* learned of the thread's jobs, ns; 0: nothing yet */
	u32 queue;
	u8 level;
	bool known;   /* has had a job */
	bool fresh;   /* admitted and not yet queued */
	bool waits;   /* for a CPU */
	bool endless; /* has run too long to be waited for */
	bool placed;  /* an idle CPU was found for it */
	bool each;    /* its jobs all have records: no sleep begins one */
	JOB_FIELDS
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct job);
} jobs_of_threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NAMES);
	__type(key, u32);
	__type(value, u64);
} learned_by_name SEC(".maps");

static u64 learned_lambda, learned_from; /* racy: a lost job of a thousand is no matter */

static __always_inline struct job *job_of(struct task_struct *p)
{
	return bpf_task_storage_get(&jobs_of_threads, p, 0, 0);
}

/* CPU time that the job has had, ns. */
static __always_inline u64 attained(struct task_struct *p, struct job *j)
{
	return p->se.sum_exec_runtime - j->since;
}

/* Mean service time, ns. */
static __always_inline u64 lambda(void)
{
#ifdef JOBS_LAMBDA
	if (lambda_us)
		return lambda_us * 1000;
#endif
	return learned_lambda ?: FIRST_LAMBDA;
}

#ifdef JOBS_ESTIMATES
static __always_inline u64 *learned_of(struct task_struct *p, struct job *j)
{
	u32 hash = 2166136261;
	int i;

	if (learn == LEARN_THREAD)
		return &j->mean;
	for (i = 0; i < 16; i++) {
		char c = p->comm[i];

		if (!c)
			break;
		if (c < '0' || c > '9')
			hash = (hash ^ c) * 16777619;
	}
	hash = (hash ^ hash >> 16) % NAMES;
	return bpf_map_lookup_elem(&learned_by_name, &hash);
}
#endif

/* The job is over: what it took is learned. */
static __always_inline void job_ends(struct task_struct *p, struct job *j)
{
	u64 took = attained(p, j), n = learned_from;

	j->known = false;
	if (!took)
		return;
	if (n < WINDOW)
		learned_from = ++n;
	learned_lambda = learned_lambda - learned_lambda / n + took / n;
#ifdef JOBS_ESTIMATES
	if (estimate == ESTIMATE_EMA) {
		u64 *mean = learned_of(p, j);

		if (mean)
			*mean = (*mean ?: lambda()) * (100 - alpha) / 100 + took * alpha / 100;
	}
#endif
}

/* A job begins; told: what a record says of its size. */
static __always_inline void job_begins(struct task_struct *p, struct job *j, u64 told)
{
	j->since = p->se.sum_exec_runtime;
	j->turn_since = j->since;
	j->came_at = scx_bpf_now();
	j->level = 1;
	j->endless = false;
	j->known = true;
	j->fresh = true;
#ifdef JOBS_ESTIMATES
	if (estimate == ESTIMATE_NONE) {
		j->estimate = 0;
	} else if (estimate == ESTIMATE_LABEL && told) {
		j->estimate = told;
	} else {
		u64 *mean = learned_of(p, j);

		j->estimate = mean && *mean ? *mean : lambda();
	}
#endif
}

static __always_inline void job_forget(struct task_struct *p)
{
	u32 tid = p->pid;

	bpf_map_delete_elem(&berth_jobs, &tid);
}

/* Is there a record for the thread? It is taken out. told: its size. */
static __always_inline bool job_told(struct task_struct *p, struct job *j, u64 *told)
{
	u32 tid = p->pid;
	struct berth_job *record = bpf_map_lookup_elem(&berth_jobs, &tid);

	*told = 0;
	if (!record)
		return false;
	if (record->version == BERTH_JOB_VERSION) {
		*told = record->size_ns;
		j->each = record->flags & BERTH_JOB_EACH;
	}
	job_forget(p);
	return true;
}

/* The thread becomes runnable: with a new job? told: its size. */
static __always_inline bool job_wakes(struct task_struct *p, struct job *j, u64 *told)
{
	u64 slept_at = j->slept_at;

	j->slept_at = 0;
	*told = 0;
	if (j->known && (unit == UNIT_TASK || !slept_at))
		return false;
	if (job_told(p, j, told) || !j->known)
		return true;
	/* Clocks of two CPUs may differ a little. */
	return !j->each && (s64)(scx_bpf_now() - slept_at) >= (s64)lambda();
}

#endif
