// SPDX-License-Identifier: GPL-2.0-only
//! A network card: frames in, frames out. A real one is the kernel's; clients inside the guest are one, too.
use alloc::vec::Vec;

/// A card.
pub trait Card {
    /// The next frame that came.
    fn receive(&mut self, now_us: u64) -> Option<Vec<u8>>;

    /// Whether a frame can be sent now.
    fn has_room(&mut self) -> bool;

    /// Sends a frame of `bytes` bytes, 1514 at most, that `fill` writes; only after [`Card::has_room`] said yes.
    fn send<R>(&mut self, now_us: u64, bytes: usize, fill: impl FnOnce(&mut [u8]) -> R) -> R;
}
