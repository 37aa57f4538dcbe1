// SPDX-License-Identifier: GPL-2.0-only
//! Whoever answers in systemd's place: late, never, with other types, with no, with paths that lead elsewhere.
use super::*;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::thread;
use zbus::{Guid, Message, MessageStream, Variant, message};

/// For the answer of one who gives none.
const SOON: Duration = Duration::from_millis(300);
/// For all others: ends what hangs.
const HUNG: Duration = Duration::from_secs(60);
const UNIT: &str = "vm.scope";
const GROUP: &str = "/machine.slice/vm.scope";

/// What is answered to a call: of this member, about this property, if it is about one.
type Answer = dyn Fn(&str, &str) -> Reply + Send + Sync;

enum Reply {
    Value(Variant<'static>),
    Done,
    Error(&'static str, &'static str),
    /// Nothing at all.
    Silence,
    /// The connection is closed.
    End,
}

/// systemd as this function plays it.
fn playing(answer: Arc<Answer>) -> (tempfile::TempDir, Systemd) {
    waited_for(HUNG, answer)
}

fn waited_for(patience: Duration, answer: Arc<Answer>) -> (tempfile::TempDir, Systemd) {
    let folder = tempfile::tempdir().unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    thread::spawn(move || zbus::block_on(play(theirs, answer)));
    let systemd = peer(ours, folder.path(), patience);
    (folder, systemd)
}

fn peer(stream: UnixStream, run: &Path, patience: Duration) -> Systemd {
    Systemd::to(To::Peer(Mutex::new(Some(stream))), run, (patience, REST))
}

async fn play(stream: UnixStream, answer: Arc<Answer>) {
    let builder = Builder::unix_stream(stream).server(Guid::generate()).p2p();
    let Ok(mut calls) = builder.build_message_stream().await else {
        return;
    };
    let connection = Connection::from(&calls);
    while let Some(Ok(call)) = next(&mut calls).await {
        let header = call.header();
        if header.message_type() != message::Type::MethodCall {
            continue;
        }
        let member = header.member().map(|m| m.to_string()).unwrap_or_default();
        let body = call.body();
        let about = body
            .deserialize::<(String, String)>()
            .map(|b| b.1)
            .unwrap_or_default();
        let reply = match answer(&member, &about) {
            Reply::Value(value) => Message::method_return(&header).build(&value),
            Reply::Done => Message::method_return(&header).build(&()),
            Reply::Error(name, text) => Message::error(&header, name).build(&text),
            Reply::Silence => continue,
            Reply::End => return,
        };
        let Ok(()) = connection.send(&reply.unwrap()).await else {
            return;
        };
    }
}

async fn next(calls: &mut MessageStream) -> Option<zbus::Result<Message>> {
    poll_fn(|context| futures_core::Stream::poll_next(Pin::new(&mut *calls), context)).await
}

/// A unit with a cgroup, and this for everything else.
fn unit(
    other: impl Fn(&str, &str) -> Reply + Send + Sync + 'static,
) -> (tempfile::TempDir, Systemd) {
    playing(Arc::new(move |member: &str, about: &str| {
        match (member, about) {
            ("Get", "ControlGroup") => Reply::Value(GROUP.into()),
            (member, about) => other(member, about),
        }
    }))
}

fn why<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn what_it_says_is_read() {
    let (folder, systemd) = unit(|_, about| match about {
        "CPUWeight" => Reply::Value(300u64.into()),
        "AllowedCPUs" => Reply::Value(vec![0b110u8].into()),
        _ => Reply::Value(u64::MAX.into()),
    });
    let read = |property| systemd.read("it", UNIT, property).unwrap();
    assert_eq!(read(Property::Weight), "300");
    assert_eq!(read(Property::Quota), "unset");
    assert_eq!(read(Property::Cpus), "1-2");
    assert_eq!(systemd.group("it", UNIT).unwrap(), "machine.slice/vm.scope");
    // Written down while it ran, in either folder; a link or a folder is nothing that systemd wrote.
    let drop_ins = folder.path().join("system.control/vm.scope.d");
    std::fs::create_dir_all(&drop_ins).unwrap();
    std::fs::create_dir(drop_ins.join("50-CPUQuota.conf")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", drop_ins.join("50-AllowedCPUs.conf")).unwrap();
    std::fs::write(
        drop_ins.join("50-CPUWeight.conf"),
        "[Scope]\nCPUWeight=300\n",
    )
    .unwrap();
    assert_eq!(read(Property::Weight), "300 runtime");
    assert_eq!(
        (&*read(Property::Quota), &*read(Property::Cpus)),
        ("unset", "1-2")
    );
}

#[test]
fn what_was_written_down_is_removed_with_what_was_set() {
    let (folder, systemd) = unit(|member, _| match member {
        "SetUnitProperties" => Reply::Done,
        _ => Reply::Value(u64::MAX.into()),
    });
    let drop_ins = folder.path().join("transient/vm.scope.d");
    std::fs::create_dir_all(&drop_ins).unwrap();
    let (ours, other) = (
        drop_ins.join("50-CPUWeight.conf"),
        drop_ins.join("50-CPUQuota.conf"),
    );
    std::fs::write(&ours, "").unwrap();
    std::fs::write(&other, "").unwrap();
    systemd
        .write("it", UNIT, Property::Weight, "300 runtime")
        .unwrap();
    assert!(ours.exists(), "it is what systemd has written down of it");
    systemd
        .write("it", UNIT, Property::Weight, "unset")
        .unwrap();
    assert!(!ours.exists() && other.exists());
    systemd.write("it", UNIT, Property::Quota, "unset").unwrap();
    assert!(!drop_ins.exists(), "nothing is left");
}

#[test]
fn answers_of_other_types_are_errors() {
    for (value, property) in [
        (Variant::from("300"), Property::Weight),
        (Variant::from(300u32), Property::Weight),
        (Variant::from(-1i64), Property::Quota),
        (Variant::from(7u64), Property::Cpus),
        (Variant::from(vec![0u8; 1 << 16]), Property::Cpus),
    ] {
        let answer = value.try_to_owned().unwrap();
        let (_f, systemd) = unit(move |_, _| Reply::Value(answer.try_clone().unwrap().into()));
        let why = why(systemd.read("it", UNIT, property));
        assert!(why.contains("another type"), "{why}");
    }
    // No variant at all.
    let (_f, systemd) = unit(|_, _| Reply::Done);
    let why = why(systemd.read("it", UNIT, Property::Weight));
    assert!(why.contains("makes no sense"), "{why}");
}

#[test]
fn a_no_is_said_with_its_words() {
    let denied = "org.freedesktop.DBus.Error.AccessDenied";
    let (_f, systemd) = unit(move |member, _| match member {
        "SetUnitProperties" => Reply::Error(denied, "polkit\u{1b}[2J says no"),
        _ => Reply::Value(u64::MAX.into()),
    });
    let why_not = why(systemd.write("it", UNIT, Property::Weight, "300 runtime"));
    assert!(
        why_not.contains("may not be set: systemd does not allow it: polkit")
            && !why_not.contains('\u{1b}'),
        "{why_not}"
    );
    // Asked again, it answers again: a no is no silence.
    assert_eq!(systemd.read("it", UNIT, Property::Weight).unwrap(), "unset");
    let bad = "org.freedesktop.DBus.Error.InvalidArgs";
    let (_f, systemd) = unit(move |_, _| Reply::Error(bad, "out of range"));
    let why_not = why(systemd.write("it", UNIT, Property::Weight, "300 runtime"));
    assert!(why_not.contains("systemd: out of range"), "{why_not}");
}

#[test]
fn a_unit_that_has_ended_is_gone() {
    for reply in [("", ""), ("org.freedesktop.systemd1.NoSuchUnit", "x")] {
        let (_f, systemd) = playing(Arc::new(move |_: &str, _: &str| match reply {
            ("", _) => Reply::Value("".into()),
            (name, text) => Reply::Error(name, text),
        }));
        let gone = |e: Error| matches!(e, Error::Gone { .. });
        assert!(gone(
            systemd.read("it", UNIT, Property::Weight).unwrap_err()
        ));
        assert!(gone(
            systemd
                .write("it", UNIT, Property::Weight, "1 runtime")
                .unwrap_err()
        ));
    }
}

#[test]
fn cgroups_and_names_that_lead_elsewhere_are_refused() {
    for path in ["/../../etc", "/a/../b.scope"] {
        let (_f, systemd) = playing(Arc::new(move |_: &str, _: &str| Reply::Value(path.into())));
        assert!(why(systemd.group("it", UNIT)).contains("is none"), "{path}");
    }
    let (_f, systemd) = playing(Arc::new(|_: &str, _: &str| Reply::Value(GROUP.into())));
    for name in ["../x.scope", "a/b.scope", "x.mount", ""] {
        assert!(
            why(systemd.read("it", name, Property::Weight)).contains("no name"),
            "{name}"
        );
        assert!(
            why(systemd.write("it", name, Property::Weight, "1")).contains("no name"),
            "{name}"
        );
    }
    for value in ["", "x runtime", "0-x"] {
        assert!(
            systemd.write("it", UNIT, Property::Cpus, value).is_err() || value.is_empty(),
            "{value}"
        );
    }
}

#[test]
fn whoever_does_not_answer_is_not_waited_for_twice() {
    // Does not even greet: the other end is held, and nothing is said.
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mute = peer(ours, Path::new("/nowhere"), SOON);
    let begun = Instant::now();
    assert!(mute.answers().unwrap_err().contains("does not answer"));
    assert!(
        begun.elapsed() < Duration::from_secs(60),
        "it is waited for, and not for ever"
    );
    let error = why(mute.read("it", UNIT, Property::Weight));
    assert!(
        error.contains("does not answer"),
        "said without asking: {error}"
    );
    drop(theirs);
    // Greets, and is silent then.
    let (_f, silent) = waited_for(10 * SOON, Arc::new(|_: &str, _: &str| Reply::Silence));
    assert!(why(silent.read("it", UNIT, Property::Weight)).contains("did not answer in time"));
    let again = silent.group("it", UNIT);
    assert!(
        why(again).contains("did not answer in time"),
        "it is not asked again for a while"
    );
    // Hangs up.
    let (_f, gone) = unit(|_, _| Reply::End);
    assert!(why(gone.read("it", UNIT, Property::Weight)).contains("cannot be asked"));
}

/// Takes connections and never says a word, each time that it is asked: one attempt hangs, not one more each time.
#[test]
fn a_bus_that_is_mute_for_ever_costs_one_thread() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bus");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let address = format!("unix:path={}", path.display());
    let now = (Duration::from_millis(20), Duration::ZERO);
    let mute = Systemd::to(To::At(address), folder.path(), now);
    for _ in 0..5 {
        assert!(mute.answers().unwrap_err().contains("does not answer"));
    }
    listener.set_nonblocking(true).unwrap();
    let end = Instant::now() + HUNG;
    let accepted = || loop {
        match listener.accept() {
            Ok((stream, _)) => return stream,
            Err(_) => assert!(Instant::now() < end, "nobody connects"),
        }
        thread::sleep(Duration::from_millis(1));
    };
    let held = accepted();
    assert!(listener.accept().is_err(), "one attempt hangs, not five");
    // It hangs up: that attempt is over, and the next one is a new one.
    drop(held);
    while !mute.answers().unwrap_err().contains("cannot be reached") {
        assert!(Instant::now() < end, "its end is not seen");
    }
    assert!(mute.answers().unwrap_err().contains("does not answer"));
    drop(accepted());
}
