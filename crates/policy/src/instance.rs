// SPDX-License-Identifier: GPL-2.0-only
//! One policy on one machine: its sections, maps, storages, and how it is called.
//!
//! Code is shared by all instances of a policy; an instance owns data only. Calls nest (a kernel
//! function called by the policy may wake a task, which calls the policy again), so every method takes
//! `&self`; an instance is used by one thread at a time.
use crate::abi::{FUNC_TAG, Inst, KernelFn, Map, NativeFn, Op, Trap};
use crate::arena::Arena;
use crate::emit::Guarding;
use crate::error::{LoadError, Result};
use crate::guard::Fence;
use crate::interp::{Arguments, Regions};
use crate::ir::{FuncId, MapDef, MapId};
use crate::maps::{self, MapSlot, Place};
use crate::native::Passed;
use crate::policy::Policy;
use crate::profile::Kconfig;
use crate::runtime::State;
use crate::sections::{self, SectionData};
use crate::table::{FUNCS, Home};
use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::ffi::c_void;

/// How the policy's code is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Mode {
    /// Translated to machine code.
    #[default]
    Native,
    /// Interpreted, every access checked: slower, and a trap names function, file and line.
    Checked,
}

/// Instructions a single callback may execute unless told otherwise.
pub const DEFAULT_BUDGET: u64 = 10_000_000;

/// Value put into a read-only variable before the policy starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Const {
    Int(i128),
    /// Copied to the variable's start; must not be longer than it.
    Bytes(Vec<u8>),
}

/// What an instance is made for.
#[derive(Clone, Debug)]
pub struct InstanceConfig {
    /// CPUs of the machine: size of per-CPU maps and masks.
    pub nr_cpus: u32,
    /// CONFIG_* values of this machine; the rest comes from the policy's kernel profile.
    pub kconfig: BTreeMap<String, Kconfig>,
    /// Variables by name (any section), set before the policy starts.
    pub consts: BTreeMap<String, Const>,
    /// Declared parameters by name, as the user wrote them.
    pub params: BTreeMap<String, String>,
    /// Other `max_entries` by map name.
    pub map_entries: BTreeMap<String, u32>,
    pub mode: Mode,
    /// Instructions one callback may execute; [`DEFAULT_BUDGET`].
    pub budget_insns: u64,
    /// Of `bpf_get_prandom_u32` and of masks' "any" choices.
    pub seed: u64,
}

impl InstanceConfig {
    /// Defaults for a machine of `nr_cpus` CPUs.
    pub fn new(nr_cpus: u32) -> Self {
        InstanceConfig {
            nr_cpus,
            kconfig: BTreeMap::new(),
            consts: BTreeMap::new(),
            params: BTreeMap::new(),
            map_entries: BTreeMap::new(),
            mode: Mode::Native,
            budget_insns: DEFAULT_BUDGET,
            seed: 0,
        }
    }
}

/// Answers whether a policy may touch kernel memory: machine, address, size, write.
pub type MemoryCheck = unsafe fn(*mut c_void, u64, u32, bool) -> bool;

/// Which readable piece of kernel memory an address lies in, `[start, end)`: machine, address.
pub type MemoryPiece = unsafe fn(*mut c_void, u64) -> Option<(u64, u64)>;

/// What a performance counter of a CPU says: machine, CPU, which of [`crate::maps::perf::EVENTS`]; counter, ns enabled,
/// ns running. `None`: the machine has no such counters.
pub type CounterRead = unsafe fn(*mut c_void, u32, usize) -> Option<[u64; 3]>;

/// The complete function table: this crate's functions and the simulator's kernel model.
#[derive(Clone, Debug)]
pub struct KernelVtable {
    fns: Vec<KernelFn>,
    memory: Option<MemoryCheck>,
    pieces: Option<MemoryPiece>,
    counters: Option<CounterRead>,
}

impl KernelVtable {
    /// `kernel` has every [`Home::Kernel`] row of the table exactly once.
    ///
    /// # Errors
    /// Names what is missing, double or unknown.
    pub fn new(kernel: &[(&'static str, KernelFn)]) -> Result<KernelVtable> {
        let mut given: BTreeMap<&str, KernelFn> = BTreeMap::new();
        for (name, f) in kernel {
            if given.insert(name, *f).is_some() {
                return Err(LoadError::Vtable(format!("{name} is given twice")));
            }
        }
        let mut missing = Vec::new();
        let fns = FUNCS
            .iter()
            .map(|row| match row.home {
                Home::Kernel => given.remove(row.name).unwrap_or_else(|| {
                    missing.push(row.name);
                    crate::native::TRAP_FN
                }),
                Home::Runtime | Home::Inline => crate::runtime::function(row.name),
            })
            .collect();
        if !missing.is_empty() {
            return Err(LoadError::Vtable(format!(
                "missing: {}",
                missing.join(", ")
            )));
        }
        if let Some(extra) = given.keys().next() {
            return Err(LoadError::Vtable(format!(
                "{extra} is not a kernel function of the table"
            )));
        }
        Ok(KernelVtable {
            fns,
            memory: None,
            pieces: None,
            counters: None,
        })
    }

    /// The machine's performance counters; without, no event is ever open.
    pub fn with_counters(mut self, read: CounterRead) -> Self {
        self.counters = Some(read);
        self
    }

    /// In which piece of the machine's own memory, all of which a policy may read, an address lies: what guarded code
    /// need not ask for again. What it says must be so as long as the machine is.
    pub fn with_pieces(mut self, piece: MemoryPiece) -> Self {
        self.pieces = Some(piece);
        self
    }

    /// Which of the machine's own memory (tasks, masks, arguments) a policy may read and write; asked by
    /// the checked mode and by `bpf_probe_read`. Without it, everything outside the instance is allowed.
    pub fn with_memory(mut self, check: MemoryCheck) -> Self {
        self.memory = Some(check);
        self
    }

    fn timer_cancel(&self) -> KernelFn {
        crate::table::by_name("bpf_timer_cancel")
            .map_or(crate::native::TRAP_FN, |row| self.fns[row.id as usize])
    }

    pub(crate) fn fns(&self) -> &[KernelFn] {
        &self.fns
    }
}

/// The call that a call interrupts, and the instructions it may still execute.
struct Outer {
    op: u32,
    left: u64,
}

/// The argument array of an entry, as the interpreter sees it.
fn arguments(context: &[u64], writable: bool) -> Arguments {
    Arguments {
        address: context.as_ptr() as u64,
        size: size_of_val(context) as u64,
        writable,
    }
}

impl Regions for Instance {
    fn check(&self, address: u64, size: u32, write: bool) -> bool {
        self.may_access(address, size, write)
    }
}

const OPS: usize = Op::ALL.len();
const NO_FUNC: u16 = u16::MAX;
/// An arena of so many bytes is asked for as a whole.
const SMALL: usize = 1024;

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
}

// SAFETY: owned data; the machine pointer is the simulator's, which moves with the instance.
unsafe impl Send for Instance {}

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
            other.copied().unwrap_or(def.max_entries)
        };
        let (nr_sections, nr_maps) = (program.sections.len(), program.maps.len());
        let rooms = (program.maps.iter())
            .map(|def| maps::room(def, entries(def), config.nr_cpus))
            .collect::<Result<Vec<usize>>>()?;
        let own = program.sections.iter().zip(&content).zip(policy.for_exit());
        let own = own.filter(|((s, c), exit)| !s.readonly && !sections::is_late(s, c, **exit));
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
        let sections = sections::build(policy, &content, &mut arena).ok_or_else(no_memory)?;
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
            let runtime = maps::create(def, entries(def), config.nr_cpus, raw, &mut arena)?;
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
            fence.forget_the_kernel();
        }
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

    /// Does the policy implement `op`?
    #[inline]
    pub fn has(&self, op: Op) -> bool {
        self.ops[op as usize] != NO_FUNC
    }

    /// Call the policy's `op` (0 if it has none). `args` are the operation's arguments, at most six.
    ///
    /// # Errors
    /// The policy trapped; its data is as the trap left it.
    ///
    /// # Safety
    /// Pointers among `args` are what the operation's prototype says and stay valid during the call.
    #[inline(always)]
    pub unsafe fn call(&self, op: Op, args: &[u64]) -> std::result::Result<u64, Trap> {
        let mut context = [0u64; 6];
        for (to, from) in context.iter_mut().zip(args) {
            *to = *from;
        }
        // SAFETY: the caller's promise.
        unsafe { self.call_with(op, &context) }.map_err(|trap| *trap)
    }

    /// [`Instance::call`] with the arguments in place, the rest zero.
    ///
    /// # Errors
    /// As [`Instance::call`].
    ///
    /// # Safety
    /// As [`Instance::call`].
    #[inline(always)]
    pub unsafe fn call_with(&self, op: Op, args: &[u64; 6]) -> std::result::Result<u64, Box<Trap>> {
        let func = self.ops[op as usize];
        if func == NO_FUNC {
            return Ok(0);
        }
        if op == Op::Exit {
            self.complete();
        }
        // SAFETY: the caller's promise; an entry reads its arguments through r1.
        unsafe { self.enter(func as usize, op, Passed::Context(args)) }
    }

    /// Make what only `ops.exit` needs.
    #[cold]
    fn complete(&self) {
        for (i, section) in self.sections.iter().enumerate() {
            // SAFETY: the table is the arena's, and has room for all of them; no code of the policy runs now.
            unsafe {
                let table = (*self.raw.get()).sec.cast_mut();
                table.add(i).write(section.base());
            }
        }
    }

    /// Call a BPF function by its value (a timer's callback), in the context `op`.
    ///
    /// # Errors
    /// As [`Instance::call`]; a value that is no function is a bad access.
    ///
    /// # Safety
    /// As [`Instance::call`].
    pub unsafe fn call_func(
        &self,
        value: u64,
        op: Op,
        args: &[u64],
    ) -> std::result::Result<u64, Trap> {
        let Some(func) = self.function(value) else {
            return Err(Trap {
                kind: crate::abi::TrapKind::BadAccess {
                    address: value,
                    size: 8,
                    write: false,
                },
                function: None,
                file: None,
                line: None,
            });
        };
        let mut registers = [0u64; 5];
        registers[..args.len()].copy_from_slice(args);
        // SAFETY: the caller's promise.
        unsafe { self.enter(func, op, Passed::Registers(&registers)) }.map_err(|trap| *trap)
    }

    /// Run the SEC("syscall") program `name` on `context`, which it may read and write.
    ///
    /// # Errors
    /// No such program, or it trapped.
    ///
    /// # Safety
    /// As [`Instance::call`].
    pub unsafe fn syscall(
        &self,
        name: &str,
        context: &mut [u64],
    ) -> Result<std::result::Result<u64, Trap>> {
        let program = self.policy.program();
        let Some((_, func)) = program.syscalls.iter().find(|(n, _)| n == name) else {
            return Err(LoadError::Setting(format!(
                "the policy has no syscall program `{name}`"
            )));
        };
        let args = [context.as_mut_ptr() as u64, 0, 0, 0, 0];
        // SAFETY: the caller's promise.
        let result = unsafe {
            match self.mode {
                Mode::Native => {
                    let outer = self
                        .fence
                        .as_ref()
                        .map(|f| f.enter(arguments(context, true)));
                    let result = self.enter(*func, Op::Syscall, Passed::Registers(&args));
                    if let (Some(fence), Some(outer)) = (&self.fence, outer) {
                        fence.leave(outer);
                    }
                    result
                }
                Mode::Checked => {
                    let outer = self.begin(Op::Syscall);
                    let result = self.interpret(*func, &args, arguments(context, true));
                    self.end(outer);
                    result
                }
            }
        };
        Ok(result.map_err(|trap| *trap))
    }

    /// The function a `FUNC_TAG` value stands for.
    pub fn function(&self, value: u64) -> Option<FuncId> {
        let id = (value ^ FUNC_TAG) as usize;
        (id < self.policy.program().funcs.len()).then_some(id)
    }

    #[inline(always)] // as `call`
    unsafe fn enter(
        &self,
        func: FuncId,
        op: Op,
        args: Passed,
    ) -> std::result::Result<u64, Box<Trap>> {
        let raw = self.raw.get();
        // SAFETY: `raw` is valid as long as the instance; no reference into it is held.
        unsafe {
            let outer = self.begin(op);
            let code = (*raw).code;
            let result = if !(*raw).guard.is_null() {
                self.enter_guarded(func, args)
            } else if !code.is_null() {
                let f: NativeFn = *code.add(func);
                crate::native::enter(self.policy.native(), f, raw, args, |i| {
                    self.policy.program().funcs[i].name.clone()
                })
            } else {
                match args {
                    Passed::Context(context) => {
                        let args = [context.as_ptr() as u64, 0, 0, 0, 0];
                        self.interpret(func, &args, arguments(context, false))
                    }
                    Passed::Registers(args) => self.interpret(func, args, Arguments::default()),
                }
            };
            self.end(outer);
            result
        }
    }

    /// # Safety
    /// As [`Instance::call`].
    #[cold]
    unsafe fn enter_guarded(
        &self,
        func: FuncId,
        args: Passed,
    ) -> std::result::Result<u64, Box<Trap>> {
        let fence = self.fence.as_ref().expect("guarded code has one");
        let readable = match args {
            Passed::Context(context) => arguments(context, false),
            // Those of the call around this one, if it is a program's own context.
            Passed::Registers(_) => fence.arguments(),
        };
        let outer = fence.enter(readable);
        let raw = self.raw.get();
        // SAFETY: the caller's promise.
        let result = unsafe {
            let f: NativeFn = *(*raw).code.add(func);
            crate::native::enter(self.policy.native(), f, raw, args, |i| {
                self.policy.program().funcs[i].name.clone()
            })
        };
        fence.leave(outer);
        result
    }

    /// Of guarded code: what keeps it inside.
    pub(crate) fn fence(&self) -> Option<&Fence> {
        self.fence.as_deref()
    }

    /// How many maps it has.
    pub(crate) fn maps(&self) -> usize {
        self.maps.len()
    }

    /// The piece of memory, `[start, end)`, around an address, all of which the policy may read and write: a section,
    /// or the elements of an array.
    pub(crate) fn piece(&self, address: u64) -> Option<(u64, u64)> {
        let sections = self.policy.program().sections.iter().zip(&self.sections);
        let writable = sections.filter(|(section, _)| !section.readonly);
        let mut sections = writable.filter_map(|(_, data)| {
            let start = data.place()? as u64;
            Some((start, start + data.len() as u64))
        });
        sections
            .find(|(start, end)| (*start..*end).contains(&address))
            .or_else(|| {
                // SAFETY: one operation.
                let mut maps = self.maps.iter().map(|slot| unsafe { &*slot.get() });
                maps.find_map(|slot| slot.runtime.piece(address))
            })
    }

    /// The piece of the machine's own memory around an address, all of which the policy may read.
    pub(crate) fn kernel_piece(&self, address: u64) -> Option<(u64, u64)> {
        let of = self.vtable.pieces?;
        // SAFETY: the simulator's own function, with its own machine.
        unsafe { of((*self.raw.get()).machine, address) }
    }

    /// The policy's code runs in the context of `op`, with a budget of its own, until [`Instance::end`].
    #[inline(always)] // as `call`
    fn begin(&self, op: Op) -> Outer {
        let raw = self.raw.get();
        // SAFETY: `raw` is valid as long as the instance; no reference into it is held.
        unsafe {
            let outer = Outer {
                op: (*raw).op,
                left: (*raw).insns_limit.wrapping_sub((*raw).insns),
            };
            (*raw).op = op as u32;
            (*raw).insns_limit = (*raw).insns + self.budget;
            outer
        }
    }

    #[inline(always)] // as `call`
    fn end(&self, outer: Outer) {
        let raw = self.raw.get();
        // SAFETY: as `begin`.
        unsafe {
            (*raw).op = outer.op;
            (*raw).insns_limit = (*raw).insns.wrapping_add(outer.left);
        }
    }

    #[cold]
    unsafe fn interpret(
        &self,
        func: FuncId,
        args: &[u64; 5],
        arguments: Arguments,
    ) -> std::result::Result<u64, Box<Trap>> {
        let (program, raw) = (self.policy.program(), self.raw.get());
        // SAFETY: the caller's promise.
        let result = unsafe {
            let prepared = self.policy.prepared();
            prepared.run(program, raw, func, *args, arguments, self)
        };
        result.map_err(Box::new)
    }

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
        for slot in &self.maps {
            // SAFETY: one operation; the header of a map is never moved.
            let raw = unsafe { &*(*slot.get()).raw };
            let storage = matches!(raw.kind, maps::kind::TASK_STORAGE);
            if storage && index < raw.max_entries {
                // SAFETY: the table covers numbers below `max_entries`; an element may be absent (null).
                let value = unsafe { raw.data.cast::<*const u8>().add(index as usize).read() };
                if !value.is_null() {
                    to(value, raw.value_size as usize);
                }
            } else if !storage {
                to(raw.data, 64);
            }
        }
    }

    /// A task is gone: free its storages. `index` is its `berth_index`.
    pub fn task_gone(&self, index: u32) {
        self.free_storage(maps::kind::TASK_STORAGE, index);
    }

    /// A cgroup is gone: free its storages.
    pub fn cgroup_gone(&self, index: u32) {
        self.free_storage(maps::kind::CGRP_STORAGE, index);
    }

    fn free_storage(&self, kind: u32, index: u32) {
        for (id, def) in self.policy.program().maps.iter().enumerate() {
            if def.kind == kind {
                // SAFETY: one operation; the key has four bytes.
                unsafe { self.slot(id).runtime.delete((&raw const index).cast()) };
                self.end_fields(id);
            }
        }
    }

    /// Ends what lived in values that an update or delete has just removed from map `id`: timers are
    /// cancelled, masks released.
    pub(crate) fn end_fields(&self, id: MapId) {
        let def = &self.policy.program().maps[id];
        if def.timers.is_empty() && def.kptrs.is_empty() {
            return;
        }
        // SAFETY: one operation each; the value's memory is intact until the map's next operation, and the
        // fields lie inside it.
        unsafe {
            while let Some(value) = self.slot(id).runtime.freed() {
                for offset in &def.timers {
                    let timer = value.add(*offset as usize);
                    if timer.cast::<[u64; 2]>().read_unaligned() != [0, 0] {
                        (self.vtable.timer_cancel())(self.raw.get(), timer as u64, 0, 0, 0, 0);
                        timer.cast::<[u64; 2]>().write_unaligned([0, 0]);
                    }
                }
                for offset in &def.kptrs {
                    let place = value.add(*offset as usize).cast::<u64>();
                    self.state().masks.release(place.read_unaligned());
                    place.write_unaligned(0);
                }
            }
        }
    }

    /// May the policy touch these bytes? Sections, live map elements, masks, and what the simulator's
    /// check says of its own objects. The executing function's stack is the interpreter's business.
    pub fn may_access(&self, address: u64, size: u32, write: bool) -> bool {
        let end = address.saturating_add(u64::from(size));
        for (section, data) in self.policy.program().sections.iter().zip(&self.sections) {
            let Some(start) = data.place().map(|base| base as u64) else {
                continue;
            };
            if address >= start && end <= start + data.len() as u64 {
                return !(write && section.readonly);
            }
        }
        for id in 0..self.maps.len() {
            // SAFETY: one operation.
            if unsafe { self.slot(id) }.runtime.contains(address, size) {
                return true;
            }
        }
        // SAFETY: one operation.
        if unsafe { self.state() }.masks.contains(address, size) {
            return true;
        }
        match self.vtable.memory {
            // SAFETY: the simulator's own check, with its own machine.
            Some(check) => unsafe { check((*self.raw.get()).machine, address, size, write) },
            None => address >= 4096,
        }
    }
}
