// SPDX-License-Identifier: GPL-2.0-only
//! Is the kernel's type information (BTF) sound? A kernel whose BTF is malformed refuses every BPF program that uses
//! it, with messages that say nothing of the cause.
//!
//! Layout: `Documentation/bpf/btf.rst` of Linux.

/// What a sound BTF holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sound {
    pub types: usize,
    /// It describes `struct sched_ext_ops`.
    pub sched_ext: bool,
}

/// Walks all types.
///
/// # Errors
/// A sentence: what is wrong with it, and at which type.
pub fn check(bytes: &[u8]) -> Result<Sound, String> {
    let header: Vec<u32> = (0..6).map_while(|i| word(bytes, i * 4)).collect();
    let [magic, length, type_at, type_len, string_at, string_len] = header[..] else {
        return Err("it ends within its header".into());
    };
    if magic & 0xffff != 0xeb9f {
        return Err("it does not begin with the mark of BTF".into());
    }
    let part = |at: u32, len: u32, what: &str| {
        let start = u64::from(length) + u64::from(at);
        let end = start + u64::from(len);
        let range = usize::try_from(start).ok().zip(usize::try_from(end).ok());
        let part = range.and_then(|(start, end)| bytes.get(start..end));
        part.ok_or(format!("its {what} end behind the file"))
    };
    let types = part(type_at, type_len, "types")?;
    let strings = part(string_at, string_len, "names")?;
    let mut all = Vec::new();
    let mut at = 0;
    while at < types.len() {
        let id = all.len() + 1;
        let t = Type::read(types, at).ok_or(format!("type {id} is cut off"))?;
        let end = at
            + 12
            + t.extra()
                .ok_or(format!("type {id} is of the unknown kind {}", t.kind))?;
        if end > types.len() {
            return Err(format!("type {id} is cut off"));
        }
        all.push((at, t));
        at = end;
    }
    let mut sched_ext = false;
    for (i, (at, t)) in all.iter().enumerate() {
        let id = i + 1;
        let name = strings.get(t.name as usize..);
        let name = name.ok_or(format!("the name of type {id} is outside of the names"))?;
        sched_ext |= matches!(t.kind, 4 | 5) && name.starts_with(b"sched_ext_ops\0");
        for other in t.refers_to(types, *at) {
            if other as usize > all.len() {
                return Err(format!(
                    "type {id} refers to type {other}; there are {}",
                    all.len()
                ));
            }
        }
    }
    Ok(Sound {
        types: all.len(),
        sched_ext,
    })
}

/// `struct btf_type`.
#[derive(Clone, Copy, Debug)]
struct Type {
    name: u32,
    kind: u32,
    members: u32,
    size_or_type: u32,
}

impl Type {
    fn read(types: &[u8], at: usize) -> Option<Type> {
        let info = word(types, at + 4)?;
        Some(Type {
            name: word(types, at)?,
            kind: info >> 24 & 0x1f,
            members: info & 0xffff,
            size_or_type: word(types, at + 8)?,
        })
    }

    /// Bytes behind the twelve of every type; `None` for a kind that BTF does not have.
    fn extra(&self) -> Option<usize> {
        let each = |size: usize| self.members as usize * size;
        Some(match self.kind {
            // int, variable, declaration tag
            1 | 14 | 17 => 4,
            // array
            3 => 12,
            // struct, union, data section, enum of 64 bits
            4 | 5 | 15 | 19 => each(12),
            // enum, parameters of a function
            6 | 13 => each(8),
            // pointer, forward, typedef, qualifiers, function, float, type tag
            2 | 7..=12 | 16 | 18 => 0,
            _ => return None,
        })
    }

    /// Types it refers to.
    fn refers_to(&self, types: &[u8], at: usize) -> Vec<u32> {
        let own = matches!(self.kind, 2 | 8..=14 | 17 | 18).then_some(self.size_or_type);
        let at = at + 12;
        let (step, offset) = match self.kind {
            // struct, union: name, type, offset; parameter: name, type
            4 | 5 => (12, 4),
            13 => (8, 4),
            // data section: type, offset, size
            15 => (12, 0),
            3 => return [0, 4].iter().filter_map(|o| word(types, at + o)).collect(),
            _ => return own.into_iter().collect(),
        };
        let members =
            (0..self.members as usize).filter_map(|i| word(types, at + i * step + offset));
        members.chain(own).collect()
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at.checked_add(4)?)?;
    four.try_into().ok().map(u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// int; struct sched_ext_ops { int }
    fn small(member: u32) -> Vec<u8> {
        let types: Vec<u32> = vec![0, 1 << 24, 4, 32, 1, 4 << 24 | 1, 4, 0, member, 0];
        let names = b"\0sched_ext_ops\0";
        let header = [0x0001_eb9f, 24, 0, 40, 40, 15];
        let mut bytes: Vec<u8> = header
            .iter()
            .chain(&types)
            .flat_map(|w: &u32| w.to_ne_bytes())
            .collect();
        bytes.extend(names);
        bytes
    }

    #[test]
    fn sound_and_malformed() {
        let sound = check(&small(1)).unwrap();
        assert_eq!((sound.types, sound.sched_ext), (2, true));
        assert!(check(&small(9)).unwrap_err().contains("refers to type 9"));
        assert!(
            check(&small(1)[..50])
                .unwrap_err()
                .contains("behind the file")
        );
        assert!(check(b"").is_err());
        let mut other = small(1);
        other[24 + 7] = 25;
        assert!(check(&other).unwrap_err().contains("unknown kind 25"));
    }

    #[test]
    fn this_kernel() {
        if let Ok(bytes) = std::fs::read("/sys/kernel/btf/vmlinux") {
            assert!(check(&bytes).unwrap().types > 1000);
        }
    }

    proptest! {
        #[test]
        fn nothing_panics(mut hits in proptest::collection::vec((0usize..80, any::<u8>()), 0..6), cut in 0usize..80) {
            let mut bytes = small(1);
            for (at, by) in hits.drain(..) {
                if let Some(b) = bytes.get_mut(at) {
                    *b = by;
                }
            }
            bytes.truncate(cut);
            let _ = check(&bytes);
        }
    }
}
