// SPDX-License-Identifier: GPL-2.0-only
//! What keeps guarded code inside its instance: every access that translated code cannot know to be to its own stack is
//! looked up here, and so is what a kernel function would touch for it.
//!
//! It may touch its sections, maps, masks and stacks, the arguments of the call, and what the simulator says of its own
//! objects ([`Instance::may_access`]). Stacks lie in memory of the instance, not on the stack of this program, which
//! nothing of the policy can then reach.
use crate::abi::{Guard, Inst, PLACES, Span};
use crate::error::{LoadError, Result};
use crate::instance::Instance;
use crate::interp::{Arguments, MAX_FRAMES, Operands, STACK};
use crate::maps::memory::Block;
use crate::table::FUNCS;
use std::cell::{Cell, UnsafeCell};
use std::sync::OnceLock;

/// Stacks of an instance: calls nest, as a kernel function may wake a task, which calls the policy again.
const STACKS: usize = 16 * MAX_FRAMES;
/// Accesses are at most so wide.
const WIDEST: u64 = 8;

/// Nothing has been found yet.
const NOTHING: [[Span; PLACES]; 2] = [[Span::NONE; PLACES]; 2];

/// The guard of one instance.
pub struct Fence {
    raw: UnsafeCell<Guard>,
    stacks: Block,
    /// Of the call that is under way.
    arguments: Cell<Arguments>,
}

/// What an entry changed, to be put back when it is left, by whichever way.
pub struct Entered {
    frames: u32,
    most_frames: u32,
    arguments: Arguments,
}

impl Fence {
    /// # Errors
    /// No memory.
    pub fn new() -> Result<Box<Fence>> {
        let stacks = Block::zeroed(STACKS * STACK)
            .ok_or_else(|| LoadError::Setting("no memory for a policy's stacks".into()))?;
        let stack = stacks.base();
        Ok(Box::new(Fence {
            raw: UnsafeCell::new(Guard {
                places: NOTHING,
                stacks: Span {
                    start: stack as u64,
                    size: (STACKS * STACK) as u64,
                },
                arguments: Span::NONE,
                stack,
                frames: 0,
                most_frames: MAX_FRAMES as u32,
                refuses,
                refuses_call,
                refused: [0; 2],
            }),
            stacks,
            arguments: Cell::default(),
        }))
    }

    /// What translated code asks.
    pub fn raw(&self) -> *mut Guard {
        self.raw.get()
    }

    /// The policy's code is entered: it may read (or write) these arguments, and have as many stacks as a callback may.
    pub fn enter(&self, arguments: Arguments) -> Entered {
        // SAFETY: one thread; no reference into it is held anywhere.
        let g = unsafe { &mut *self.raw.get() };
        let outer = Entered {
            frames: g.frames,
            most_frames: g.most_frames,
            arguments: self.arguments.replace(arguments),
        };
        g.most_frames = (g.frames + MAX_FRAMES as u32).min(STACKS as u32);
        self.show_arguments(arguments);
        outer
    }

    /// Of the call that is under way.
    pub fn arguments(&self) -> Arguments {
        self.arguments.get()
    }

    /// It has been left.
    pub fn leave(&self, outer: Entered) {
        // SAFETY: as `enter`.
        let g = unsafe { &mut *self.raw.get() };
        (g.frames, g.most_frames) = (outer.frames, outer.most_frames);
        self.arguments.set(outer.arguments);
        self.show_arguments(outer.arguments);
    }

    /// Memory that was found may be gone: another machine, or an arena's pages.
    pub fn forget_the_found(&self) {
        // SAFETY: as `enter`.
        unsafe { (*self.raw.get()).places = NOTHING };
    }

    fn show_arguments(&self, of: Arguments) {
        let span = match of.size >= WIDEST {
            true => Span {
                start: of.address,
                size: of.size,
            },
            false => Span::NONE,
        };
        // SAFETY: as `enter`.
        unsafe { (*self.raw.get()).arguments = span };
    }

    /// Do these bytes lie on the stacks?
    pub fn on_stack(&self, address: u64, size: u32) -> bool {
        self.stacks.contains(address, size)
    }

    fn of_arguments(&self, address: u64, size: u32, write: bool) -> bool {
        let a = self.arguments.get();
        let offset = address.wrapping_sub(a.address);
        offset < a.size && a.size - offset >= u64::from(size) && (a.writable || !write)
    }
}

/// May the policy touch these bytes? If they lie in a whole piece that it may, that is remembered.
fn allowed(inst: &Instance, fence: &Fence, address: u64, size: u32, write: bool) -> bool {
    let place = Guard::place(address);
    // SAFETY: as `Fence::enter`.
    let g = unsafe { &mut *fence.raw() };
    if g.places[usize::from(write)][place].has(address, size) {
        return true;
    }
    if fence.of_arguments(address, size, write) {
        return true;
    }
    let piece = match g.stacks.has(address, size) {
        true => Some(g.stacks),
        false => inst.piece(address, write).map(|(start, end)| Span {
            start,
            size: end - start,
        }),
    };
    match piece {
        Some(piece) if piece.has(address, size) => {
            if piece.size >= WIDEST {
                g.places[usize::from(write)][place] = piece;
            }
            true
        }
        _ => inst.may_access(address, size, write),
    }
}

/// [`Guard::refuses`]
unsafe extern "C" fn refuses(raw: *mut Inst, address: u64, size: u32, write: u32) -> u32 {
    // SAFETY: called by policy code with its own instance.
    let inst = unsafe { Instance::of(raw) };
    let Some(fence) = inst.fence() else { return 1 };
    u32::from(!allowed(inst, fence, address, size, write != 0))
}

/// [`Guard::refuses_call`]
unsafe extern "C" fn refuses_call(raw: *mut Inst, id: u32, args: *const u64) -> u32 {
    static OPERANDS: OnceLock<Vec<Operands>> = OnceLock::new();
    let all = OPERANDS.get_or_init(|| FUNCS.iter().map(Operands::of).collect());
    // SAFETY: called by policy code with its own instance and five arguments.
    let (inst, args) = unsafe { (Instance::of(raw), &*args.cast::<[u64; 5]>()) };
    let Some(fence) = inst.fence() else { return 1 };
    let may = |address, size, write| allowed(inst, fence, address, size, write);
    // SAFETY: the instance has the program's maps.
    let refused = unsafe { all[id as usize].refused(raw, inst.maps(), args, may) };
    let Some((address, _, write)) = refused else {
        return 0;
    };
    // SAFETY: as `Fence::enter`.
    unsafe { (*fence.raw()).refused = [address, u64::from(write)] };
    1
}
