// SPDX-License-Identifier: GPL-2.0-only
//! Large worlds lie in large pages. Thousands of guests are more 4 KiB pages than a processor keeps the translations
//! of, and an event that finds its guest in memory would walk the page tables for each structure of it, too. Once the
//! guests are there, Linux is asked to put what they lie in into huge pages, in place (`MADV_COLLAPSE`, Linux 6.1; the
//! system's setting for transparent huge pages does not matter). A hint: where it is refused, it is slower and nothing
//! else.
use super::ahead::MANY;
use super::world::WorldRef;
use crate::scx::Handle;
use crate::scx::kernel::Kernel;
use std::collections::BTreeSet;

/// Bytes of a huge page, as a power of two.
const SHIFT: u32 = 21;

impl Handle {
    /// What most events touch: address and bytes.
    fn places(self) -> impl Iterator<Item = (usize, usize)> {
        fn of<T>(list: &[T]) -> (usize, usize) {
            (list.as_ptr().addr(), size_of_val(list))
        }
        let instance = self.policy.instance();
        let tree = self.queue.memory();
        let mut places = vec![
            (self.as_ptr().addr(), size_of::<Kernel>()),
            of(&self.cpus),
            of(&self.tasks.hot),
            (tree.0.addr(), tree.1),
            instance.map_or((0, 0), |i| of(std::slice::from_ref(i))),
        ];
        places.extend(self.tasks.regions().map(|(p, bytes)| (p.addr(), bytes)));
        places.into_iter().filter(|(_, bytes)| *bytes > 0)
    }
}

impl WorldRef {
    /// Ask for huge pages, if the world is large.
    pub fn in_huge_pages(self) {
        if self.machines.len() <= MANY {
            return;
        }
        let machines = self.machines.iter().copied().flatten();
        let pages: BTreeSet<usize> = machines
            .flat_map(Handle::places)
            .flat_map(|(at, bytes)| at >> SHIFT..=(at + bytes - 1) >> SHIFT)
            .collect();
        #[cfg(target_os = "linux")]
        for page in pages {
            let at = std::ptr::without_provenance_mut(page << SHIFT);
            // SAFETY: contents and addresses of the pages stay as they are; a range that is not all ours or not all
            // mapped is refused.
            unsafe { libc::madvise(at, 1 << SHIFT, libc::MADV_COLLAPSE) };
        }
        #[cfg(not(target_os = "linux"))]
        let _ = pages;
    }
}
