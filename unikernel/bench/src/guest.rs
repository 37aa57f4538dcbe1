// SPDX-License-Identifier: GPL-2.0-only
//! A guest: QEMU with the unikernel, its words, and its end.
use crate::image;
use anyhow::{Context, Result, bail, ensure};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// How a guest reaches the world.
#[derive(Clone, Debug)]
pub enum Network {
    /// Not at all.
    None,
    /// This UDP port of 127.0.0.1 is its port of requests (QEMU's user network).
    Forwarded(u16),
    /// Frames by datagrams: from QEMU's socket to the client's, both in this folder.
    Frames(PathBuf),
}

/// Why neither QEMU nor the unikernel may say a word.
const NOT_STARTED: &str = "is the machine one with PVH (microvm, q35, pc; of QEMU's older ones from 4.0 on), with 8 MB \
                           or more, and if KVM is asked for, does it work here?";

/// A guest before it is started.
#[derive(Clone, Debug)]
pub struct Guest {
    /// QEMU's machine: `microvm`, `q35` or `pc`.
    pub machine: String,
    /// vCPUs.
    pub cpus: usize,
    /// Memory, MB.
    pub memory_mb: usize,
    /// `tcg` or `kvm`.
    pub accel: String,
    /// Deterministic emulation: time is instructions, 2 ns each, of one vCPU at a time.
    pub deterministic: bool,
    /// Boot options.
    pub options: String,
    /// Its network.
    pub network: Network,
    /// The image, if not this workspace's.
    pub image: Option<PathBuf>,
    /// Further arguments of QEMU.
    pub more: Vec<String>,
}

/// What a guest said, and how it ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Its lines, without `unikernel: `.
    pub lines: Vec<String>,
    /// The unikernel's exit code; `None`: QEMU itself failed.
    pub code: Option<u32>,
    /// What QEMU wrote about itself.
    pub qemu: String,
}

impl Ended {
    /// The number after `name` in a line `name value`, or `name=value` in any line.
    ///
    /// # Errors
    /// It was not told.
    pub fn value(&self, name: &str) -> Result<f64> {
        Ok(self.word(name)?.parse()?)
    }

    /// The same, as it stands.
    ///
    /// # Errors
    /// It was not told.
    pub fn word(&self, name: &str) -> Result<&str> {
        let mut words = self.lines.iter().flat_map(|line| {
            let mut words = line.split_ascii_whitespace();
            let whole = (words.next() == Some(name)).then(|| words.next()).flatten();
            let parts = line
                .split_ascii_whitespace()
                .filter_map(|word| word.strip_prefix(name)?.strip_prefix('='));
            whole.into_iter().chain(parts)
        });
        words.next().with_context(|| {
            format!(
                "the unikernel did not tell {name}; it said:\n{}",
                self.lines.join("\n")
            )
        })
    }

    /// Itself, if the unikernel ended well.
    ///
    /// # Errors
    /// It did not; its last words and QEMU's.
    pub fn done(self) -> Result<Ended> {
        let last = self.lines.last().map_or("nothing", String::as_str);
        ensure!(
            self.code == Some(0),
            "the unikernel ended with {:?}; its last word: {last}; {}",
            self.code,
            self.qemu
        );
        Ok(self)
    }
}

/// A guest that runs; ended when it is dropped.
pub struct Running {
    child: Child,
    lines: Receiver<String>,
    said: Vec<String>,
    errors: Option<thread::JoinHandle<String>>,
    /// When QEMU was started.
    pub started: Instant,
}

impl Guest {
    /// `machine` with `cpus` vCPUs and boot options.
    pub fn new(machine: &str, cpus: usize, options: &str) -> Guest {
        Guest {
            machine: machine.to_string(),
            cpus,
            memory_mb: 128,
            accel: "tcg".to_string(),
            deterministic: false,
            options: options.to_string(),
            network: Network::None,
            image: None,
            more: Vec::new(),
        }
    }

    /// With deterministic emulation.
    pub fn deterministic(self) -> Guest {
        Guest {
            deterministic: true,
            ..self
        }
    }

    /// With this network.
    pub fn network(self, network: Network) -> Guest {
        Guest { network, ..self }
    }

    fn arguments(&self, image: &Path) -> Vec<String> {
        let mut arguments: Vec<String> = [
            "-nodefaults",
            "-no-reboot",
            "-display",
            "none",
            "-serial",
            "stdio",
        ]
        .map(String::from)
        .to_vec();
        let mut add = |name: &str, value: String| arguments.extend([name.to_string(), value]);
        add("-device", "isa-debug-exit,iobase=0xf4,iosize=4".to_string());
        add("-accel", self.accel.clone());
        add("-machine", self.machine.clone());
        add("-smp", self.cpus.to_string());
        add("-m", self.memory_mb.to_string());
        add("-kernel", image.display().to_string());
        add("-append", self.options.clone());
        if self.deterministic {
            add("-icount", "shift=1,sleep=off".to_string());
        }
        let netdev = match &self.network {
            Network::None => None,
            Network::Forwarded(port) => {
                Some(format!("user,hostfwd=udp:127.0.0.1:{port}-10.0.2.15:7777"))
            }
            Network::Frames(folder) => Some(format!(
                "dgram,local.type=unix,local.path={0}/qemu,remote.type=unix,remote.path={0}/client",
                folder.display()
            )),
        };
        if let Some(netdev) = netdev {
            add("-netdev", format!("{netdev},id=net"));
            let slots = self.machine.starts_with("microvm");
            let card = if slots {
                "virtio-net-device"
            } else {
                "virtio-net-pci,disable-legacy=on"
            };
            add("-device", format!("{card},netdev=net"));
        }
        arguments.extend(self.more.iter().cloned());
        arguments
    }

    /// Starts it.
    ///
    /// # Errors
    /// The image does not build, or there is no QEMU.
    pub fn start(&self) -> Result<Running> {
        let image = self.image.clone().map_or_else(image::image, Ok)?;
        let started = Instant::now();
        let mut child = Command::new("qemu-system-x86_64")
            .args(self.arguments(&image))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("qemu-system-x86_64 cannot be run (tools/setup lab installs it)")?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (sender, lines) = channel();
        if let Some(stdout) = stdout {
            thread::spawn(move || {
                for line in BufReader::new(stdout)
                    .split(b'\n')
                    .map_while(|line| line.ok())
                {
                    let line = String::from_utf8_lossy(&line);
                    let line = line.trim_end();
                    let _ =
                        sender.send(line.strip_prefix("unikernel: ").unwrap_or(line).to_string());
                }
            });
        }
        let errors = stderr.map(|mut stderr| {
            thread::spawn(move || {
                let mut words = Vec::new();
                let _ = stderr.read_to_end(&mut words);
                String::from_utf8_lossy(&words).into_owned()
            })
        });
        Ok(Running {
            child,
            lines,
            said: Vec::new(),
            errors,
            started,
        })
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// As [`Guest::start`], or it does not end within `limit`.
    pub fn run(&self, limit: Duration) -> Result<Ended> {
        self.start()?.end(limit)
    }
}

impl Running {
    /// Waits for a line that begins with `words`, and gives it.
    ///
    /// # Errors
    /// It ended without, or did not say so within `limit`.
    pub fn wait_for(&mut self, words: &str, limit: Duration) -> Result<String> {
        let end = Instant::now() + limit;
        loop {
            match self
                .lines
                .recv_timeout(end.saturating_duration_since(Instant::now()))
            {
                Ok(line) => {
                    self.said.push(line.clone());
                    if line.starts_with(words) {
                        return Ok(line);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    bail!("the unikernel did not say `{words}` within {limit:?}")
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let ended = self.ended()?;
                    bail!(
                        "the unikernel ended without `{words}`: {}; {}",
                        ended.lines.join(" | "),
                        ended.qemu.trim()
                    );
                }
            }
        }
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// It does not end within `limit`.
    pub fn end(mut self, limit: Duration) -> Result<Ended> {
        let end = Instant::now() + limit;
        loop {
            match self
                .lines
                .recv_timeout(end.saturating_duration_since(Instant::now()))
            {
                Ok(line) => self.said.push(line),
                Err(RecvTimeoutError::Timeout) => {
                    let said = match &self.said[..] {
                        [] => "it said nothing".to_string(),
                        lines => format!("it said: {}", lines.join(" | ")),
                    };
                    bail!("the unikernel did not end within {limit:?}; {said}");
                }
                Err(RecvTimeoutError::Disconnected) => return self.ended(),
            }
        }
    }

    /// Tells each line as it comes, to its end, however long that takes.
    ///
    /// # Errors
    /// It says nothing within `first`.
    pub fn follow(mut self, first: Duration, mut tell: impl FnMut(&str)) -> Result<Ended> {
        let end = Instant::now() + first;
        loop {
            let line = if self.said.is_empty() {
                self.lines
                    .recv_timeout(end.saturating_duration_since(Instant::now()))
            } else {
                self.lines.recv().map_err(RecvTimeoutError::from)
            };
            match line {
                Ok(line) => {
                    tell(&line);
                    self.said.push(line);
                }
                Err(RecvTimeoutError::Timeout) => {
                    bail!("the unikernel said nothing within {first:?}: {NOT_STARTED}")
                }
                Err(RecvTimeoutError::Disconnected) => return self.ended(),
            }
        }
    }

    /// Whether it still runs.
    ///
    /// # Errors
    /// It cannot be found out.
    pub fn runs(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    fn ended(&mut self) -> Result<Ended> {
        let status = self.child.wait()?;
        let qemu = self
            .errors
            .take()
            .and_then(|errors| errors.join().ok())
            .unwrap_or_default();
        // isa-debug-exit: twice the code, and one. QEMU's own failures are 1; the unikernel never ends without a word.
        let code = status
            .code()
            .filter(|status| status % 2 == 1 && !self.said.is_empty())
            .map(|status| status as u32 / 2);
        let silent = qemu.trim().is_empty() && self.said.is_empty();
        Ok(Ended {
            lines: std::mem::take(&mut self.said),
            code,
            qemu: if silent {
                format!("it ended ({status}), and nobody said a word: {NOT_STARTED}")
            } else {
                qemu
            },
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
