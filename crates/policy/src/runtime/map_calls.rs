// SPDX-License-Identifier: GPL-2.0-only
//! Helpers on maps: they find the map object behind the policy's map pointer.
use super::{cpu, kernel_fns, touch};
use crate::abi::{Inst, Map};
use crate::callback::call_back;
use crate::instance::Instance;
use crate::kview::{Cgroup, TaskStruct};
use crate::maps::pages::Pages;
use crate::maps::perf::{EVENTS, INDEX_MASK};
use crate::maps::{EINVAL, ENOENT, MapSlot, kind};
use crate::storage::Storage;

/// `BPF_LOCAL_STORAGE_GET_F_CREATE`.
const STORAGE_CREATE: u64 = 1;

/// The map object, if `map` is one of this instance's.
#[allow(clippy::mut_from_ref)] // one operation, one thread: see Instance::slot
fn slot(inst: &Instance, map: u64) -> Option<&mut MapSlot> {
    let id = inst.map_id(map as *const Map)?;
    // SAFETY: used for one operation.
    Some(unsafe { inst.slot(id) })
}

fn map_kind(slot: &MapSlot) -> u32 {
    // SAFETY: a slot's description lives as long as its instance.
    unsafe { (*slot.raw).kind }
}

/// The dense number that an object has there. A policy can give any memory that it may read for an object.
fn number_at(object: u64, offset: usize) -> u32 {
    // SAFETY: see the module's words; of any alignment.
    unsafe {
        (object as *const u8)
            .add(offset)
            .cast::<u32>()
            .read_unaligned()
    }
}

/// The pages of an arena.
#[allow(clippy::mut_from_ref)] // as `slot`
fn pages(inst: &Instance, map: u64) -> Option<&mut Pages> {
    let slot = slot(inst, map).filter(|slot| map_kind(slot) == kind::ARENA)?;
    // SAFETY: exactly this kind is a `Pages` (`Instance::new`).
    Some(unsafe { &mut *(&raw mut *slot.runtime).cast::<Pages>() })
}

/// Value of a storage map for the object numbered `index`.
///
/// # Safety
/// `init` is null or has the map's value size.
unsafe fn storage_get(inst: &Instance, map: u64, index: u32, init: u64, flags: u64) -> u64 {
    let Some(slot) = slot(inst, map) else {
        return 0;
    };
    if !matches!(map_kind(slot), kind::TASK_STORAGE | kind::CGRP_STORAGE) {
        return 0;
    }
    // SAFETY: `maps::create` gives exactly these kinds a Storage.
    let storage = unsafe { &mut *(&raw mut *slot.runtime).cast::<Storage>() };
    if flags & STORAGE_CREATE != 0 {
        // SAFETY: the caller's promise.
        unsafe { storage.create(&mut *slot.raw, index, init as *const u8) as u64 }
    } else {
        storage.get(index) as u64
    }
}

/// Delete the value of a storage map for the object numbered `index`.
fn storage_delete(inst: &Instance, map: u64, index: u32) -> u64 {
    let Some(id) = inst.map_id(map as *const Map) else {
        return EINVAL as u64;
    };
    // SAFETY: one operation; the key has four bytes.
    let rc = unsafe { inst.slot(id).runtime.delete((&raw const index).cast()) };
    inst.end_fields(id);
    rc as u64
}

/// What the event at an index of a map counts on the executing CPU; as in the kernel, no other CPU's can be read.
fn counter(inst: &Instance, raw: *mut Inst, map: u64, flags: u64) -> Result<[u64; 3], i64> {
    let here = cpu(raw);
    let id = inst.map_id(map as *const Map).ok_or(EINVAL)?;
    let name = &inst.policy().program().maps[id].name;
    let event = EVENTS.iter().position(|(map, _)| map == name);
    let value = event
        .and_then(|event| inst.counter(here, event))
        .ok_or(ENOENT)?;
    if flags == INDEX_MASK || flags == u64::from(here) {
        Ok(value)
    } else {
        Err(EINVAL)
    }
}

/// Call `callback(map, key, value, context)` for every element until it returns non-zero.
unsafe fn for_each(inst: &Instance, raw: *mut Inst, map: u64, callback: u64, context: u64) -> u64 {
    let Some(id) = inst.map_id(map as *const Map) else {
        return EINVAL as u64;
    };
    let (mut cursor, mut calls) = (0, 0);
    loop {
        // SAFETY: one operation; the reference ends before the callback runs.
        let Some(e) = (unsafe { inst.slot(id) })
            .runtime
            .next(&mut cursor, cpu(raw))
        else {
            return calls;
        };
        calls += 1;
        // SAFETY: the policy's own callback.
        if unsafe {
            call_back(
                raw,
                callback,
                [map, e.key as u64, e.value as u64, context, 0],
            )
        } != 0
        {
            return calls;
        }
    }
}

// SAFETY throughout: key, value and object pointers come from the policy as the prototypes say (see the
// module's words in `runtime`); map objects are used for one operation each.
kernel_fns! {
    fn bpf_map_lookup_elem(inst, raw, map, key) {
        touch(raw, key, false);
        match slot(inst, map) {
            Some(slot) => unsafe { slot.runtime.lookup(key as *const u8, cpu(raw)) as u64 },
            None => 0,
        }
    }
    fn bpf_map_update_elem(inst, raw, map, key, value, flags) {
        touch(raw, key, false);
        touch(raw, value, false);
        let Some(id) = inst.map_id(map as *const Map) else { return EINVAL as u64 };
        let rc = unsafe {
            inst.slot(id).runtime.update(key as *const u8, value as *const u8, flags, cpu(raw))
        };
        inst.end_fields(id);
        rc as u64
    }
    fn bpf_map_delete_elem(inst, raw, map, key) {
        touch(raw, key, false);
        let Some(id) = inst.map_id(map as *const Map) else { return EINVAL as u64 };
        let rc = unsafe { inst.slot(id).runtime.delete(key as *const u8) };
        inst.end_fields(id);
        rc as u64
    }
    fn bpf_map_push_elem(inst, raw, map, value, flags) {
        touch(raw, value, false);
        match slot(inst, map) {
            Some(slot) => unsafe { slot.runtime.push(value as *const u8, flags) as u64 },
            None => EINVAL as u64,
        }
    }
    fn bpf_map_pop_elem(inst, raw, map, value) {
        touch(raw, value, true);
        match slot(inst, map) {
            Some(slot) => unsafe { slot.runtime.pop(value as *mut u8) as u64 },
            None => EINVAL as u64,
        }
    }
    fn bpf_map_peek_elem(inst, raw, map, value) {
        touch(raw, value, true);
        match slot(inst, map) {
            Some(slot) => unsafe { slot.runtime.peek(value as *mut u8) as u64 },
            None => EINVAL as u64,
        }
    }
    fn bpf_map_lookup_percpu_elem(inst, raw, map, key, cpu) {
        touch(raw, key, false);
        match slot(inst, map) {
            Some(slot) if (cpu as u32) < inst.nr_cpus() => unsafe {
                slot.runtime.lookup(key as *const u8, cpu as u32) as u64
            },
            _ => 0,
        }
    }
    fn bpf_for_each_map_elem(inst, raw, map, callback, context, flags) {
        if flags != 0 {
            return EINVAL as u64;
        }
        unsafe { for_each(inst, raw, map, callback, context) }
    }
    fn bpf_map_sum_elem_count(inst, _raw, map) {
        slot(inst, map).map_or(0, |slot| slot.runtime.len())
    }
    fn bpf_task_storage_get(inst, _raw, map, task, init, flags) {
        if task == 0 {
            return 0;
        }
        let index = number_at(task, std::mem::offset_of!(TaskStruct, berth_index));
        unsafe { storage_get(inst, map, index, init, flags) }
    }
    fn bpf_task_storage_delete(inst, _raw, map, task) {
        if task == 0 {
            return ENOENT as u64;
        }
        let index = number_at(task, std::mem::offset_of!(TaskStruct, berth_index));
        storage_delete(inst, map, index)
    }
    fn bpf_cgrp_storage_get(inst, _raw, map, cgroup, init, flags) {
        if cgroup == 0 {
            return 0;
        }
        let index = number_at(cgroup, std::mem::offset_of!(Cgroup, berth_index));
        unsafe { storage_get(inst, map, index, init, flags) }
    }
    fn bpf_cgrp_storage_delete(inst, _raw, map, cgroup) {
        if cgroup == 0 {
            return ENOENT as u64;
        }
        let index = number_at(cgroup, std::mem::offset_of!(Cgroup, berth_index));
        storage_delete(inst, map, index)
    }
    fn bpf_perf_event_output(inst, raw, _context, map, flags, data, size) {
        touch(raw, data, false);
        match slot(inst, map) {
            Some(slot) => unsafe { slot.runtime.output(data as *const u8, size, flags) as u64 },
            None => EINVAL as u64,
        }
    }
    fn bpf_perf_event_read(inst, raw, map, flags) {
        let Some(slot) = slot(inst, map) else {
            return EINVAL as u64;
        };
        match slot.runtime.perf_read(flags, cpu(raw)) {
            ENOENT => counter(inst, raw, map, flags).map_or_else(|e| e as u64, |value| value[0]),
            error => error as u64,
        }
    }
    fn bpf_perf_event_read_value(inst, raw, map, flags, buffer, size) {
        touch(raw, buffer, true);
        let Some(slot) = slot(inst, map) else {
            return EINVAL as u64;
        };
        // SAFETY: the policy's promise: `size` bytes.
        let code = unsafe { slot.runtime.perf_read_value(flags, cpu(raw), buffer as *mut u8, size) };
        if code != ENOENT {
            return code as u64;
        }
        match counter(inst, raw, map, flags) {
            Ok(value) => {
                // SAFETY: the size was right.
                unsafe { (buffer as *mut [u64; 3]).write_unaligned(value) };
                0
            }
            Err(error) => error as u64,
        }
    }
    fn bpf_arena_alloc_pages(inst, _raw, map, at, count, _node, flags) {
        pages(inst, map).map_or(0, |pages| pages.alloc(at, count as u32, flags))
    }
    fn bpf_arena_reserve_pages(inst, _raw, map, at, count) {
        pages(inst, map).map_or(EINVAL, |pages| pages.reserve(at, count as u32)) as u64
    }
    fn bpf_arena_free_pages(inst, _raw, map, at, count) {
        if let Some(pages) = pages(inst, map) {
            pages.release(at, count as u32);
            if let Some(fence) = inst.fence() {
                fence.forget_the_found();
            }
        }
        0
    }
    fn bpf_ringbuf_output(inst, raw, map, data, size, flags) {
        touch(raw, data, false);
        match slot(inst, map) {
            Some(slot) => unsafe { slot.runtime.output(data as *const u8, size, flags) as u64 },
            None => EINVAL as u64,
        }
    }
    fn bpf_ringbuf_reserve(inst, _raw, map, size, flags) {
        slot(inst, map).map_or(0, |slot| slot.runtime.reserve(size, flags) as u64)
    }
    fn bpf_ringbuf_submit(inst, _raw, record, _flags) { commit(inst, record, false) }
    fn bpf_ringbuf_discard(inst, _raw, record, _flags) { commit(inst, record, true) }
    fn bpf_ringbuf_query(inst, _raw, map, flags) {
        slot(inst, map).map_or(0, |slot| slot.runtime.query(flags))
    }
}

/// The record's address does not name its ring buffer: ask each.
fn commit(inst: &Instance, record: u64, discard: bool) -> u64 {
    for id in 0..inst.policy().program().maps.len() {
        // SAFETY: one operation.
        let slot = unsafe { inst.slot(id) };
        if map_kind(slot) == kind::RINGBUF && slot.runtime.commit(record as *mut u8, discard) {
            break;
        }
    }
    0
}
