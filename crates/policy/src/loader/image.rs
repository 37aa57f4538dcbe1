// SPDX-License-Identifier: GPL-2.0-only
//! An object's bytes, changed in place: content and length of data sections, and new sections. What grows goes to the
//! end of the file.
use crate::error::{LoadError, Result};

pub struct Image {
    pub bytes: Vec<u8>,
    sections: Vec<Section>,
}

/// A row of the section table.
struct Section {
    name: String,
    /// Where the row is.
    row: usize,
    kind: u32,
    offset: usize,
    size: usize,
}

const PROGRAM_BITS: u32 = 1;
const SYMBOLS: u32 = 2;
const STRINGS: u32 = 3;
const NO_BITS: u32 = 8;
/// Of an entry of the symbol table, bytes.
const SYMBOL: usize = 24;
/// Of a row of the section table, bytes.
const ROW: usize = 64;
/// A file with so many sections says how many elsewhere.
const SECTIONS_MAX: usize = 0xff00;

fn broken() -> LoadError {
    LoadError::Broken("its section table does not fit the file".into())
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Result<u64> {
    let piece = at.checked_add(N).and_then(|end| bytes.get(at..end));
    let mut all = [0u8; 8];
    all[..N].copy_from_slice(piece.ok_or_else(broken)?);
    Ok(u64::from_le_bytes(all))
}

fn text(bytes: &[u8], at: usize) -> String {
    let rest = bytes.get(at..).unwrap_or_default();
    let name = rest.split(|b| *b == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

impl Image {
    /// # Errors
    /// The section table is none.
    pub fn new(object: &[u8]) -> Result<Image> {
        let at = |at: u64| usize::try_from(at).map_err(|_| broken());
        let table = at(number::<8>(object, 0x28)?)?;
        let width = number::<2>(object, 0x3a)? as usize;
        let rows = number::<2>(object, 0x3c)? as usize;
        let names = number::<2>(object, 0x3e)? as usize;
        let mut sections = Vec::new();
        for i in 0..rows {
            let row = table.checked_add(i * width).ok_or_else(broken)?;
            sections.push(Section {
                name: number::<4>(object, row)?.to_string(),
                row,
                kind: number::<4>(object, row + 4)? as u32,
                offset: at(number::<8>(object, row + 24)?)?,
                size: at(number::<8>(object, row + 32)?)?,
            });
        }
        let strings = sections.get(names).filter(|s| s.kind == STRINGS);
        let start = strings.ok_or_else(broken)?.offset;
        for section in &mut sections {
            let at = section.name.parse::<usize>().unwrap_or(0);
            section.name = text(object, start.saturating_add(at));
        }
        Ok(Image {
            bytes: object.to_vec(),
            sections,
        })
    }

    fn find(&self, name: &str) -> Result<usize> {
        let found = self.sections.iter().position(|s| s.name == name);
        found.ok_or_else(|| LoadError::Broken(format!("it has no section {name}")))
    }

    fn put(&mut self, at: usize, new: &[u8]) -> Result<()> {
        let end = at.checked_add(new.len()).ok_or_else(broken)?;
        let place = self.bytes.get_mut(at..end).ok_or_else(broken)?;
        place.copy_from_slice(new);
        Ok(())
    }

    /// Writes into a section with content.
    ///
    /// # Errors
    /// It has none, or not there.
    pub fn write(&mut self, section: &str, at: u64, new: &[u8]) -> Result<()> {
        let section = &self.sections[self.find(section)?];
        let at = usize::try_from(at).map_err(|_| broken())?;
        let fits = at
            .checked_add(new.len())
            .is_some_and(|end| end <= section.size);
        if !fits || section.kind == NO_BITS {
            return Err(broken());
        }
        let place = section.offset.checked_add(at).ok_or_else(broken)?;
        self.put(place, new)
    }

    /// Makes a section, whose only variable is `variable`, so many bytes long; new ones are zero.
    ///
    /// # Errors
    /// The tables of the object do not fit together.
    pub fn resize(&mut self, name: &str, variable: &str, bytes: u64) -> Result<()> {
        let index = self.find(name)?;
        let size = usize::try_from(bytes).map_err(|_| broken())?;
        let (row, old, start) = {
            let section = &self.sections[index];
            (section.row, section.size, section.offset)
        };
        if self.sections[index].kind != NO_BITS && size > old {
            let end = start.checked_add(old).ok_or_else(broken)?;
            let mut content = self.bytes.get(start..end).ok_or_else(broken)?.to_vec();
            content.resize(size, 0);
            let place = self.append(&content);
            self.put(row + 24, &(place as u64).to_le_bytes())?;
            self.sections[index].offset = place;
        }
        self.put(row + 32, &bytes.to_le_bytes())?;
        self.sections[index].size = size;
        self.resize_symbol(index, variable, bytes)?;
        self.resize_type(name, bytes as u32)
    }

    /// Appends to the end of the file, at a multiple of 64 bytes; where.
    fn append(&mut self, content: &[u8]) -> usize {
        let place = self.bytes.len().next_multiple_of(64);
        self.bytes.resize(place, 0);
        self.bytes.extend_from_slice(content);
        place
    }

    /// Adds a section that no code refers to.
    ///
    /// # Errors
    /// It has one of that name, or a section table that is none.
    pub fn add(&mut self, name: &str, content: &[u8]) -> Result<()> {
        if self.sections.iter().any(|s| s.name == name) {
            return Err(LoadError::Broken(format!("it has a section {name} before")));
        }
        let width = number::<2>(&self.bytes, 0x3a)? as usize;
        let strings = number::<2>(&self.bytes, 0x3e)? as usize;
        let rows = self.sections.len();
        if width != ROW || rows + 1 >= SECTIONS_MAX {
            return Err(broken());
        }
        let piece = |start: usize, size: usize| {
            let end = start.checked_add(size).ok_or_else(broken)?;
            self.bytes.get(start..end).ok_or_else(broken)
        };
        let names = self.sections.get(strings).ok_or_else(broken)?;
        let (row, label) = (names.row, names.size);
        let mut names = piece(names.offset, names.size)?.to_vec();
        names.extend_from_slice(name.as_bytes());
        names.push(0);
        let table = number::<8>(&self.bytes, 0x28)? as usize;
        let mut rows_now = piece(table, rows * ROW)?.to_vec();
        let names_at = self.append(&names);
        let at = self.append(content);
        let mut new = [0u8; ROW];
        new[..4].copy_from_slice(&(label as u32).to_le_bytes());
        new[4..8].copy_from_slice(&PROGRAM_BITS.to_le_bytes());
        new[24..32].copy_from_slice(&(at as u64).to_le_bytes());
        new[32..40].copy_from_slice(&(content.len() as u64).to_le_bytes());
        new[48..56].copy_from_slice(&1u64.to_le_bytes());
        rows_now.extend_from_slice(&new);
        let strings_row = &mut rows_now[row - table..];
        strings_row[24..32].copy_from_slice(&(names_at as u64).to_le_bytes());
        strings_row[32..40].copy_from_slice(&(names.len() as u64).to_le_bytes());
        let moved = self.append(&rows_now);
        self.put(0x28, &(moved as u64).to_le_bytes())?;
        self.put(0x3c, &((rows + 1) as u16).to_le_bytes())?;
        *self = Image::new(&self.bytes)?;
        Ok(())
    }

    fn resize_symbol(&mut self, section: usize, name: &str, bytes: u64) -> Result<()> {
        let symbols = self.sections.iter().find(|s| s.kind == SYMBOLS);
        let symbols = symbols.ok_or_else(broken)?;
        let (start, size) = (symbols.offset, symbols.size);
        let strings = number::<4>(&self.bytes, symbols.row + 40)? as usize;
        let strings = self.sections.get(strings).ok_or_else(broken)?.offset;
        for i in 0..size / SYMBOL {
            let at = start + i * SYMBOL;
            let label = strings.saturating_add(number::<4>(&self.bytes, at)? as usize);
            let home = number::<2>(&self.bytes, at + 6)? as usize;
            if home == section && text(&self.bytes, label) == name {
                return self.put(at + 16, &bytes.to_le_bytes());
            }
        }
        Err(broken())
    }

    /// The length that the type information gives the section and its variable.
    fn resize_type(&mut self, name: &str, bytes: u32) -> Result<()> {
        let start = self.sections[self.find(".BTF")?].offset;
        let header = number::<4>(&self.bytes, start + 4)? as usize;
        let part = |at| number::<4>(&self.bytes, start + at).map(|n| start + header + n as usize);
        let (mut at, strings) = (part(8)?, part(16)?);
        let end = at + number::<4>(&self.bytes, start + 12)? as usize;
        while at < end {
            let info = number::<4>(&self.bytes, at + 4)?;
            let (members, kind) = ((info & 0xffff) as usize, (info >> 24) & 31);
            let label = strings + number::<4>(&self.bytes, at)? as usize;
            if kind == 15 && text(&self.bytes, label) == name {
                let new = bytes.to_le_bytes();
                // 0 until libbpf has filled it in.
                if number::<4>(&self.bytes, at + 8)? != 0 {
                    self.put(at + 8, &new)?;
                }
                return self.put(at + 12 + 8, &new);
            }
            // As many bytes follow as there are members of this kind of type.
            at += 12
                + match kind {
                    1 | 14 | 17 => 4,
                    3 => 12,
                    4 | 5 | 15 | 19 => members * 12,
                    6 | 13 => members * 8,
                    _ => 0,
                };
        }
        Err(broken())
    }
}
