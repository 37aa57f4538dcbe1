// SPDX-License-Identifier: GPL-2.0-only
//! The network over a card: smoltcp reads what comes and answers ARP and pings; replies go back the way their requests
//! came. What anybody sends passes here first, so here is what is refused.
//!
//! - A reply goes to the Ethernet address from which its request came. Were it looked up (as smoltcp's sockets do), the
//!   reply to a forged sender that nobody has would stand before all others for ever.
//! - Nobody is answered at a port below 1024, or at the unikernel's own ports: two services that echo would answer each
//!   other for ever over a forged sender. Broadcasts are not answered either.
//! - A frame that is longer than any that may be sent is dropped: its echo would be as long.
//! - No answer is longer than what was asked, counters neither: a forged sender would have others flooded.
use crate::card::Card;
use crate::frames::{self, End};
use crate::request::{COUNTERS_PORT, PORT};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use smoltcp::iface::{
    Config, Interface, PollIngressSingleResult, PollResult, SocketHandle, SocketSet,
};
use smoltcp::phy::{self, Device, DeviceCapabilities, Medium, PacketMeta};
use smoltcp::socket::udp;
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, IpAddress, IpCidr, Ipv4Address};

/// Datagrams that a socket keeps, and their bytes; frames that are taken in at a time.
const DATAGRAMS: usize = 256;
const BYTES: usize = 128 * 1024;
/// Frames whose senders are remembered: more than are taken in at a time.
const REMEMBERED: usize = 1024;
/// Largest frame, bytes.
const FRAME: usize = 1514;
/// Memory that the network takes at most, about: the buffers of two sockets, what is on its way.
pub const MEMORY: usize = 6 * BYTES;

/// To whom a reply goes: an end of the line, and its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    /// Where the request came from.
    pub end: End,
    /// From which port.
    pub port: u16,
}

/// Counts of what the network refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// Frames that were longer than any that may be sent.
    pub frames: u64,
    /// Datagrams whose sender may not be answered.
    pub senders: u64,
    /// Answers with counters for which there was no room.
    pub answers: u64,
}

/// smoltcp's view of a card, which remembers who sent which frame.
struct Port<C: Card> {
    card: C,
    /// By number modulo their count: the frame's number, and its sender.
    senders: Box<[(u32, EthernetAddress)]>,
    number: u32,
    /// Frames that were too long.
    long: u64,
}

struct Frame(Vec<u8>, u32);

struct Room<'a, C: Card>(&'a mut C, u64);

impl phy::RxToken for Frame {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }

    fn meta(&self) -> PacketMeta {
        let mut meta = PacketMeta::default();
        meta.id = self.1;
        meta
    }
}

impl<C: Card> phy::TxToken for Room<'_, C> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, bytes: usize, f: F) -> R {
        self.0.send(self.1, bytes, f)
    }
}

impl<C: Card> Device for Port<C> {
    type RxToken<'a>
        = Frame
    where
        C: 'a;
    type TxToken<'a>
        = Room<'a, C>
    where
        C: 'a;

    fn receive(&mut self, now: Instant) -> Option<(Frame, Room<'_, C>)> {
        let now_us = now.total_micros() as u64;
        if !self.card.has_room() {
            return None;
        }
        let mut frame = self.card.receive(now_us)?;
        if frame.len() > FRAME {
            self.long += 1;
            // An empty one says nothing.
            frame.clear();
        }
        self.number = self.number.wrapping_add(1);
        if let Some(sender) = frame.get(6..12).and_then(|bytes| bytes.first_chunk()) {
            let place = self.number as usize % self.senders.len();
            self.senders[place] = (self.number, EthernetAddress(*sender));
        }
        Some((Frame(frame, self.number), Room(&mut self.card, now_us)))
    }

    fn transmit(&mut self, now: Instant) -> Option<Room<'_, C>> {
        let has_room = self.card.has_room();
        has_room.then_some(Room(&mut self.card, now.total_micros() as u64))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = FRAME;
        capabilities
    }
}

impl<C: Card> Port<C> {
    /// Who sent a datagram, if they may be answered.
    fn sender(&self, datagram: &udp::UdpMetadata, me: Ipv4Address) -> Option<Sender> {
        let port = datagram.endpoint.port;
        let service = port < 1024 || port == PORT || port == COUNTERS_PORT;
        let to_me = datagram.local_address == Some(IpAddress::Ipv4(me));
        let (number, mac) = self.senders[datagram.meta.id as usize % self.senders.len()];
        let IpAddress::Ipv4(ip) = datagram.endpoint.addr;
        let known = number == datagram.meta.id && mac.is_unicast();
        (!service && to_me && known).then_some(Sender {
            end: End { mac, ip },
            port,
        })
    }

    fn send(&mut self, from: (End, u16), to: Sender, payload: &[u8], now_us: u64) -> bool {
        let has_room = self.card.has_room();
        if has_room {
            self.card
                .send(now_us, frames::datagram_bytes(payload.len()), |frame| {
                    frames::write_datagram(frame, from, (to.end, to.port), payload);
                });
        }
        has_room
    }
}

/// The interface over a card.
pub struct Stack<C: Card> {
    port: Port<C>,
    me: End,
    interface: Interface,
    sockets: SocketSet<'static>,
    requests: SocketHandle,
    questions: SocketHandle,
    refused: Refused,
}

fn socket(port: u16) -> udp::Socket<'static> {
    let buffer = |datagrams, bytes| {
        udp::PacketBuffer::new(vec![udp::PacketMetadata::EMPTY; datagrams], vec![0; bytes])
    };
    // Nothing is sent through it.
    let mut socket = udp::Socket::new(buffer(DATAGRAMS, BYTES), buffer(0, 0));
    // A fresh socket and a port that is not 0 cannot be refused.
    let _ = socket.bind(port);
    socket
}

impl<C: Card> Stack<C> {
    /// An interface with addresses; `now_us` is any clock that does not go back.
    pub fn new(
        card: C,
        mac: [u8; 6],
        ip: [u8; 4],
        gateway: [u8; 4],
        seed: u64,
        now_us: u64,
    ) -> Stack<C> {
        let me = End {
            mac: EthernetAddress(mac),
            ip: Ipv4Address::from(ip),
        };
        let senders = vec![(0, EthernetAddress([0; 6])); REMEMBERED].into_boxed_slice();
        let mut port = Port {
            card,
            senders,
            number: 0,
            long: 0,
        };
        let mut config = Config::new(me.mac.into());
        config.random_seed = seed;
        let mut interface = Interface::new(config, &mut port, instant(now_us));
        interface.update_ip_addrs(|addresses| {
            // The list of a fresh interface has room for one.
            let _ = addresses.push(IpCidr::new(me.ip.into(), 24));
        });
        let _ = interface
            .routes_mut()
            .add_default_ipv4_route(Ipv4Address::from(gateway));
        let mut sockets = SocketSet::new(vec![]);
        let requests = sockets.add(socket(PORT));
        let questions = sockets.add(socket(COUNTERS_PORT));
        Stack {
            port,
            me,
            interface,
            sockets,
            requests,
            questions,
            refused: Refused::default(),
        }
    }

    /// The card.
    pub fn card(&mut self) -> &mut C {
        &mut self.port.card
    }

    /// Takes in what there is, at most as much as a socket has room for.
    pub fn poll(&mut self, now_us: u64) {
        let now = instant(now_us);
        self.interface.poll_maintenance(now);
        for _ in 0..DATAGRAMS {
            let taken = self
                .interface
                .poll_ingress_single(now, &mut self.port, &mut self.sockets);
            if matches!(taken, PollIngressSingleResult::None) {
                break;
            }
        }
        // What smoltcp has to say by itself.
        while self
            .interface
            .poll_egress(now, &mut self.port, &mut self.sockets)
            == PollResult::SocketStateChanged
        {}
    }

    /// The next request that was taken in.
    pub fn request(&mut self) -> Option<(Vec<u8>, Sender)> {
        let socket = self.sockets.get_mut::<udp::Socket>(self.requests);
        while let Ok((bytes, datagram)) = socket.recv() {
            match self.port.sender(&datagram, self.me.ip) {
                Some(sender) => return Some((bytes.to_vec(), sender)),
                None => self.refused.senders += 1,
            }
        }
        None
    }

    /// Sends a reply; whether there was room.
    pub fn reply(&mut self, bytes: &[u8], to: Sender, now_us: u64) -> bool {
        self.port.send((self.me, PORT), to, bytes, now_us)
    }

    /// Answers who asks for counters with as much of `text` as the question is long; `text` is only made if somebody
    /// asks. How many did.
    pub fn answer(&mut self, now_us: u64, text: impl FnOnce(Refused) -> String) -> usize {
        let refused = self.refused();
        let socket = self.sockets.get_mut::<udp::Socket>(self.questions);
        if !socket.can_recv() {
            return 0;
        }
        let text = text(refused);
        let mut asked = 0;
        while let Ok((bytes, datagram)) = socket.recv() {
            asked += 1;
            let answer = &text.as_bytes()[..bytes.len().min(text.len())];
            match self.port.sender(&datagram, self.me.ip) {
                None => self.refused.senders += 1,
                Some(_) if answer.is_empty() => {}
                Some(to) => {
                    let sent = self.port.send((self.me, COUNTERS_PORT), to, answer, now_us);
                    self.refused.answers += u64::from(!sent);
                }
            }
        }
        asked
    }

    /// What was refused so far.
    pub fn refused(&self) -> Refused {
        Refused {
            frames: self.port.long,
            ..self.refused
        }
    }
}

fn instant(us: u64) -> Instant {
    Instant::from_micros(us as i64)
}
