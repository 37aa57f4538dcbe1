// SPDX-License-Identifier: GPL-2.0-only
//! Programs that only look: an object of tracing programs, attached beside whatever schedules.
use crate::ScxError;
use crate::load::rejected;
use crate::log::Capture;
use crate::prepare::{list, map_error, map_names, open};
use libbpf_rs::{Link, MapCore, MapFlags, Object};

/// Elements read with one system call.
const BATCH: u32 = 4096;

/// Key and value of a map's element, as the object lays them out.
pub type Element = (Vec<u8>, Vec<u8>);

/// Tracing programs that run; dropping it detaches them.
pub struct Watcher {
    links: Vec<Link>,
    object: Object,
}

impl Watcher {
    /// Loads the object (the bytes of a `.bpf.o` file) and attaches all its programs.
    ///
    /// # Errors
    /// Not an object, or the kernel refuses it.
    pub fn load(object: &[u8]) -> Result<Watcher, ScxError> {
        let capture = Capture::start();
        let object = open(object, &capture)?
            .load()
            .map_err(|e| rejected(&e, &capture))?;
        let mut links = Vec::new();
        for program in object.progs_mut() {
            links.push(program.attach().map_err(|e| rejected(&e, &capture))?);
        }
        Ok(Watcher { links, object })
    }

    /// No program runs from now on; the maps stay.
    pub fn detach(&mut self) {
        self.links.clear();
    }

    /// Writes one element of a map.
    ///
    /// # Errors
    /// No such map, or the kernel refuses.
    pub fn set(&self, map: &str, key: &[u8], value: &[u8]) -> Result<(), ScxError> {
        self.map(map)?
            .update(key, value, MapFlags::ANY)
            .map_err(|e| map_error(map, &e))
    }

    /// The first `n` elements of an array map, one after the other.
    ///
    /// # Errors
    /// No such map, or the kernel refuses.
    pub fn first(&self, map: &str, n: usize) -> Result<Vec<Vec<u8>>, ScxError> {
        let m = self.map(map)?;
        if n == 1 {
            let one = m.lookup(&0u32.to_ne_bytes(), MapFlags::ANY);
            return Ok(one.map_err(|e| map_error(map, &e))?.into_iter().collect());
        }
        let all = m
            .lookup_batch(BATCH, MapFlags::ANY, MapFlags::ANY)
            .map_err(|e| map_error(map, &e))?;
        Ok(all.take(n).map(|(_, value)| value).collect())
    }

    /// Removes an element of a hash map; one that is not there is no error.
    ///
    /// # Errors
    /// No such map, or the kernel refuses.
    pub fn remove(&self, map: &str, key: &[u8]) -> Result<(), ScxError> {
        match self.map(map)?.delete(key) {
            Err(e) if e.kind() != libbpf_rs::ErrorKind::NotFound => Err(map_error(map, &e)),
            _ => Ok(()),
        }
    }

    /// All elements of a hash map.
    ///
    /// # Errors
    /// No such map, or the kernel refuses.
    pub fn all(&self, map: &str) -> Result<Vec<Element>, ScxError> {
        let m = self.map(map)?;
        let found = m.keys().filter_map(|key| {
            // Removed meanwhile: nothing to tell.
            let value = m.lookup(&key, MapFlags::ANY).ok().flatten()?;
            Some((key, value))
        });
        Ok(found.collect())
    }

    fn map(&self, name: &str) -> Result<libbpf_rs::Map<'_>, ScxError> {
        let found = self.object.maps().find(|m| m.name() == name);
        found.ok_or_else(|| ScxError::UnknownMap {
            name: name.to_string(),
            found: list(&map_names(self.object.maps().map(|m| m.name().to_owned()))),
        })
    }
}
