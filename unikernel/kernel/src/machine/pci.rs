// SPDX-License-Identifier: GPL-2.0-only
//! PCI's configuration by I/O ports.
use super::port;
use virtio_drivers::transport::pci::bus::{ConfigurationAccess, DeviceFunction};

const ADDRESS: u16 = 0xcf8;
const DATA: u16 = 0xcfc;

/// Whether there is a PCI bus.
pub fn is_there() -> bool {
    // SAFETY: the configuration's registers; where there are none, all bits read as ones.
    unsafe { port::in32(ADDRESS) != u32::MAX }
}

/// The ports.
pub struct Ports;

fn select(function: DeviceFunction, register: u8) {
    let address = 1 << 31
        | u32::from(function.bus) << 16
        | u32::from(function.device) << 11
        | u32::from(function.function) << 8
        | u32::from(register & 0xfc);
    // SAFETY: says which register is next.
    unsafe { port::out32(ADDRESS, address) }
}

impl ConfigurationAccess for Ports {
    fn read_word(&self, function: DeviceFunction, register: u8) -> u32 {
        select(function, register);
        // SAFETY: reads a device's configuration.
        unsafe { port::in32(DATA) }
    }

    fn write_word(&mut self, function: DeviceFunction, register: u8, value: u32) {
        select(function, register);
        // SAFETY: the driver's, which places devices and lets them use the memory it gives them.
        unsafe { port::out32(DATA, value) }
    }

    unsafe fn unsafe_clone(&self) -> Ports {
        Ports
    }
}
