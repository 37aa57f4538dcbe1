// SPDX-License-Identifier: GPL-2.0-only
//! Asks systemd to set what is its own: properties of units, by D-Bus, for as long as the machine runs.
//!
//! What systemd is not told of it would undo, at its next `daemon-reload` or when something else of the unit is set.
//! Whoever answers on the bus may be slow, or not be what it says: no answer is waited for longer than [`PATIENCE`], an
//! answer of another type is an error, and after one that did not come nobody is asked for a while.
use crate::error::Error;
use crate::unit::{self, Property, interface, object};
use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};
use zbus::connection::Builder;
use zbus::{Connection, OwnedVariant, fdo};

/// How long one answer is waited for.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// How long nobody is asked after an answer that did not come.
pub const REST: Duration = Duration::from_secs(10);
const NAME: &str = "org.freedesktop.systemd1";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";
/// Where systemd writes down what was set while a unit ran: of units without files of their own, and of others.
const WRITTEN: [&str; 2] = ["transient", "system.control"];
/// Bytes of a cgroup's path, at most.
const PATH: usize = 4096;

/// systemd of this machine, as far as it can be asked; connected to when it first is.
#[derive(Debug)]
pub struct Systemd {
    state: Mutex<State>,
    to: To,
    /// `/run/systemd`.
    run: PathBuf,
    patience: Duration,
    rest: Duration,
}

#[derive(Debug)]
enum State {
    /// Nobody has been asked yet.
    New,
    Open(Connection),
    /// No answer came: why, when, and the attempt to connect that has not come to an end yet.
    Lost(String, Instant, Option<Attempt>),
}

/// What comes of an attempt to connect.
type Attempt = mpsc::Receiver<zbus::Result<Connection>>;

#[derive(Debug)]
enum To {
    /// `/run/dbus/system_bus_socket`, or what `DBUS_SYSTEM_BUS_ADDRESS` says.
    Bus,
    /// A bus elsewhere: a test's.
    #[cfg_attr(not(test), expect(dead_code, reason = "of tests"))]
    At(String),
    /// One that speaks without a bus between, and can be reached once: a test's.
    #[cfg_attr(not(test), expect(dead_code, reason = "of tests"))]
    Peer(Mutex<Option<UnixStream>>),
}

impl Systemd {
    /// That of the system bus.
    pub fn new() -> Systemd {
        Systemd::to(To::Bus, Path::new("/run/systemd"), (PATIENCE, REST))
    }

    fn to(to: To, run: &Path, (patience, rest): (Duration, Duration)) -> Systemd {
        Systemd {
            state: Mutex::new(State::New),
            to,
            run: run.into(),
            patience,
            rest,
        }
    }

    /// Whether it answers.
    ///
    /// # Errors
    /// Why it does not, in a clause.
    pub fn answers(&self) -> Result<(), String> {
        let path = "/org/freedesktop/systemd1";
        let asked = ("org.freedesktop.systemd1.Manager", "Version");
        self.call(path, PROPERTIES, "Get", &asked)
            .map(drop)
            .map_err(|e| e.words())
    }

    /// The value of a unit's property, as [`crate::unit`] writes it.
    ///
    /// # Errors
    /// There is no such unit, it does not run, systemd does not answer or does not make sense.
    pub fn read(&self, what: &str, unit: &str, property: Property) -> Result<String, Error> {
        self.group(what, unit)?;
        let value = self.get(what, unit, interface(unit), property.name())?;
        let text = property.text(value).ok_or_else(|| {
            refused(
                what,
                "systemd's answer is of another type than this property's",
            )
        })?;
        Ok(match self.written_down(unit, property).is_some() {
            true => unit::at_runtime(&text),
            false => text,
        })
    }

    /// Sets it until the machine ends or the unit does; a value without the word `runtime` as what it would be if that
    /// had never been done.
    ///
    /// # Errors
    /// As [`Systemd::read`]; it is denied.
    pub fn write(
        &self,
        what: &str,
        unit: &str,
        property: Property,
        value: &str,
    ) -> Result<(), Error> {
        // Whoever asks for a unit that is not there is given one.
        self.group(what, unit)?;
        let wrong = || refused(what, &format!("{value:?} is no value of it"));
        let variant = property.variant(value).ok_or_else(wrong)?;
        let body = (unit, true, vec![(property.name(), variant)]);
        self.call(
            "/org/freedesktop/systemd1",
            MANAGER,
            "SetUnitProperties",
            &body,
        )
        .map_err(|e| e.of_what(what))?;
        if !unit::is_runtime(value)
            && let Some(file) = self.written_down(unit, property)
        {
            std::fs::remove_file(&file)
                .map_err(|e| refused(what, &format!("{}: {e}", file.display())))?;
            // Not empty: others have set something, too.
            if let Some(folder) = file.parent() {
                let _ = std::fs::remove_dir(folder);
            }
        }
        Ok(())
    }

    /// The cgroup of a unit, below where cgroups are mounted.
    ///
    /// # Errors
    /// As [`Systemd::read`].
    pub fn group(&self, what: &str, unit: &str) -> Result<String, Error> {
        let gone = || Error::Gone { what: what.into() };
        if interface(unit).is_none() {
            return Err(refused(what, "it is no name of a unit that has a cgroup"));
        }
        // A unit that has ended has none; asked each time, as it costs as much as to ask whether that one is there.
        let value = self.get(what, unit, interface(unit), "ControlGroup")?;
        let group = String::try_from(value)
            .map_err(|_| refused(what, "its cgroup is of another type than text"))?;
        if group.len() > PATH || group.split('/').any(|part| part == "..") {
            return Err(refused(what, "its cgroup is none"));
        }
        match group.trim_matches('/') {
            "" => Err(gone()),
            group => Ok(group.into()),
        }
    }

    /// The file in which it is written down that somebody has set it while the unit ran.
    fn written_down(&self, unit: &str, property: Property) -> Option<PathBuf> {
        let folders = WRITTEN.iter().map(|folder| self.run.join(folder));
        let mut files = folders.map(|f| f.join(format!("{unit}.d")).join(property.drop_in()));
        files.find(|file| std::fs::symlink_metadata(file).is_ok_and(|m| m.is_file()))
    }

    fn get(
        &self,
        what: &str,
        unit: &str,
        interface: Option<&str>,
        property: &str,
    ) -> Result<OwnedVariant, Error> {
        let interface =
            interface.ok_or_else(|| refused(what, "it is no name of a unit that has a cgroup"))?;
        let message = self
            .call(&object(unit), PROPERTIES, "Get", &(interface, property))
            .map_err(|e| e.of_what(what))?;
        let body = message.body();
        let value = body.deserialize::<zbus::Variant<'_>>();
        let value = value.and_then(|v| v.try_to_owned());
        value.map_err(|e| refused(what, &format!("systemd's answer makes no sense: {e}")))
    }

    fn call<B>(
        &self,
        path: &str,
        interface: &str,
        method: &str,
        body: &B,
    ) -> Result<zbus::Message, Failure>
    where
        B: serde::Serialize + zbus::wire::DynamicType,
    {
        let mut state = locked(&self.state);
        let connection = self.connection(&mut state).map_err(Failure::Lost)?;
        let asked = connection.call_method(Some(NAME), path, Some(interface), method, body);
        zbus::block_on(asked).map_err(|e| {
            let failure = Failure::of(e);
            if let Failure::Lost(why) = &failure {
                *state = State::Lost(why.clone(), Instant::now(), None);
            }
            failure
        })
    }

    fn connection(&self, state: &mut State) -> Result<Connection, String> {
        let attempt = match state {
            State::Open(connection) => return Ok(connection.clone()),
            State::Lost(why, at, _) if at.elapsed() < self.rest => return Err(why.clone()),
            // One that has not come to an end is waited for, and no other is begun beside it: whoever never speaks
            // holds one thread, and not one more each time.
            State::Lost(_, _, attempt) => attempt.take(),
            State::New => None,
        };
        let attempt = match attempt {
            Some(attempt) => attempt,
            None => connect(&self.to, self.patience)?,
        };
        let (lost, attempt) = match attempt.recv_timeout(self.patience) {
            Ok(Ok(connection)) => {
                *state = State::Open(connection.clone());
                return Ok(connection);
            }
            Ok(Err(e)) => (format!("the system bus cannot be reached: {e}"), None),
            Err(_) => ("the system bus does not answer".to_string(), Some(attempt)),
        };
        *state = State::Lost(lost.clone(), Instant::now(), attempt);
        Err(lost)
    }
}

impl Default for Systemd {
    fn default() -> Systemd {
        Systemd::new()
    }
}

/// Begins to connect: whoever holds the other end need not speak at all.
fn connect(to: &To, patience: Duration) -> Result<Attempt, String> {
    let builder = match to {
        To::Bus => Builder::system(),
        To::At(address) => Builder::address(address.as_str()),
        To::Peer(stream) => {
            let stream = locked(stream).take().ok_or("it is there no more")?;
            Builder::unix_stream(stream).p2p()
        }
    };
    let (done, attempt) = mpsc::channel();
    let thread = std::thread::Builder::new().name("berth-bus".into());
    let begun = thread.spawn(move || {
        let built = zbus::block_on(builder.method_timeout(patience).build());
        let _ = done.send(built);
    });
    begun.map_err(|e| format!("no thread for it: {e}"))?;
    Ok(attempt)
}

/// Why a call failed.
enum Failure {
    /// There is nothing of that name.
    Gone,
    /// It was answered, with no.
    Refused(String),
    /// This process may not.
    Denied(String),
    /// It was not answered.
    Lost(String),
}

impl Failure {
    fn of(error: zbus::Error) -> Failure {
        match error {
            zbus::Error::MethodError(name, text, _) => {
                let name = name.as_str();
                match name.rsplit('.').next() {
                    Some("NoSuchUnit" | "LoadFailed") => Failure::Gone,
                    _ => Failure::Refused(format!(
                        "systemd: {}",
                        text.unwrap_or_else(|| name.into())
                    )),
                }
            }
            zbus::Error::FDO(error) => match *error {
                fdo::Error::AccessDenied(text)
                | fdo::Error::AuthFailed(text)
                | fdo::Error::InteractiveAuthorizationRequired(text) => {
                    Failure::Denied(format!("systemd does not allow it: {text}"))
                }
                fdo::Error::UnknownObject(_) => Failure::Gone,
                fdo::Error::UnknownInterface(text)
                | fdo::Error::UnknownMethod(text)
                | fdo::Error::UnknownProperty(text)
                | fdo::Error::PropertyReadOnly(text)
                | fdo::Error::InvalidArgs(text)
                | fdo::Error::Failed(text)
                | fdo::Error::NotSupported(text) => Failure::Refused(format!("systemd: {text}")),
                other => Failure::Lost(format!("systemd cannot be asked: {other}")),
            },
            zbus::Error::InputOutput(e) if e.kind() == ErrorKind::TimedOut => {
                Failure::Lost("systemd did not answer in time".into())
            }
            other => Failure::Lost(format!("systemd cannot be asked: {other}")),
        }
    }

    fn words(self) -> String {
        match self {
            Failure::Gone => "systemd has no such unit".into(),
            Failure::Refused(why) | Failure::Denied(why) | Failure::Lost(why) => why,
        }
    }

    fn of_what(self, what: &str) -> Error {
        match self {
            Failure::Gone => Error::Gone { what: what.into() },
            Failure::Denied(why) => Error::Denied {
                what: what.into(),
                why: why.escape_debug().to_string(),
            },
            other => refused(what, &other.words()),
        }
    }
}

fn refused(what: &str, why: &str) -> Error {
    Error::Refused {
        what: what.into(),
        why: why.escape_debug().to_string(),
    }
}

/// Whoever panicked while it held one has left nothing half done in it.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod enemy;
