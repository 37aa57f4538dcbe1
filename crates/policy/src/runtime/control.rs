// SPDX-License-Identifier: GPL-2.0-only
//! Time, chance, locks, loops, iterators over numbers and bits.
use super::{kernel_fns, readable};
use crate::callback::call_back;
use crate::maps::{E2BIG, EINVAL};

/// Most rounds `bpf_loop` accepts.
const MAX_LOOPS: u64 = 1 << 23;
/// Most words a bit iterator accepts.
const BITS_WORDS_MAX: u64 = 511;

/// State of a bit iterator, in the policy's 16-byte object.
#[repr(C)]
struct BitsIter {
    /// One word is kept in place of the pointer, as in the kernel; more are copied.
    bits: u64,
    nr_bits: u32,
    /// The bit returned last, -1 at first; the policy reads it here.
    bit: i32,
}

// SAFETY throughout: iterator objects lie on the policy's stack with the size of their kernel type.
kernel_fns! {
    fn bpf_ktime_get_ns(_inst, raw) { unsafe { (*raw).ktime } }
    fn bpf_ktime_get_boot_ns(_inst, raw) { unsafe { (*raw).ktime } }
    fn bpf_ktime_get_coarse_ns(_inst, raw) { unsafe { (*raw).ktime } }
    fn bpf_ktime_get_tai_ns(_inst, raw) { unsafe { (*raw).ktime } }
    fn scx_bpf_now(_inst, raw) { unsafe { (*raw).now } }
    fn bpf_get_smp_processor_id(_inst, raw) { u64::from(unsafe { (*raw).cpu }) }
    fn bpf_get_prandom_u32(inst, _raw) { u64::from(unsafe { inst.state() }.random_u32()) }

    // One thread per machine: a lock is always free and excludes nobody.
    fn bpf_spin_lock(_inst, _raw, _lock) { 0 }
    fn bpf_spin_unlock(_inst, _raw, _lock) { 0 }
    fn bpf_res_spin_lock(_inst, _raw, _lock) { 0 }
    fn bpf_res_spin_unlock(_inst, _raw, _lock) { 0 }
    fn bpf_rcu_read_lock(_inst, _raw) { 0 }
    fn bpf_rcu_read_unlock(_inst, _raw) { 0 }
    fn bpf_preempt_disable(_inst, _raw) { 0 }
    fn bpf_preempt_enable(_inst, _raw) { 0 }
    fn bpf_local_irq_save(_inst, _raw, flags) {
        unsafe { (flags as *mut u64).write_unaligned(0) };
        0
    }
    fn bpf_local_irq_restore(_inst, _raw, _flags) { 0 }
    fn bpf_cast_to_kern_ctx(_inst, _raw, object) { object }
    fn bpf_rdonly_cast(_inst, _raw, object, _type_id) { object }

    fn bpf_kptr_xchg(_inst, _raw, place, new) {
        let place = place as *mut u64;
        unsafe {
            let old = place.read_unaligned();
            place.write_unaligned(new);
            old
        }
    }

    fn bpf_loop(_inst, raw, rounds, callback, context, flags) {
        let rounds = rounds & 0xffff_ffff;
        if flags != 0 {
            return EINVAL as u64;
        }
        if rounds > MAX_LOOPS {
            return E2BIG as u64;
        }
        for i in 0..rounds {
            if unsafe { call_back(raw, callback, [i, context, 0, 0, 0]) } != 0 {
                return i + 1;
            }
        }
        rounds
    }

    // The kernel keeps current and end as two 32-bit numbers in the 8-byte object.
    fn bpf_iter_num_new(_inst, _raw, it, start, end) {
        let (start, end, it) = (start as i32, end as i32, it as *mut i32);
        let (current, end, rc) = if start > end {
            (0, 0, EINVAL)
        } else if i64::from(end) - i64::from(start) > MAX_LOOPS as i64 {
            (0, 0, E2BIG)
        } else {
            (start.wrapping_sub(1), end, 0)
        };
        unsafe {
            it.write_unaligned(current);
            it.add(1).write_unaligned(end);
        }
        rc as u64
    }
    fn bpf_iter_num_next(_inst, _raw, it) {
        let it = it as *mut i32;
        unsafe {
            let next = it.read_unaligned().wrapping_add(1);
            if i64::from(next) >= i64::from(it.add(1).read_unaligned()) {
                it.write_unaligned(0);
                it.add(1).write_unaligned(0);
                return 0;
            }
            it.write_unaligned(next);
        }
        it as u64
    }
    fn bpf_iter_num_destroy(_inst, _raw, it) {
        unsafe { (it as *mut u64).write_unaligned(0) };
        0
    }

    fn bpf_iter_bits_new(inst, _raw, it, source, words) {
        let it = it as *mut BitsIter;
        unsafe { it.write_unaligned(BitsIter { bits: 0, nr_bits: 0, bit: -1 }) };
        let words = words & 0xffff_ffff;
        if source == 0 || words == 0 {
            return EINVAL as u64;
        }
        if words > BITS_WORDS_MAX {
            return E2BIG as u64;
        }
        // A whole `struct cpumask` as the headers declare it is longer than this machine's masks.
        let machine = u64::from(inst.nr_cpus()).div_ceil(64);
        let words = if words * 64 >= u64::from(inst.nr_cpus()) && !readable(inst, source, words as u32 * 8) {
            machine
        } else {
            words
        };
        if !readable(inst, source, words as u32 * 8) {
            return crate::maps::EFAULT as u64;
        }
        let bits: Box<[u64]> = (0..words)
            .map(|i| unsafe { (source as *const u64).add(i as usize).read_unaligned() })
            .collect();
        let first = bits[0];
        if words > 1 {
            unsafe { inst.state() }.bits.insert(it as u64, bits);
        }
        unsafe { it.write_unaligned(BitsIter { bits: first, nr_bits: words as u32 * 64, bit: -1 }) };
        0
    }
    fn bpf_iter_bits_next(inst, _raw, it) {
        let object = it as *mut BitsIter;
        let state = unsafe { object.read_unaligned() };
        let more = unsafe { inst.state() }.bits.get(&it);
        // What lies on the policy's stack can be anything.
        let bits = more.map_or(64, |words| words.len() as u32 * 64);
        let mut at = state.bit.wrapping_add(1) as u32;
        while at < state.nr_bits.min(bits) {
            let word = match more {
                Some(words) => words.get(at as usize / 64).copied().unwrap_or(0),
                None => state.bits,
            };
            let rest = word >> (at % 64);
            if rest != 0 {
                let place = unsafe { &raw mut (*object).bit };
                unsafe { place.write_unaligned((at + rest.trailing_zeros()) as i32) };
                return place as u64;
            }
            at = (at / 64 + 1) * 64;
        }
        unsafe { (&raw mut (*object).nr_bits).write_unaligned(0) };
        0
    }
    fn bpf_iter_bits_destroy(inst, _raw, it) {
        unsafe { inst.state() }.bits.remove(&it);
        0
    }
}
