// SPDX-License-Identifier: GPL-2.0-only
//! The network card, virtio-net: frames in and out, its interrupt where it has one.
mod find;
mod hal;

pub use find::{acknowledge, know};

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{Ordering, fence};
use hal::Memory;
use unikernel_service::card::Card;
use virtio_drivers::device::net::VirtIONetRaw;
use virtio_drivers::transport::SomeTransport;

/// Descriptors of each queue.
const QUEUE: usize = 256;
/// Bytes of a buffer: a frame with the device's header.
const BUFFER: usize = 2048;
/// Largest frame, bytes.
const FRAME: usize = 1514;

type Buffer = Box<[u8; BUFFER]>;

/// The card with its buffers.
pub struct Nic {
    driver: VirtIONetRaw<Memory, SomeTransport<'static>, QUEUE>,
    /// By descriptor: which buffer the device fills.
    filled: [usize; QUEUE],
    received: Vec<Buffer>,
    /// By descriptor: which buffer the device sends, and how much of it.
    sending: [(usize, usize); QUEUE],
    sent: Vec<Buffer>,
    free: Vec<usize>,
    interrupts: bool,
}

fn buffers(count: usize) -> Vec<Buffer> {
    (0..count).map(|_| Box::new([0; BUFFER])).collect()
}

impl Nic {
    /// The first card there is.
    ///
    /// # Errors
    /// There is none, or it cannot be driven; one line.
    pub fn find() -> Result<Nic, alloc::string::String> {
        let (transport, interrupts) = find::find()?;
        let mut driver = VirtIONetRaw::new(transport)
            .map_err(|error| alloc::format!("the network card cannot be driven: {error}"))?;
        driver.disable_interrupts();
        let mut nic = Nic {
            driver,
            filled: [0; QUEUE],
            received: buffers(QUEUE),
            sending: [(0, 0); QUEUE],
            sent: buffers(QUEUE / 2),
            free: (0..QUEUE / 2).collect(),
            interrupts,
        };
        (0..QUEUE).for_each(|buffer| nic.lend(buffer));
        Ok(nic)
    }

    /// Its Ethernet address.
    pub fn mac(&self) -> [u8; 6] {
        self.driver.mac_address()
    }

    /// Whether it tells by an interrupt that frames are there; else it must be asked.
    pub fn interrupts(&self) -> bool {
        self.interrupts
    }

    /// Has it interrupt at the next frame; whether there is one already (it does not then).
    pub fn listen(&mut self) -> bool {
        self.driver.enable_interrupts();
        // What it wrote before it saw this is seen now.
        fence(Ordering::SeqCst);
        let there = self.driver.poll_receive().is_some();
        if there {
            self.driver.disable_interrupts();
        }
        there
    }

    /// No interrupts any more.
    pub fn ignore(&mut self) {
        self.driver.disable_interrupts();
    }

    /// Gives the device a buffer to fill.
    fn lend(&mut self, buffer: usize) {
        // SAFETY: the buffer is the device's until `receive_complete`, and is not touched or moved meanwhile.
        let token = unsafe { self.driver.receive_begin(&mut self.received[buffer][..]) };
        self.filled[usize::from(token.expect("there are as many descriptors as buffers"))] = buffer;
    }

    /// The next frame that came.
    fn take(&mut self) -> Option<Vec<u8>> {
        let token = self.driver.poll_receive()?;
        let buffer = self.filled[usize::from(token)];
        // SAFETY: this buffer was given with this token.
        let done = unsafe {
            self.driver
                .receive_complete(token, &mut self.received[buffer][..])
        };
        let frame = match done {
            Ok((header, bytes)) => self.received[buffer]
                .get(header..header + bytes)
                .map(<[u8]>::to_vec),
            Err(_) => None,
        };
        self.lend(buffer);
        // A device that tells a length that cannot be: an empty frame, which is dropped.
        Some(frame.unwrap_or_default())
    }

    /// Takes back buffers that were sent, once they are few.
    fn reap(&mut self) {
        while self.free.len() < QUEUE / 4
            && let Some(token) = self.driver.poll_transmit()
        {
            let (buffer, bytes) = self.sending[usize::from(token)];
            // SAFETY: this part of this buffer was given with this token.
            if unsafe {
                self.driver
                    .transmit_complete(token, &self.sent[buffer][..bytes])
            }
            .is_ok()
            {
                self.free.push(buffer);
            }
        }
    }

    fn transmit<R>(&mut self, bytes: usize, fill: impl FnOnce(&mut [u8]) -> R) -> R {
        assert!(bytes <= FRAME, "a frame of {bytes} bytes");
        let buffer = self.free.pop().expect("only who found room sends");
        let header = self
            .driver
            .fill_buffer_header(&mut self.sent[buffer][..])
            .expect("a header fits into a buffer");
        let result = fill(&mut self.sent[buffer][header..header + bytes]);
        // SAFETY: the buffer is the device's until `transmit_complete`, and is not touched or moved meanwhile.
        let token = unsafe {
            self.driver
                .transmit_begin(&self.sent[buffer][..header + bytes])
        };
        let token = token.expect("there are more descriptors than buffers");
        self.sending[usize::from(token)] = (buffer, header + bytes);
        result
    }
}

impl Card for Nic {
    fn receive(&mut self, _: u64) -> Option<Vec<u8>> {
        self.take()
    }

    fn has_room(&mut self) -> bool {
        self.reap();
        !self.free.is_empty()
    }

    fn send<R>(&mut self, _: u64, bytes: usize, fill: impl FnOnce(&mut [u8]) -> R) -> R {
        self.transmit(bytes, fill)
    }
}
