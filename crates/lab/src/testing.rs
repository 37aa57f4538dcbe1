// SPDX-License-Identifier: GPL-2.0-only
//! For tests that write a program and start it.
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Write an executable file, by a child process: had this process the file open for writing, a child that another
/// test's thread starts at that moment would hold it open too, and the program could not be started (ETXTBSY).
pub fn write_program(path: &Path, bytes: &[u8]) {
    let mut shell = Command::new("sh")
        .args(["-c", "cat > \"$0\" && chmod 755 \"$0\""])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("a shell");
    let mut input = shell.stdin.take().expect("a pipe");
    input.write_all(bytes).expect("the shell reads all of it");
    drop(input);
    assert!(shell.wait().expect("the shell ends").success());
}
