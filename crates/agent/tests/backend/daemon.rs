// SPDX-License-Identifier: GPL-2.0-only
//! A daemon that cannot do what it is there for ends, and says so.
use crate::paper::{policy, unpack};
use berth_agent::agent::AgentError;
use berth_agent::daemon::{self, DaemonError, Options};
use berth_agent::signals::Asked;
use berth_host::root::Root;
use std::io::ErrorKind;
use std::sync::atomic::AtomicBool;

/// A configuration that says to act, where that cannot be: the daemon ends and says so.
#[test]
fn a_daemon_without_its_means_ends() {
    let folder = tempfile::tempdir().unwrap();
    unpack(folder.path(), &[(100, "web")]);
    let file = folder.path().join("c.toml");
    std::fs::write(&file, "mode = \"act\"\npolicy = \"a\"\n").unwrap();
    let options = Options {
        // No sched_ext there.
        root: Root::at(folder.path()),
        socket: folder.path().join("control.sock"),
        config: Some(file),
        ends_with_policy: false,
        resolve: &|_| Ok(policy("a", &[])),
        say: &|_| (),
    };
    // Should it go on, it is to end all the same.
    static STOP: AtomicBool = AtomicBool::new(true);
    static RELOAD: AtomicBool = AtomicBool::new(false);
    let asked = Asked {
        stop: &STOP,
        reload: &RELOAD,
    };
    let error = daemon::run(&options, asked).unwrap_err();
    assert!(
        matches!(&error, DaemonError::Start(AgentError::Refused(_))),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .starts_with("mode = \"act\", and nothing is done: ")
    );
    assert!(!options.socket.exists());
}

/// A socket that cannot be made: what, where, what to do.
#[test]
fn a_socket_that_cannot_be_made_comes_with_advice() {
    let error = |kind: ErrorKind| {
        let socket = "/run/berth/control.sock".into();
        let source = kind.into();
        DaemonError::Socket { socket, source }.to_string()
    };
    for (kind, what_to_do) in [
        (
            ErrorKind::PermissionDenied,
            "be root, or name a socket in a folder of your own",
        ),
        (ErrorKind::NotFound, "make it, or name a socket elsewhere"),
        (ErrorKind::AddrInUse, "stop that one"),
    ] {
        let said = error(kind);
        assert!(
            said.starts_with("the agent cannot listen at /run/berth/control.sock: "),
            "{said}"
        );
        assert!(said.contains(what_to_do), "{said}");
    }
}
