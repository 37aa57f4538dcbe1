// SPDX-License-Identifier: GPL-2.0-only
//! `berth top`: a screen of VMs, and of the threads of one of them.
use super::list::{TOO_LONG, headline};
use super::{Cell, columns, left, notes, right, share, shortened};
use crate::{Style, text};
use berth_host::trace::Waited;
use berth_host::view::{View, VmView};

/// By what the VMs are in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    Delay,
    Cpus,
    Wakeup,
    Name,
}

impl Sort {
    /// The next one, for a key.
    pub fn next(self) -> Sort {
        match self {
            Sort::Delay => Sort::Cpus,
            Sort::Cpus => Sort::Wakeup,
            Sort::Wakeup => Sort::Name,
            Sort::Name => Sort::Delay,
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Sort::Delay => "run delay",
            Sort::Cpus => "CPUs used",
            Sort::Wakeup => "wake-up p99",
            Sort::Name => "name",
        }
    }
}

/// What the screen shows.
#[derive(Clone, Debug)]
pub struct Screen {
    pub sort: Sort,
    /// The VM that is chosen, by process; `None`: the one at `row`.
    pub chosen: Option<i32>,
    /// Where the chosen one was last, from 0: that row is chosen when it has ended.
    pub row: usize,
    /// Columns behind the name that are scrolled away.
    pub aside: usize,
    /// What the keys do, instead of the VMs.
    pub help: bool,
    /// The VM whose threads are shown, by process.
    pub open: Option<i32>,
    /// Lines there are; `None`: all that is needed.
    pub height: Option<usize>,
    /// Keys and the chosen line are shown.
    pub live: bool,
    /// Nothing is read any more.
    pub paused: bool,
    /// No line is cut: it is not for a screen.
    pub whole: bool,
}

impl Screen {
    /// All VMs at once, for a pipe.
    pub fn plain() -> Screen {
        Screen {
            sort: Sort::Delay,
            chosen: None,
            row: 0,
            aside: 0,
            help: false,
            open: None,
            height: None,
            live: false,
            paused: false,
            whole: false,
        }
    }
}

impl Screen {
    /// The row of the chosen VM among these.
    fn row_of(&self, vms: &[&VmView]) -> usize {
        let at = vms.iter().position(|v| Some(v.vm.pid) == self.chosen);
        at.unwrap_or(self.row).min(vms.len().saturating_sub(1))
    }

    /// Chooses the VM in the row that `to` makes of the chosen one's and the rows of a page.
    pub fn choose(&mut self, view: &View, to: impl Fn(usize, usize) -> usize) {
        let vms = ordered(view, self.sort);
        // The head, an empty line, the columns' names, an empty line, the keys.
        let page = self.height.map_or(10, |h| h.saturating_sub(5)).max(1);
        self.row = to(self.row_of(&vms), page).min(vms.len().saturating_sub(1));
        self.chosen = vms.get(self.row).map(|v| v.vm.pid);
    }
}

/// The VMs in the order of the screen.
pub fn ordered(view: &View, sort: Sort) -> Vec<&VmView> {
    let mut vms: Vec<&VmView> = view.vms.iter().collect();
    let by = |f: &dyn Fn(&VmView) -> Option<f64>, vms: &mut Vec<&VmView>| {
        let key = |v: &VmView| f(v).unwrap_or(-1.0);
        vms.sort_by(|a, b| key(b).total_cmp(&key(a)));
    };
    match sort {
        // They come by name.
        Sort::Name => (),
        Sort::Delay => by(&|v| v.run_delay, &mut vms),
        Sort::Cpus => by(&|v| Some(v.rates?.cpus), &mut vms),
        Sort::Wakeup => by(&|v| v.waited.as_ref()?.p99_ns, &mut vms),
    }
    vms
}

const HEADS: [&str; 8] = [
    "VM",
    "CLASS",
    "vCPUs",
    "CPUS USED",
    "RUN DELAY",
    "WAKE-UP p99",
    "WORST",
    "WAITS FOR",
];
/// Columns of letters.
const LEFT: [usize; 3] = [0, 1, 7];
/// Columns that a narrow screen does without, the first first: whom a VM waits for is what one looks for.
const SPARED: [usize; 3] = [2, 1, 6];
/// So many columns can be scrolled away.
pub const ASIDE: usize = HEADS.len() - 2;

/// The screen, line by line; never more than `height` of them.
pub fn top(view: &View, screen: &Screen, style: &Style) -> Vec<String> {
    if screen.help {
        let lines = HELP.iter().map(|l| cut(l, style.width)).collect();
        return fitted(lines, screen);
    }
    let vms = ordered(view, screen.sort);
    let chosen_at = screen.row_of(&vms);
    let cut = |line: &str| match screen.whole {
        true => line.to_string(),
        false => cut(line, style.width),
    };
    let mut lines = vec![cut(&headline(view)), String::new()];
    if vms.is_empty() {
        lines.push("  No virtual machine is running.".into());
        lines.extend(view.notes.iter().flat_map(|n| fold(n, style)));
        lines.extend(screen.live.then(|| cut(&keys(screen))));
        return fitted(lines, screen);
    }
    let head = HEADS.iter().enumerate().map(|(i, h)| {
        if LEFT.contains(&i) {
            left(*h)
        } else {
            right(*h)
        }
    });
    let mut rows: Vec<(char, Vec<Cell>)> = vec![(' ', head.collect())];
    let mut chosen_row = 0;
    for (i, vm) in vms.iter().enumerate() {
        let chosen = screen.live && i == chosen_at;
        let waits = vm.run_delay.is_some_and(|d| d > TOO_LONG);
        let mark = match (chosen, waits) {
            (true, _) => '>',
            (false, true) => '!',
            (false, false) => ' ',
        };
        if chosen {
            chosen_row = rows.len();
        }
        rows.push((mark, row(vm)));
        if screen.open == Some(vm.vm.pid) {
            rows.extend(vm.threads().map(|(t, rates)| {
                let cells = vec![
                    left(format!("  {} {}", t.role, shortened(&t.name, 16))),
                    left(""),
                    right(t.id.tid.to_string()),
                    right(rates.map_or("-".into(), |r| format!("{:.2}", r.cpus))),
                    right(share(rates.and_then(|r| r.run_delay()))),
                ];
                (' ', cells)
            }));
        }
    }
    rows.push((' ', host(view)));
    let table: Vec<String> = shown(rows, screen, style)
        .into_iter()
        .enumerate()
        .map(|(i, l)| {
            let l = cut(&l);
            if i == 0 || (screen.live && i == chosen_row) {
                style.bold(&l)
            } else {
                l
            }
        })
        .collect();
    let below = match screen.live {
        true => vec![String::new(), cut(&keys(screen))],
        false => footnotes(view, style),
    };
    // What does not fit is left out of the table's end, never its head; the chosen line stays in sight.
    let room = screen.height.map_or(table.len(), |h| {
        h.saturating_sub(lines.len() + below.len()).max(2)
    });
    let first = (chosen_row + 1).saturating_sub(room).min(table.len());
    lines.push(table[0].clone());
    lines.extend(table.iter().skip(1 + first).take(room - 1).cloned());
    lines.extend(below);
    fitted(lines, screen)
}

/// The table's lines without the columns that were scrolled away, and without those that a narrow screen spares.
fn shown(rows: Vec<(char, Vec<Cell>)>, screen: &Screen, style: &Style) -> Vec<String> {
    let mut rows = rows;
    let mut there: Vec<usize> = (0..HEADS.len()).collect();
    let mut drop = |rows: &mut Vec<(char, Vec<Cell>)>, column: usize| {
        let Some(at) = there.iter().position(|c| *c == column) else {
            return;
        };
        there.remove(at);
        for (_, cells) in rows.iter_mut().filter(|(_, cells)| at < cells.len()) {
            cells.remove(at);
        }
    };
    (1..=screen.aside).for_each(|column| drop(&mut rows, column));
    let mut lines = columns(&rows);
    for spared in SPARED {
        let wide = lines.iter().map(|l| text::width(l)).max();
        if !screen.live || wide.is_none_or(|w| w <= style.width) {
            break;
        }
        drop(&mut rows, spared);
        lines = columns(&rows);
    }
    lines
}

fn footnotes(view: &View, style: &Style) -> Vec<String> {
    let mut notes = vec![format!(
        "Over {:.1} s. Run delay: of the time a VM's threads wanted to run, the part they stood in a queue.",
        view.seconds
    )];
    if view.vms.iter().all(|v| v.waited.is_none()) {
        notes.push(
            "Wake-up latency and who waits for whom take BPF: as root, on a kernel with BTF."
                .into(),
        );
    }
    notes.extend(view.notes.iter().cloned());
    std::iter::once(String::new())
        .chain(notes.iter().flat_map(|n| fold(n, style)))
        .collect()
}

fn fold(note: &str, style: &Style) -> Vec<String> {
    notes(&[note.to_string()], style.width)
        .lines()
        .map(String::from)
        .collect()
}

const HELP: [&str; 16] = [
    "berth top",
    "",
    "  up, down, page up, page down, home, end   choose a VM; the choice follows it, wherever it is in the order",
    "  enter            its threads, or away with them",
    "  s                order: run delay, CPUs used, wake-up p99, name",
    "  left, right      scroll the columns behind the name",
    "  space            pause, go on",
    "  ?, h             this page, or away with it",
    "  q, Esc, Ctrl-C   end",
    "",
    "  RUN DELAY        of the time a VM's threads wanted to run, the part they stood in a queue",
    "  WAKE-UP p99      of 100 wake-ups of its vCPUs, 99 ran after no more than this (takes BPF)",
    "  WORST            the longest wait of any of its threads",
    "  WAITS FOR        who had the CPU meanwhile",
    "  !                waits more than 5 % of its time",
    "",
];

fn keys(screen: &Screen) -> String {
    format!(
        "  up/down · enter threads · s sort ({}) · space {} · ? help · q quit",
        screen.sort.word(),
        if screen.paused { "go on" } else { "pause" }
    )
}

fn row(vm: &VmView) -> Vec<Cell> {
    let waited = vm.waited.as_ref();
    let time = |ns: Option<f64>| ns.map_or("-".into(), text::duration);
    vec![
        left(shortened(&vm.vm.name, 28)),
        left(vm.class.as_ref().map_or("-", |v| v.class.word())),
        right(vm.vm.vcpus.to_string()),
        right(vm.rates.map_or("-".into(), |r| format!("{:.2}", r.cpus))),
        right(share(vm.run_delay)),
        right(time(waited.and_then(|w| w.p99_ns))),
        right(time(
            waited.filter(|w| w.worst_ns > 0).map(|w| w.worst_ns as f64),
        )),
        left(waited.map_or("-".into(), |w| behind(w, 2))),
    ]
}

/// `build02 48 % · itself 40 %`: the first `most` of whom a VM waited for.
pub fn behind(waited: &Waited, most: usize) -> String {
    let words: Vec<String> = waited
        .behind
        .iter()
        .take(most)
        .filter(|b| b.part >= 0.005)
        .map(|b| format!("{} {:.0} %", shortened(&b.who, 20), b.part * 100.0))
        .collect();
    if words.is_empty() {
        "-".into()
    } else {
        words.join(" · ")
    }
}

fn host(view: &View) -> Vec<Cell> {
    vec![
        left("host"),
        left("-"),
        right("-"),
        right(view.host.cpus.map_or("-".into(), |c| format!("{c:.2}"))),
        right("-"),
    ]
}

fn cut(line: &str, width: usize) -> String {
    if text::width(line) <= width {
        line.to_string()
    } else {
        shortened(line, width)
    }
}

fn fitted(mut lines: Vec<String>, screen: &Screen) -> Vec<String> {
    if let Some(height) = screen.height {
        lines.truncate(height);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_host::counters::Rates;
    use berth_host::fixture::Fixture;
    use berth_host::root::Root;
    use berth_host::trace::Behind;
    use std::time::Duration;

    fn view(vms: i32) -> View {
        let folder = tempfile::tempdir().unwrap();
        let mut text = String::from(
            "file proc/sys/kernel/hostname kvm07\nfile sys/devices/system/cpu/online 0-1\n",
        );
        for i in 0..vms {
            let pid = 10 + 10 * i;
            text.push_str(&format!(
                "process {pid} lkvm\nargs lkvm run --name v{i}\nfd 3 anon_inode:kvm-vm\nfd 4 anon_inode:kvm-vcpu:0\n\
                 thread {} kvm-vcpu-0 run=4\n",
                pid + 1
            ));
        }
        Fixture::parse(&text)
            .unwrap()
            .unpack(folder.path())
            .unwrap();
        let mut view =
            berth_host::view::look(&Root::at(folder.path()), Duration::from_millis(1)).unwrap();
        for (i, vm) in view.vms.iter_mut().enumerate() {
            let waiting = 0.1 * i as f64;
            let rates = Rates {
                cpus: 1.0 - waiting,
                waiting,
                stays_per_s: 50.0,
            };
            (vm.rates, vm.run_delay) = (Some(rates), rates.run_delay());
        }
        view
    }

    const STYLE: Style = Style {
        colour: false,
        width: 80,
    };

    fn column(lines: &[String], n: usize) -> Vec<String> {
        let words = |l: &String| l.split_whitespace().nth(n).map(String::from);
        lines[3..]
            .iter()
            .filter_map(words)
            .filter(|w| w.starts_with('v'))
            .collect()
    }

    #[test]
    fn who_waits_most_is_first_and_order_can_be_changed() {
        let view = view(4);
        let mut screen = Screen {
            live: true,
            row: 3,
            ..Screen::plain()
        };
        let lines = top(&view, &screen, &STYLE);
        assert!(lines[0].starts_with("kvm07 · 2 CPUs · 4 VMs"), "{lines:#?}");
        assert!(
            lines[3].starts_with("! v3") && lines[6].starts_with("> v0"),
            "{lines:#?}"
        );
        assert!(lines.last().unwrap().contains("q quit"));
        screen.sort = Sort::Cpus;
        let lines = top(&view, &screen, &STYLE);
        assert_eq!(lines[3].split_whitespace().next(), Some("v0"), "{lines:#?}");
        assert!(lines.iter().all(|l| text::width(l) <= 80));
    }

    #[test]
    fn the_choice_follows_its_vm_and_its_row_when_it_has_ended() {
        let mut view = view(4);
        let mut screen = Screen {
            live: true,
            ..Screen::plain()
        };
        let chosen = |view: &View, screen: &Screen| {
            let lines = top(view, screen, &STYLE);
            let line = lines.iter().find(|l| l.starts_with('>')).unwrap().clone();
            line.split_whitespace().nth(1).unwrap().to_string()
        };
        // By run delay: v3, v2, v1, v0.
        screen.choose(&view, |row, _| row + 1);
        assert_eq!(chosen(&view, &screen), "v2");
        screen.sort = Sort::Name;
        assert_eq!(chosen(&view, &screen), "v2", "wherever it is");
        screen.choose(&view, |row, _| row);
        view.vms.remove(2);
        assert_eq!(
            chosen(&view, &screen),
            "v3",
            "it has ended: who is in its row"
        );
        screen.choose(&view, |_, _| usize::MAX);
        view.vms.pop();
        assert_eq!(chosen(&view, &screen), "v1", "the last that is there");
    }

    #[test]
    fn a_narrow_screen_shows_whom_a_vm_waits_for() {
        let mut view = view(2);
        for vm in &mut view.vms {
            vm.waited = Some(Waited {
                wakeups: 9,
                p50_ns: Some(1e4),
                p99_ns: Some(4.1e6),
                worst_ns: 31_000_000,
                behind: vec![Behind {
                    who: "build-server-02".into(),
                    part: 0.9,
                    ns: 9,
                }],
            });
        }
        let mut screen = Screen {
            live: true,
            ..Screen::plain()
        };
        let lines = top(&view, &screen, &STYLE);
        assert!(
            lines[2].contains("WAITS FOR") && !lines[2].contains("vCPUs"),
            "{lines:#?}"
        );
        assert!(lines[3].ends_with("build-server-02 90 %"), "{lines:#?}");
        screen.aside = 3;
        let lines = top(&view, &screen, &STYLE);
        assert!(
            lines[2].contains("RUN DELAY") && !lines[2].contains("CPUS USED"),
            "{lines:#?}"
        );
        // In a pipe all of it is there.
        let pipe = Screen {
            whole: true,
            ..Screen::plain()
        };
        let lines = top(&view, &pipe, &STYLE);
        assert!(
            HEADS.iter().all(|head| lines[2].contains(head))
                && lines[3].ends_with("build-server-02 90 %"),
            "{lines:#?}"
        );
        screen.help = true;
        let lines = top(&view, &screen, &STYLE);
        assert!(
            lines.iter().any(|l| l.contains("follows it"))
                && lines.iter().all(|l| text::width(l) <= 80)
        );
    }

    #[test]
    fn a_small_window_keeps_the_head_and_the_chosen_line() {
        let view = view(30);
        for height in [1, 3, 8, 20, 60] {
            let screen = Screen {
                live: true,
                row: 25,
                sort: Sort::Name,
                height: Some(height),
                ..Screen::plain()
            };
            let lines = top(&view, &screen, &STYLE);
            assert!(lines.len() <= height);
            let seen = lines.iter().any(|l| l.starts_with('>'));
            assert!(seen || height < 8, "{height}: {lines:#?}");
        }
    }

    #[test]
    fn threads_of_one_and_whom_it_waits_for() {
        let mut view = view(2);
        let waited = Waited {
            wakeups: 9,
            p50_ns: Some(1e4),
            p99_ns: Some(4.1e6),
            worst_ns: 31_000_000,
            behind: vec![
                Behind {
                    who: "v0".into(),
                    part: 0.9,
                    ns: 9,
                },
                Behind {
                    who: "nobody".into(),
                    part: 0.004,
                    ns: 1,
                },
            ],
        };
        view.vms[1].waited = Some(waited);
        let screen = Screen {
            open: Some(view.vms[1].vm.pid),
            ..Screen::plain()
        };
        let lines = top(
            &view,
            &screen,
            &Style {
                colour: false,
                width: 100,
            },
        );
        let row = lines.iter().position(|l| l.starts_with("! v1")).unwrap();
        assert!(
            lines[row].contains("4.10 ms") && lines[row].ends_with("v0 90 %"),
            "{lines:#?}"
        );
        assert!(lines[row + 1].contains("vcpu0 kvm-vcpu-0"), "{lines:#?}");
        assert!(!column(&lines, 0).is_empty());
        view.vms.clear();
        assert!(top(&view, &Screen::plain(), &STYLE)[2].contains("No virtual machine"));
    }
}
