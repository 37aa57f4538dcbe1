// SPDX-License-Identifier: GPL-2.0-only
//! A policy in the kernel: steered while it runs, started again where memory was short; refused by name where it cannot
//! be loaded; ejected where it starves a thread.
use super::{OBJECT, check, host, inside, policy};
use berth_lab::assets::Assets;
use berth_scx::{LoadOptions, Loaded, ScxError, Value as Setting};
use serde_json::{Value, json};
use std::time::Duration;

fn number(bytes: &[u8]) -> u64 {
    let mut b = [0; 8];
    b[..bytes.len().min(8)].copy_from_slice(&bytes[..bytes.len().min(8)]);
    u64::from_ne_bytes(b)
}

pub fn steer(assets: &Assets) -> Result<String, String> {
    let text = |name: &str, value: &str| (name.to_string(), Setting::Text(value.to_string()));
    let load = LoadOptions {
        // It does not start at the first try, for want of memory.
        variables: [
            text("slice_ns", "3000000"),
            text("fail_task", "-12"),
            text("fail_once", "1"),
        ]
        .into(),
        ..LoadOptions::default()
    };
    let answer = inside(
        assets,
        "steer",
        host(1, 1, 1, 2, 1),
        policy(load),
        json!({}),
    )?;
    let o = &answer.result;
    check(
        o["seen_slice"] == 3_000_000,
        format!("load-time variable: {o}"),
    )?;
    let again = format!("{} 2: ", berth_scx::STARTED_AGAIN);
    let mut notes = answer.notes.iter();
    check(
        notes.any(|n| n.starts_with(&again) && n.contains("init_task() failed (-12)")),
        format!("that it started again is not said: {:?}", answer.notes),
    )?;
    check(
        o["constant_in_rodata"] != 0,
        format!("SCX_SLICE_DFL was not filled: {o}"),
    )?;
    check(
        o["bumped"] == json!([7, 15]),
        format!("syscall program: {o}"),
    )?;
    check(o["live"] == 42, format!("live variable: {o}"))?;
    check(
        o["enqueued"].as_u64() > Some(0) && o["run"].as_u64() > Some(0),
        format!("counters: {o}"),
    )?;
    check(
        o["wrong"].as_str().is_some_and(|w| w.contains("read-only")),
        format!("writing .rodata: {o}"),
    )?;
    let p = answer.policy.as_ref().ok_or("no policy report")?;
    check(p.lasted && p.name == "fifo", format!("{p:?}"))?;
    check(
        p.exit.ended() && !p.exit.is_error(),
        format!("after unloading: {}", p.exit),
    )?;
    Ok(answer.kernel)
}

pub fn steer_inside(_input: &Value, policy: Option<&mut Loaded>) -> Result<Value, String> {
    let policy = policy.ok_or("no policy")?;
    let said = |e: ScxError| e.to_string();
    std::thread::sleep(Duration::from_millis(300));
    let mut context = 5u64.to_ne_bytes();
    policy
        .set_variable("live_knob", &Setting::Number(10))
        .map_err(said)?;
    let returned = policy.run("bump", &mut context).map_err(said)?;
    policy
        .set_variable("live_knob", &Setting::Text("42".to_string()))
        .map_err(said)?;
    let wrong = match policy.set_variable("slice_ns", &Setting::Number(1)) {
        Ok(()) => "accepted".to_string(),
        Err(e) => e.to_string(),
    };
    let counters = policy.counters("counters").map_err(said)?;
    let get = |name: &str| policy.variable(name).map(|b| number(&b)).map_err(said);
    Ok(json!({
        "bumped": [returned, number(&context)],
        "live": get("live_knob")?,
        "seen_slice": get("seen_slice")?,
        "constant_in_rodata": get("__SCX_SLICE_DFL")?,
        "enqueued": counters[0],
        "run": counters[1],
        "wrong": wrong,
    }))
}

pub fn refusals(assets: &Assets) -> Result<String, String> {
    let object = OBJECT.get().expect("compiled first");
    let text: String = object.iter().map(|b| format!("{b:02x}")).collect();
    let answer = inside(assets, "refusals", host(1, 1, 1, 1, 1), None, json!(text))?;
    let o = &answer.result;
    for (what, words) in [
        ("garbage", "not a BPF object"),
        ("variable", "no variable `slice_nz`"),
        ("value", "is not between 0 and"),
        ("ops", "no scheduler named `other`"),
        ("map", "no map `counterz`"),
        ("init", "did not start"),
        ("always", "ops.init_task() failed (-12)"),
        ("another", "ops.init_task() failed (-22)"),
        ("busy", "another sched_ext scheduler is running (fifo)"),
    ] {
        let said = o[what].as_str().unwrap_or("nothing");
        check(said.contains(words), format!("{what}: {said}"))?;
    }
    check(
        o["after"] == "disabled",
        format!("something stayed loaded: {o}"),
    )?;
    Ok(String::new())
}

pub fn refusals_inside(input: &Value, _policy: Option<&mut Loaded>) -> Result<Value, String> {
    let hex = input.as_str().unwrap_or("");
    let object: Vec<u8> = (0..hex.len() / 2)
        .filter_map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).ok())
        .collect();
    let attempt = |object: &[u8], options: LoadOptions| match Loaded::load(object, &options) {
        Ok(_) => "it was loaded".to_string(),
        Err(e) => e.to_string(),
    };
    let variables = |of: &[(&str, i128)]| LoadOptions {
        variables: of
            .iter()
            .map(|(n, v)| (n.to_string(), Setting::Number(*v)))
            .collect(),
        ..LoadOptions::default()
    };
    let variable = |name: &str, value: i128| variables(&[(name, value)]);
    let mut out = json!({
        "garbage": attempt(b"not an object", LoadOptions::default()),
        "variable": attempt(&object, variable("slice_nz", 1)),
        "value": attempt(&object, variable("slice_ns", -1)),
        "ops": attempt(&object, LoadOptions { ops: Some("other".to_string()), ..LoadOptions::default() }),
        "map": attempt(&object, LoadOptions {
            map_entries: [("counterz".to_string(), 3)].into(), ..LoadOptions::default() }),
        "init": attempt(&object, variable("fail_init", -12)),
        "always": attempt(&object, variable("fail_task", -12)),
        "another": attempt(&object, variables(&[("fail_task", -22), ("fail_once", 0xf22)])),
    });
    let first = Loaded::load(&object, &LoadOptions::default()).map_err(|e| e.to_string())?;
    out["busy"] = json!(attempt(&object, LoadOptions::default()));
    drop(first);
    std::thread::sleep(Duration::from_millis(200));
    let state = berth_scx::status().map_err(|e| e.to_string())?.state;
    out["after"] = json!(state.to_string());
    Ok(out)
}

pub fn victim(assets: &Assets) -> Result<String, String> {
    let load = LoadOptions {
        variables: [("stall".to_string(), Setting::Text("true".to_string()))].into(),
        timeout_ms: Some(1_000),
        ..LoadOptions::default()
    };
    let answer = inside(
        assets,
        "victim",
        host(1, 1, 1, 2, 1),
        policy(load),
        json!({}),
    )?;
    let p = answer.policy.as_ref().ok_or("no policy report")?;
    check(!p.lasted && p.exit.is_error(), format!("{p:?}"))?;
    check(
        p.exit.reason.contains("stall") && p.exit.message.contains("victim"),
        format!("exit record: {}", p.exit),
    )?;
    check(
        answer.notes.iter().any(|n| n.contains("stall")),
        format!("the kernel's complaint is no note: {:?}", answer.notes),
    )?;
    Ok(p.exit.to_string())
}

pub fn victim_inside(_input: &Value, policy: Option<&mut Loaded>) -> Result<Value, String> {
    let policy = policy.ok_or("no policy")?;
    let victim = std::thread::Builder::new().name("victim".to_string());
    let thread = victim
        .spawn(|| std::thread::sleep(Duration::from_millis(10)))
        .map_err(|e| e.to_string())?;
    let record = policy
        .watch(Duration::from_secs(10))
        .map_err(|e| e.to_string())?;
    // The kernel's own scheduler lets it run again.
    thread.join().map_err(|_| "the thread panicked")?;
    match record {
        Some(r) => Ok(json!(r.to_string())),
        None => Err("the watchdog let it be for ten seconds".to_string()),
    }
}
