// SPDX-License-Identifier: GPL-2.0-only
//! Where the card is: in a slot of virtio-mmio (microvm), with an interrupt, or on PCI (q35, pc), where it is asked.
use super::super::{lapic, pci, trap};
use super::hal::Memory;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};
use virtio_drivers::transport::mmio::{MmioTransport, VirtIOHeader};
use virtio_drivers::transport::pci::PciTransport;
use virtio_drivers::transport::pci::bus::{Command, PciRoot};
use virtio_drivers::transport::{DeviceType, SomeTransport, Transport};

/// QEMU's microvm: slots of virtio-mmio, as its ACPI tables describe them.
const SLOTS: usize = 0xfeb0_0000;
const SLOT: usize = 512;
/// "virt".
const MAGIC: u32 = 0x7472_6976;
/// Slots are the interrupts from here on, those of the second I/O APIC.
const FIRST_INTERRUPT: u32 = 24;
/// Pins of it.
const PINS: usize = 24;

/// The I/O APIC of the slots, 0: none.
static IO_APIC: AtomicUsize = AtomicUsize::new(0);
/// The slot whose interrupt is on, 0: none.
static SLOT_IN_USE: AtomicUsize = AtomicUsize::new(0);

/// Which I/O APICs there are: address, first interrupt.
pub fn know(io_apics: Vec<(usize, u32)>) {
    if let Some((address, _)) = io_apics
        .into_iter()
        .find(|(_, first)| *first == FIRST_INTERRUPT)
    {
        IO_APIC.store(address, Ordering::Relaxed);
    }
}

/// Tells the card that its interrupt was seen.
pub fn acknowledge() {
    let slot = SLOT_IN_USE.load(Ordering::Relaxed);
    if slot != 0 {
        // SAFETY: a slot's registers of what the interrupt is for, and of what is acknowledged.
        unsafe {
            let why = ((slot + 0x60) as *const u32).read_volatile();
            ((slot + 0x64) as *mut u32).write_volatile(why);
        }
    }
}

/// Leads pin `pin` of the slots' I/O APIC to this CPU; whether there is one.
fn lead(pin: usize, slot: usize) -> bool {
    let io_apic = IO_APIC.load(Ordering::Relaxed);
    if io_apic == 0 {
        return false;
    }
    let write = |register: usize, value: u32| {
        // SAFETY: the I/O APIC's registers: which one, and its value.
        unsafe {
            (io_apic as *mut u32).write_volatile(register as u32);
            ((io_apic + 0x10) as *mut u32).write_volatile(value);
        }
    };
    SLOT_IN_USE.store(slot, Ordering::Relaxed);
    write(0x11 + 2 * pin, lapic::id() << 24);
    write(0x10 + 2 * pin, u32::from(trap::NIC));
    true
}

fn network<T: Transport>(transport: T) -> Option<T> {
    (transport.device_type() == DeviceType::Network).then_some(transport)
}

/// The card, and whether it interrupts.
pub fn find() -> Result<(SomeTransport<'static>, bool), String> {
    if pci::is_there() {
        find_on_pci()
    } else {
        find_in_slots()
    }
}

fn find_in_slots() -> Result<(SomeTransport<'static>, bool), String> {
    for pin in 0..PINS {
        let slot = SLOTS + pin * SLOT;
        // SAFETY: without PCI this is a microvm, whose slots are here; where there is none, ones are read.
        if unsafe { (slot as *const u32).read_volatile() } != MAGIC {
            continue;
        }
        let header = NonNull::new(slot as *mut VirtIOHeader).expect("no slot is at address 0");
        // SAFETY: a slot of virtio-mmio, which nothing else drives.
        let transport = unsafe { MmioTransport::new(header, SLOT) };
        if let Some(transport) = transport.ok().and_then(network) {
            return Ok((transport.into(), lead(pin, slot)));
        }
    }
    Err(String::from(
        "no virtio-net card in the slots of virtio-mmio (QEMU: -device virtio-net-device,netdev=...)",
    ))
}

fn find_on_pci() -> Result<(SomeTransport<'static>, bool), String> {
    const VIRTIO: u16 = 0x1af4;
    let mut root = PciRoot::new(pci::Ports);
    let functions: Vec<_> = root.enumerate_bus(0).collect();
    for (function, _) in functions
        .into_iter()
        .filter(|(_, info)| info.vendor_id == VIRTIO)
    {
        root.set_command(function, Command::MEMORY_SPACE | Command::BUS_MASTER);
        match PciTransport::new::<Memory, _>(&mut root, function) {
            Ok(transport) => {
                if let Some(transport) = network(transport) {
                    return Ok((transport.into(), false));
                }
            }
            Err(error) => {
                return Err(format!(
                    "the virtio device {function} on PCI cannot be driven: {error}"
                ));
            }
        }
    }
    Err(String::from(
        "no virtio-net card on PCI (QEMU: -device virtio-net-pci,netdev=...,disable-legacy=on)",
    ))
}
