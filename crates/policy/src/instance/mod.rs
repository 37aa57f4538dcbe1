// SPDX-License-Identifier: GPL-2.0-only
//! One policy on one machine: its sections, maps, storages, and how it is called.
//!
//! Code is shared by all instances of a policy; an instance owns data only. Calls nest (a kernel
//! function called by the policy may wake a task, which calls the policy again), so every method takes
//! `&self`; an instance is used by one thread at a time.
mod call;
mod config;
mod gone;
mod look;
mod reach;
mod vtable;

pub use config::{Const, DEFAULT_BUDGET, InstanceConfig, Mode};
pub use vtable::{CounterRead, KernelVtable, MemoryCheck, MemoryPiece};

use crate::abi::{Inst, Map, Op};
use crate::arena::Arena;
use crate::emit::Guarding;
use crate::error::{LoadError, Result};
use crate::guard::Fence;
use crate::ir::{MapDef, MapId};
use crate::maps::pages::Pages;
use crate::maps::{self, MapRuntime, MapSlot};
use crate::policy::Policy;
use crate::runtime::State;
use crate::sections::{self, SectionData};
use std::cell::UnsafeCell;
use std::ffi::c_void;

const OPS: usize = Op::ALL.len();
const NO_FUNC: u16 = u16::MAX;

/// See the module's words. What every call reads comes first, in as few cache lines as it takes.
#[repr(C, align(64))]
pub struct Instance {
    /// First, so that the policy's `Inst` pointer is also the instance's.
    raw: UnsafeCell<Inst>,
    policy: Policy,
    budget: u64,
    ops: [u16; OPS],
    mode: Mode,
    vtable: &'static KernelVtable,
    sections: Vec<SectionData>,
    /// What `Inst::map` points to.
    map_table: *mut Map,
    maps: Vec<UnsafeCell<MapSlot>>,
    /// What all of these lie in; after them, so that it outlives them.
    arena: Arena,
    state: UnsafeCell<State>,
    nr_cpus: u32,
    /// Of guarded code.
    fence: Option<Box<Fence>>,
    /// Maps whose elements have addresses: there can be thousands of queues in an array of maps.
    addressed: Vec<MapId>,
}

// SAFETY: owned data; the machine pointer is the simulator's, which moves with the instance.
unsafe impl Send for Instance {}

/// The memory of the policy's arena, if it has one.
fn pages(policy: &Policy, config: &InstanceConfig) -> Result<Option<Pages>> {
    let program = policy.program();
    let arena = program.maps.iter().find(|m| m.kind == maps::kind::ARENA);
    let Some(arena) = arena else {
        return Ok(None);
    };
    if config.map_entries.contains_key(&arena.name) {
        return Err(LoadError::Setting(format!(
            "map {}: how many pages an arena has is the object's to say",
            arena.name
        )));
    }
    let variables = program.sections.iter().find(|s| s.in_arena());
    let variables = variables.map_or(0, |s| s.data.len());
    Pages::new(arena, variables).map(Some)
}

impl Instance {
    /// Create the data of `policy` for one machine. `ops_var`: which scheduler of the object, if several.
    ///
    /// # Errors
    /// Unknown variable, parameter, map or configuration value; a value outside its bounds.
    pub fn new(
        policy: &Policy,
        ops_var: Option<&str>,
        config: &InstanceConfig,
        fns: &'static KernelVtable,
    ) -> Result<Box<Instance>> {
        let program = policy.program();
        if config.nr_cpus == 0 || config.nr_cpus as usize > crate::kview::NR_CPUS_MAX {
            return Err(LoadError::Setting(format!(
                "{} CPUs: must be from 1 to {}",
                config.nr_cpus,
                crate::kview::NR_CPUS_MAX
            )));
        }
        let mut ops = [NO_FUNC; OPS];
        // An object of SEC("syscall") programs only has no scheduler.
        if ops_var.is_some() || !program.structs.is_empty() {
            for (op, func) in &policy.ops_var(ops_var)?.ops {
                ops[*op as usize] = u16::try_from(*func)
                    .ok()
                    .filter(|f| *f != NO_FUNC)
                    .ok_or_else(|| {
                        LoadError::Setting(format!("the policy has {func} functions or more"))
                    })?;
            }
        }
        let content = sections::content(policy, config)?;
        for name in config.map_entries.keys() {
            if !program.maps.iter().any(|m| m.name == *name) {
                return Err(LoadError::Setting(format!(
                    "the policy has no map `{name}`"
                )));
            }
        }
        let entries = |def: &MapDef| {
            let other = config.map_entries.get(&def.name);
            match other.copied().unwrap_or(def.max_entries) {
                // As libbpf does it: one for each CPU.
                0 if def.kind == maps::kind::PERF_EVENT_ARRAY => config.nr_cpus,
                entries => entries,
            }
        };
        let (nr_sections, nr_maps) = (program.sections.len(), program.maps.len());
        let rooms = (program.maps.iter())
            .map(|def| maps::room(def, entries(def), config.nr_cpus))
            .collect::<Result<Vec<usize>>>()?;
        let own = program.sections.iter().zip(&content).zip(policy.for_exit());
        let own = own.filter(|((s, c), exit)| {
            !s.readonly && !s.in_arena() && !sections::is_late(s, c, **exit)
        });
        let own = own.map(|((_, c), _)| c.len() + 16);
        let bytes = nr_sections * size_of::<*mut u8>() + (nr_maps + 2) * size_of::<Map>();
        let bytes = bytes + own.sum::<usize>() + rooms.iter().sum::<usize>();
        let no_memory = || LoadError::Setting(format!("no memory for an instance ({bytes} bytes)"));
        let mut arena = Arena::new(bytes).ok_or_else(no_memory)?;
        let map_table: *mut Map = arena
            .take(nr_maps * size_of::<Map>(), align_of::<Map>().max(32))
            .ok_or_else(no_memory)?
            .cast();
        let section_table: *mut *mut u8 = arena
            .take(nr_sections * size_of::<*mut u8>(), 8)
            .ok_or_else(no_memory)?
            .cast();
        let mut pages = pages(policy, config)?;
        let variables = pages.as_ref().map(Pages::variables);
        let sections = sections::build(policy, &content, &mut arena, variables);
        let sections = sections.ok_or_else(no_memory)?;
        for (i, section) in sections.iter().enumerate() {
            let base = section.place().unwrap_or(std::ptr::null_mut());
            // SAFETY: the table has room for all of them.
            unsafe { section_table.add(i).write(base) }
        }
        // Small ones first: they share the pages that every callback needs.
        let mut order: Vec<MapId> = (0..nr_maps).collect();
        order.sort_by_key(|&id| rooms[id]);
        let mut runtimes: Vec<_> = (0..nr_maps).map(|_| None).collect();
        for id in order {
            let def = &program.maps[id];
            // SAFETY: as above; a description is plain data, and nothing else refers to it yet.
            let raw = unsafe {
                map_table.add(id).write(maps::describe(def, entries(def)));
                &mut *map_table.add(id)
            };
            let runtime: Box<dyn MapRuntime> = match def.kind {
                maps::kind::ARRAY_OF_MAPS | maps::kind::HASH_OF_MAPS => {
                    // SAFETY: the object's maps are in the table.
                    let address = |id| unsafe { map_table.add(id) };
                    Box::new(maps::in_maps::MapsInMap::new(def, entries(def), address)?)
                }
                maps::kind::ARENA => {
                    let pages = pages.take().ok_or_else(no_memory)?;
                    raw.data = pages.base();
                    Box::new(pages)
                }
                _ => maps::create(def, entries(def), config.nr_cpus, raw, &mut arena)?,
            };
            runtimes[id] = Some(runtime);
        }
        let slots = runtimes.into_iter().flatten().enumerate();
        let slots = slots.map(|(id, runtime)| {
            // SAFETY: inside the table.
            let raw = unsafe { map_table.add(id) };
            UnsafeCell::new(MapSlot { raw, runtime })
        });
        let slots = slots.collect();
        let guarded = config.mode == Mode::Native && policy.guarding() == Guarding::Guarded;
        let fence = guarded.then(Fence::new).transpose()?;
        let instance = Box::new(Instance {
            raw: UnsafeCell::new(Inst {
                insns: 0,
                insns_limit: 0,
                now: 0,
                ktime: 0,
                cpu: 0,
                op: 0,
                machine: std::ptr::null_mut(),
                fns: fns.fns().as_ptr(),
                sec: section_table,
                map: map_table,
                // NULL tells kernel functions with callbacks that the interpreter runs.
                code: match config.mode {
                    Mode::Native => policy.native().code,
                    Mode::Checked => std::ptr::null(),
                },
                nr_cpus: config.nr_cpus,
                guard: fence.as_ref().map_or(std::ptr::null_mut(), |f| f.raw()),
            }),
            policy: policy.clone(),
            vtable: fns,
            ops,
            sections,
            map_table,
            maps: slots,
            state: UnsafeCell::new(State::new(config.nr_cpus, config.seed)),
            mode: config.mode,
            budget: config.budget_insns,
            nr_cpus: config.nr_cpus,
            arena,
            fence,
            addressed: (0..nr_maps)
                .filter(|id| maps::has_addresses(program.maps[*id].kind))
                .collect(),
        });
        Ok(instance)
    }

    /// The instance behind the pointer a kernel function gets.
    ///
    /// # Safety
    /// `inst` came from [`Instance::raw`] or from policy code, and the instance is alive for `'a`.
    pub unsafe fn of<'a>(inst: *mut Inst) -> &'a Instance {
        // SAFETY: `raw` is the first field of a #[repr(C)] structure.
        unsafe { &*inst.cast::<Instance>() }
    }

    /// What the simulator sets before a call: `now`, `ktime`, `cpu`.
    pub fn raw(&self) -> *mut Inst {
        self.raw.get()
    }

    /// The machine handed to kernel functions.
    pub fn set_machine(&self, machine: *mut c_void) {
        // SAFETY: one thread; no reference into `raw` is held anywhere.
        unsafe { (*self.raw.get()).machine = machine }
        if let Some(fence) = &self.fence {
            fence.forget_the_found();
        }
    }

    /// Its code calls these functions until [`Instance::call_own`]. What they ask the machine for stays as it was.
    pub fn call_into(&self, fns: &'static KernelVtable) {
        // SAFETY: as `set_machine`.
        unsafe { (*self.raw.get()).fns = fns.fns().as_ptr() }
    }

    /// Its code calls the functions that it was made with.
    pub fn call_own(&self) {
        self.call_into(self.vtable);
    }

    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    pub fn nr_cpus(&self) -> u32 {
        self.nr_cpus
    }

    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// BPF instructions executed so far.
    pub fn insns(&self) -> u64 {
        // SAFETY: as `set_machine`.
        unsafe { (*self.raw.get()).insns }
    }

    /// Of guarded code: what keeps it inside.
    pub(crate) fn fence(&self) -> Option<&Fence> {
        self.fence.as_deref()
    }

    /// How many maps it has.
    pub(crate) fn maps(&self) -> usize {
        self.maps.len()
    }

    /// A performance counter of a CPU: counter, ns enabled, ns running. `None`: nobody has opened this event.
    pub(crate) fn counter(&self, cpu: u32, event: usize) -> Option<[u64; 3]> {
        let read = self.vtable.counters?;
        // SAFETY: the machine that runs this instance.
        unsafe { read((*self.raw.get()).machine, cpu, event) }
    }

    /// Number of the map whose policy-visible address is `map`.
    pub fn map_id(&self, map: *const Map) -> Option<MapId> {
        let bytes = (map as usize).wrapping_sub(self.map_table as usize);
        let id = bytes / size_of::<Map>();
        (bytes.is_multiple_of(size_of::<Map>()) && id < self.maps.len()).then_some(id)
    }

    /// The policy-visible address of a map.
    pub fn map_address(&self, id: MapId) -> *mut Map {
        assert!(id < self.maps.len(), "map {id} of {}", self.maps.len());
        // SAFETY: inside the table.
        unsafe { self.map_table.add(id) }
    }

    /// The map object.
    ///
    /// # Safety
    /// No other reference to this map's object is alive: take it for one operation only.
    #[allow(clippy::mut_from_ref)] // interior mutability, one thread; see the safety section
    pub(crate) unsafe fn slot(&self, id: MapId) -> &mut MapSlot {
        // SAFETY: the caller's promise.
        unsafe { &mut *self.maps[id].get() }
    }

    /// Random numbers, masks, sinks.
    ///
    /// # Safety
    /// As [`Instance::slot`].
    #[allow(clippy::mut_from_ref)] // as `slot`
    pub(crate) unsafe fn state(&self) -> &mut State {
        // SAFETY: the caller's promise.
        unsafe { &mut *self.state.get() }
    }
}
