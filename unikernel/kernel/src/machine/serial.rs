// SPDX-License-Identifier: GPL-2.0-only
//! Words on the first serial port.
use super::lock::Lock;
use super::port;
use core::fmt::{self, Write};

const DATA: u16 = 0x3f8;
const LINE_STATUS: u16 = 0x3fd;
const CAN_SEND: u8 = 0x20;

struct Serial;

static SERIAL: Lock<Serial> = Lock::new(Serial);

impl Write for Serial {
    fn write_str(&mut self, words: &str) -> fmt::Result {
        for byte in words.bytes() {
            // SAFETY: the serial port's registers; it changes no memory.
            unsafe {
                while port::in8(LINE_STATUS) & CAN_SEND == 0 {}
                port::out8(DATA, byte);
            }
        }
        Ok(())
    }
}

/// Readies the port: 8 bits, no interrupts.
pub fn init() {
    // SAFETY: as above.
    unsafe {
        port::out8(0x3f9, 0);
        port::out8(0x3fb, 3);
        port::out8(0x3fa, 7);
    }
}

/// Writes a line.
pub fn line(words: fmt::Arguments<'_>) {
    SERIAL.with(|serial| {
        // It has no errors.
        let _ = writeln!(serial, "unikernel: {words}");
    });
}

/// Writes a line when nothing else can be relied on, a lock neither.
pub fn last_line(words: fmt::Arguments<'_>) {
    let _ = writeln!(Serial, "unikernel: {words}");
}

/// Writes a line to the serial port, as `println!`.
#[macro_export]
macro_rules! say {
    ($($words:tt)*) => { $crate::machine::serial::line(format_args!($($words)*)) };
}
