// SPDX-License-Identifier: GPL-2.0-only
//! Notes and errors on the error stream. That they cannot be written (a full disk, a reader that has gone away) ends no
//! run: results count for more.
use std::fmt::Arguments;
use std::io::Write;

/// A line on standard error, as `eprintln!` writes it; an error of writing is ignored.
#[macro_export]
macro_rules! say {
    ($($words:tt)*) => {
        $crate::say::line(format_args!($($words)*))
    };
}

/// See [`say!`].
pub fn line(words: Arguments<'_>) {
    let _ = writeln!(std::io::stderr().lock(), "{words}");
}

/// Words whose line does not end with them: a question.
pub fn begin(words: &str) {
    let mut out = std::io::stderr().lock();
    let _ = out.write_all(words.as_bytes()).and_then(|()| out.flush());
}
