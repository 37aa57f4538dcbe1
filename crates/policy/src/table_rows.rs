// SPDX-License-Identifier: GPL-2.0-only
//! The rows of [`crate::table`]: prototypes as the kernel writes them, who implements each, from where it may
//! be called, and since which kernel.
use crate::abi::Op;
use crate::table::{Contexts, Home, Kind};
use Contexts::Any;
use Home::{Inline, Kernel, Runtime};

/// Kind, home, contexts, since, until, prototype.
pub(crate) struct Row(
    pub(crate) Kind,
    pub(crate) Home,
    pub(crate) Contexts,
    pub(crate) (u16, u16),
    pub(crate) (u16, u16),
    pub(crate) &'static str,
);

const DISPATCH: Contexts = Contexts::Only(&[Op::Dispatch]);
const INSERT: Contexts = Contexts::Only(&[Op::SelectCpu, Op::Enqueue, Op::Dispatch]);
const SLEEPABLE: Contexts = Contexts::Only(&[
    Op::Init,
    Op::Exit,
    Op::InitTask,
    Op::CgroupInit,
    Op::CgroupExit,
    Op::CgroupPrepMove,
    Op::CpuOnline,
    Op::CpuOffline,
    Op::SubAttach,
    Op::SubDetach,
    Op::Syscall,
]);
const MOVE: Contexts = Contexts::Only(&[
    Op::Dispatch,
    Op::Init,
    Op::Exit,
    Op::InitTask,
    Op::CgroupInit,
    Op::CgroupExit,
    Op::CgroupPrepMove,
    Op::CpuOnline,
    Op::CpuOffline,
    Op::Timer,
    Op::Syscall,
]);
const SELECT: Contexts = Contexts::Only(&[
    Op::SelectCpu,
    Op::Enqueue,
    Op::Init,
    Op::Exit,
    Op::InitTask,
    Op::CgroupInit,
    Op::CgroupExit,
    Op::CgroupPrepMove,
    Op::CpuOnline,
    Op::CpuOffline,
    Op::Timer,
    Op::Syscall,
]);
const RELEASE: Contexts = Contexts::Only(&[Op::CpuRelease]);
const DUMP: Contexts = Contexts::Only(&[Op::Dump, Op::DumpCpu, Op::DumpTask]);

const fn helper(number: u32, home: Home, proto: &'static str) -> Row {
    Row(
        Kind::Helper(number),
        home,
        Contexts::Any,
        (0, 0),
        (0, 0),
        proto,
    )
}
const fn kfunc(home: Home, proto: &'static str) -> Row {
    Row(Kind::Kfunc, home, Contexts::Any, (0, 0), (0, 0), proto)
}
const fn scx(contexts: Contexts, proto: &'static str) -> Row {
    Row(Kind::Kfunc, Home::Kernel, contexts, (0, 0), (0, 0), proto)
}
const fn scx_since(contexts: Contexts, since: (u16, u16), proto: &'static str) -> Row {
    Row(Kind::Kfunc, Home::Kernel, contexts, since, (0, 0), proto)
}

/// The table. Prototypes carry the name; helpers are written as the kernel's documentation writes them.
pub(crate) const ROWS: &[Row] = &[
    // Id 0 is not callable: translated code leaves through it when its budget runs out.
    kfunc(Runtime, "void berth_trap(u64 kind, u64 a, u64 b, u64 pc)"),
    // ---- helpers: maps
    helper(
        1,
        Inline,
        "void *bpf_map_lookup_elem(struct bpf_map *map, const void *key)",
    ),
    helper(
        2,
        Runtime,
        "long bpf_map_update_elem(struct bpf_map *map, const void *key, const void *value, u64 flags)",
    ),
    helper(
        3,
        Runtime,
        "long bpf_map_delete_elem(struct bpf_map *map, const void *key)",
    ),
    helper(
        87,
        Runtime,
        "long bpf_map_push_elem(struct bpf_map *map, const void *value, u64 flags)",
    ),
    helper(
        88,
        Runtime,
        "long bpf_map_pop_elem(struct bpf_map *map, void *value)",
    ),
    helper(
        89,
        Runtime,
        "long bpf_map_peek_elem(struct bpf_map *map, void *value)",
    ),
    helper(
        195,
        Runtime,
        "void *bpf_map_lookup_percpu_elem(struct bpf_map *map, const void *key, u32 cpu)",
    ),
    helper(
        164,
        Inline,
        "long bpf_for_each_map_elem(struct bpf_map *map, void *callback_fn, void *callback_ctx, u64 flags)",
    ),
    helper(
        156,
        Inline,
        "void *bpf_task_storage_get(struct bpf_map *map, struct task_struct *task, void *value__nullable, u64 flags)",
    ),
    helper(
        157,
        Runtime,
        "long bpf_task_storage_delete(struct bpf_map *map, struct task_struct *task)",
    ),
    helper(
        210,
        Inline,
        "void *bpf_cgrp_storage_get(struct bpf_map *map, struct cgroup *cgroup, void *value__nullable, u64 flags)",
    ),
    helper(
        211,
        Runtime,
        "long bpf_cgrp_storage_delete(struct bpf_map *map, struct cgroup *cgroup)",
    ),
    helper(
        25,
        Runtime,
        "long bpf_perf_event_output(void *ctx, struct bpf_map *map, u64 flags, void *data, u64 size)",
    ),
    helper(
        22,
        Runtime,
        "u64 bpf_perf_event_read(struct bpf_map *map, u64 flags)",
    ),
    helper(
        55,
        Runtime,
        "long bpf_perf_event_read_value(struct bpf_map *map, u64 flags, struct bpf_perf_event_value *buf, u32 \
         buf_size)",
    ),
    helper(
        130,
        Runtime,
        "long bpf_ringbuf_output(struct bpf_map *ringbuf, void *data, u64 size, u64 flags)",
    ),
    helper(
        131,
        Runtime,
        "void *bpf_ringbuf_reserve(struct bpf_map *ringbuf, u64 size, u64 flags)",
    ),
    helper(
        132,
        Runtime,
        "void bpf_ringbuf_submit(void *data, u64 flags)",
    ),
    helper(
        133,
        Runtime,
        "void bpf_ringbuf_discard(void *data, u64 flags)",
    ),
    helper(
        134,
        Runtime,
        "u64 bpf_ringbuf_query(struct bpf_map *ringbuf, u64 flags)",
    ),
    // ---- helpers: time, CPU, chance
    helper(5, Inline, "u64 bpf_ktime_get_ns(void)"),
    helper(125, Inline, "u64 bpf_ktime_get_boot_ns(void)"),
    helper(160, Inline, "u64 bpf_ktime_get_coarse_ns(void)"),
    helper(208, Inline, "u64 bpf_ktime_get_tai_ns(void)"),
    helper(118, Kernel, "u64 bpf_jiffies64(void)"),
    helper(8, Inline, "u32 bpf_get_smp_processor_id(void)"),
    helper(42, Kernel, "long bpf_get_numa_node_id(void)"),
    helper(7, Runtime, "u32 bpf_get_prandom_u32(void)"),
    // ---- helpers: current task
    helper(14, Kernel, "u64 bpf_get_current_pid_tgid(void)"),
    helper(
        16,
        Kernel,
        "long bpf_get_current_comm(void *buf, u32 size_of_buf)",
    ),
    helper(35, Kernel, "u64 bpf_get_current_task(void)"),
    helper(
        158,
        Kernel,
        "struct task_struct *bpf_get_current_task_btf(void)",
    ),
    helper(80, Kernel, "u64 bpf_get_current_cgroup_id(void)"),
    // ---- helpers: memory and strings
    helper(
        4,
        Runtime,
        "long bpf_probe_read(void *dst, u32 size, const void *unsafe_ptr)",
    ),
    helper(
        112,
        Runtime,
        "long bpf_probe_read_user(void *dst, u32 size, const void *unsafe_ptr)",
    ),
    helper(
        113,
        Runtime,
        "long bpf_probe_read_kernel(void *dst, u32 size, const void *unsafe_ptr)",
    ),
    helper(
        45,
        Runtime,
        "long bpf_probe_read_str(void *dst, u32 size, const void *unsafe_ptr)",
    ),
    helper(
        114,
        Runtime,
        "long bpf_probe_read_user_str(void *dst, u32 size, const void *unsafe_ptr)",
    ),
    helper(
        115,
        Runtime,
        "long bpf_probe_read_kernel_str(void *dst, u32 size, const void *unsafe_ptr)",
    ),
    helper(
        182,
        Runtime,
        "long bpf_strncmp(const char *s1, u32 s1_sz, const char *s2)",
    ),
    helper(
        105,
        Runtime,
        "long bpf_strtol(const char *buf, size_t buf_len, u64 flags, long *res)",
    ),
    helper(
        106,
        Runtime,
        "long bpf_strtoul(const char *buf, size_t buf_len, u64 flags, unsigned long *res)",
    ),
    helper(
        165,
        Runtime,
        "long bpf_snprintf(char *str, u32 str_size, const char *fmt, u64 *data, u32 data_len)",
    ),
    helper(
        6,
        Runtime,
        "long bpf_trace_printk(const char *fmt, u32 fmt_size, ...)",
    ),
    helper(
        177,
        Runtime,
        "long bpf_trace_vprintk(const char *fmt, u32 fmt_size, const void *data, u32 data_len)",
    ),
    // ---- helpers: control, objects
    helper(
        181,
        Inline,
        "long bpf_loop(u32 nr_loops, void *callback_fn, void *callback_ctx, u64 flags)",
    ),
    helper(
        194,
        Inline,
        "void *bpf_kptr_xchg(void *map_value, void *ptr)",
    ),
    helper(93, Inline, "long bpf_spin_lock(struct bpf_spin_lock *lock)"),
    helper(
        94,
        Inline,
        "long bpf_spin_unlock(struct bpf_spin_lock *lock)",
    ),
    helper(
        153,
        Kernel,
        "void *bpf_per_cpu_ptr(const void *percpu_ptr, u32 cpu)",
    ),
    helper(
        154,
        Kernel,
        "void *bpf_this_cpu_ptr(const void *percpu_ptr)",
    ),
    // ---- helpers: timers (the engine's, see Instance::locate)
    helper(
        169,
        Kernel,
        "long bpf_timer_init(struct bpf_timer *timer, struct bpf_map *map, u64 flags)",
    ),
    helper(
        170,
        Kernel,
        "long bpf_timer_set_callback(struct bpf_timer *timer, void *callback_fn)",
    ),
    helper(
        171,
        Kernel,
        "long bpf_timer_start(struct bpf_timer *timer, u64 nsecs, u64 flags)",
    ),
    helper(
        172,
        Kernel,
        "long bpf_timer_cancel(struct bpf_timer *timer)",
    ),
    // ---- kfuncs: control
    kfunc(Inline, "void bpf_rcu_read_lock(void)"),
    kfunc(Inline, "void bpf_rcu_read_unlock(void)"),
    kfunc(Inline, "void bpf_preempt_disable(void)"),
    kfunc(Inline, "void bpf_preempt_enable(void)"),
    kfunc(
        Inline,
        "void bpf_local_irq_save(unsigned long *flags__irq_flag)",
    ),
    kfunc(
        Inline,
        "void bpf_local_irq_restore(unsigned long *flags__irq_flag)",
    ),
    kfunc(
        Inline,
        "int bpf_res_spin_lock(struct bpf_res_spin_lock *lock)",
    ),
    kfunc(
        Inline,
        "void bpf_res_spin_unlock(struct bpf_res_spin_lock *lock)",
    ),
    kfunc(Inline, "void *bpf_cast_to_kern_ctx(void *obj)"),
    kfunc(
        Inline,
        "void *bpf_rdonly_cast(const void *obj__ign, u32 btf_id__k)",
    ),
    kfunc(
        Runtime,
        "s64 bpf_map_sum_elem_count(const struct bpf_map *map)",
    ),
    // ---- kfuncs: iterators over numbers and bits
    kfunc(
        Inline,
        "int bpf_iter_num_new(struct bpf_iter_num *it, int start, int end)",
    ),
    kfunc(Inline, "int *bpf_iter_num_next(struct bpf_iter_num *it)"),
    kfunc(Inline, "void bpf_iter_num_destroy(struct bpf_iter_num *it)"),
    kfunc(
        Runtime,
        "int bpf_iter_bits_new(struct bpf_iter_bits *it, const u64 *unsafe_ptr__ign, u32 nr_words)",
    ),
    kfunc(Runtime, "int *bpf_iter_bits_next(struct bpf_iter_bits *it)"),
    kfunc(
        Runtime,
        "void bpf_iter_bits_destroy(struct bpf_iter_bits *it)",
    ),
    // ---- kfuncs: masks
    kfunc(Runtime, "struct bpf_cpumask *bpf_cpumask_create(void)"),
    kfunc(
        Runtime,
        "struct bpf_cpumask *bpf_cpumask_acquire(struct bpf_cpumask *cpumask)",
    ),
    kfunc(
        Runtime,
        "void bpf_cpumask_release(struct bpf_cpumask *cpumask)",
    ),
    kfunc(
        Runtime,
        "u32 bpf_cpumask_first(const struct cpumask *cpumask)",
    ),
    kfunc(
        Runtime,
        "u32 bpf_cpumask_first_zero(const struct cpumask *cpumask)",
    ),
    kfunc(
        Runtime,
        "u32 bpf_cpumask_first_and(const struct cpumask *src1, const struct cpumask *src2)",
    ),
    kfunc(
        Inline,
        "void bpf_cpumask_set_cpu(u32 cpu, struct bpf_cpumask *cpumask)",
    ),
    kfunc(
        Inline,
        "void bpf_cpumask_clear_cpu(u32 cpu, struct bpf_cpumask *cpumask)",
    ),
    kfunc(
        Inline,
        "bool bpf_cpumask_test_cpu(u32 cpu, const struct cpumask *cpumask)",
    ),
    kfunc(
        Inline,
        "bool bpf_cpumask_test_and_set_cpu(u32 cpu, struct bpf_cpumask *cpumask)",
    ),
    kfunc(
        Inline,
        "bool bpf_cpumask_test_and_clear_cpu(u32 cpu, struct bpf_cpumask *cpumask)",
    ),
    kfunc(
        Runtime,
        "void bpf_cpumask_setall(struct bpf_cpumask *cpumask)",
    ),
    kfunc(
        Runtime,
        "void bpf_cpumask_clear(struct bpf_cpumask *cpumask)",
    ),
    kfunc(
        Runtime,
        "bool bpf_cpumask_and(struct bpf_cpumask *dst, const struct cpumask *src1, const struct cpumask *src2)",
    ),
    kfunc(
        Runtime,
        "void bpf_cpumask_or(struct bpf_cpumask *dst, const struct cpumask *src1, const struct cpumask *src2)",
    ),
    kfunc(
        Runtime,
        "void bpf_cpumask_xor(struct bpf_cpumask *dst, const struct cpumask *src1, const struct cpumask *src2)",
    ),
    kfunc(
        Runtime,
        "bool bpf_cpumask_equal(const struct cpumask *src1, const struct cpumask *src2)",
    ),
    kfunc(
        Runtime,
        "bool bpf_cpumask_intersects(const struct cpumask *src1, const struct cpumask *src2)",
    ),
    kfunc(
        Runtime,
        "bool bpf_cpumask_subset(const struct cpumask *src1, const struct cpumask *src2)",
    ),
    kfunc(
        Runtime,
        "bool bpf_cpumask_empty(const struct cpumask *cpumask)",
    ),
    kfunc(
        Runtime,
        "bool bpf_cpumask_full(const struct cpumask *cpumask)",
    ),
    kfunc(
        Runtime,
        "void bpf_cpumask_copy(struct bpf_cpumask *dst, const struct cpumask *src)",
    ),
    kfunc(
        Runtime,
        "u32 bpf_cpumask_any_distribute(const struct cpumask *cpumask)",
    ),
    kfunc(
        Runtime,
        "u32 bpf_cpumask_any_and_distribute(const struct cpumask *src1, const struct cpumask *src2)",
    ),
    kfunc(
        Runtime,
        "u32 bpf_cpumask_weight(const struct cpumask *cpumask)",
    ),
    kfunc(
        Runtime,
        "int bpf_cpumask_populate(struct bpf_cpumask *cpumask, void *src, size_t src__sz)",
    ),
    // ---- kfuncs: tasks and cgroups
    kfunc(Kernel, "struct task_struct *bpf_task_from_pid(s32 pid)"),
    kfunc(Kernel, "struct task_struct *bpf_task_from_vpid(s32 vpid)"),
    kfunc(
        Kernel,
        "struct task_struct *bpf_task_acquire(struct task_struct *p)",
    ),
    kfunc(Kernel, "void bpf_task_release(struct task_struct *p)"),
    kfunc(
        Kernel,
        "struct cgroup *bpf_task_get_cgroup1(struct task_struct *task, int hierarchy_id)",
    ),
    kfunc(
        Kernel,
        "struct cgroup *bpf_cgroup_acquire(struct cgroup *cgrp)",
    ),
    kfunc(Kernel, "void bpf_cgroup_release(struct cgroup *cgrp)"),
    kfunc(
        Kernel,
        "struct cgroup *bpf_cgroup_ancestor(struct cgroup *cgrp, int level)",
    ),
    kfunc(Kernel, "struct cgroup *bpf_cgroup_from_id(u64 cgid)"),
    kfunc(
        Kernel,
        "long bpf_task_under_cgroup(struct task_struct *task, struct cgroup *ancestor)",
    ),
    kfunc(
        Kernel,
        "int bpf_iter_task_new(struct bpf_iter_task *it, struct task_struct *task__nullable, unsigned int flags)",
    ),
    kfunc(
        Kernel,
        "struct task_struct *bpf_iter_task_next(struct bpf_iter_task *it)",
    ),
    kfunc(
        Kernel,
        "void bpf_iter_task_destroy(struct bpf_iter_task *it)",
    ),
    kfunc(
        Kernel,
        "int bpf_iter_css_new(struct bpf_iter_css *it, struct cgroup_subsys_state *start, unsigned int flags)",
    ),
    kfunc(
        Kernel,
        "struct cgroup_subsys_state *bpf_iter_css_next(struct bpf_iter_css *it)",
    ),
    kfunc(Kernel, "void bpf_iter_css_destroy(struct bpf_iter_css *it)"),
    // ---- kfuncs: sched_ext
    scx(SLEEPABLE, "s32 scx_bpf_create_dsq(u64 dsq_id, s32 node)"),
    scx(Any, "void scx_bpf_destroy_dsq(u64 dsq_id)"),
    scx(
        SELECT,
        "s32 scx_bpf_select_cpu_dfl(struct task_struct *p, s32 prev_cpu, u64 wake_flags, bool *is_idle)",
    ),
    scx(
        SELECT,
        "s32 scx_bpf_select_cpu_and(struct task_struct *p, s32 prev_cpu, u64 wake_flags, const struct cpumask \
         *cpus_allowed, u64 flags)",
    ),
    scx_since(
        SELECT,
        (6, 19),
        "s32 __scx_bpf_select_cpu_and(struct task_struct *p, const struct cpumask *cpus_allowed, struct \
         scx_bpf_select_cpu_and_args *args)",
    ),
    scx(
        INSERT,
        "void scx_bpf_dsq_insert(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags)",
    ),
    scx_since(
        INSERT,
        (6, 19),
        "bool scx_bpf_dsq_insert___v2(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags)",
    ),
    scx(
        INSERT,
        "void scx_bpf_dsq_insert_vtime(struct task_struct *p, u64 dsq_id, u64 slice, u64 vtime, u64 enq_flags)",
    ),
    scx_since(
        INSERT,
        (6, 19),
        "bool __scx_bpf_dsq_insert_vtime(struct task_struct *p, struct scx_bpf_dsq_insert_vtime_args *args)",
    ),
    scx(DISPATCH, "u32 scx_bpf_dispatch_nr_slots(void)"),
    scx(DISPATCH, "void scx_bpf_dispatch_cancel(void)"),
    scx(DISPATCH, "bool scx_bpf_dsq_move_to_local(u64 dsq_id)"),
    scx_since(
        DISPATCH,
        (7, 1),
        "bool scx_bpf_dsq_move_to_local___v2(u64 dsq_id, u64 enq_flags)",
    ),
    scx(
        MOVE,
        "void scx_bpf_dsq_move_set_slice(struct bpf_iter_scx_dsq *it__iter, u64 slice)",
    ),
    scx(
        MOVE,
        "void scx_bpf_dsq_move_set_vtime(struct bpf_iter_scx_dsq *it__iter, u64 vtime)",
    ),
    scx(
        MOVE,
        "bool scx_bpf_dsq_move(struct bpf_iter_scx_dsq *it__iter, struct task_struct *p, u64 dsq_id, u64 enq_flags)",
    ),
    scx(
        MOVE,
        "bool scx_bpf_dsq_move_vtime(struct bpf_iter_scx_dsq *it__iter, struct task_struct *p, u64 dsq_id, u64 \
         enq_flags)",
    ),
    Row(
        Kind::Kfunc,
        Kernel,
        RELEASE,
        (0, 0),
        (0, 0),
        "u32 scx_bpf_reenqueue_local(void)",
    ),
    scx_since(Any, (6, 19), "void scx_bpf_reenqueue_local___v2(void)"),
    scx_since(
        Any,
        (7, 1),
        "void scx_bpf_dsq_reenq(u64 dsq_id, u64 reenq_flags)",
    ),
    scx(Any, "void scx_bpf_kick_cpu(s32 cpu, u64 flags)"),
    scx(Any, "s32 scx_bpf_dsq_nr_queued(u64 dsq_id)"),
    scx_since(
        Any,
        (6, 19),
        "struct task_struct *scx_bpf_dsq_peek(u64 dsq_id)",
    ),
    scx(
        Any,
        "int bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *it, u64 dsq_id, u64 flags)",
    ),
    scx(
        Any,
        "struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *it)",
    ),
    scx(
        Any,
        "void bpf_iter_scx_dsq_destroy(struct bpf_iter_scx_dsq *it)",
    ),
    scx(
        Any,
        "void scx_bpf_exit_bstr(s64 exit_code, char *fmt, unsigned long long *data, u32 data__sz)",
    ),
    scx(
        Any,
        "void scx_bpf_error_bstr(char *fmt, unsigned long long *data, u32 data__sz)",
    ),
    scx(
        DUMP,
        "void scx_bpf_dump_bstr(char *fmt, unsigned long long *data, u32 data__sz)",
    ),
    scx(Any, "u32 scx_bpf_cpuperf_cap(s32 cpu)"),
    scx(Any, "u32 scx_bpf_cpuperf_cur(s32 cpu)"),
    scx(Any, "void scx_bpf_cpuperf_set(s32 cpu, u32 perf)"),
    scx(Any, "u32 scx_bpf_nr_node_ids(void)"),
    scx(Any, "u32 scx_bpf_nr_cpu_ids(void)"),
    scx(Any, "s32 scx_bpf_cpu_node(s32 cpu)"),
    scx(
        Any,
        "const struct cpumask *scx_bpf_get_possible_cpumask(void)",
    ),
    scx(
        Any,
        "const struct cpumask *scx_bpf_get_online_cpumask(void)",
    ),
    scx(
        Any,
        "void scx_bpf_put_cpumask(const struct cpumask *cpumask)",
    ),
    scx(
        Any,
        "const struct cpumask *scx_bpf_get_idle_cpumask_node(s32 node)",
    ),
    scx(Any, "const struct cpumask *scx_bpf_get_idle_cpumask(void)"),
    scx(
        Any,
        "const struct cpumask *scx_bpf_get_idle_smtmask_node(s32 node)",
    ),
    scx(Any, "const struct cpumask *scx_bpf_get_idle_smtmask(void)"),
    scx(
        Any,
        "void scx_bpf_put_idle_cpumask(const struct cpumask *idle_mask)",
    ),
    scx(Any, "bool scx_bpf_test_and_clear_cpu_idle(s32 cpu)"),
    scx(
        Any,
        "s32 scx_bpf_pick_idle_cpu_node(const struct cpumask *cpus_allowed, s32 node, u64 flags)",
    ),
    scx(
        Any,
        "s32 scx_bpf_pick_idle_cpu(const struct cpumask *cpus_allowed, u64 flags)",
    ),
    scx(
        Any,
        "s32 scx_bpf_pick_any_cpu_node(const struct cpumask *cpus_allowed, s32 node, u64 flags)",
    ),
    scx(
        Any,
        "s32 scx_bpf_pick_any_cpu(const struct cpumask *cpus_allowed, u64 flags)",
    ),
    scx(
        Any,
        "bool scx_bpf_task_running(const struct task_struct *p)",
    ),
    scx(Any, "s32 scx_bpf_task_cpu(const struct task_struct *p)"),
    scx(Any, "struct task_struct *scx_bpf_cpu_curr(s32 cpu)"),
    Row(
        Kind::Kfunc,
        Kernel,
        Any,
        (0, 0),
        (7, 3),
        "struct rq *scx_bpf_cpu_rq(s32 cpu)",
    ),
    scx(Any, "struct rq *scx_bpf_locked_rq(void)"),
    scx(
        Any,
        "struct cgroup *scx_bpf_task_cgroup(struct task_struct *p)",
    ),
    scx_since(
        Any,
        (6, 19),
        "bool scx_bpf_task_set_slice(struct task_struct *p, u64 slice)",
    ),
    scx_since(
        Any,
        (6, 19),
        "bool scx_bpf_task_set_dsq_vtime(struct task_struct *p, u64 vtime)",
    ),
    kfunc(Inline, "u64 scx_bpf_now(void)"),
    scx(
        Any,
        "void scx_bpf_events(struct scx_event_stats *events, size_t events__sz)",
    ),
    // ---- kfuncs: pages of an arena
    kfunc(
        Runtime,
        "void *bpf_arena_alloc_pages(void *p__map, void *addr__ign, u32 page_cnt, int node_id, u64 flags)",
    ),
    kfunc(
        Runtime,
        "void bpf_arena_free_pages(void *p__map, void *ptr__ign, u32 page_cnt)",
    ),
    kfunc(
        Runtime,
        "int bpf_arena_reserve_pages(void *p__map, void *ptr__ign, u32 page_cnt)",
    ),
    // ---- kfuncs: objects of the policy's own, in trees and lists
    kfunc(Runtime, "void *bpf_obj_new(u64 local_type_id__k)"),
    kfunc(
        Runtime,
        "void *bpf_obj_new_impl(u64 local_type_id__k, void *meta__ign)",
    ),
    kfunc(Runtime, "void bpf_obj_drop(void *p__alloc)"),
    kfunc(
        Runtime,
        "void bpf_obj_drop_impl(void *p__alloc, void *meta__ign)",
    ),
    kfunc(
        Runtime,
        "int bpf_rbtree_add(struct bpf_rb_root *root, struct bpf_rb_node *node, void *less)",
    ),
    kfunc(
        Runtime,
        "int bpf_rbtree_add_impl(struct bpf_rb_root *root, struct bpf_rb_node *node, void *less, void *meta__ign, u64 \
         off)",
    ),
    kfunc(
        Runtime,
        "struct bpf_rb_node *bpf_rbtree_first(struct bpf_rb_root *root)",
    ),
    kfunc(
        Runtime,
        "struct bpf_rb_node *bpf_rbtree_remove(struct bpf_rb_root *root, struct bpf_rb_node *node)",
    ),
    kfunc(
        Runtime,
        "int bpf_list_push_front(struct bpf_list_head *head, struct bpf_list_node *node)",
    ),
    kfunc(
        Runtime,
        "int bpf_list_push_front_impl(struct bpf_list_head *head, struct bpf_list_node *node, void *meta__ign, u64 \
         off)",
    ),
    kfunc(
        Runtime,
        "int bpf_list_push_back(struct bpf_list_head *head, struct bpf_list_node *node)",
    ),
    kfunc(
        Runtime,
        "int bpf_list_push_back_impl(struct bpf_list_head *head, struct bpf_list_node *node, void *meta__ign, u64 \
         off)",
    ),
    kfunc(
        Runtime,
        "struct bpf_list_node *bpf_list_pop_front(struct bpf_list_head *head)",
    ),
    kfunc(
        Runtime,
        "struct bpf_list_node *bpf_list_pop_back(struct bpf_list_head *head)",
    ),
];
