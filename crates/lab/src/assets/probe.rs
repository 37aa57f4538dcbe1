// SPDX-License-Identifier: GPL-2.0-only
//! Looks into a kernel image, without booting it, whether a sched_ext policy can load there.
//!
//! Some distribution kernels boot and run, but their type information (BTF) is malformed: tools that are too old leave
//! the implicit last argument (`struct bpf_prog_aux *`) in the prototypes of kernel functions that policies call, so
//! that libbpf refuses every policy. The probe unpacks the image, finds `.BTF`, and looks at those prototypes.
use object::read::elf::{ElfFile64, SectionHeader};
use object::{Endianness, Object, ObjectSection};
use std::collections::BTreeMap;
use std::io::Read;
use std::process::{Command, Stdio};

/// What the probe found.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Verdict {
    /// Policies can load.
    Sound,
    /// It has no sched_ext: the kernel's own scheduler can be watched.
    Plain,
    /// They cannot, because of this.
    Unfit(String),
    /// The image is packed in a way the probe cannot undo; only a boot will tell.
    Unknown(String),
}

/// Functions that every policy calls one way or the other.
const PROBED: [&str; 4] = [
    "scx_bpf_create_dsq",
    "scx_bpf_dsq_insert",
    "scx_bpf_dsq_move_to_local",
    "scx_bpf_kick_cpu",
];

/// Judges a bzImage.
pub fn probe(image: &[u8]) -> Verdict {
    let elf = match unpack(image) {
        Ok(e) => e,
        Err(why) => return Verdict::Unknown(why),
    };
    let btf = match btf_section(&elf) {
        Some(b) => b,
        None => return Verdict::Unfit("it carries no type information (BTF)".to_string()),
    };
    match Btf::parse(btf) {
        Some(b) => judge(&b),
        None => Verdict::Unfit("its type information (BTF) cannot be read".to_string()),
    }
}

fn judge(btf: &Btf<'_>) -> Verdict {
    if !btf.functions.contains_key(PROBED[0]) {
        return Verdict::Plain;
    }
    let bad: Vec<&str> = PROBED
        .iter()
        .filter(|f| btf.last_argument(f) == Some("bpf_prog_aux"))
        .copied()
        .collect();
    if bad.is_empty() {
        return Verdict::Sound;
    }
    Verdict::Unfit(format!(
        "its BTF is malformed: {} show an argument they do not have, so libbpf refuses every policy",
        bad.join(", ")
    ))
}

/// `uname -r` of a bzImage, from its boot header.
pub fn release(image: &[u8]) -> Option<String> {
    if image.get(0x202..0x206)? != b"HdrS" {
        return None;
    }
    let at = 0x200
        + usize::from(u16::from_le_bytes(
            image.get(0x20e..0x210)?.try_into().ok()?,
        ));
    let text = image.get(at..)?;
    let end = text.iter().position(|&b| b == 0 || b == b' ')?;
    String::from_utf8(text[..end].to_vec()).ok()
}

/// The vmlinux ELF inside a bzImage (x86 boot protocol 2.08 and newer).
fn unpack(image: &[u8]) -> Result<Vec<u8>, String> {
    let byte = |at: usize| image.get(at).copied().map(usize::from);
    let word = |at: usize| -> Option<usize> {
        let b = image.get(at..at + 4)?;
        Some(u32::from_le_bytes(b.try_into().ok()?) as usize)
    };
    if image.get(0x202..0x206) != Some(b"HdrS") {
        return Err("it is not an x86 bzImage".to_string());
    }
    let setup = match byte(0x1f1) {
        Some(0) | None => 4,
        Some(n) => n,
    };
    let (Some(offset), Some(length)) = (word(0x248), word(0x24c)) else {
        return Err("its boot header is too short".to_string());
    };
    let start = (setup + 1) * 512 + offset;
    let payload = image
        .get(start..start + length)
        .ok_or("its boot header points outside the file")?;
    match payload {
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            let mut out = Vec::new();
            ruzstd::decoding::StreamingDecoder::new(payload)
                .map_err(|e| format!("zstd: {e}"))?
                .read_to_end(&mut out)
                .map_err(|e| format!("zstd: {e}"))?;
            Ok(out)
        }
        [0x1f, 0x8b, ..] => {
            let mut out = Vec::new();
            flate2::read::GzDecoder::new(payload)
                .read_to_end(&mut out)
                .map_err(|e| format!("gzip: {e}"))?;
            Ok(out)
        }
        [0xfd, b'7', b'z', ..] => through("xz", payload),
        [0x02, 0x21, 0x4c, 0x18, ..] => through("lz4", payload),
        _ => Err("its payload is packed in an unknown format".to_string()),
    }
}

/// Unpacks with a system tool (which complains about the size that the kernel build appends, hence no check).
fn through(tool: &str, payload: &[u8]) -> Result<Vec<u8>, String> {
    let fail = |e: std::io::Error| format!("{tool}: {e}");
    let mut child = Command::new(tool)
        .arg("-dc")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(fail)?;
    let mut input = child.stdin.take().expect("piped");
    let mut output = child.stdout.take().expect("piped");
    let out = std::thread::scope(|s| {
        s.spawn(move || {
            // A tool that stops early closes the pipe; what it wrote is judged below.
            let _ = std::io::Write::write_all(&mut input, payload);
        });
        let mut out = Vec::new();
        output.read_to_end(&mut out).map(|_| out)
    });
    child.wait().map_err(fail)?;
    let out = out.map_err(fail)?;
    if out.is_empty() {
        return Err(format!("{tool} could not unpack it"));
    }
    Ok(out)
}

fn btf_section(elf: &[u8]) -> Option<&[u8]> {
    let file = ElfFile64::<Endianness>::parse(elf).ok()?;
    let section = file.section_by_name(".BTF")?;
    // Present but without contents in an image stripped of it.
    if section.elf_section_header().sh_size(Endianness::Little) == 0 {
        return None;
    }
    section.data().ok()
}

/// As much of BTF as the probe needs: functions, their prototypes, and what pointers point to.
struct Btf<'a> {
    strings: &'a [u8],
    /// Function name -> type id of its prototype.
    functions: BTreeMap<&'a str, u32>,
    types: Vec<Type<'a>>,
}

struct Type<'a> {
    name: u32,
    kind: u32,
    /// `type` or `size`, by kind.
    refers: u32,
    rest: &'a [u8],
}

const KIND_PTR: u32 = 2;
const KIND_FUNC: u32 = 12;
const KIND_FUNC_PROTO: u32 = 13;
/// typedef, volatile, const, restrict, type tag
const KIND_MODIFIERS: [u32; 5] = [8, 9, 10, 11, 18];

impl<'a> Btf<'a> {
    fn parse(data: &'a [u8]) -> Option<Btf<'a>> {
        let word = |b: &[u8], at: usize| -> Option<u32> {
            Some(u32::from_le_bytes(b.get(at..at + 4)?.try_into().ok()?))
        };
        if data.get(..2)? != [0x9f, 0xeb] {
            return None;
        }
        let header = word(data, 4)? as usize;
        let part = |off: usize| -> Option<&'a [u8]> {
            let at = header + word(data, off)? as usize;
            data.get(at..at + word(data, off + 4)? as usize)
        };
        let (mut left, strings) = (part(8)?, part(16)?);
        let mut types = vec![Type {
            name: 0,
            kind: 0,
            refers: 0,
            rest: &[],
        }];
        while !left.is_empty() {
            let info = word(left, 4)?;
            let (kind, vlen) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
            let more = match kind {
                1 | 14 | 17 => 4,
                3 => 12,
                4 | 5 | 15 | 19 => 12 * vlen,
                6 | 13 => 8 * vlen,
                _ => 0,
            };
            types.push(Type {
                name: word(left, 0)?,
                kind,
                refers: word(left, 8)?,
                rest: left.get(12..12 + more)?,
            });
            left = &left[12 + more..];
        }
        let mut btf = Btf {
            strings,
            functions: BTreeMap::new(),
            types,
        };
        for t in &btf.types {
            if t.kind == KIND_FUNC
                && let Some(name) = btf.text(t.name)
            {
                btf.functions.insert(name, t.refers);
            }
        }
        Some(btf)
    }

    fn text(&self, offset: u32) -> Option<&'a str> {
        let b = self.strings.get(offset as usize..)?;
        let end = b.iter().position(|&c| c == 0)?;
        std::str::from_utf8(&b[..end]).ok()
    }

    /// Name of the type that the function's last argument points to, if it is a pointer.
    fn last_argument(&self, function: &str) -> Option<&'a str> {
        let proto = self.types.get(*self.functions.get(function)? as usize)?;
        if proto.kind != KIND_FUNC_PROTO {
            return None;
        }
        let last = proto.rest.len().checked_sub(8)?;
        let id = u32::from_le_bytes(proto.rest[last + 4..].try_into().ok()?);
        let pointer = self.plain(id)?;
        if pointer.kind != KIND_PTR {
            return None;
        }
        self.text(self.plain(pointer.refers)?.name)
    }

    /// The type behind typedefs and qualifiers.
    fn plain(&self, mut id: u32) -> Option<&Type<'a>> {
        for _ in 0..16 {
            let t = self.types.get(id as usize)?;
            if !KIND_MODIFIERS.contains(&t.kind) {
                return Some(t);
            }
            id = t.refers;
        }
        None
    }
}
