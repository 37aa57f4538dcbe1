// SPDX-License-Identifier: GPL-2.0-only
//! ARRAY_OF_MAPS and HASH_OF_MAPS: an element is another map of the instance. Which ones they are is said by the object
//! (`.values`) or by the scheduler's own loader (`map_defs` makes what it would); as in the kernel, programs only look
//! up.
use super::{EINVAL, MapRuntime, Place, kind};
use crate::abi::Map;
use crate::error::{LoadError, Result};
use crate::ir::MapDef;
use std::collections::BTreeMap;

/// Elements by their number: as libbpf does, the keys of a hash are numbers of four bytes, too.
#[derive(Debug)]
pub struct MapsInMap {
    maps: BTreeMap<u32, *mut Map>,
    numbered: bool,
}

// SAFETY: the pointers lead into the map table of the instance, which moves along.
unsafe impl Send for MapsInMap {}

impl MapsInMap {
    /// `map` gives the policy-visible address of a map of the instance.
    ///
    /// # Errors
    /// A definition the kernel would refuse.
    pub fn new(def: &MapDef, entries: u32, map: impl Fn(usize) -> *mut Map) -> Result<MapsInMap> {
        let numbered = def.key_size == 4;
        let array = def.kind == kind::ARRAY_OF_MAPS;
        if def.value_size != 4 || def.key_size == 0 || entries == 0 || (array && !numbered) {
            return Err(LoadError::Setting(format!(
                "map {}: a map of maps needs a key (an array's has four bytes), values of four bytes and at least one \
                 entry",
                def.name
            )));
        }
        let within = def.inner.iter().filter(|(slot, _)| *slot < entries);
        Ok(MapsInMap {
            maps: within.map(|(slot, id)| (*slot, map(*id))).collect(),
            numbered,
        })
    }
}

impl MapRuntime for MapsInMap {
    /// What a policy hands to the functions on maps; there is nothing at this address that it may read.
    unsafe fn lookup(&mut self, key: *const u8, _cpu: u32) -> *mut u8 {
        if !self.numbered {
            return std::ptr::null_mut();
        }
        // SAFETY: the key has four bytes.
        let slot = unsafe { key.cast::<u32>().read_unaligned() };
        self.maps
            .get(&slot)
            .map_or(std::ptr::null_mut(), |map| map.cast())
    }

    unsafe fn update(&mut self, _key: *const u8, _value: *const u8, _flags: u64, _cpu: u32) -> i64 {
        EINVAL
    }

    unsafe fn delete(&mut self, _key: *const u8) -> i64 {
        EINVAL
    }

    fn len(&self) -> u64 {
        self.maps.len() as u64
    }

    fn contains(&self, _address: u64, _size: u32) -> bool {
        false
    }

    fn locate(&mut self, _address: u64) -> Option<Place> {
        None
    }
}
