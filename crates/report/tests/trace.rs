// SPDX-License-Identifier: GPL-2.0-only
//! A trace, read back by a reader that shares nothing with the writer but the public field numbers.
use berth_report::perfetto::{Left, Writer};
mod reader;
use reader::read;

#[test]
fn what_was_written_is_read() {
    let mut file = Vec::new();
    let mut w = Writer::new(&mut file, "7.2");
    w.thread(0, 8, "web-1/0", "web-1");
    w.thread(0, 9, "build-1/0", "build-1");
    w.thread(1, 2, "worker", "web-1");
    let mut expected = Vec::new();
    for i in 0..3000u64 {
        let at = 5_000_000_000 + i * 400_000;
        let (cpu, task) = (
            (i % 3) as u32,
            [Some(8), Some(9), None][(i % 7 % 3) as usize],
        );
        let left = [Left::Runnable, Left::Asleep, Left::Dead][(i % 3) as usize];
        w.switch(0, at, cpu, left, task);
        let name = task.map_or("swapper", |t| if t == 8 { "web-1/0" } else { "build-1/0" });
        expected.push((
            0,
            u64::from(cpu),
            at,
            [0x100, 1, 0x10][(i % 3) as usize],
            name.to_string(),
        ));
        w.wake(0, at + 5, cpu, 8);
    }
    w.switch(1, 6_000_000_000, 0, Left::Asleep, Some(2));
    expected.push((1, 0, 6_000_000_000, 1, "worker".into()));
    // The number belongs to another thread from now on; what was told before keeps its name.
    w.thread(0, 8, "late/0", "web-1");
    w.switch(0, 7_000_000_000, 0, Left::Dead, Some(8));
    expected.push((0, 0, 7_000_000_000, 0x10, "late/0".into()));
    let written = w.finish().unwrap();
    assert_eq!(written.bytes, file.len() as u64);
    assert_eq!(written.switches, expected.len() as u64);
    // Each switch here has a wake-up with it.
    assert!(
        (file.len() as f64) < 24.0 * expected.len() as f64,
        "{}",
        file.len()
    );
    let (mut got, threads) = read(&file);
    got.sort();
    expected.sort();
    assert_eq!(got, expected);
    assert_eq!(threads["web-1/0"], "web-1");
    assert_eq!(threads["late/0"], "web-1");
    assert_eq!(threads["worker"], "web-1");
}

/// Takes so many bytes, then the disk is full.
struct Small(usize);

impl std::io::Write for Small {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if bytes.len() > self.0 {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        self.0 -= bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_is_told_at_the_end() {
    let mut w = Writer::new(Small(500), "7.2");
    w.thread(0, 8, "web-1/0", "web-1");
    (0..10_000).for_each(|i| w.switch(0, i, 0, Left::Asleep, (i % 2 == 0).then_some(8)));
    let error = w.finish().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
}
