// SPDX-License-Identifier: GPL-2.0-only
//! The report in a real browser (headless Chromium, where there is one; `make test` installs it).
use super::{among, results, swept};
use berth_report::html;
use berth_results::schema::Place;
use std::path::Path;
use std::process::Command;

/// A browser of this machine, if there is one.
fn browser() -> Option<&'static str> {
    [
        "chromium-headless-shell",
        "chromium",
        "chromium-browser",
        "google-chrome",
    ]
    .into_iter()
    .find(|b| {
        Command::new(b)
            .arg("--version")
            .output()
            .is_ok_and(|o| o.status.success())
    })
}

fn run(browser: &str, page: &Path, more: &[&str]) -> (String, String) {
    let profile = page.with_extension("profile");
    let out = Command::new(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--enable-logging=stderr",
        ])
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(more)
        .arg(format!("file://{}", page.display()))
        .output()
        .unwrap();
    assert!(
        out.status.success(),
        "{browser}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    (
        String::from_utf8_lossy(&out.stdout).into_owned(),
        String::from_utf8_lossy(&out.stderr).into_owned(),
    )
}

/// In a browser: nothing to complain about, nothing asked of the network, the text is there, and so are the pictures.
#[test]
fn a_real_browser_shows_it() {
    let Some(browser) = browser() else {
        eprintln!("skipped: no Chromium (apt-get install chromium-headless-shell)");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("report.html");
    std::fs::write(&path, html::page(&[&results(Place::Sim, 1.0)])).unwrap();
    let log = dir.path().join("net.json");
    let (dom, complaints) = run(
        browser,
        &path,
        &["--dump-dom", &format!("--log-net-log={}", log.display())],
    );
    assert!(dom.contains("Who waited for whom") && dom.contains("instead of"));
    // The script ran (it says so by what it prepares), the foreign one did not.
    assert!(!dom.contains("<title>owned"), "a name became a program");
    let said: Vec<&str> = complaints
        .lines()
        .filter(|l| l.contains("CONSOLE"))
        .collect();
    assert!(said.is_empty(), "{said:?}");
    let net = std::fs::read_to_string(&log).unwrap_or_default();
    let asked: Vec<&str> = net
        .split('"')
        .filter(|s| s.starts_with("http://") || s.starts_with("https://"))
        .filter(|s| s.contains("report") || s.contains("font") || s.contains("cdn"))
        .collect();
    assert!(asked.is_empty(), "{asked:?}");

    let pdf = dir.path().join("paper.pdf");
    run(
        browser,
        &path,
        &[&format!("--print-to-pdf={}", pdf.display())],
    );
    assert!(std::fs::metadata(&pdf).unwrap().len() > 30_000);
}

/// A page that shows the report at a width of its own, and says of it: its height, the colour of its background, what
/// of it is cut off or lies over something else.
fn frame(report: &str, width: u32, height: u32, dark: bool) -> String {
    let inside = report.replace('&', "&amp;").replace('"', "&quot;");
    let scheme = if dark { "dark" } else { "light" };
    format!(
        "<!doctype html><meta charset=\"utf-8\"><meta name=\"color-scheme\" content=\"{scheme}\">\
         <body style=\"margin:0\"><iframe id=\"f\" style=\"border:0;display:block;width:{width}px;\
         height:{height}px\" srcdoc=\"{inside}\"></iframe><pre id=\"out\" hidden></pre><script>{LOOK}</script>"
    )
}

const LOOK: &str = r#"addEventListener("load", () => {
  const d = document.getElementById("f").contentDocument, said = [];
  const root = d.documentElement;
  for (const details of d.querySelectorAll("details:not(.data)")) details.open = true;
  if (root.scrollWidth > root.clientWidth) said.push("wider than the window: " + root.scrollWidth);
  const inside = (what, box, name) => {
    const r = what.getBoundingClientRect(), b = box.getBoundingClientRect();
    if (r.width > 0 && (r.left < b.left - 1 || r.right > b.right + 1)) said.push("cut off: " + name);
  };
  for (const text of d.querySelectorAll("svg text")) {
    inside(text, text.closest("section"), "text '" + text.textContent + "'");
  }
  for (const table of d.querySelectorAll("table")) {
    inside(table, table.closest("section"), "a table " + table.className);
  }
  for (const strip of d.querySelectorAll("svg, img")) inside(strip, strip.closest("section"), "a picture");
  // Names on one axis do not lie over one another.
  for (const svg of d.querySelectorAll("svg")) {
    const all = [...svg.querySelectorAll(".tick, .turned")].map((t) => [t.textContent, t.getBoundingClientRect()]);
    for (let i = 0; i < all.length; i++) {
      for (let j = i + 1; j < all.length; j++) {
        const [a, x] = all[i], [b, y] = all[j];
        const over = Math.min(x.right, y.right) - Math.max(x.left, y.left);
        const beside = Math.min(x.bottom, y.bottom) - Math.max(x.top, y.top);
        if (over > 1 && beside > 5) said.push("'" + a + "' lies over '" + b + "'");
      }
    }
  }
  const colour = getComputedStyle(root).backgroundColor;
  document.getElementById("out").textContent = ["LOOKED", root.scrollHeight, colour, ...said].join("\n") + "\nEND";
});"#;

/// At both widths and in both colours nothing is cut off. The pictures are kept for people to look at.
#[test]
fn the_page_is_whole_at_every_width() {
    let Some(browser) = browser() else {
        eprintln!("skipped: no Chromium (apt-get install chromium-headless-shell)");
        return;
    };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("report-pages");
    std::fs::create_dir_all(&folder).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let both = [results(Place::Sim, 1.0), results(Place::Lab, 1.2)];
    let pages = [
        ("report", html::page(&[&both[0], &both[1]])),
        ("sweep", html::page(&[&swept(true)])),
        ("many", html::page(&[&among(14)])),
    ];
    for (page, report) in &pages {
        std::fs::write(folder.join(format!("{page}.html")), report).unwrap();
        let mut colours = Vec::new();
        for (width, dark) in [(400, false), (400, true), (1200, false), (1200, true)] {
            let path = dir.path().join("frame.html");
            let scheme = format!("--blink-settings=preferredColorScheme={}", u8::from(!dark));
            std::fs::write(&path, frame(report, width, 800, dark)).unwrap();
            let (dom, _) = run(browser, &path, &["--dump-dom", &scheme]);
            let said = &dom[dom.rfind("LOOKED\n").unwrap_or_else(|| panic!("{dom}")) + 7..];
            let mut said = said[..said.find("\nEND").unwrap()].lines();
            let height: u32 = said.next().unwrap().parse().unwrap();
            colours.push(said.next().unwrap().to_string());
            let wrong: Vec<&str> = said.collect();
            let name = format!("{page}-{width}-{}", if dark { "dark" } else { "light" });
            let png = folder.join(format!("{name}.png"));
            let height = height.min(12_000);
            std::fs::write(&path, frame(report, width, height, dark)).unwrap();
            let shot = format!("--screenshot={}", png.display());
            let size = format!("--window-size={},{height}", width.max(500));
            run(browser, &path, &[&shot, &size, &scheme]);
            let bytes = std::fs::read(&png).unwrap_or_else(|e| panic!("{name}: {e}"));
            // An empty page of this size is some 10 KB.
            assert!(
                bytes.starts_with(b"\x89PNG") && bytes.len() > 40_000,
                "{name}: {} bytes",
                bytes.len()
            );
            assert!(wrong.is_empty(), "{}: {wrong:#?}", png.display());
        }
        assert!(
            colours[0] == colours[2] && colours[1] == colours[3],
            "{colours:?}"
        );
        assert_ne!(colours[0], colours[1]);
    }
    println!("pictures of the pages: {}", folder.display());
}
