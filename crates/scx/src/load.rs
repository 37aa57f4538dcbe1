// SPDX-License-Identifier: GPL-2.0-only
//! From an object's bytes to a running scheduler, and what can be asked of it while it runs.
use crate::calls::{self, Call};
use crate::counters;
use crate::exit::ExitRecord;
use crate::layout::{Kernel, Layout, Ops, Variable};
use crate::log::Capture;
use crate::machine::Machine;
use crate::prepare::*;
use crate::sysfs::{self, Status};
use crate::{ScxError, Value};
use libbpf_rs::{Link, Map, MapCore, MapFlags, MapType, Object, ProgramInput, ProgramType};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

/// Map of `include/berth/topology.bpf.h`.
const TOPOLOGY: &str = "berth_topology_by_cpu";

/// How often in all a policy is loaded that does not start, for a reason that passes.
const TRIES: u32 = 3;
/// Before each but the first of them.
const PAUSE: Duration = Duration::from_millis(100);
/// How the [warning](Loaded::warnings) of a policy begins that did not start at its first try.
pub const STARTED_AGAIN: &str = "it started at try";

/// How to load an object. The default loads its only scheduler with the values it was compiled with.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct LoadOptions {
    /// Which scheduler (struct_ops variable), if the object has several.
    pub ops: Option<String>,
    /// Values of global variables (`.rodata`, `.data`, `.bss`), by name.
    pub variables: BTreeMap<String, Value>,
    /// `max_entries` of maps, by name.
    pub map_entries: BTreeMap<String, u32>,
    /// VM slots (dense VM numbers, the host's 0 included) that maps named `_by_vm` must hold; as compiled if `None`.
    pub vm_slots: Option<u32>,
    /// Elements written to maps after load and before the scheduler starts: map, key, value.
    pub map_values: Vec<(String, Vec<u8>, Vec<u8>)>,
    /// Capacities of the CPUs by number, 1 to 1024, in place of what the machine says; empty: the machine's.
    #[serde(default)]
    pub capacities: Vec<u32>,
    /// Watchdog: a task runnable this long without running ends the scheduler; milliseconds, at most 30,000.
    pub timeout_ms: Option<u32>,
    /// Schedules only threads of the policy `SCHED_EXT` (`SCX_OPS_SWITCH_PARTIAL`); else every ordinary thread.
    #[serde(default)]
    pub partial: bool,
    /// How long to wait for the kernel to report the scheduler as enabled (10 s if `None`).
    pub wait: Option<Duration>,
}

/// A policy that the kernel's verifier has accepted and that does not run yet: another one may still be running.
pub struct Prepared {
    loaded: Loaded,
    chosen: String,
    options: LoadOptions,
    kernel: &'static Kernel,
    calls: Vec<Call>,
}

/// A policy that runs; dropping it unloads it and gives the CPUs back to the kernel's own scheduler.
pub struct Loaded {
    // Declared (and so dropped) before the object whose maps and programs they refer to.
    ops_link: Option<Link>,
    _links: Vec<Link>,
    pub(crate) object: Object,
    layout: Layout,
    name: String,
    warnings: Vec<String>,
}

/// Whether this process can load policies on this kernel.
fn possible() -> Result<(), ScxError> {
    sysfs::supported()?;
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        return Err(ScxError::NotPermitted);
    }
    Ok(())
}

impl Prepared {
    /// Loads the object (the bytes of a `.bpf.o` file) into the kernel, without starting the scheduler in it.
    ///
    /// # Errors
    /// Every [`ScxError`] but those of the start; nothing stays loaded after one.
    pub fn new(object: &[u8], options: &LoadOptions) -> Result<Prepared, ScxError> {
        possible()?;
        let calls = calls::of(object)?;
        let capture = Capture::start();
        let kernel = Kernel::running()?;
        let mut open = open(object, &capture)?;
        let layout = layout_of(&open)?;
        let chosen = choose_ops(&layout, options.ops.as_deref())?;
        let mut warnings = Vec::new();

        fill_constants(&mut open, &layout, kernel)?;
        let mut machine = Machine::running();
        machine.set_capacities(&options.capacities);
        fits(&mut open, &layout, &machine)?;
        describe_machine(&mut open, &layout, &machine, options)?;
        for (name, value) in &options.variables {
            set_initial(&mut open, &layout, name, value)?;
        }
        set_map_entries(&mut open, &options.map_entries)?;
        let name = prepare_ops(&mut open, &layout, &chosen, kernel, options, &mut warnings)?;
        choose_programs(&mut open, &mut warnings)?;

        let object = open.load().map_err(|e| rejected(&e, &capture))?;
        let mut loaded = Loaded {
            ops_link: None,
            _links: Vec::new(),
            object,
            layout,
            name,
            warnings,
        };
        if loaded.map_size(TOPOLOGY).is_some() {
            for (cpu, record) in machine.records() {
                loaded.set_map_value(TOPOLOGY, &cpu.to_ne_bytes(), &record)?;
            }
        }
        counters::fill(&mut loaded, &machine)?;
        for (map, key, value) in &options.map_values {
            loaded.set_map_value(map, key, value)?;
        }
        Ok(Prepared {
            loaded,
            chosen,
            options: options.clone(),
            kernel,
            calls,
        })
    }

    /// Its maps, to be filled before it starts.
    pub fn policy(&mut self) -> &mut Loaded {
        &mut self.loaded
    }

    /// Starts the scheduler; returns when the kernel says that it runs.
    ///
    /// # Errors
    /// Another one is running, or the kernel does not start it; nothing stays loaded then.
    pub fn start(self) -> Result<Loaded, ScxError> {
        let Prepared {
            mut loaded,
            chosen,
            options,
            kernel,
            calls,
        } = self;
        if let Some(other) = sysfs::status()?.running() {
            return Err(ScxError::Busy(other.to_string()));
        }
        let capture = Capture::start();
        if kernel.associates {
            loaded.associate(&chosen);
        }
        loaded.run_calls(&calls, false)?;
        let ops = loaded.layout.ops[&chosen].clone();
        loaded.attach(&chosen, &ops, &capture)?;
        drop(capture);
        loaded.wait_enabled(options.wait.unwrap_or(Duration::from_secs(10)))?;
        loaded.run_calls(&calls, true)?;
        Ok(loaded)
    }
}

impl Loaded {
    /// Loads and starts the scheduler in the object (the bytes of a `.bpf.o` file); anew, up to three times in all, if
    /// it did not start for a reason that passes ([`ScxError::is_passing`]).
    ///
    /// # Errors
    /// Every [`ScxError`]; nothing stays loaded after one.
    pub fn load(object: &[u8], options: &LoadOptions) -> Result<Loaded, ScxError> {
        let once = || {
            possible()?;
            if let Some(other) = sysfs::status()?.running() {
                return Err(ScxError::Busy(other.to_string()));
            }
            Prepared::new(object, options)?.start()
        };
        let mut loaded = once();
        for number in 2..=TRIES {
            let before = match loaded {
                Err(e) if e.is_passing() => e,
                done => return done,
            };
            std::thread::sleep(PAUSE);
            loaded = match once() {
                Ok(mut loaded) => {
                    loaded.warn(format!("{STARTED_AGAIN} {number}: {before}"));
                    Ok(loaded)
                }
                Err(e) if e.is_passing() => Err(e),
                Err(e) => return Err(e.after(&before)),
            };
        }
        loaded
    }

    /// The scheduler's own name, as /sys/kernel/sched_ext/root/ops shows it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What had to be left out for this kernel.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    pub(crate) fn warn(&mut self, what: String) {
        self.warnings.push(what);
    }

    /// One reading of the kernel's state.
    ///
    /// # Errors
    /// As [`crate::status`].
    pub fn poll(&self) -> Result<Status, ScxError> {
        sysfs::status()
    }

    /// Waits until the scheduler ends or the time is over; the exit record, if it ended.
    ///
    /// # Errors
    /// As [`Loaded::poll`] and [`Loaded::exit_record`].
    pub fn watch(&self, time: Duration) -> Result<Option<ExitRecord>, ScxError> {
        let end = Instant::now() + time;
        loop {
            if self.poll()?.running() != Some(self.name.as_str()) {
                return self.final_record().map(Some);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            std::thread::sleep(left.min(Duration::from_millis(100)));
        }
    }

    /// The record that the policy's `ops.exit` left; one that says "still running" if it has none.
    ///
    /// # Errors
    /// The data map cannot be read.
    pub fn exit_record(&self) -> Result<ExitRecord, ScxError> {
        let none = ExitRecord {
            kind: 0,
            code: 0,
            reason: String::new(),
            message: String::new(),
        };
        match &self.layout.exit {
            Some((variable, fields)) => {
                let bytes = self.variable(variable)?;
                Ok(ExitRecord::parse(&bytes, fields).unwrap_or(none))
            }
            None => Ok(none),
        }
    }

    /// The kernel's event counters of this scheduler (`SCX_EV_*`), by name.
    ///
    /// # Errors
    /// The file exists but cannot be read.
    pub fn events(&self) -> Result<BTreeMap<String, u64>, ScxError> {
        sysfs::events()
    }

    /// The bytes of a global variable, now.
    ///
    /// # Errors
    /// No such variable, or its map cannot be read.
    pub fn variable(&self, name: &str) -> Result<Vec<u8>, ScxError> {
        let v = find_variable(&self.layout, name)?;
        let map = self.section_map(v, name)?;
        let bytes = map
            .lookup(&0u32.to_ne_bytes(), MapFlags::ANY)
            .map_err(|e| map_error(&v.section, &e))?
            .unwrap_or_default();
        match bytes.get(v.offset..v.offset + v.size) {
            Some(b) => Ok(b.to_vec()),
            None => Err(ScxError::Map {
                name: v.section.clone(),
                reason: "is shorter than its type information says".to_string(),
            }),
        }
    }

    /// Whether there is a global variable of this name that only loading sets (`.rodata`).
    pub fn is_fixed(&self, name: &str) -> bool {
        find_variable(&self.layout, name).is_ok_and(is_read_only)
    }

    /// Sets a global variable of `.data` or `.bss` while the policy runs; nothing else in the section is touched.
    ///
    /// # Errors
    /// No such variable, a value that does not fit, or a variable that is fixed at load (`.rodata`).
    pub fn set_variable(&mut self, name: &str, value: &Value) -> Result<(), ScxError> {
        let v = find_variable(&self.layout, name)?;
        if is_read_only(v) {
            return Err(ScxError::ReadOnly {
                name: name.to_string(),
            });
        }
        let bytes = value
            .encode(&v.kind, v.size)
            .map_err(|reason| ScxError::BadValue {
                name: name.to_string(),
                reason,
            })?;
        let map = self.section_map(v, name)?;
        write_mapped(&map, v.offset, &bytes).map_err(|source| ScxError::Io {
            path: v.section.clone(),
            source,
        })
    }

    /// One element of a map: its value, or for per-CPU maps one value per possible CPU. `None` if there is none.
    ///
    /// # Errors
    /// No such map, or a key of the wrong size.
    pub fn map_value(&self, map: &str, key: &[u8]) -> Result<Option<Vec<Vec<u8>>>, ScxError> {
        let m = self.map(map)?;
        let found = if m.map_type().is_percpu() {
            m.lookup_percpu(key, MapFlags::ANY)
        } else {
            m.lookup(key, MapFlags::ANY).map(|v| v.map(|b| vec![b]))
        };
        found.map_err(|e| map_error(map, &e))
    }

    /// All elements of an array map, in index order (per-CPU arrays: the CPUs' values one after the other).
    ///
    /// # Errors
    /// No such map, or not an array.
    pub fn array(&self, map: &str) -> Result<Vec<Vec<u8>>, ScxError> {
        let m = self.map(map)?;
        if !matches!(m.map_type(), MapType::Array | MapType::PercpuArray) {
            return Err(ScxError::Map {
                name: map.to_string(),
                reason: format!("is not an array ({:?})", m.map_type()),
            });
        }
        let mut out = Vec::new();
        for i in 0..m.max_entries() {
            let value = self.map_value(map, &i.to_ne_bytes())?.unwrap_or_default();
            out.push(value.concat());
        }
        Ok(out)
    }

    /// The policy's own counters (`include/berth/stats.bpf.h`) by name, summed over CPUs; empty if it has none.
    ///
    /// # Errors
    /// The map cannot be read.
    pub fn policy_counters(&self) -> Result<BTreeMap<String, u64>, ScxError> {
        const MAP: &str = "berth_stats";
        let names = &self.layout.counters;
        if names.is_empty() || self.map_size(MAP).is_none() {
            return Ok(BTreeMap::new());
        }
        let mut sums = vec![0u64; names.len()];
        for copy in self
            .map_value(MAP, &0u32.to_ne_bytes())?
            .unwrap_or_default()
        {
            for (sum, word) in sums.iter_mut().zip(copy.as_chunks::<8>().0) {
                *sum = sum.wrapping_add(u64::from_ne_bytes(*word));
            }
        }
        Ok(names.iter().cloned().zip(sums).collect())
    }

    /// Sum over CPUs of each `u64` element of a per-CPU array (or the elements of a plain array): a policy's counters.
    ///
    /// # Errors
    /// As [`Loaded::array`], or elements that are not 8 bytes wide.
    pub fn counters(&self, map: &str) -> Result<Vec<u64>, ScxError> {
        if self.map(map)?.value_size() != 8 {
            return Err(ScxError::Map {
                name: map.to_string(),
                reason: "its elements are not 8 bytes wide".to_string(),
            });
        }
        let sum = |b: Vec<u8>| {
            b.chunks_exact(8).fold(0u64, |s, c| {
                s.wrapping_add(u64::from_ne_bytes(c.try_into().expect("8 bytes")))
            })
        };
        Ok(self.array(map)?.into_iter().map(sum).collect())
    }

    /// Writes one element of a map.
    ///
    /// # Errors
    /// No such map, or the kernel refuses (key, size, full).
    pub fn set_map_value(&mut self, map: &str, key: &[u8], value: &[u8]) -> Result<(), ScxError> {
        self.map(map)?
            .update(key, value, MapFlags::ANY)
            .map_err(|e| map_error(map, &e))
    }

    /// Removes one element of a map; one that is not there is no error.
    pub(crate) fn remove(&mut self, map: &str, key: &[u8]) -> Result<(), ScxError> {
        match self.map(map)?.delete(key) {
            Err(e) if e.kind() != libbpf_rs::ErrorKind::NotFound => Err(map_error(map, &e)),
            _ => Ok(()),
        }
    }

    /// Runs a `SEC("syscall")` program with this context, which it may change; its return value.
    ///
    /// # Errors
    /// No such program, or the kernel refuses to run it.
    pub fn run(&self, program: &str, context: &mut [u8]) -> Result<u32, ScxError> {
        let syscall = |p: &libbpf_rs::Program<'_>| p.prog_type() == ProgramType::Syscall;
        let found = self
            .object
            .progs_mut()
            .find(|p| syscall(p) && p.name() == program);
        let Some(found) = found else {
            let names: Vec<String> = self
                .object
                .progs()
                .filter(syscall)
                .map(|p| p.name().to_string_lossy().into_owned())
                .collect();
            return Err(ScxError::UnknownProgram {
                name: program.to_string(),
                found: list(&names),
            });
        };
        let input = ProgramInput {
            context_in: (!context.is_empty()).then_some(context),
            ..Default::default()
        };
        match found.test_run(input) {
            Ok(out) => Ok(out.return_value),
            Err(e) => Err(ScxError::Run {
                name: program.to_string(),
                reason: e.to_string(),
            }),
        }
    }

    /// Stops the scheduler; the exit record it leaves. Dropping does the same without the record.
    ///
    /// # Errors
    /// As [`Loaded::exit_record`]; the scheduler is stopped in any case.
    pub fn unload(mut self) -> Result<ExitRecord, ScxError> {
        self.ops_link = None;
        self.final_record()
    }

    /// The exit record of a scheduler that has ended or is about to: waits (5 s at most) until the kernel is done
    /// with it, since `ops.exit` is among the last things it calls.
    ///
    /// # Errors
    /// As [`Loaded::poll`] and [`Loaded::exit_record`].
    pub fn final_record(&self) -> Result<ExitRecord, ScxError> {
        let end = Instant::now() + Duration::from_secs(5);
        while self.poll()?.state != sysfs::State::Disabled && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.exit_record()
    }

    /// Bytes of a map's value; `None` if the object has no such map.
    pub(crate) fn map_size(&self, name: &str) -> Option<u32> {
        let map = self.object.maps().find(|m| m.name() == name)?;
        Some(map.value_size())
    }

    pub(crate) fn map(&self, name: &str) -> Result<Map<'_>, ScxError> {
        self.object
            .maps()
            .find(|m| m.name() == name)
            .ok_or_else(|| ScxError::UnknownMap {
                name: name.to_string(),
                found: list(&map_names(self.object.maps().map(|m| m.name().to_owned()))),
            })
    }

    fn section_map(&self, v: &Variable, name: &str) -> Result<Map<'_>, ScxError> {
        self.object
            .maps()
            .find(|m| holds_section(&m.name().to_string_lossy(), &v.section))
            .ok_or_else(|| ScxError::UnknownVariable {
                name: name.to_string(),
                hint: format!(" (its section {} was not loaded)", v.section),
            })
    }

    /// Tells the kernel which scheduler the syscall programs belong to.
    fn associate(&mut self, ops: &str) {
        let Some(map) = self.object.maps().find(|m| m.name() == ops) else {
            return;
        };
        let mut failed = Vec::new();
        for p in self.object.progs_mut() {
            let wanted = p.prog_type() == ProgramType::Syscall && p.autoload();
            if wanted && let Err(e) = p.assoc_struct_ops(&map) {
                failed.push(format!(
                    "program {} is not tied to {ops}: {e}",
                    p.name().to_string_lossy()
                ));
            }
        }
        self.warnings.append(&mut failed);
    }

    fn attach(&mut self, chosen: &str, ops: &Ops, capture: &Capture) -> Result<(), ScxError> {
        let mut links = Vec::new();
        for p in self.object.progs_mut() {
            let has_own_way =
                matches!(p.prog_type(), ProgramType::StructOps | ProgramType::Syscall);
            if has_own_way || !p.autoload() {
                continue;
            }
            let link = p.attach().map_err(|e| ScxError::NotStarted {
                reason: format!("program {}: {e}", p.name().to_string_lossy()),
                exit: None,
            })?;
            links.push(link);
        }
        self._links = links;
        let link = self
            .object
            .maps_mut()
            .find(|m| m.name() == chosen)
            .ok_or(ScxError::NoOps)?
            .attach_struct_ops();
        match link {
            Ok(l) => {
                self.ops_link = Some(l);
                Ok(())
            }
            Err(e) => {
                let exit = self.exit_record().ok().filter(ExitRecord::ended);
                let mut reason = format!("the kernel did not accept {} ({e})", ops.type_name);
                if exit.is_none() && !capture.text().is_empty() {
                    reason = format!("{reason}\n{}", capture.text());
                }
                Err(ScxError::NotStarted {
                    reason,
                    exit: exit.map(Box::new),
                })
            }
        }
    }

    fn wait_enabled(&self, wait: Duration) -> Result<(), ScxError> {
        let end = Instant::now() + wait;
        loop {
            let status = self.poll()?;
            if status.running() == Some(self.name.as_str()) {
                return Ok(());
            }
            let exit = self.exit_record()?;
            if exit.ended() || Instant::now() > end {
                return Err(ScxError::NotStarted {
                    reason: format!("sched_ext is {} after {wait:?}", status.state),
                    exit: exit.ended().then(|| Box::new(exit)),
                });
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

pub(crate) fn rejected(e: &libbpf_rs::Error, capture: &Capture) -> ScxError {
    match e.kind() {
        libbpf_rs::ErrorKind::PermissionDenied if capture.text().is_empty() => {
            ScxError::NotPermitted
        }
        _ => ScxError::Rejected {
            reason: e.to_string(),
            log: capture.text(),
        },
    }
}

fn is_read_only(variable: &Variable) -> bool {
    variable.section.starts_with(".rodata")
}

/// Stores bytes into a memory-mappable array map, leaving its other bytes to the running programs.
fn write_mapped(map: &Map<'_>, offset: usize, bytes: &[u8]) -> std::io::Result<()> {
    let len = offset + bytes.len();
    // SAFETY: a fresh shared mapping of a file descriptor that is open; checked below, unmapped at the end.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            map.as_fd().as_raw_fd(),
            0,
        )
    };
    if at == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: `at` maps `len` bytes; an aligned scalar is stored in one instruction, so that programs see old or new.
    unsafe {
        let to = at.cast::<u8>().add(offset);
        match bytes.len() {
            8 if offset.is_multiple_of(8) => to.cast::<u64>().write_volatile(u64_of(bytes)),
            4 if offset.is_multiple_of(4) => to.cast::<u32>().write_volatile(u64_of(bytes) as u32),
            _ => std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()),
        }
        libc::munmap(at, len);
    }
    Ok(())
}

fn u64_of(bytes: &[u8]) -> u64 {
    let mut b = [0; 8];
    b[..bytes.len()].copy_from_slice(bytes);
    u64::from_ne_bytes(b)
}
