// SPDX-License-Identifier: GPL-2.0-only
//! Reads a trace; shares nothing with the writer but the public field numbers.
use std::collections::BTreeMap;

/// Fields of a message: number, and a number or bytes.
fn fields(mut bytes: &[u8]) -> Vec<(u64, u64, &[u8])> {
    let mut out = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        match tag & 7 {
            0 => out.push((tag >> 3, varint(&mut bytes), &[][..])),
            2 => {
                let n = varint(&mut bytes) as usize;
                let (value, rest) = bytes.split_at(n);
                out.push((tag >> 3, 0, value));
                bytes = rest;
            }
            other => panic!("wire type {other}"),
        }
    }
    out
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let (mut value, mut shift) = (0, 0);
    loop {
        let byte = bytes[0];
        *bytes = &bytes[1..];
        value |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            return value;
        }
    }
}

fn packed(mut bytes: &[u8]) -> Vec<u64> {
    let mut out = Vec::new();
    while !bytes.is_empty() {
        out.push(varint(&mut bytes));
    }
    out
}

fn sub<'a>(message: &[(u64, u64, &'a [u8])], field: u64) -> Vec<&'a [u8]> {
    message
        .iter()
        .filter(|f| f.0 == field)
        .map(|f| f.2)
        .collect()
}

fn number(message: &[(u64, u64, &[u8])], field: u64) -> u64 {
    message.iter().find(|f| f.0 == field).map_or(0, |f| f.1)
}

/// (machine, cpu, time, prev_state, name of next) in the order of the file, and thread name -> process name.
pub type Read = (Vec<(u64, u64, u64, u64, String)>, BTreeMap<String, String>);

/// Everything in a trace.
pub fn read(bytes: &[u8]) -> Read {
    let text = |b: &[u8]| String::from_utf8(b.to_vec()).unwrap();
    let (mut switches, mut threads) = (Vec::new(), BTreeMap::new());
    let mut processes = BTreeMap::new();
    for (field, _, packet) in fields(bytes) {
        assert_eq!(field, 1);
        let packet = fields(packet);
        for tree in sub(&packet, 2) {
            let tree = fields(tree);
            for p in sub(&tree, 1) {
                let p = fields(p);
                processes.insert(number(&p, 1), text(sub(&p, 3)[0]));
            }
            for t in sub(&tree, 2) {
                let t = fields(t);
                threads.insert(text(sub(&t, 2)[0]), processes[&number(&t, 3)].clone());
            }
        }
        for bundle in sub(&packet, 1) {
            let bundle = fields(bundle);
            let compact = fields(sub(&bundle, 4)[0]);
            let names: Vec<String> = sub(&compact, 5).into_iter().map(text).collect();
            let list = |f| sub(&compact, f).first().map_or(Vec::new(), |b| packed(b));
            let (at, state, pid, name) = (list(1), list(2), list(3), list(6));
            assert!(at.len() == state.len() && at.len() == pid.len() && at.len() == name.len());
            let mut now = 0;
            for i in 0..at.len() {
                now += at[i];
                let name = names[name[i] as usize].clone();
                assert_eq!(name == "swapper", pid[i] == 0);
                switches.push((number(&packet, 98), number(&bundle, 1), now, state[i], name));
            }
        }
    }
    (switches, threads)
}
