// SPDX-License-Identifier: GPL-2.0-only
//! Programs that only look: an object of tracing programs, attached beside whatever schedules.
use crate::ScxError;
use crate::load::rejected;
use crate::log::Capture;
use crate::prepare::{HEADERS_OWN, list, map_error, map_names, open};
use crate::shared::Shared;
use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::{AsRawLibbpf, Iter, Link, MapCore, MapFlags, Object, ProgramMut, libbpf_sys};
use std::io::Read;
use std::os::fd::AsFd;
use std::ptr::NonNull;

/// Elements read with one system call.
const BATCH: u32 = 4096;

/// Key and value of a map's element, as the object lays them out.
pub type Element = (Vec<u8>, Vec<u8>);

/// Tracing programs that run; dropping it detaches them.
pub struct Watcher {
    /// By program.
    links: Vec<(String, Link)>,
    object: Object,
}

/// Attaches to all functions that begin at these addresses; each has its place as its cookie.
fn attach(program: &ProgramMut<'_>, addresses: &[u64]) -> std::io::Result<Link> {
    let cookies: Vec<u64> = (0..addresses.len() as u64).collect();
    let opts = libbpf_sys::bpf_kprobe_multi_opts {
        sz: size_of::<libbpf_sys::bpf_kprobe_multi_opts>() as _,
        addrs: addresses.as_ptr().cast(),
        cookies: cookies.as_ptr(),
        cnt: addresses.len() as _,
        ..Default::default()
    };
    // SAFETY: the program lives as long as its object; the arrays outlive the call, which copies them; no pattern.
    let link = unsafe {
        libbpf_sys::bpf_program__attach_kprobe_multi_opts(
            program.as_libbpf_object().as_ptr(),
            std::ptr::null(),
            &raw const opts,
        )
    };
    match NonNull::new(link) {
        // SAFETY: libbpf's own, owned by nobody else.
        Some(link) => Ok(unsafe { Link::from_ptr(link) }),
        None => Err(std::io::Error::last_os_error()),
    }
}

impl Watcher {
    /// Loads the object (the bytes of a `.bpf.o` file) and attaches all its programs.
    ///
    /// # Errors
    /// Not an object, or the kernel refuses it.
    pub fn load(object: &[u8]) -> Result<Watcher, ScxError> {
        let capture = Capture::start();
        let mut open = open(object, &capture)?;
        for mut program in open.progs_mut() {
            if program.name() == HEADERS_OWN {
                program.set_autoload(false);
            }
        }
        let object = open.load().map_err(|e| rejected(&e, &capture))?;
        let mut links = Vec::new();
        for program in object.progs_mut().filter(|p| p.name() != HEADERS_OWN) {
            let link = program.attach().map_err(|e| rejected(&e, &capture))?;
            links.push((program.name().to_string_lossy().into_owned(), link));
        }
        Ok(Watcher { links, object })
    }

    /// Loads the object and attaches its programs (`SEC("kprobe.multi")`) to all functions of the kernel that begin at
    /// these addresses. Each is told which one was called by `bpf_get_attach_cookie`, the place in the list; the array
    /// `map` has a place for each. Linux 6.2 with `CONFIG_FPROBE`.
    ///
    /// # Errors
    /// Not an object, no such map, an address at which nothing can be watched, or the kernel refuses.
    pub fn on_calls(object: &[u8], addresses: &[u64], map: &str) -> Result<Watcher, ScxError> {
        let capture = Capture::start();
        let mut open = open(object, &capture)?;
        let places = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
        for mut m in open.maps_mut().filter(|m| m.name() == map) {
            m.set_max_entries(places).map_err(|e| map_error(map, &e))?;
        }
        let object = open.load().map_err(|e| rejected(&e, &capture))?;
        let mut links = Vec::new();
        for program in object.progs_mut() {
            let link = attach(&program, addresses);
            let link = link.map_err(|e| rejected(&libbpf_rs::Error::from(e), &capture))?;
            links.push((program.name().to_string_lossy().into_owned(), link));
        }
        Ok(Watcher { links, object })
    }

    /// How often a program was not run, because another of them ran on that CPU already.
    pub fn missed(&self) -> u64 {
        let ids = self.links.iter().filter_map(|(_, link)| link.info().ok());
        let ids: Vec<u32> = ids.map(|info| info.prog_id).collect();
        let ours = ProgInfoIter::default().filter(|p| ids.contains(&p.id));
        ours.map(|p| p.recursion_misses).sum()
    }

    /// No program runs from now on; the maps stay.
    pub fn detach(&mut self) {
        self.links.clear();
    }

    /// Runs an iterator (a program of a section `iter/...`) once; gives all that it wrote. Linux 5.8.
    ///
    /// # Errors
    /// No such program, or the kernel refuses.
    pub fn iterate(&self, program: &str, out: &mut Vec<u8>) -> Result<(), ScxError> {
        let failed = |reason: String| ScxError::Run {
            name: program.to_string(),
            reason,
        };
        let link = self.links.iter().find(|(name, _)| name == program);
        let (_, link) = link.ok_or_else(|| failed("it is not attached".into()))?;
        out.clear();
        let mut iter = Iter::new(link).map_err(|e| failed(e.to_string()))?;
        iter.read_to_end(out).map_err(|e| failed(e.to_string()))?;
        Ok(())
    }

    /// Shares the memory of an array map (one of `BPF_F_MMAPABLE`) with this process: to read it takes no system call.
    /// Linux 5.5.
    ///
    /// # Errors
    /// No such map, one of another kind, or the kernel refuses.
    pub fn share(&self, map: &str) -> Result<Shared, ScxError> {
        let m = self.map(map)?;
        let words = (m.value_size() as usize).div_ceil(8);
        Shared::new(m.as_fd(), words, m.max_entries() as usize)
            .map_err(|e| map_error(map, &libbpf_rs::Error::from(e)))
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

    /// The first `n` elements of an array map that has each once for each CPU: by element, by CPU.
    ///
    /// # Errors
    /// No such map, or the kernel refuses.
    pub fn per_cpu(&self, map: &str, n: usize) -> Result<Vec<Vec<Vec<u8>>>, ScxError> {
        let m = self.map(map)?;
        let element = |at: usize| {
            let key = u32::try_from(at).unwrap_or(u32::MAX).to_ne_bytes();
            let found = m.lookup_percpu(&key, MapFlags::ANY);
            Ok(found.map_err(|e| map_error(map, &e))?.unwrap_or_default())
        };
        (0..n).map(element).collect()
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
        // Many with one system call, Linux 5.6.
        if let Ok(found) = m.lookup_batch(BATCH, MapFlags::ANY, MapFlags::ANY) {
            return Ok(found.collect());
        }
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
