// SPDX-License-Identifier: GPL-2.0-only
//! What memory a policy may touch, and which of it a callback will.
use super::Instance;
use crate::interp::Regions;
use crate::maps;
use crate::maps::pages::{PAGE, Pages};
use crate::sections::SectionData;

impl Regions for Instance {
    fn check(&self, address: u64, size: u32, write: bool) -> bool {
        self.may_access(address, size, write)
    }
}

/// An arena of so many bytes is asked for as a whole.
const SMALL: usize = 1024;

/// Sections of one array each, which `bpf_map__set_value_size` resizes.
const RESIZED: [&str; 3] = [".data.", ".rodata.", ".bss."];
/// So far beyond one, an access was meant for it.
const NEAR: u64 = 1 << 20;

impl Instance {
    /// The piece of memory, `[start, end)`, around an address, all of which the policy may read, or write: a section,
    /// the elements of a map, and to read, a piece of the machine's own memory.
    pub fn piece(&self, address: u64, write: bool) -> Option<(u64, u64)> {
        let sections = self.policy.program().sections.iter().zip(&self.sections);
        // An arena's own are among its pages.
        let of_these = sections.filter(|(s, _)| !(write && s.readonly || s.in_arena()));
        let mut of_these = of_these.filter_map(|(_, data)| {
            let start = data.place()? as u64;
            Some((start, start + data.len() as u64))
        });
        let own = of_these
            .find(|(start, end)| (*start..*end).contains(&address))
            .or_else(|| {
                // SAFETY: one operation.
                let mut maps = (self.addressed.iter()).map(|id| unsafe { &*self.maps[*id].get() });
                maps.find_map(|slot| slot.runtime.piece(address))
            })
            // SAFETY: one operation.
            .or_else(|| unsafe { self.state() }.objects.piece(address));
        if own.is_some() || write {
            return own;
        }
        let of = self.vtable.pieces?;
        // SAFETY: the simulator's own function, with its own machine.
        unsafe { of((*self.raw.get()).machine, address) }
    }

    /// What to say of an access there that was refused: by a pointer into an arena, or beyond the section of its own
    /// before the address, one that a loader resizes (`RESIZABLE_ARRAY`).
    pub fn beyond(&self, address: u64) -> Option<String> {
        if let Some(said) = self.uncast(address) {
            return Some(said);
        }
        let sections = self.policy.program().sections.iter().zip(&self.sections);
        let (section, past) = sections
            .filter(|(section, _)| {
                RESIZED
                    .iter()
                    .any(|prefix| section.name.starts_with(prefix))
            })
            .filter_map(|(section, data)| {
                let end = data.place()? as u64 + data.len() as u64;
                Some((section, address.checked_sub(end)?))
            })
            .min_by_key(|(_, past)| *past)
            .filter(|(_, past)| *past < NEAR)?;
        let name = section
            .vars
            .first()
            .map_or(section.name.as_str(), |v| v.name.as_str());
        Some(format!(
            "{past} bytes beyond `{name}` (section {}), which has the {} bytes that it was given: --resize \
             NAME=COUNT gives it more; or declare it as large as it is used",
            section.name,
            section.data.len()
        ))
    }

    /// What to say of a pointer into the arena that was used as it is.
    fn uncast(&self, address: u64) -> Option<String> {
        let maps = &self.policy.program().maps;
        let arena = maps.iter().find(|m| m.kind == maps::kind::ARENA)?;
        let start = Pages::user_start(arena);
        let inside = address.checked_sub(start)? < u64::from(arena.max_entries) * PAGE;
        inside.then(|| {
            format!(
                "a pointer into map {} that was not cast to an address; a kernel refuses such an object (clang 19 puts \
                 stores of zeros beside each other together, and casts what it makes of them no more)",
                arena.name
            )
        })
    }

    /// May the policy touch these bytes? Sections, live map elements, masks, and what the simulator's
    /// check says of its own objects. The executing function's stack is the interpreter's business.
    pub fn may_access(&self, address: u64, size: u32, write: bool) -> bool {
        let end = address.saturating_add(u64::from(size));
        for (section, data) in self.policy.program().sections.iter().zip(&self.sections) {
            let Some(start) = data.place().map(|base| base as u64) else {
                continue;
            };
            if !section.in_arena() && address >= start && end <= start + data.len() as u64 {
                return !(write && section.readonly);
            }
        }
        for id in &self.addressed {
            // SAFETY: one operation.
            if unsafe { self.slot(*id) }.runtime.contains(address, size) {
                return true;
            }
        }
        // SAFETY: one operation.
        let state = unsafe { self.state() };
        if state.masks.contains(address, size) || state.objects.contains(address, size) {
            return true;
        }
        match self.vtable.memory {
            // SAFETY: the simulator's own check, with its own machine.
            Some(check) => unsafe { check((*self.raw.get()).machine, address, size, write) },
            None => address >= 4096,
        }
    }

    /// Is it so small that [`Instance::near`] tells of all of it, whatever the task?
    #[inline]
    pub fn is_small(&self) -> bool {
        self.arena.front().1 <= SMALL
    }

    /// Bytes of the part that most calls touch, from the start.
    pub const HEAD: usize = std::mem::offset_of!(Instance, state);

    /// Tells `to` where this instance keeps what most callbacks about a task touch (address and length in bytes), for a
    /// hint to the processor. Reads only what does not depend on the task.
    pub fn near(&self, index: u32, mut to: impl FnMut(*const u8, usize)) {
        // Sections, maps, and what they hold of the first tasks.
        let (front, bytes) = self.arena.front();
        if bytes <= SMALL {
            return to(front, bytes);
        }
        for base in self.sections.iter().filter_map(SectionData::place) {
            to(base, 64);
        }
        for id in &self.addressed {
            // SAFETY: one operation; the header of a map is never moved.
            let raw = unsafe { &*(*self.maps[*id].get()).raw };
            let storage = matches!(raw.kind, maps::kind::TASK_STORAGE);
            if storage && index < raw.max_entries {
                // SAFETY: the table covers numbers below `max_entries`; an element may be absent (null).
                let value = unsafe { raw.data.cast::<*const u8>().add(index as usize).read() };
                if !value.is_null() {
                    to(value, raw.value_size as usize);
                }
            } else if !storage && raw.kind != maps::kind::ARENA {
                to(raw.data, 64);
            }
        }
    }
}
