// SPDX-License-Identifier: GPL-2.0-only
//! Compiles the guest of micro-VMs, `src/kvm/guest.c`, to plain machine code: no data, no relocations.
use berth_policy::build_script;
use object::{Object, ObjectSection, ObjectSymbol};
use std::error::Error;
use std::path::Path;

const FLAGS: [&str; 16] = [
    "--target=x86_64-unknown-none-elf",
    "-O2",
    "-std=gnu11",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-ffreestanding",
    "-fno-builtin",
    "-fno-pic",
    "-mno-red-zone",
    "-mgeneral-regs-only",
    "-march=x86-64",
    // A table would be data.
    "-fno-jump-tables",
    "-fno-stack-protector",
    "-fno-asynchronous-unwind-tables",
    "-fcf-protection=none",
];

fn main() {
    build_script::run(build);
}

fn build() -> Result<(), Box<dyn Error>> {
    let out = build_script::out()?;
    let compiled = out.join("guest.o");
    build_script::c_object(Path::new("src/kvm/guest.c"), &FLAGS, &compiled)?;
    let bytes = std::fs::read(&compiled)?;
    let object = object::File::parse(&bytes[..])?;
    let text = object
        .section_by_name(".text")
        .ok_or("guest.o has no code")?;
    if text.relocations().next().is_some() {
        return Err("guest.c: its code must not need relocations".into());
    }
    let data = |s: &object::Section| {
        [".data", ".bss", ".rodata"]
            .iter()
            .any(|d| s.name().is_ok_and(|n| n.starts_with(d)))
            && s.size() > 0
    };
    if object.sections().any(|s| data(&s)) {
        return Err("guest.c: only code can be copied, it must have no data".into());
    }
    std::fs::write(out.join("guest.bin"), text.data()?)?;
    let mut constants = String::new();
    for (name, symbol) in [
        ("ISR", "isr"),
        ("MEASURE", "measure"),
        ("GUEST", "guest"),
        ("ECHO", "echo"),
    ] {
        let at = object
            .symbols()
            .find(|s| s.name() == Ok(symbol))
            .ok_or_else(|| format!("guest.c has no `{symbol}`"))?
            .address();
        constants += &format!("/// Offset of `{symbol}`.\npub const {name}: u64 = {at};\n");
    }
    std::fs::write(out.join("guest.rs"), constants)?;
    let source = std::fs::read_to_string("src/kvm/guest.c")?;
    std::fs::write(out.join("codes.rs"), codes(&source)?)?;
    Ok(())
}

/// `enum op_code` of the guest as `enum Code`: `OP_COMPUTE` is `Compute`.
fn codes(guest: &str) -> Result<String, Box<dyn Error>> {
    let list = guest
        .split_once("enum op_code {")
        .and_then(|(_, rest)| rest.split_once('}'));
    let (list, _) = list.ok_or("guest.c has no `enum op_code`")?;
    let mut names = String::new();
    for name in list
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
    {
        let word = name
            .strip_prefix("OP_")
            .ok_or_else(|| format!("guest.c: `{name}` is no OP_NAME"))?;
        let (first, rest) = word.split_at(1);
        names += &format!("    {first}{},\n", rest.to_lowercase());
    }
    let head = "/// Codes of ops.\n#[derive(Clone, Copy, Debug, PartialEq, Eq)]\n#[repr(u64)]\npub enum Code";
    Ok(format!("{head} {{\n{names}}}\n"))
}
