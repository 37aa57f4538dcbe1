// SPDX-License-Identifier: GPL-2.0-only
//! Objects that a policy makes itself (`bpf_obj_new`), and the trees and lists it keeps them in.
//!
//! The order of a tree or list is kept beside it: in the policy's memory a root, head or node is only a place. What an
//! object had is the instance's as long as that lives, so that a pointer from before leads nowhere else.
use super::kernel_fns;
use crate::abi::Inst;
use crate::callback::call_back;
use crate::instance::Instance;
use crate::maps::EINVAL;
use crate::maps::memory::Block;
use std::collections::{BTreeMap, VecDeque};

/// Objects of one size that are made together.
const SLAB: usize = 32;
/// Largest object, bytes: as a kernel's allocator has it.
const MOST_BYTES: u32 = 4096;
/// Most bytes of them at once.
const MOST: usize = 64 << 20;

struct Slab {
    memory: Block,
    size: u32,
    stride: usize,
    live: [bool; SLAB],
}

impl Slab {
    fn start(&self) -> u64 {
        self.memory.base() as u64
    }

    fn end(&self) -> u64 {
        self.start() + (self.stride * SLAB) as u64
    }
}

/// All of an instance.
#[derive(Default)]
pub struct Objects {
    slabs: Vec<Slab>,
    /// Number of each slab by its address.
    by_address: BTreeMap<u64, usize>,
    /// Those that can be given out, by size.
    free: BTreeMap<u32, Vec<u64>>,
    bytes: usize,
    /// Nodes in order, by root or head; each in one at most.
    orders: BTreeMap<u64, VecDeque<u64>>,
    owners: BTreeMap<u64, u64>,
}

impl Objects {
    /// A new object of zeros; 0: there is no room.
    fn make(&mut self, size: u32) -> u64 {
        if size == 0 || size > MOST_BYTES {
            return 0;
        }
        if self.free.get(&size).is_none_or(Vec::is_empty) && !self.grow(size) {
            return 0;
        }
        let address = self.free.get_mut(&size).and_then(Vec::pop).unwrap_or(0);
        if let Some((slab, i)) = self.place(address) {
            slab.live[i] = true;
            // SAFETY: inside the slab.
            unsafe { (address as *mut u8).write_bytes(0, slab.stride) };
        }
        address
    }

    fn grow(&mut self, size: u32) -> bool {
        let stride = (size as usize).next_multiple_of(8);
        let bytes = stride * SLAB;
        let memory = match self.bytes + bytes <= MOST {
            true => Block::zeroed(bytes),
            false => None,
        };
        let Some(memory) = memory else { return false };
        let base = memory.base() as u64;
        self.by_address.insert(base, self.slabs.len());
        self.slabs.push(Slab {
            memory,
            size,
            stride,
            live: [false; SLAB],
        });
        self.bytes += bytes;
        let places = (0..SLAB).rev().map(|i| base + (i * stride) as u64);
        self.free.entry(size).or_default().extend(places);
        true
    }

    fn slab(&self, address: u64) -> Option<&Slab> {
        let (_, number) = self.by_address.range(..=address).next_back()?;
        let slab = &self.slabs[*number];
        (address < slab.end()).then_some(slab)
    }

    /// The slab of an object's first byte, and which it is.
    fn place(&mut self, address: u64) -> Option<(&mut Slab, usize)> {
        let (_, number) = self.by_address.range(..=address).next_back()?;
        let slab = &mut self.slabs[*number];
        let offset = (address - slab.start()) as usize;
        let i = offset / slab.stride;
        (i < SLAB && offset.is_multiple_of(slab.stride)).then_some((slab, i))
    }

    /// The object is no more; false if there is none at this address.
    pub fn drop_one(&mut self, address: u64) -> bool {
        let Some((slab, i)) = self.place(address) else {
            return false;
        };
        if !std::mem::take(&mut slab.live[i]) {
            return false;
        }
        let (size, end) = (slab.size, address + slab.stride as u64);
        // No tree or list has a node of what is gone.
        let nodes: Vec<u64> = self.owners.range(address..end).map(|(n, _)| *n).collect();
        for node in nodes {
            self.take(node);
        }
        self.free.entry(size).or_default().push(address);
        true
    }

    /// Do these bytes lie in a live object?
    pub fn contains(&self, address: u64, size: u32) -> bool {
        self.slab(address).is_some_and(|slab| {
            let offset = (address - slab.start()) as usize;
            let (i, within) = (offset / slab.stride, offset % slab.stride);
            slab.live[i] && within as u64 + u64::from(size) <= u64::from(slab.size)
        })
    }

    /// Objects, and nothing else, around an address.
    pub fn piece(&self, address: u64) -> Option<(u64, u64)> {
        self.slab(address).map(|slab| (slab.start(), slab.end()))
    }

    fn may_join(&self, node: u64) -> bool {
        self.contains(node, 8) && !self.owners.contains_key(&node)
    }

    fn put(&mut self, root: u64, at: usize, node: u64) {
        let order = self.orders.entry(root).or_default();
        order.insert(at.min(order.len()), node);
        self.owners.insert(node, root);
    }

    /// Out of whatever it is in.
    fn take(&mut self, node: u64) {
        if let Some(root) = self.owners.remove(&node)
            && let Some(order) = self.orders.get_mut(&root)
        {
            order.retain(|n| *n != node);
        }
    }

    fn len(&self, root: u64) -> usize {
        self.orders.get(&root).map_or(0, VecDeque::len)
    }

    fn at(&self, root: u64, i: usize) -> u64 {
        let order = self.orders.get(&root);
        order.and_then(|order| order.get(i)).copied().unwrap_or(0)
    }

    /// The node at an end leaves.
    fn pop(&mut self, head: u64, i: usize) -> u64 {
        let node = self.at(head, i);
        self.take(node);
        node
    }
}

/// Of the instance, for one operation.
#[allow(clippy::mut_from_ref)] // as `Instance::slot`
fn objects(inst: &Instance) -> &mut Objects {
    // SAFETY: no other reference is held; callbacks run in between.
    unsafe { &mut inst.state().objects }
}

fn new(inst: &Instance, type_id: u64) -> u64 {
    let size = u32::try_from(type_id).ok();
    let size = size.and_then(|id| inst.policy().program().types.get(&id));
    size.map_or(0, |size| objects(inst).make(*size))
}

fn drop_object(inst: &Instance, object: u64) -> u64 {
    objects(inst).drop_one(object);
    0
}

/// Puts a node where `less(node, other)` is first true, behind its equals. A callback can be the last of this: nothing
/// is held.
fn add(inst: &Instance, raw: *mut Inst, root: u64, node: u64, less: u64) -> u64 {
    if !objects(inst).may_join(node) {
        return EINVAL as u64;
    }
    let (mut low, mut high) = (0, objects(inst).len(root));
    while low < high {
        let middle = low + (high - low) / 2;
        let other = objects(inst).at(root, middle);
        // SAFETY: the policy's own callback.
        match unsafe { call_back(raw, less, [node, other, 0, 0, 0]) } {
            0 => low = middle + 1,
            _ => high = middle,
        }
    }
    if !objects(inst).may_join(node) {
        return EINVAL as u64;
    }
    objects(inst).put(root, low, node);
    0
}

fn push(inst: &Instance, head: u64, node: u64, front: bool) -> u64 {
    let objects = objects(inst);
    if !objects.may_join(node) {
        return EINVAL as u64;
    }
    let at = if front { 0 } else { objects.len(head) };
    objects.put(head, at, node);
    0
}

kernel_fns! {
    fn bpf_obj_new(inst, _raw, type_id) { new(inst, type_id) }
    fn bpf_obj_new_impl(inst, _raw, type_id, _meta) { new(inst, type_id) }
    fn bpf_obj_drop(inst, _raw, object) { drop_object(inst, object) }
    fn bpf_obj_drop_impl(inst, _raw, object, _meta) { drop_object(inst, object) }
    fn bpf_rbtree_add(inst, raw, root, node, less) { add(inst, raw, root, node, less) }
    fn bpf_rbtree_add_impl(inst, raw, root, node, less, _meta, _offset) {
        add(inst, raw, root, node, less)
    }
    fn bpf_rbtree_first(inst, _raw, root) { objects(inst).at(root, 0) }
    fn bpf_rbtree_remove(inst, _raw, root, node) {
        let objects = objects(inst);
        if objects.owners.get(&node) != Some(&root) {
            return 0;
        }
        objects.take(node);
        node
    }
    fn bpf_list_push_front(inst, _raw, head, node) { push(inst, head, node, true) }
    fn bpf_list_push_front_impl(inst, _raw, head, node, _meta, _offset) {
        push(inst, head, node, true)
    }
    fn bpf_list_push_back(inst, _raw, head, node) { push(inst, head, node, false) }
    fn bpf_list_push_back_impl(inst, _raw, head, node, _meta, _offset) {
        push(inst, head, node, false)
    }
    fn bpf_list_pop_front(inst, _raw, head) { objects(inst).pop(head, 0) }
    fn bpf_list_pop_back(inst, _raw, head) {
        let objects = objects(inst);
        let last = objects.len(head).wrapping_sub(1);
        objects.pop(head, last)
    }
}
