// SPDX-License-Identifier: GPL-2.0-only
//! Maps: random operations against the kernel's own maps, and what the kernel leaves open but Berth promises.
use crate::kernel;
use berth_policy::abi::Map;
use berth_policy::arena::Arena;
use berth_policy::ir::MapDef;
use berth_policy::maps::ringbuf::RingBuf;
use berth_policy::maps::{self, E2BIG, EAGAIN, EINVAL, ENOENT, MapRuntime, kind};
use proptest::prelude::*;

fn def(kind: u32, key_size: u32, value_size: u32) -> MapDef {
    MapDef {
        name: "m".into(),
        kind,
        key_size,
        value_size,
        max_entries: 0,
        flags: 0,
        timers: Vec::new(),
        kptrs: Vec::new(),
        fields: Vec::new(),
        inner: Vec::new(),
        extra: 0,
    }
}

/// A map with the memory it lies in.
struct MapSlot {
    runtime: Box<dyn MapRuntime>,
    _raw: Box<Map>,
    _arena: Arena,
}

fn map(kind: u32, key_size: u32, value_size: u32, entries: u32, cpus: u32) -> Box<MapSlot> {
    made(&def(kind, key_size, value_size), entries, cpus)
}

fn made(def: &MapDef, entries: u32, cpus: u32) -> Box<MapSlot> {
    try_map(def, entries, cpus).expect("a valid definition")
}

fn try_map(def: &MapDef, entries: u32, cpus: u32) -> berth_policy::error::Result<Box<MapSlot>> {
    let room = maps::room(def, entries, cpus)?;
    let mut arena = Arena::new(room).expect("memory");
    let mut raw = Box::new(maps::describe(def, entries));
    Ok(Box::new(MapSlot {
        runtime: maps::create(def, entries, cpus, &mut raw, &mut arena)?,
        _raw: raw,
        _arena: arena,
    }))
}

fn update(m: &mut MapSlot, key: u32, value: u64, flags: u64, cpu: u32) -> i64 {
    // SAFETY: a key of four bytes, a value of eight.
    unsafe {
        m.runtime.update(
            (&raw const key).cast(),
            (&raw const value).cast(),
            flags,
            cpu,
        )
    }
}

fn address(m: &mut MapSlot, key: u32, cpu: u32) -> *mut u64 {
    // SAFETY: a key of four bytes.
    unsafe { m.runtime.lookup((&raw const key).cast(), cpu).cast() }
}

fn lookup(m: &mut MapSlot, key: u32, cpu: u32) -> Option<u64> {
    let at = address(m, key, cpu);
    // SAFETY: an element of eight bytes.
    (!at.is_null()).then(|| unsafe { at.read() })
}

fn delete(m: &mut MapSlot, key: u32) -> i64 {
    // SAFETY: a key of four bytes.
    unsafe { m.runtime.delete((&raw const key).cast()) }
}

fn push(m: &mut MapSlot, value: u64, flags: u64) -> i64 {
    // SAFETY: a value of eight bytes.
    unsafe { m.runtime.push((&raw const value).cast(), flags) }
}

fn take(m: &mut MapSlot, remove: bool) -> Result<u64, i64> {
    let mut value = u64::MAX;
    let to = (&raw mut value).cast();
    // SAFETY: a value of eight bytes.
    let code = unsafe {
        if remove {
            m.runtime.pop(to)
        } else {
            m.runtime.peek(to)
        }
    };
    if code == 0 {
        return Ok(value);
    }
    assert_eq!(value, 0, "a failed read zeroes the value");
    Err(code)
}

/// Keys in walking order.
fn keys(m: &mut MapSlot) -> Vec<u32> {
    let mut cursor = 0;
    std::iter::from_fn(|| m.runtime.next(&mut cursor, 0))
        // SAFETY: a key of four bytes.
        .map(|e| unsafe { e.key.cast::<u32>().read_unaligned() })
        .collect()
}

#[derive(Clone, Debug)]
enum Step {
    Update(u32, u64, u64),
    Lookup(u32),
    Delete(u32),
    Push(u64, u64),
    Peek,
    Pop,
}

fn keyed() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u32..8, any::<u64>(), 0u64..4).prop_map(|(k, v, f)| Step::Update(k, v, f)),
        2 => (0u32..8).prop_map(Step::Lookup),
        2 => (0u32..8).prop_map(Step::Delete),
    ]
}

fn queued() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (any::<u64>(), 0u64..4).prop_map(|(v, f)| Step::Push(v, f)),
        1 => Just(Step::Peek),
        2 => Just(Step::Pop),
    ]
}

/// The same steps on both maps: same codes, same values.
fn compare(kind: u32, key_size: u32, steps: &[Step]) -> Result<(), TestCaseError> {
    const ENTRIES: u32 = 4;
    let mut ours = map(kind, key_size, 8, ENTRIES, 2);
    let theirs = kernel::Map::new(kind, key_size, 8, ENTRIES)
        .map_err(|e| TestCaseError::fail(e.to_string()))?;
    for step in steps {
        let m = &mut ours;
        match *step {
            Step::Update(k, v, f) => {
                prop_assert_eq!(update(m, k, v, f, 0), theirs.update(Some(k), v, f))
            }
            Step::Lookup(k) => {
                prop_assert_eq!(lookup(m, k, 0).ok_or(ENOENT), theirs.lookup(Some(k)))
            }
            Step::Delete(k) => prop_assert_eq!(delete(m, k), theirs.delete(k)),
            Step::Push(v, f) => prop_assert_eq!(push(m, v, f), theirs.update(None, v, f)),
            Step::Peek => prop_assert_eq!(take(m, false), theirs.lookup(None)),
            Step::Pop => prop_assert_eq!(take(m, true), theirs.pop()),
        }
    }
    Ok(())
}

#[test]
fn random_operations_as_in_the_kernel() {
    if let Some(why) = kernel::refusal() {
        println!("skipped: the kernel's own maps are not available here ({why})");
        return;
    }
    let steps = prop::collection::vec(keyed(), 1..60);
    for kind in [kind::HASH, kind::ARRAY] {
        let result = crate::runner(100, 1000).run(&steps, |s| compare(kind, 4, &s));
        result.unwrap_or_else(|e| panic!("map type {kind}: {e}"));
    }
    let steps = prop::collection::vec(queued(), 1..60);
    for kind in [kind::QUEUE, kind::STACK] {
        let result = crate::runner(100, 1000).run(&steps, |s| compare(kind, 0, &s));
        result.unwrap_or_else(|e| panic!("map type {kind}: {e}"));
    }
}

#[test]
fn hash_elements_stay_where_they_are() {
    let mut m = map(kind::HASH, 4, 8, 1000, 1);
    for k in 0..1000 {
        assert_eq!(update(&mut m, k, k.into(), 0, 0), 0);
    }
    assert_eq!(update(&mut m, 1000, 0, 0, 0), E2BIG);
    let places: Vec<_> = (0..1000).map(|k| address(&mut m, k, 0)).collect();
    for k in (0..1000).step_by(2) {
        assert_eq!(delete(&mut m, k), 0);
    }
    for k in (1..1000).step_by(2) {
        assert_eq!(address(&mut m, k, 0), places[k as usize]);
        assert_eq!(lookup(&mut m, k, 0), Some(k.into()));
    }
    assert_eq!(m.runtime.len(), 500);
}

#[test]
fn a_pointer_from_before_an_update_sees_the_old_value() {
    let mut m = map(kind::HASH, 4, 8, 4, 1);
    update(&mut m, 7, 1, 0, 0);
    let before = address(&mut m, 7, 0);
    update(&mut m, 7, 2, 0, 0);
    // SAFETY: memory of the map.
    assert_eq!(unsafe { before.read() }, 1);
    assert_eq!(lookup(&mut m, 7, 0), Some(2));
    assert_eq!(m.runtime.len(), 1);
    assert!(m.runtime.contains(before as u64, 8));
    assert!(!m.runtime.contains(before as u64 + 1, 8));
}

#[test]
fn walking_has_one_order_and_survives_changes() {
    let mut m = map(kind::HASH, 4, 8, 64, 1);
    for k in [9, 3, 40, 1, 22] {
        update(&mut m, k, 0, 0, 0);
    }
    assert_eq!(keys(&mut m), [9, 3, 40, 1, 22]);
    // A replaced element keeps its place, a freed slot is used again.
    update(&mut m, 3, 5, 0, 0);
    delete(&mut m, 40);
    assert_eq!(keys(&mut m), [9, 3, 1, 22]);
    update(&mut m, 100, 0, 0, 0);
    assert_eq!(keys(&mut m), [9, 3, 100, 1, 22]);
    let mut cursor = 0;
    let mut seen = 0;
    while let Some(e) = m.runtime.next(&mut cursor, 0) {
        // SAFETY: a key of four bytes.
        let key = unsafe { e.key.cast::<u32>().read_unaligned() };
        assert_eq!(delete(&mut m, key), 0);
        seen += 1;
    }
    assert_eq!((seen, m.runtime.len()), (5, 0));
}

#[test]
fn a_full_lru_map_forgets_what_was_not_looked_up() {
    let mut m = map(kind::LRU_HASH, 4, 8, 4, 1);
    for k in 0..4 {
        assert_eq!(update(&mut m, k, 0, 0, 0), 0);
    }
    lookup(&mut m, 0, 0);
    lookup(&mut m, 2, 0);
    assert_eq!(update(&mut m, 10, 0, 0, 0), 0);
    assert_eq!(update(&mut m, 11, 0, 0, 0), 0);
    let mut left = keys(&mut m);
    left.sort_unstable();
    assert_eq!(left, [0, 2, 10, 11]);
}

#[test]
fn copies_of_a_per_cpu_value_are_apart() {
    for kind in [kind::PERCPU_HASH, kind::PERCPU_ARRAY] {
        let mut m = map(kind, 4, 8, 4, 3);
        assert_eq!(update(&mut m, 1, 5, 0, 2), 0);
        assert_eq!(update(&mut m, 1, 6, 0, 0), 0);
        let values = [0, 1, 2].map(|cpu| lookup(&mut m, 1, cpu));
        assert_eq!(values, [Some(6), Some(0), Some(5)]);
    }
    let mut m = map(kind::PERCPU_HASH, 4, 8, 4, 3);
    assert_eq!(update(&mut m, 1, 5, 0, 3), EINVAL);
    update(&mut m, 1, 5, 0, 1);
    assert_eq!(address(&mut m, 1, 3), std::ptr::null_mut());
}

#[test]
fn values_with_timers_are_reported_when_they_go() {
    let mut with_timer = def(kind::HASH, 4, 32);
    with_timer.timers = vec![8];
    let mut m = made(&with_timer, 2, 1);
    let key = 1u32;
    let update = |m: &mut MapSlot, value: [u64; 4]| {
        // SAFETY: a key of four bytes, a value of 32.
        unsafe {
            m.runtime
                .update((&raw const key).cast(), value.as_ptr().cast(), 0, 0)
        }
    };
    assert_eq!(update(&mut m, [1, 2, 3, 4]), 0);
    let old = address(&mut m, 1, 0);
    // SAFETY: an element of four words.
    let words = |at: *mut u64| unsafe { at.cast::<[u64; 4]>().read() };
    assert_eq!(words(old), [1, 0, 0, 4], "a timer is not copied");
    // SAFETY: as above; the runtime keeps its own data in there.
    unsafe { old.add(1).write(77) };
    assert_eq!(update(&mut m, [5, 2, 3, 6]), 0);
    assert_eq!(m.runtime.freed(), Some(old.cast()));
    assert_eq!(m.runtime.freed(), None);
    assert_eq!(words(old), [1, 77, 0, 4]);
    let new = address(&mut m, 1, 0);
    assert_eq!(words(new), [5, 0, 0, 6]);
    let before = m.runtime.locate(new as u64).expect("a live element");
    assert_eq!(delete(&mut m, 1), 0);
    assert_eq!(m.runtime.freed(), Some(new.cast()));
    assert_eq!(m.runtime.locate(new as u64 + 8), None, "deleted");
    assert_eq!(update(&mut m, [1, 2, 3, 4]), 0);
    let again = address(&mut m, 1, 0);
    let place = m.runtime.locate(again as u64 + 8).expect("a live element");
    assert_eq!(
        (place.offset, place.value, again),
        (8, new.cast(), new),
        "the memory is used again"
    );
    assert_ne!(place.element, before.element, "by another element");
}

fn records(ring: &mut RingBuf) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    ring.drain(&mut |r| out.push(r.to_vec()));
    out
}

#[test]
fn a_ring_buffer_keeps_order_and_refuses_when_full() {
    let mut ring = RingBuf::new(&def(kind::RINGBUF, 0, 0), 4096).expect("a page");
    ring.keep_records(true);
    let output = |ring: &mut RingBuf, byte: u8, size: usize| {
        let data = vec![byte; size];
        // SAFETY: that many bytes.
        unsafe { ring.output(data.as_ptr(), size as u64, 0) }
    };
    assert_eq!(output(&mut ring, 1, 5), 0);
    let open = ring.reserve(8, 0);
    assert!(!open.is_null());
    assert_eq!(output(&mut ring, 3, 5), 0);
    // A record that is still open holds back those after it.
    assert_eq!(records(&mut ring), [vec![1; 5]]);
    assert!(ring.commit(open, true));
    assert!(!ring.commit(open, false), "already finished");
    assert_eq!(records(&mut ring), [vec![3; 5]]);
    // 16 + 16 + 16 bytes are used and read; 4096 - 1 can be in flight, in units of 8 with a header of 8.
    assert_eq!(ring.query(0), 0);
    assert_eq!(ring.query(3), 48);
    assert_eq!(output(&mut ring, 4, 4088), EAGAIN);
    assert_eq!(output(&mut ring, 4, 4080), 0, "it wraps around the end");
    assert_eq!(output(&mut ring, 5, 1), EAGAIN);
    assert_eq!(records(&mut ring), [vec![4; 4080]]);
    assert_eq!(ring.reserve(8, 1), std::ptr::null_mut(), "flags must be 0");
    assert_eq!((ring.counts(), ring.refused()), ((3, 4090), 2));
    ring.keep_records(false);
    for _ in 0..100 {
        assert_eq!(
            output(&mut ring, 6, 1000),
            0,
            "a reader that is always quick enough"
        );
    }
    assert_eq!(ring.counts().0, 103);
}

#[test]
fn definitions_the_kernel_refuses_are_refused_by_name() {
    for (kind, key, value, entries) in [
        (kind::HASH, 0, 8, 4),
        (kind::HASH, 4, 0, 4),
        (kind::HASH, 4, 8, 0),
        (kind::HASH, 1000, 8, 4),
        (kind::ARRAY, 8, 8, 4),
        (kind::QUEUE, 4, 8, 4),
        (kind::RINGBUF, 0, 0, 5000),
        (kind::RINGBUF, 0, 0, 8),
        (kind::PERF_EVENT_ARRAY, 4, 8, 4),
        (99, 4, 8, 4),
    ] {
        let Err(e) = try_map(&def(kind, key, value), entries, 1) else {
            panic!("map type {kind} with key {key}, value {value}, {entries} entries was accepted");
        };
        assert!(e.to_string().contains(" m"), "{e}");
    }
}
