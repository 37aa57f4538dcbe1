// SPDX-License-Identifier: GPL-2.0-only
//! What the host side reads: variables, maps, counters, prints.
use super::Instance;
use crate::ir::MapId;
use crate::maps::Place;

impl Instance {
    /// Address and size of the global variable `name`.
    pub fn var(&self, name: &str) -> Option<(*mut u8, usize)> {
        let program = self.policy.program();
        program.sections.iter().enumerate().find_map(|(i, s)| {
            let var = s.vars.iter().find(|v| v.name == name)?;
            // SAFETY: variables lie inside their section.
            let address = unsafe { self.sections[i].base().add(var.offset as usize) };
            Some((address, var.size as usize))
        })
    }

    /// The map called `name`, for the host side.
    pub fn map(&self, name: &str) -> Option<crate::host_map::MapHandle<'_>> {
        let id = self
            .policy
            .program()
            .maps
            .iter()
            .position(|m| m.name == name)?;
        Some(crate::host_map::MapHandle::new(self, id))
    }

    /// The policy's counters (`policies/include/berth/stats.bpf.h`), summed over CPUs, in their order; empty if it
    /// has none.
    pub fn counters(&self) -> Vec<(String, u64)> {
        let Some(map) = self.map("berth_stats") else {
            return Vec::new();
        };
        let bytes = map.lookup(&0u32.to_ne_bytes()).unwrap_or_default();
        let def = map.def();
        let copies = || bytes.chunks_exact((def.value_size as usize).max(1));
        let sum = |offset: usize| {
            let of = |copy: &[u8]| match copy.get(offset..).and_then(|b| b.first_chunk::<8>()) {
                Some(word) => u64::from_ne_bytes(*word),
                None => 0,
            };
            copies().fold(0u64, |sum, copy| sum.wrapping_add(of(copy)))
        };
        let all = def.fields.iter();
        all.map(|f| (f.name.clone(), sum(f.offset as usize)))
            .collect()
    }

    /// The map element an address lies in (a timer's): map, slot number, offset, key and value.
    pub fn locate(&self, address: u64) -> Option<(MapId, Place)> {
        (0..self.maps.len()).find_map(|id| {
            // SAFETY: one operation.
            let place = unsafe { self.slot(id) }.runtime.locate(address)?;
            Some((id, place))
        })
    }

    /// Lines the policy printed so far (`bpf_printk`), kept or not.
    pub fn prints(&self) -> u64 {
        // SAFETY: one operation.
        unsafe { self.state() }.prints
    }

    /// Keep what the policy prints from now on; without this, lines are counted and not even formatted.
    pub fn keep_prints(&self) {
        // SAFETY: one operation.
        unsafe { self.state() }.print_log.get_or_insert_default();
    }

    /// Take the lines kept so far.
    pub fn take_prints(&self) -> Vec<String> {
        // SAFETY: one operation.
        match &mut unsafe { self.state() }.print_log {
            Some(lines) => std::mem::take(lines),
            None => Vec::new(),
        }
    }
}
