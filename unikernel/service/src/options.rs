// SPDX-License-Identifier: GPL-2.0-only
//! Boot options: `key=value` words of the command line. One that is not known is refused with those that are.
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Display;
use core::str::FromStr;
use unikernel_sched::{Config, Map, Policy};

/// What the unikernel does once it is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Serves requests over UDP, a task each, until `requests` are answered (0: for ever).
    Serve,
    /// Runs `tasks` tasks that come at one instant, tells their turn-around times, exits (the paper's experiment 4).
    Batch,
    /// Serves `clients` clients of its own, each with one request at a time, until `requests` are answered
    /// (experiment 5).
    Closed,
    /// Runs threads that check their registers and stacks under preemption, exits.
    Stress,
    /// Exits once it is up.
    Boot,
}

/// Where estimates of run times come from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Estimate {
    /// What the request or task says, which is what it takes.
    Oracle,
    /// That times exp(sigma * N(0, 1)); of tasks and of clients of its own.
    Lognormal(f64),
    /// Learned by class of request.
    Ema,
    /// None: order of arrival.
    None,
}

/// All options. Times in us, as in the words.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// `mode=serve|batch|closed|stress|boot`
    pub mode: Mode,
    /// `sched=mrsf|fcfs|rr|mqms`
    pub policy: Policy,
    /// `map=shared|per_queue` (mrsf)
    pub map: Map,
    /// `estimate=oracle|lognormal:SIGMA|ema|none` (mrsf)
    pub estimate: Estimate,
    /// `slice_us=N`: 1 to 10,000,000
    pub slice_us: u64,
    /// `q3_slice=N`: slices after which a task of Q3 lets the next one run; 0: never (mrsf)
    pub q3_slice: u64,
    /// `aging=N`: slices of waiting after which a task is next; 0: never (mrsf)
    pub aging: u64,
    /// `queues=N` (mqms)
    pub queues: usize,
    /// `work=task|inline`: each request a task, or answered where it is read (without a scheduler)
    pub inline: bool,
    /// `work_max_us=N`: requests for more are refused
    pub work_max_us: u64,
    /// `coalesce_us=N`: how long the network lets a running task go on
    pub coalesce_us: u64,
    /// `requests=N`: exit after so many replies; 0: never
    pub requests: u64,
    /// `tasks=N` (batch, stress)
    pub tasks: u64,
    /// `mean_us=N`: mean CPU time of a task or request (batch, closed)
    pub mean_us: u64,
    /// `seed=N` (batch, closed)
    pub seed: u64,
    /// `clients=N` (closed)
    pub clients: u64,
    /// `rtt_us=N`: from a reply to the client's next request (closed)
    pub rtt_us: u64,
    /// `ip=A.B.C.D`
    pub ip: [u8; 4],
    /// `gateway=A.B.C.D`
    pub gateway: [u8; 4],
}

/// All keys, as they are told.
pub const KEYS: &str = "mode, sched, map, estimate, slice_us, q3_slice, aging, queues, work, work_max_us, coalesce_us, \
                        requests, tasks, mean_us, seed, clients, rtt_us, ip, gateway";

const MODES: [(&str, Mode); 5] = [
    ("serve", Mode::Serve),
    ("batch", Mode::Batch),
    ("closed", Mode::Closed),
    ("stress", Mode::Stress),
    ("boot", Mode::Boot),
];

/// Where a virtual machine monitor tells of its devices.
const DEVICE: &str = "virtio_mmio.device";

/// Memory that is not for tasks: what CPUs and the scheduler have, lines that are written.
const ELSE: usize = 256 << 10;

impl Default for Options {
    fn default() -> Options {
        Options {
            mode: Mode::Serve,
            policy: Policy::Mrsf,
            map: Map::Shared,
            estimate: Estimate::Ema,
            slice_us: 10_000,
            q3_slice: 4,
            aging: 50,
            queues: 5,
            inline: false,
            work_max_us: 1_000_000,
            coalesce_us: 50,
            requests: 0,
            tasks: 500,
            mean_us: 1000,
            seed: 1,
            clients: 40,
            rtt_us: 100,
            ip: [10, 0, 2, 15],
            gateway: [10, 0, 2, 2],
        }
    }
}

impl Options {
    /// Of a command line.
    ///
    /// # Errors
    /// One line: which word is wrong, and what there is.
    pub fn read(line: &str) -> Result<Options, String> {
        let mut options = Options::default();
        let mut said: Vec<&str> = Vec::new();
        for word in line.split_ascii_whitespace() {
            let Some((key, value)) = word.split_once('=') else {
                return Err(format!(
                    "`{word}` is no boot option of the form key=value; there are {KEYS}"
                ));
            };
            options.set(key, value)?;
            // A monitor has as many of these as devices.
            if said.contains(&key) && key != DEVICE {
                return Err(format!("{key}: it is there twice"));
            }
            said.push(key);
        }
        match said.iter().find_map(|key| options.useless(key)) {
            Some(why) => Err(why),
            None if options.ip == options.gateway => Err(format!(
                "gateway: it is {}, as ip: one of the two is wrong",
                core::net::Ipv4Addr::from(options.gateway)
            )),
            None => Ok(options),
        }
    }

    /// Why `key` would change nothing, if it would not. (The slice is taken under every policy, so that experiments can
    /// give the same times to all.)
    fn useless(&self, key: &str) -> Option<String> {
        let policy = match key {
            "map" | "estimate" | "q3_slice" | "aging" => Policy::Mrsf,
            "queues" => Policy::Mqms,
            _ => self.policy,
        };
        if policy != self.policy {
            let (of, is) = (policy.name(), self.policy.name());
            return Some(format!(
                "{key}: it is of sched={of}, and this is sched={is}"
            ));
        }
        let modes: &[Mode] = match key {
            "tasks" => &[Mode::Batch, Mode::Stress],
            "mean_us" => &[Mode::Batch, Mode::Closed],
            "clients" | "rtt_us" => &[Mode::Closed],
            "requests" | "work" | "work_max_us" => &[Mode::Serve, Mode::Closed],
            _ => return None,
        };
        (!modes.contains(&self.mode)).then(|| {
            let named = |mode: &Mode| {
                MODES
                    .iter()
                    .find(|(_, it)| it == mode)
                    .map_or("", |it| it.0)
            };
            let of: Vec<&str> = modes.iter().map(named).collect();
            format!(
                "{key}: it is of mode={}, and this is mode={}",
                of.join(" and "),
                named(&self.mode)
            )
        })
    }

    /// Whether what the mode keeps fits into `heap` bytes, a task taking `task` bytes and the network `network`.
    ///
    /// # Errors
    /// One line: what does not, and how much would.
    pub fn fits(&self, heap: usize, task: usize, network: usize) -> Result<(), String> {
        let refuse = |key: &str, value: u64, most: usize| {
            if value <= most as u64 {
                return Ok(());
            }
            let mb = heap >> 20;
            Err(format!(
                "{key}: {value} do not fit into the {mb} MB of memory that are left; {most} do"
            ))
        };
        match self.mode {
            Mode::Batch | Mode::Stress => {
                refuse("tasks", self.tasks, heap.saturating_sub(ELSE) / task)
            }
            // The other half may be tasks.
            Mode::Closed => {
                let room = (heap / 2).saturating_sub(network + ELSE);
                refuse("requests", self.closed_requests(), room / size_of::<u32>())
            }
            Mode::Serve | Mode::Boot => Ok(()),
        }
    }

    /// Requests of `mode=closed`.
    pub fn closed_requests(&self) -> u64 {
        if self.requests == 0 {
            40_000
        } else {
            self.requests
        }
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "mode" => {
                self.mode = one_of(key, value, &MODES)?;
            }
            "sched" => {
                self.policy = value
                    .parse()
                    .map_err(|refused| format!("sched: {refused}"))?
            }
            "map" => {
                self.map = one_of(
                    key,
                    value,
                    &[("shared", Map::Shared), ("per_queue", Map::PerQueue)],
                )?
            }
            "estimate" => self.estimate = estimate(value)?,
            "slice_us" => self.slice_us = number(key, value, 1, 10_000_000)?,
            "q3_slice" => self.q3_slice = number(key, value, 0, 1_000_000)?,
            "aging" => self.aging = number(key, value, 0, 1_000_000)?,
            "queues" => self.queues = number(key, value, 1, 1024)?,
            "work" => self.inline = one_of(key, value, &[("task", false), ("inline", true)])?,
            "work_max_us" => self.work_max_us = number(key, value, 0, 60_000_000)?,
            "coalesce_us" => self.coalesce_us = number(key, value, 0, 1_000_000)?,
            "requests" => self.requests = number(key, value, 0, u64::MAX)?,
            "tasks" => self.tasks = number(key, value, 1, 1_000_000)?,
            "mean_us" => self.mean_us = number(key, value, 1, 10_000_000)?,
            "seed" => self.seed = number(key, value, 0, u64::MAX)?,
            "clients" => self.clients = number(key, value, 1, 1000)?,
            "rtt_us" => self.rtt_us = number(key, value, 0, 10_000_000)?,
            "ip" => self.ip = address(key, value)?,
            "gateway" => self.gateway = address(key, value)?,
            DEVICE => {}
            _ => return Err(format!("no boot option `{key}`; there are {KEYS}")),
        }
        Ok(())
    }

    /// The scheduler that they ask for, on `cpus` CPUs.
    pub fn config(&self, cpus: usize) -> Config {
        let slice_ns = self.slice_us * 1000;
        let slices = |n: u64| (n > 0).then(|| n * slice_ns);
        Config {
            map: self.map,
            sorted: self.estimate != Estimate::None,
            learned: self.estimate == Estimate::Ema,
            q3_slice_ns: slices(self.q3_slice),
            aging_ns: slices(self.aging),
            mqms_queues: self.queues,
            ..Config::new(self.policy, cpus, slice_ns)
        }
    }

    /// Deviation of the logarithm of estimates.
    pub fn sigma(&self) -> f64 {
        if let Estimate::Lognormal(sigma) = self.estimate {
            sigma
        } else {
            0.0
        }
    }
}

fn one_of<T: Copy>(key: &str, value: &str, known: &[(&str, T)]) -> Result<T, String> {
    known
        .iter()
        .find(|(name, _)| *name == value)
        .map(|(_, it)| *it)
        .ok_or_else(|| {
            let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
            format!("{key}: no `{value}`; there are {}", names.join(", "))
        })
}

fn number<T: FromStr + PartialOrd + Display>(
    key: &str,
    value: &str,
    least: T,
    most: T,
) -> Result<T, String> {
    match value.parse::<T>() {
        Ok(n) if least <= n && n <= most => Ok(n),
        _ => Err(format!(
            "{key}: `{value}` is no whole number from {least} to {most}"
        )),
    }
}

fn estimate(value: &str) -> Result<Estimate, String> {
    if let Some(sigma) = value.strip_prefix("lognormal:") {
        return match sigma.parse::<f64>() {
            Ok(sigma) if (0.0..=10.0).contains(&sigma) => Ok(Estimate::Lognormal(sigma)),
            _ => Err(format!("estimate: `{sigma}` is no number from 0 to 10")),
        };
    }
    let known = [
        ("oracle", Estimate::Oracle),
        ("ema", Estimate::Ema),
        ("none", Estimate::None),
    ];
    one_of("estimate", value, &known).map_err(|refused| refused + ", lognormal:SIGMA")
}

fn address(key: &str, value: &str) -> Result<[u8; 4], String> {
    let parsed: Result<core::net::Ipv4Addr, _> = value.parse();
    match parsed.map(|address| address.octets()) {
        Ok([first, _, _, last])
            if !(1..224).contains(&first) || first == 127 || last == 0 || last == 255 =>
        {
            Err(format!("{key}: {value} is no address of a host"))
        }
        Ok(octets) => Ok(octets),
        Err(_) => Err(format!(
            "{key}: `{value}` is no address of the form A.B.C.D"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_the_default() {
        assert_eq!(Options::read(""), Ok(Options::default()));
        assert_eq!(
            Options::read("  virtio_mmio.device=512@0xfeb00e00:12 "),
            Ok(Options::default())
        );
        assert_eq!(Options::default().config(1).check(), Ok(()));
    }

    #[test]
    fn words_are_read() {
        let line = "mode=closed sched=mrsf map=per_queue estimate=lognormal:1.25 slice_us=7 q3_slice=0 aging=3 \
                    work=inline requests=18446744073709551615 ip=192.168.1.9 gateway=192.168.1.1";
        let options = Options::read(line).unwrap();
        let config = options.config(3);
        assert_eq!(
            (options.mode, options.policy, options.sigma()),
            (Mode::Closed, Policy::Mrsf, 1.25)
        );
        assert_eq!(
            (config.slice_ns, config.q3_slice_ns, config.aging_ns),
            (7000, None, Some(21_000))
        );
        assert_eq!(
            (config.map, config.sorted, config.learned, config.cpus),
            (Map::PerQueue, true, false, 3)
        );
        assert_eq!(
            (options.ip, options.requests, options.inline),
            ([192, 168, 1, 9], u64::MAX, true)
        );
    }

    /// What a mode keeps is counted before it begins.
    #[test]
    fn what_does_not_fit_is_refused() {
        let fits = |line: &str, heap| Options::read(line).unwrap().fits(heap, 20_000, 1 << 20);
        let refused = fits("mode=batch", 8 << 20).unwrap_err();
        assert_eq!(
            refused,
            "tasks: 500 do not fit into the 8 MB of memory that are left; 406 do"
        );
        assert_eq!(fits("mode=batch tasks=406", 8 << 20), Ok(()));
        assert!(fits("mode=stress tasks=1000000", 1 << 30).is_err());
        assert_eq!(fits("mode=closed", 8 << 20), Ok(()));
        let refused = fits("mode=closed requests=18446744073709551615", 64 << 20).unwrap_err();
        assert!(
            refused.starts_with("requests: 18446744073709551615 do not fit"),
            "{refused}"
        );
        assert!(
            fits("mode=closed", 1 << 20)
                .unwrap_err()
                .ends_with("; 0 do")
        );
        assert_eq!(fits("requests=18446744073709551615", 1 << 20), Ok(()));
    }

    /// Each is refused in one line that names the word.
    #[test]
    fn wrong_words_are_refused_by_name() {
        for (line, says) in [
            (
                "sched=cfs",
                "sched: no policy `cfs`; there are mrsf, fcfs, rr, mqms",
            ),
            (
                "mode=fast",
                "mode: no `fast`; there are serve, batch, closed, stress, boot",
            ),
            ("slice=5", "no boot option `slice`; there are mode, sched,"),
            ("quiet", "`quiet` is no boot option"),
            (
                "slice_us=0",
                "slice_us: `0` is no whole number from 1 to 10000000",
            ),
            ("slice_us=-1", "slice_us: `-1`"),
            ("slice_us=", "slice_us: ``"),
            ("tasks=99999999999999999999999", "tasks: `9999"),
            (
                "estimate=lognormal:NaN",
                "estimate: `NaN` is no number from 0 to 10",
            ),
            ("estimate=lognormal:-1", "estimate: `-1`"),
            (
                "estimate=best",
                "estimate: no `best`; there are oracle, ema, none, lognormal:SIGMA",
            ),
            (
                "ip=10.0.2",
                "ip: `10.0.2` is no address of the form A.B.C.D",
            ),
            ("ip=10.0.2.255", "ip: 10.0.2.255 is no address of a host"),
            ("ip=224.0.0.1", "ip: 224.0.0.1 is no"),
            ("queues=0", "queues: `0`"),
            ("sched=rr sched=fcfs", "sched: it is there twice"),
            (
                "map=per_queue sched=fcfs",
                "map: it is of sched=mrsf, and this is sched=fcfs",
            ),
            (
                "sched=rr aging=0",
                "aging: it is of sched=mrsf, and this is",
            ),
            (
                "queues=3",
                "queues: it is of sched=mqms, and this is sched=mrsf",
            ),
            (
                "mode=boot requests=3",
                "requests: it is of mode=serve and closed, and this is mode=boot",
            ),
            (
                "tasks=7",
                "tasks: it is of mode=batch and stress, and this is",
            ),
            ("rtt_us=7", "rtt_us: it is of mode=closed, and this is"),
            (
                "ip=10.0.2.2",
                "gateway: it is 10.0.2.2, as ip: one of the two is wrong",
            ),
            ("=", "no boot option ``"),
        ] {
            let refused = Options::read(line).unwrap_err();
            assert!(
                refused.starts_with(says) && !refused.contains('\n'),
                "{line}: {refused}"
            );
        }
    }
}
