// SPDX-License-Identifier: GPL-2.0-only
//! `berth compare`: simulator beside real kernel, judged by bounds written down beforehand.
use crate::exit::{Done, Failure};
use crate::options::RunOptions;
use crate::output;
use berth_compare::known::Known;
use berth_compare::{Bounds, Comparison, markdown, table};
use berth_experiment::Request;
use berth_experiment::compare::page::{self, Pages};
use berth_experiment::compare::sets::{self, Compared};
use berth_experiment::compare::{Boot, Comparing, Kept, Record};
use berth_experiment::plan::Lengths;
use berth_report::say;
use berth_results::experiment::Results;
use berth_results::write;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    run: RunOptions,

    /// Record the kernel anew: starts that have no record yet (`missing`), those and arms whose policy has changed
    /// since (`changed`), or everything (`all`); --arm says for which arms only
    #[arg(
        long,
        value_name = "WHAT",
        num_args = 0..=1,
        default_missing_value = "missing",
        value_parser = ["missing", "changed", "all"]
    )]
    record: Option<String>,

    /// A second folder of scenarios, judged to report only; with the first one they have no scenario in common
    #[arg(long, value_name = "FOLDER")]
    sealed: Option<PathBuf>,

    /// Record only, and compare nothing
    #[arg(long, requires = "record")]
    record_only: bool,

    /// Write a folder's list of known broken bounds anew: reasons stay where there is one, new rows wait for theirs
    #[arg(long)]
    renew_known: bool,

    /// Exit status 1 if a bound is broken that is not in the list of known ones (known.toml of a folder)
    #[arg(long)]
    check: bool,

    /// Bounds of your own: a file like the one that `--show-bounds` prints
    #[arg(long, value_name = "FILE")]
    bounds: Option<PathBuf>,

    /// Print the bounds, and do nothing else
    #[arg(long)]
    show_bounds: bool,

    /// Costs of the simulated machine: `lab` (as measured in the lab's VM), or the `scenario`'s own
    #[arg(long, value_name = "PROFILE", default_value = "lab", value_parser = ["lab", "scenario"])]
    costs: String,

    /// Write the comparison as a page
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,

    /// Write what came out in all and the largest errors into a page, between its lines `begin fidelity` and
    /// `end fidelity`
    #[arg(long, value_name = "FILE")]
    summary: Option<PathBuf>,

    /// Kernel of the VM: `newest` (in Debian forky, else sid, else trixie-backports, of those whose configuration is
    /// there too; of the line that the scenario names, if it does), a line such as 7.3, or VMLINUZ,CONFIG
    #[arg(long, value_name = "RULE", default_value = "newest")]
    kernel: String,

    /// What vCPUs are in the VM: `threads`, for which the bounds were written, or `kvm`, those of real micro-VMs
    /// [default: as in berth-out's results of the lab, if they fit, else threads]
    #[arg(long, value_name = "FORM", value_parser = ["threads", "kvm"])]
    vcpus: Option<String>,

    /// VMs at the same time [default: one per CPU of this machine]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,

    /// Longest time for one VM, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,

    /// As long and as often as the scenario says; else at most 0.5 s + 2 s and 2 seeds, unless set here
    #[arg(long)]
    full: bool,
}

const EXAMPLES: &str = "Examples:
  berth compare noisy-neighbour --arm vmfair,vtime    both places, arm by arm, metric by metric
  berth compare noisy-neighbour --vcpus kvm           the kernel's side with real micro-VMs
  berth compare crates/compare/set --check            a folder of scenarios, against its kept records
  berth compare crates/compare/set --record           the same; what has no record yet runs in VMs first
  berth compare crates/compare/set --sealed crates/compare/sealed     and a second set, judged to report only

A scenario runs in VMs unless berth-out has results of the lab that fit. A folder's records lie in its `kernel` \
folder.";

pub fn run(args: &Args) -> Done {
    let (text, bounds) = bounds(args)?;
    let boot = |request: &Request, lengths, per_boot, seeds: Option<&[u64]>| {
        boot(args, request, lengths, per_boot, seeds)
    };
    if args.show_bounds {
        output::print(&text);
        return Ok(());
    }
    let named = PathBuf::from(args.run.scenario()?);
    let is_set = named.is_dir();
    if let (true, Some("kvm")) = (is_set, args.vcpus.as_deref()) {
        return Err(Failure::Input(format!(
            "--vcpus kvm: a folder's records are of threads; name one scenario, such as {}/FILE.toml",
            named.display()
        )));
    }
    if !is_set {
        for (set, flag) in [
            (args.sealed.is_some(), "--sealed"),
            (args.renew_known, "--renew-known"),
            (args.record_only, "--record-only"),
        ] {
            if set {
                let name = named.display();
                return Err(Failure::Input(format!(
                    "{flag} is for a folder of scenarios, and {name} is one scenario"
                )));
            }
        }
        let kept = Kept {
            out: &args.run.out,
            vcpus: args.vcpus.as_deref(),
            full: args.full,
        };
        let (c, used) = comparing(args, bounds.clone(), &boot)?.single(&kept)?;
        show(args, &c);
        if let Some((file, vcpus)) = used {
            let of = match vcpus.as_str() {
                "kvm" => ", with micro-VMs (the bounds were written for threads: --vcpus threads)",
                _ => "",
            };
            let file = file.display();
            say!("note: the kernel's side is that of {file}{of}; --record makes it anew");
        }
        return finish(args, &bounds, &Known::default(), &[c]);
    }
    let known = named.join("known.toml");
    let list = Known::read(&known).map_err(|e| Failure::Input(e.to_string()))?;
    let comparing = comparing(args, bounds.clone(), &boot)?;
    if let Some(sealed) = &args.sealed {
        sets::disjoint(&comparing.request, &named, sealed)?;
    }
    let open = folder(args, &comparing, &named)?;
    let sealed = args.sealed.as_deref();
    let sealed = sealed
        .map(|sealed| folder(args, &comparing, sealed))
        .transpose()?;
    if args.record_only {
        return Ok(());
    }
    if args.renew_known {
        let text = list.renewed(&open.all);
        write::atomic(&known, text.as_bytes()).map_err(|e| Failure::Run(e.to_string()))?;
    }
    let list = Known::read(&known).map_err(|e| Failure::Input(e.to_string()))?;
    let pages = Pages {
        table: args.markdown.clone(),
        summary: args.summary.clone(),
    };
    page::publish(&pages, &bounds, &list, &open, sealed.as_ref())?;
    finish(args, &bounds, &list, &open.all)
}

fn comparing<'a>(
    args: &Args,
    bounds: Bounds,
    boot: &'a Boot<'a>,
) -> Result<Comparing<'a>, Failure> {
    Ok(Comparing {
        request: args.run.request()?,
        bounds,
        lab_costs: args.costs == "lab",
        running: args.run.running(0, false),
        command: args.run.command(),
        record: match args.record.as_deref() {
            None => None,
            Some("all") => Some(Record::All),
            Some("changed") => Some(Record::Changed),
            Some(_) => Some(Record::Missing),
        },
        boot,
    })
}

/// Compares a folder, unless it is only recorded, and says what its records lack.
fn folder(args: &Args, comparing: &Comparing, folder: &Path) -> Result<Compared, Failure> {
    let show = |c: &Comparison| show(args, c);
    let show = (!args.record_only).then_some(&show as &dyn Fn(&Comparison));
    let compared = sets::compared(comparing, folder, show)?;
    for (scenario, what) in &compared.missing {
        say!("note: {scenario}: {what}");
    }
    for arm in &compared.stale {
        say!(
            "note: {arm}: another build than was recorded, or a changed policy; --record changed records it again"
        );
    }
    Ok(compared)
}

fn bounds(args: &Args) -> Result<(String, Bounds), Failure> {
    let text = match &args.bounds {
        None => berth_compare::bounds::TEXT.to_string(),
        Some(path) => std::fs::read_to_string(path)
            .map_err(|e| Failure::Input(format!("{}: {e}", path.display())))?,
    };
    let bounds = Bounds::parse(&text).map_err(|e| Failure::Input(e.to_string()))?;
    Ok((text, bounds))
}

fn show(args: &Args, c: &Comparison) {
    if args.run.json {
        return;
    }
    let cpus = match c.cpus {
        1 => "1 CPU".to_string(),
        n => format!("{n} CPUs"),
    };
    output::print(&format!(
        "\n{} · {cpus} · {} seeds simulated, {} on the kernel\n\n{}",
        c.title,
        c.simulated,
        c.recorded().0,
        table::table(c)
    ));
}

fn finish(args: &Args, bounds: &Bounds, known: &Known, all: &[Comparison]) -> Done {
    if args.run.json {
        let text = serde_json::to_string_pretty(all).map_err(|e| Failure::Run(e.to_string()))?;
        output::print(&format!("{text}\n"));
    } else if all.len() > 1 {
        output::print(&format!(
            "\n{}\n{}\n",
            markdown::headline(all, bounds),
            markdown::summary(all, bounds)
        ));
    }
    if !args.check {
        return Ok(());
    }
    for line in known.mended(all) {
        say!("note: known.toml lists what holds (or did not run): {line}");
    }
    let news = known.news(all);
    for line in &news {
        say!("broken: {line}");
    }
    if news.is_empty() {
        Ok(())
    } else {
        Err(Failure::Expect)
    }
}

#[cfg(feature = "kernel")]
fn boot(
    args: &Args,
    request: &Request,
    lengths: Option<Lengths>,
    seeds_per_boot: usize,
    seeds: Option<&[u64]>,
) -> Result<Results, Failure> {
    use berth_lab::run::LabOptions;
    use std::time::Duration;
    let vcpus = args.vcpus.as_deref().unwrap_or("threads");
    let vcpus = berth_lab::Vcpus::parse(vcpus).map_err(Failure::Input)?;
    let mut lab = LabOptions {
        vcpus,
        timeout: Duration::from_secs(args.timeout),
        seeds_per_boot,
        ..LabOptions::default()
    };
    lab.jobs = args.jobs.unwrap_or(lab.jobs).max(1);
    let boots = crate::lab::boots(&args.run, &args.kernel, lab)?;
    berth_experiment::lab::results(request, lengths, seeds, &boots, args.run.command())
}

#[cfg(not(feature = "kernel"))]
fn boot(
    _: &Args,
    _: &Request,
    _: Option<Lengths>,
    _: usize,
    _: Option<&[u64]>,
) -> Result<Results, Failure> {
    Err(Failure::Input(
        "this berth was built without the lab: it compares with kept records only".into(),
    ))
}
