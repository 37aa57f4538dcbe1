// SPDX-License-Identifier: GPL-2.0-only
//! The `bpf_cpumask_*` kfuncs.
use super::{cpu, kernel_fns, mask::Bits, touch};
use crate::abi::Inst;
use crate::instance::Instance;
use crate::maps::EINVAL;

/// # Safety
/// `address` is a mask of this machine (policy code that passes anything else faults, see the module).
unsafe fn bits(raw: *mut Inst, address: u64) -> Bits {
    touch(raw, address, false);
    // SAFETY: the caller's promise.
    unsafe { Bits::at(address, (*raw).nr_cpus) }
}

/// One bit: word, mask; `None` if there is no such CPU.
unsafe fn bit(raw: *mut Inst, mask: u64, cpu: u64) -> Option<(Bits, usize, u64)> {
    let cpu = cpu as u32;
    // SAFETY: the caller's promise.
    if cpu >= unsafe { (*raw).nr_cpus } {
        return None;
    }
    // SAFETY: the caller's promise.
    Some((
        unsafe { bits(raw, mask) },
        cpu as usize / 64,
        1 << (cpu % 64),
    ))
}

/// The next set bit after this CPU's last choice, wrapping around.
fn distribute(inst: &Instance, on: u32, mask: Bits, word: impl Fn(usize) -> u64) -> u64 {
    // SAFETY: one operation.
    let last = unsafe { &mut inst.state().distribute[on as usize] };
    let mut chosen = mask.first_by(*last + 1, &word);
    if chosen >= inst.nr_cpus() {
        chosen = mask.first_by(0, &word);
    }
    if chosen < inst.nr_cpus() {
        *last = chosen;
    }
    u64::from(chosen)
}

// SAFETY throughout: masks come from the policy as the prototypes say; `bits` and `bit` state the rest.
kernel_fns! {
    fn bpf_cpumask_create(inst, _raw) { unsafe { inst.state() }.masks.create() }
    fn bpf_cpumask_acquire(inst, _raw, mask) { unsafe { inst.state() }.masks.acquire(mask) }
    fn bpf_cpumask_release(inst, _raw, mask) {
        unsafe { inst.state() }.masks.release(mask);
        0
    }
    fn bpf_cpumask_first(inst, raw, mask) { u64::from(unsafe { bits(raw, mask) }.first()) }
    fn bpf_cpumask_first_zero(inst, raw, mask) {
        let m = unsafe { bits(raw, mask) };
        u64::from(m.first_by(0, |i| !m.word(i)))
    }
    fn bpf_cpumask_first_and(inst, raw, a, b) {
        let (a, b) = unsafe { (bits(raw, a), bits(raw, b)) };
        u64::from(a.first_by(0, |i| a.word(i) & b.word(i)))
    }
    fn bpf_cpumask_set_cpu(inst, raw, cpu, mask) {
        if let Some((m, i, b)) = unsafe { bit(raw, mask, cpu) } {
            m.set_word(i, m.word(i) | b);
        }
        0
    }
    fn bpf_cpumask_clear_cpu(inst, raw, cpu, mask) {
        if let Some((m, i, b)) = unsafe { bit(raw, mask, cpu) } {
            m.set_word(i, m.word(i) & !b);
        }
        0
    }
    fn bpf_cpumask_test_cpu(inst, raw, cpu, mask) {
        unsafe { bit(raw, mask, cpu) }.is_some_and(|(m, i, b)| m.word(i) & b != 0).into()
    }
    fn bpf_cpumask_test_and_set_cpu(inst, raw, cpu, mask) {
        let Some((m, i, b)) = (unsafe { bit(raw, mask, cpu) }) else { return 0 };
        let old = m.word(i);
        m.set_word(i, old | b);
        (old & b != 0).into()
    }
    fn bpf_cpumask_test_and_clear_cpu(inst, raw, cpu, mask) {
        let Some((m, i, b)) = (unsafe { bit(raw, mask, cpu) }) else { return 0 };
        let old = m.word(i);
        m.set_word(i, old & !b);
        (old & b != 0).into()
    }
    fn bpf_cpumask_setall(inst, raw, mask) {
        let m = unsafe { bits(raw, mask) };
        (0..m.words()).for_each(|i| m.set_word(i, m.valid(i)));
        0
    }
    fn bpf_cpumask_clear(inst, raw, mask) {
        let m = unsafe { bits(raw, mask) };
        (0..m.words()).for_each(|i| m.set_word(i, 0));
        0
    }
    fn bpf_cpumask_and(inst, raw, dst, a, b) {
        let (dst, a, b) = unsafe { (bits(raw, dst), bits(raw, a), bits(raw, b)) };
        let mut any = 0;
        for i in 0..dst.words() {
            let word = a.word(i) & b.word(i) & dst.valid(i);
            dst.set_word(i, word);
            any |= word;
        }
        (any != 0).into()
    }
    fn bpf_cpumask_or(inst, raw, dst, a, b) {
        let (dst, a, b) = unsafe { (bits(raw, dst), bits(raw, a), bits(raw, b)) };
        (0..dst.words()).for_each(|i| dst.set_word(i, a.word(i) | b.word(i)));
        0
    }
    fn bpf_cpumask_xor(inst, raw, dst, a, b) {
        let (dst, a, b) = unsafe { (bits(raw, dst), bits(raw, a), bits(raw, b)) };
        (0..dst.words()).for_each(|i| dst.set_word(i, a.word(i) ^ b.word(i)));
        0
    }
    fn bpf_cpumask_equal(inst, raw, a, b) {
        let (a, b) = unsafe { (bits(raw, a), bits(raw, b)) };
        (0..a.words()).all(|i| (a.word(i) ^ b.word(i)) & a.valid(i) == 0).into()
    }
    fn bpf_cpumask_intersects(inst, raw, a, b) {
        let (a, b) = unsafe { (bits(raw, a), bits(raw, b)) };
        (0..a.words()).any(|i| a.word(i) & b.word(i) & a.valid(i) != 0).into()
    }
    fn bpf_cpumask_subset(inst, raw, a, b) {
        let (a, b) = unsafe { (bits(raw, a), bits(raw, b)) };
        (0..a.words()).all(|i| a.word(i) & !b.word(i) & a.valid(i) == 0).into()
    }
    fn bpf_cpumask_empty(inst, raw, mask) {
        let m = unsafe { bits(raw, mask) };
        (m.first() >= inst.nr_cpus()).into()
    }
    fn bpf_cpumask_full(inst, raw, mask) {
        let m = unsafe { bits(raw, mask) };
        (0..m.words()).all(|i| !m.word(i) & m.valid(i) == 0).into()
    }
    fn bpf_cpumask_copy(inst, raw, dst, src) {
        let (dst, src) = unsafe { (bits(raw, dst), bits(raw, src)) };
        (0..dst.words()).for_each(|i| dst.set_word(i, src.word(i)));
        0
    }
    fn bpf_cpumask_any_distribute(inst, raw, mask) {
        let m = unsafe { bits(raw, mask) };
        distribute(inst, cpu(raw), m, |i| m.word(i))
    }
    fn bpf_cpumask_any_and_distribute(inst, raw, a, b) {
        let (a, b) = unsafe { (bits(raw, a), bits(raw, b)) };
        distribute(inst, cpu(raw), a, |i| a.word(i) & b.word(i))
    }
    fn bpf_cpumask_weight(inst, raw, mask) {
        let m = unsafe { bits(raw, mask) };
        (0..m.words()).map(|i| u64::from((m.word(i) & m.valid(i)).count_ones())).sum()
    }
    fn bpf_cpumask_populate(inst, raw, dst, src, size) {
        let m = unsafe { bits(raw, dst) };
        let need = m.words() as u64 * 8;
        // The kernel wants the source at least as long as its mask, in whole words, and aligned.
        if !size.is_multiple_of(8) || size < need || !src.is_multiple_of(8) {
            return EINVAL as u64;
        }
        let src = unsafe { bits(raw, src) };
        (0..m.words()).for_each(|i| m.set_word(i, src.word(i)));
        0
    }
}
