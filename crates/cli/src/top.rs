// SPDX-License-Identifier: GPL-2.0-only
//! `berth top`.
use crate::exit::{Done, Failure};
use crate::ls::{seconds, unreadable};
use crate::{interrupt, output, tracer};
use berth_host::dir::files_allowed;
use berth_host::root::Root;
use berth_host::view::{Bounds, View, Watcher};
use berth_report::Style;
use berth_report::host::top::{ASIDE, Screen, top};
use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use crossterm::{cursor, execute, queue, style, terminal};
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

#[derive(clap::Args)]
pub struct Args {
    /// Seconds between two refreshes
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    interval: Duration,
    /// Once, and end; also what happens when the output is no terminal
    #[arg(long)]
    once: bool,
    /// As JSON, a line per refresh
    #[arg(long)]
    json: bool,
    /// End after so many refreshes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    count: Option<u32>,
    /// A folder with a recorded `proc` and `sys`, instead of this machine
    #[arg(long, value_name = "FOLDER")]
    root: Option<PathBuf>,
}

/// Between two looks at whether somebody asked for the end.
const LOOK: Duration = Duration::from_millis(200);

pub fn run(args: &Args) -> Done {
    let root = args.root.as_deref().map_or_else(Root::live, Root::at);
    let mut watcher = Watcher::new(root.clone());
    watcher.bound(Bounds::light(files_allowed()));
    if let Some(tracer) = tracer::start(&root) {
        watcher.set_tracer(tracer);
    }
    let refresh = |watcher: &mut Watcher| {
        let done = watcher.refresh();
        done.map_err(|e| unreadable(&root, &e))
    };
    // Rates take two readings.
    refresh(&mut watcher)?;
    if args.json || args.once || !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        let count = args
            .count
            .unwrap_or(if args.json && !args.once { u32::MAX } else { 1 });
        return plain(args, count, &mut || {
            refresh(&mut watcher)?;
            Ok(watcher.view())
        });
    }
    live(args, &mut || {
        refresh(&mut watcher)?;
        Ok(watcher.view())
    })
}

type Look<'a> = dyn FnMut() -> Result<View, Failure> + 'a;

/// One picture after the other, below each other.
fn plain(args: &Args, count: u32, look: &mut Look<'_>) -> Done {
    let stop = interrupt::flag();
    let screen = Screen {
        whole: !io::stdout().is_terminal(),
        ..Screen::plain()
    };
    for n in 0..count {
        if !wait(args.interval, &|| stop.load(Ordering::Relaxed)) {
            break;
        }
        let view = look()?;
        if args.json {
            let line = serde_json::to_string(&view).map_err(|e| Failure::Run(e.to_string()))?;
            if !output::printed(&format!("{line}\n")) {
                break;
            }
            continue;
        }
        let blank = if n > 0 { "\n" } else { "" };
        let lines = top(&view, &screen, &output::style());
        if !output::printed(&format!("{blank}{}\n", lines.join("\n"))) {
            break;
        }
    }
    Ok(())
}

/// False if the end was asked for meanwhile.
fn wait(time: Duration, stop: &dyn Fn() -> bool) -> bool {
    let until = Instant::now() + time;
    loop {
        if stop() {
            return false;
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(LOOK));
    }
}

/// The terminal as it was, however this ends.
struct Terminal;

impl Terminal {
    fn take() -> io::Result<Terminal> {
        terminal::enable_raw_mode()?;
        let taken = Terminal;
        execute!(io::stdout(), terminal::EnterAlternateScreen, cursor::Hide)?;
        Ok(taken)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Nothing can be done about a terminal that has gone away.
        let _ = execute!(io::stdout(), cursor::Show, terminal::LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
    }
}

fn live(args: &Args, look: &mut Look<'_>) -> Done {
    let stop = interrupt::flag();
    let failed = |e: io::Error| Failure::Run(format!("the terminal: {e}"));
    let mut screen = Screen {
        live: true,
        ..Screen::plain()
    };
    let _terminal = Terminal::take().map_err(failed)?;
    end_with_the_terminal();
    let mut view = look()?;
    let mut refreshed = 1;
    let mut next = Instant::now() + args.interval;
    loop {
        draw(&view, &mut screen).map_err(failed)?;
        let left = next.saturating_duration_since(Instant::now());
        if event::poll(left.min(LOOK)).map_err(failed)? {
            // A new size is drawn like anything else.
            if let Event::Key(key) = event::read().map_err(failed)?
                && key.kind != KeyEventKind::Release
                && !press(key, &view, &mut screen)
            {
                return Ok(());
            }
        }
        if stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        if Instant::now() < next {
            continue;
        }
        next = Instant::now() + args.interval;
        if !screen.paused {
            view = look()?;
            refreshed += 1;
        }
        if args.count.is_some_and(|count| refreshed > count) {
            return Ok(());
        }
    }
}

/// Ends the program with its terminal. A thread of its own looks: what reads keys never comes back from a terminal that
/// was closed. What the kernel runs for us ends with the program.
fn end_with_the_terminal() {
    std::thread::spawn(|| {
        while io::stdin().is_terminal() && io::stdout().is_terminal() {
            std::thread::sleep(LOOK);
        }
        std::process::exit(0);
    });
}

/// What a key does; false: the end.
fn press(key: KeyEvent, view: &View, screen: &mut Screen) -> bool {
    let help = std::mem::take(&mut screen.help);
    match key.code {
        KeyCode::Char('q') => return false,
        KeyCode::Esc if !help => return false,
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return false,
        KeyCode::Char('?' | 'h') | KeyCode::F(1) => screen.help = !help,
        KeyCode::Char('s') => screen.sort = screen.sort.next(),
        KeyCode::Char(' ') => screen.paused = !screen.paused,
        KeyCode::Up | KeyCode::Char('k') => screen.choose(view, |row, _| row.saturating_sub(1)),
        KeyCode::Down | KeyCode::Char('j') => screen.choose(view, |row, _| row + 1),
        KeyCode::PageUp => screen.choose(view, |row, page| row.saturating_sub(page)),
        KeyCode::PageDown => screen.choose(view, |row, page| row + page),
        KeyCode::Home => screen.choose(view, |_, _| 0),
        KeyCode::End => screen.choose(view, |_, _| usize::MAX),
        KeyCode::Left => screen.aside = screen.aside.saturating_sub(1),
        KeyCode::Right => screen.aside = (screen.aside + 1).min(ASIDE),
        KeyCode::Enter => {
            screen.choose(view, |row, _| row);
            let vm = screen.chosen;
            screen.open = if screen.open == vm { None } else { vm };
        }
        _ => (),
    }
    true
}

fn draw(view: &View, screen: &mut Screen) -> io::Result<()> {
    let (width, height) = terminal::size()?;
    screen.height = Some(usize::from(height));
    let colour = std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    let style = Style {
        colour,
        width: usize::from(width),
    };
    let lines = top(view, screen, &style);
    let mut out = io::stdout().lock();
    for (y, line) in (0..height).zip(&lines) {
        queue!(
            out,
            cursor::MoveTo(0, y),
            style::Print(line),
            terminal::Clear(terminal::ClearType::UntilNewLine)
        )?;
    }
    let shown = u16::try_from(lines.len()).unwrap_or(height);
    if shown < height {
        queue!(
            out,
            cursor::MoveTo(0, shown),
            terminal::Clear(terminal::ClearType::FromCursorDown)
        )?;
    }
    out.flush()
}
