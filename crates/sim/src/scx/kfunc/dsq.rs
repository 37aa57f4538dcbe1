// SPDX-License-Identifier: GPL-2.0-only
//! Dispatch queues: make, insert, move, walk.
use super::kernel_fns;
use crate::machine::task::NONE;
use crate::scx::consts::*;
use crate::scx::dsq::Cursor;
use crate::scx::kernel::Handle;
use crate::scx::mutation::{MUTATIONS, Mutation};
use crate::unlikely::unlikely;
use crate::words::TaskId;
use berth_policy::kview::ScxBpfDsqInsertVtimeArgs;

impl Handle {
    /// Flags of an insert; `None`: they are bad, and the policy is ejected.
    #[inline]
    fn vet_flags(self, dsq_id: u64, flags: u64) -> Option<u64> {
        let local = dsq_id == DSQ_LOCAL || dsq_id & DSQ_LOCAL_ON == DSQ_LOCAL_ON;
        if unlikely(flags & ENQ_IMMED != 0) {
            if !local {
                self.scx_error(format!("SCX_ENQ_IMMED on a non-local DSQ {dsq_id:#x}"));
                return None;
            }
        } else if local && self.policy.has_flag(OPS_ALWAYS_ENQ_IMMED) {
            return Some(flags | ENQ_IMMED);
        }
        Some(flags)
    }

    #[inline(always)]
    fn insert(
        self,
        name: &str,
        p: u64,
        dsq_id: u64,
        slice: u64,
        vtime: Option<u64>,
        flags: u64,
    ) -> u64 {
        let Some(task) = self.task_arg(name, p) else {
            return 0;
        };
        if unlikely(flags & ENQ_INTERNAL != 0) {
            self.scx_error(format!("invalid enq_flags {flags:#x}"));
            return 0;
        }
        let Some(mut flags) = self.vet_flags(dsq_id, flags) else {
            return 0;
        };
        let dfl = self.wrong(Mutation::ZeroSliceIsDefault);
        let ts = self.tasks.ts(task);
        match slice {
            0 if dfl => ts.scx.slice = SLICE_DFL,
            0 => ts.scx.slice = ts.scx.slice.max(1),
            s => ts.scx.slice = s,
        }
        if let Some(v) = vtime {
            ts.scx.dsq_vtime = v;
            flags |= ENQ_DSQ_PRIQ;
        }
        self.insert_commit(task, dsq_id, flags);
        1
    }

    fn move_task(self, it: u64, p: u64, dsq_id: u64, flags: u64) -> u64 {
        let Some(task) = self.task_arg("scx_bpf_dsq_move", p) else {
            return 0;
        };
        let Some(flags) = self.vet_flags(dsq_id, flags) else {
            return 0;
        };
        // SAFETY: the policy's iterator on its stack (null is refused).
        let Some(it) = (unsafe { (it as *mut Iter).as_mut() }) else {
            return 0;
        };
        let (slice, vtime) = (
            it.take(HAS_SLICE).then_some(it.slice),
            it.take(HAS_VTIME).then_some(it.vtime),
        );
        if self.exit.claimed() || it.dsq == 0 {
            return 0;
        }
        let src = it.dsq - 1;
        let hot = &self.tasks.hot[task as usize];
        if hot.dsq != src || (it.limit.wrapping_sub(hot.dsq_seq) as i32) < 0 {
            return 0;
        }
        let exec = self.exec;
        let dst = self.dsq_for_dispatch(exec, dsq_id, hot.cpu);
        let ts = self.tasks.ts(task);
        if let Some(v) = vtime {
            ts.scx.dsq_vtime = v;
        }
        if let Some(s) = slice {
            ts.scx.slice = s;
        }
        self.move_between(task, dst, flags);
        1
    }
}

/// `struct bpf_iter_scx_dsq` as this kernel uses its 48 bytes.
#[repr(C)]
struct Iter {
    /// Queue index + 1; 0 = no queue.
    dsq: u32,
    flags: u32,
    limit: u32,
    seq: u32,
    task: u32,
    pad: u32,
    key: u64,
    slice: u64,
    vtime: u64,
}
const _: () = assert!(size_of::<Iter>() == 48);

const REVERSE: u32 = 1;
const HAS_SLICE: u32 = 2;
const HAS_VTIME: u32 = 4;
const DONE: u32 = 8;

impl Iter {
    fn take(&mut self, flag: u32) -> bool {
        let had = self.flags & flag != 0;
        self.flags &= !flag;
        had
    }
}

fn task_ptr(k: Handle, task: Option<TaskId>) -> u64 {
    task.map_or(0, |t| k.tasks.ptr(t) as u64)
}

kernel_fns! {
    fn scx_bpf_create_dsq(k, id, node) {
        let node = node as i32;
        if node >= k.topo.nr_nodes() as i32 || node < -1 {
            return -EINVAL as u64;
        }
        match k.dsqs.create(id) {
            Ok(_) => 0,
            Err(e) => -e as u64,
        }
    }
    fn scx_bpf_destroy_dsq(k, id) {
        if let Some(q) = k.dsqs.find_user(id) {
            if k.dsqs.get(q).nr > 0 {
                k.scx_error(format!("attempting to destroy in-use dsq {id:#018x} (nr={})", k.dsqs.get(q).nr));
            } else {
                k.dsqs.destroy(q);
            }
        }
        0
    }
    fn scx_bpf_dsq_insert(k, p, dsq_id, slice, flags) {
        k.insert("scx_bpf_dsq_insert", p, dsq_id, slice, None, flags)
    }
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.sim"))]
    fn scx_bpf_dsq_insert___v2(k, p, dsq_id, slice, flags) {
        k.insert("scx_bpf_dsq_insert", p, dsq_id, slice, None, flags)
    }
    fn scx_bpf_dsq_insert_vtime(k, p, dsq_id, slice, vtime, flags) {
        k.insert("scx_bpf_dsq_insert_vtime", p, dsq_id, slice, Some(vtime), flags)
    }
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.sim"))]
    fn __scx_bpf_dsq_insert_vtime(k, p, args) {
        // SAFETY: the policy's argument block (null is refused).
        match unsafe { (args as *const ScxBpfDsqInsertVtimeArgs).as_ref() } {
            Some(a) => k.insert("scx_bpf_dsq_insert_vtime", p, a.dsq_id, a.slice, Some(a.vtime), a.enq_flags),
            None => 0,
        }
    }
    fn scx_bpf_dispatch_nr_slots(k) {
        if MUTATIONS {
            k.race();
        }
        k.policy.max_batch as u64 - k.dispatch.buffer.len() as u64
    }
    fn scx_bpf_dispatch_cancel(k) {
        if k.dispatch.buffer.pop().is_none() {
            k.scx_error("dispatch buffer underflow".into());
        }
        0
    }
    fn scx_bpf_dsq_move_to_local(k, dsq_id) {
        move_to_local(k, dsq_id, 0)
    }
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.sim"))]
    fn scx_bpf_dsq_move_to_local___v2(k, dsq_id, flags) {
        move_to_local(k, dsq_id, flags)
    }
    fn scx_bpf_dsq_move_set_slice(_k, it, slice) {
        // SAFETY: the policy's iterator on its stack (null is refused).
        if let Some(it) = unsafe { (it as *mut Iter).as_mut() } {
            it.slice = slice;
            it.flags |= HAS_SLICE;
        }
        0
    }
    fn scx_bpf_dsq_move_set_vtime(_k, it, vtime) {
        // SAFETY: as above.
        if let Some(it) = unsafe { (it as *mut Iter).as_mut() } {
            it.vtime = vtime;
            it.flags |= HAS_VTIME;
        }
        0
    }
    fn scx_bpf_reenqueue_local(k) {
        let cpu = k.exec;
        k.reenq_local(cpu, REENQ_ANY) as u64
    }
    fn scx_bpf_reenqueue_local___v2(k) {
        let cpu = k.exec;
        k.schedule_reenq_local(cpu, REENQ_ANY);
        0
    }
    fn scx_bpf_dsq_reenq(k, dsq_id, flags) {
        if flags & !REENQ_ANY != 0 {
            k.scx_error(format!("invalid SCX_REENQ flags {flags:#x}"));
            return 0;
        }
        let exec = k.exec;
        let q = k.dsq_for_dispatch(exec, dsq_id, exec);
        if k.dsqs.is_local(q) {
            k.schedule_reenq_local(q, REENQ_ANY);
        } else if k.dsqs.is_user(q) {
            k.kicks.reenq_users.push((q, REENQ_ANY));
            k.schedule_deferred_locked(exec);
        } else {
            k.scx_error(format!("DSQ {dsq_id:#x} not allowed for reenq"));
        }
        0
    }
    fn scx_bpf_dsq_nr_queued(k, dsq_id) {
        if dsq_id == DSQ_LOCAL {
            return k.dsqs.get(k.dsqs.local(k.exec)).nr as u64;
        }
        if dsq_id & DSQ_LOCAL_ON == DSQ_LOCAL_ON {
            let cpu = (dsq_id & DSQ_LOCAL_CPU_MASK) as i32;
            if k.ops_cpu_valid(cpu, "") {
                return k.dsqs.get(k.dsqs.local(cpu as u32)).nr as u64;
            }
        } else if let Some(q) = k.dsqs.find_user(dsq_id) {
            return k.dsqs.get(q).nr as u64;
        }
        -ENOENT as u64
    }
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.sim"))]
    fn scx_bpf_dsq_peek(k, dsq_id) {
        if dsq_id & DSQ_FLAG_BUILTIN != 0 {
            k.scx_error(format!("peek disallowed on builtin DSQ {dsq_id:#x}"));
            return 0;
        }
        match k.dsqs.find_user(dsq_id) {
            Some(q) => task_ptr(k, k.dsqs.first(q)),
            None => {
                k.scx_error(format!("peek on non-existent DSQ {dsq_id:#x}"));
                0
            }
        }
    }
    fn bpf_iter_scx_dsq_new(k, it, dsq_id, flags) {
        // SAFETY: the policy's iterator on its stack (null is refused).
        let Some(it) = (unsafe { (it as *mut Iter).as_mut() }) else {
            return -EINVAL as u64;
        };
        it.dsq = 0;
        if flags & !DSQ_ITER_REV != 0 {
            return -EINVAL as u64;
        }
        let Some(q) = k.dsqs.find_user(dsq_id) else {
            return -ENOENT as u64;
        };
        *it = Iter {
            dsq: q + 1,
            flags: if flags & DSQ_ITER_REV != 0 { REVERSE } else { 0 },
            limit: k.dsqs.get(q).seq,
            seq: 0,
            task: NONE,
            pad: 0,
            key: 0,
            slice: 0,
            vtime: 0,
        };
        0
    }
    fn bpf_iter_scx_dsq_next(k, it) {
        // SAFETY: the policy's iterator on its stack (null is refused).
        let Some(it) = (unsafe { (it as *mut Iter).as_mut() }) else {
            return 0;
        };
        if it.dsq == 0 || it.dsq as usize > k.dsqs.queues.len() {
            return 0;
        }
        // What lies on the policy's stack can be anything.
        if it.task != NONE && it.task as usize >= k.tasks.hot.len() {
            return 0;
        }
        let mut c = Cursor {
            limit: it.limit,
            reverse: it.flags & REVERSE != 0,
            task: it.task,
            vtime: it.key,
            seq: it.seq,
            done: it.flags & DONE != 0,
        };
        let next = k.dsqs.next(&k.tasks.hot, it.dsq - 1, &mut c);
        (it.task, it.key, it.seq) = (c.task, c.vtime, c.seq);
        if c.done {
            it.flags |= DONE;
        }
        task_ptr(k, next)
    }
    fn bpf_iter_scx_dsq_destroy(_k, it) {
        // SAFETY: the policy's iterator on its stack (null is refused).
        if let Some(it) = unsafe { (it as *mut Iter).as_mut() } {
            it.dsq = 0;
        }
        0
    }
    fn scx_bpf_dsq_move(k, it, p, dsq_id, flags) {
        k.move_task(it, p, dsq_id, flags)
    }
    fn scx_bpf_dsq_move_vtime(k, it, p, dsq_id, flags) {
        k.move_task(it, p, dsq_id, flags | ENQ_DSQ_PRIQ)
    }
}

#[inline(always)]
fn move_to_local(mut k: Handle, dsq_id: u64, flags: u64) -> u64 {
    let Some(flags) = k.vet_flags(DSQ_LOCAL, flags) else {
        return 0;
    };
    let cpu = k.dispatch.cpu;
    k.flush_dispatch(cpu);
    let Some(q) = k.dsqs.find_user(dsq_id) else {
        k.scx_error(format!("invalid DSQ ID {dsq_id:#018x}"));
        return 0;
    };
    if k.consume(cpu, q, flags) {
        k.dispatch.nr_tasks += 1;
        return 1;
    }
    0
}
