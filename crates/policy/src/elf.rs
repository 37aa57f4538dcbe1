// SPDX-License-Identifier: GPL-2.0-only
//! The ELF side of a BPF object: sections, symbols, relocations, in the form the loader wants them.
use crate::error::{LoadError, Result};
use object::{
    Object, ObjectSection, ObjectSymbol, RelocationFlags, RelocationTarget, SectionFlags,
};
use std::collections::BTreeMap;

#[derive(Debug)]
pub struct ElfSection {
    pub name: String,
    /// Zero-filled for sections without content (.bss).
    pub data: Vec<u8>,
    pub executable: bool,
    /// By byte offset.
    pub relocations: BTreeMap<u64, Relocation>,
}

#[derive(Clone, Copy, Debug)]
pub struct Relocation {
    /// Index into [`Elf::symbols`].
    pub symbol: usize,
    pub addend: i64,
}

#[derive(Clone, Debug)]
pub struct Symbol {
    pub name: String,
    /// Index into [`Elf::sections`]; `None` = external.
    pub section: Option<usize>,
    pub value: u64,
    pub size: u64,
    pub function: bool,
    pub weak: bool,
    /// Stands for its section.
    pub is_section: bool,
}

#[derive(Debug)]
pub struct Elf {
    pub sections: Vec<ElfSection>,
    pub symbols: Vec<Symbol>,
}

const EM_BPF: u16 = 247;
const SHF_EXECINSTR: u64 = 4;
/// Data of one section larger than this is a mistake, bytes.
const SECTION_MAX: u64 = 256 << 20;

/// A copy at an address that is a multiple of eight, as ELF structures are read in place.
pub struct Aligned {
    words: Vec<u64>,
    len: usize,
}

impl Aligned {
    pub fn new(bytes: &[u8]) -> Aligned {
        let mut words = vec![0u64; bytes.len().div_ceil(8)];
        // SAFETY: at least as many bytes as copied; integers have no invalid values.
        unsafe {
            words
                .as_mut_ptr()
                .cast::<u8>()
                .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
        Aligned {
            words,
            len: bytes.len(),
        }
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `len` bytes were written.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), self.len) }
    }
}

impl Elf {
    pub fn parse(bytes: &[u8]) -> Result<Elf> {
        let aligned = Aligned::new(bytes);
        let file = object::File::parse(aligned.bytes())
            .map_err(|e| LoadError::NotAPolicy(e.to_string()))?;
        let is_bpf = matches!(
            &file,
            object::File::Elf64(f) if f.elf_header().e_machine.get(object::Endianness::Little) == EM_BPF
        );
        if !is_bpf || !file.is_little_endian() {
            return Err(LoadError::NotAPolicy(
                "it is not a little-endian 64-bit BPF object; compile with `-target bpf -mlittle-endian`".into(),
            ));
        }
        let broken = |e: object::Error| LoadError::Broken(e.to_string());
        // The crate's indices count the null section; ours are dense.
        let mut index = BTreeMap::new();
        let mut sections = Vec::new();
        let mut symbols = Vec::new();
        let mut symbol_index = BTreeMap::new();
        for section in file.sections() {
            let flags = match section.flags() {
                SectionFlags::Elf { sh_flags } => sh_flags,
                _ => 0,
            };
            if section.size() > SECTION_MAX {
                return Err(LoadError::Broken(format!(
                    "section {} of {} bytes",
                    section.name().unwrap_or("?"),
                    section.size()
                )));
            }
            let mut data = section.data().map_err(broken)?.to_vec();
            data.resize(data.len().max(section.size() as usize), 0);
            index.insert(section.index().0, sections.len());
            sections.push(ElfSection {
                name: section.name().map_err(broken)?.to_string(),
                data,
                executable: flags & SHF_EXECINSTR != 0,
                relocations: BTreeMap::new(),
            });
        }
        for symbol in file.symbols() {
            symbol_index.insert(symbol.index().0, symbols.len());
            symbols.push(Symbol {
                name: symbol.name().map_err(broken)?.to_string(),
                section: symbol
                    .section_index()
                    .and_then(|i| index.get(&i.0).copied()),
                value: symbol.address(),
                size: symbol.size(),
                function: symbol.kind() == object::SymbolKind::Text,
                weak: symbol.is_weak(),
                is_section: symbol.kind() == object::SymbolKind::Section,
            });
        }
        for section in file.sections() {
            let own = index[&section.index().0];
            for (offset, relocation) in section.relocations() {
                if !matches!(relocation.flags(), RelocationFlags::Elf { .. }) {
                    continue;
                }
                if let RelocationTarget::Symbol(s) = relocation.target() {
                    let symbol = *symbol_index
                        .get(&s.0)
                        .ok_or_else(|| LoadError::Broken("a relocation without symbol".into()))?;
                    sections[own].relocations.insert(
                        offset,
                        Relocation {
                            symbol,
                            addend: relocation.addend(),
                        },
                    );
                }
            }
        }
        Ok(Elf { sections, symbols })
    }

    pub fn section(&self, name: &str) -> Option<(usize, &ElfSection)> {
        self.sections
            .iter()
            .enumerate()
            .find(|(_, s)| s.name == name)
    }

    /// `SEC("syscall")` programs, with their places among the symbols.
    pub fn syscalls(&self) -> impl Iterator<Item = (usize, &Symbol)> {
        let is_one = |section: &ElfSection| {
            section.name == "syscall" || section.name.starts_with("syscall/")
        };
        let symbols = self.symbols.iter().enumerate();
        symbols.filter(move |(_, s)| {
            s.function && s.section.is_some_and(|i| is_one(&self.sections[i]))
        })
    }

    /// The function whose code starts at this place.
    pub fn function_at(&self, section: usize, offset: u64) -> Option<usize> {
        self.symbols
            .iter()
            .position(|s| s.function && s.section == Some(section) && s.value == offset)
    }

    /// The data symbol called `name` in a section.
    pub fn data_symbol(&self, section: usize, name: &str) -> Option<&Symbol> {
        self.symbols
            .iter()
            .find(|s| s.section == Some(section) && !s.function && s.name == name)
    }
}
