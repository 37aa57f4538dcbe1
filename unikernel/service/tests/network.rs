// SPDX-License-Identifier: GPL-2.0-only
//! The receive path as those use it who mean well, and those who do not. What stands in for a card is two queues of
//! frames; everything behind it is what runs in the unikernel.
use smoltcp::wire::{EthernetAddress, Ipv4Address};
use std::collections::VecDeque;
use unikernel_service::card::Card;
use unikernel_service::clients::Clients;
use unikernel_service::frames::{self, End, Found};
use unikernel_service::hostile::Hostile;
use unikernel_service::request::{COUNTERS_PORT, PORT};
use unikernel_service::stack::Stack;
use unikernel_service::workload::Sizes;

const MAC: [u8; 6] = [0x52, 0x54, 0, 0x12, 0x34, 0x56];
const IP: [u8; 4] = [10, 0, 2, 15];
const GATEWAY: [u8; 4] = [10, 0, 2, 2];

#[derive(Default)]
struct Queues {
    to_guest: VecDeque<Vec<u8>>,
    from_guest: VecDeque<Vec<u8>>,
}

impl Card for Queues {
    fn receive(&mut self, _: u64) -> Option<Vec<u8>> {
        self.to_guest.pop_front()
    }

    fn has_room(&mut self) -> bool {
        true
    }

    fn send<R>(&mut self, _: u64, bytes: usize, fill: impl FnOnce(&mut [u8]) -> R) -> R {
        assert!(
            bytes <= 1514,
            "a frame of {bytes} bytes, which no card sends"
        );
        let mut frame = vec![0; bytes];
        let result = fill(&mut frame);
        self.from_guest.push_back(frame);
        result
    }
}

fn stack() -> (Stack<Queues>, End, End) {
    let (me, server) = Clients::ends(MAC, IP, GATEWAY);
    (
        Stack::new(Queues::default(), MAC, IP, GATEWAY, 1, 0),
        me,
        server,
    )
}

/// Takes in what came, answers it; what was sent to `me`: port and bytes.
fn serve(stack: &mut Stack<Queues>, me: End, now_us: u64) -> Vec<(u16, Vec<u8>)> {
    stack.poll(now_us);
    while let Some((bytes, sender)) = stack.request() {
        stack.reply(&bytes, sender, now_us);
    }
    stack.answer(now_us, |refused| {
        format!("refused_senders {}\n{}", refused.senders, "x".repeat(3000))
    });
    stack.poll(now_us);
    let mut sent = Vec::new();
    while let Some(frame) = stack.card().from_guest.pop_front() {
        match frames::read(me, &frame) {
            Some(Found::Datagram { to, payload, .. }) => sent.push((to, payload.to_vec())),
            Some(Found::Asked(answer)) => stack.card().to_guest.push_back(answer),
            _ => {}
        }
    }
    sent
}

fn ask(
    stack: &mut Stack<Queues>,
    me: End,
    server: End,
    port: u16,
    to: u16,
    bytes: &[u8],
) -> Vec<(u16, Vec<u8>)> {
    stack
        .card()
        .to_guest
        .push_back(frames::datagram((me, port), (server, to), bytes));
    serve(stack, me, 1_000_000)
}

#[test]
fn a_request_comes_back_as_it_was() {
    let (mut stack, me, server) = stack();
    assert_eq!(
        ask(&mut stack, me, server, 3000, PORT, b"hello"),
        [(3000, b"hello".to_vec())]
    );
    assert_eq!(
        ask(&mut stack, me, server, 3000, PORT, &[7; 1472]),
        [(3000, vec![7; 1472])]
    );
    assert_eq!(
        ask(&mut stack, me, server, 3000, PORT, b""),
        [(3000, vec![])]
    );
    assert_eq!(
        ask(&mut stack, me, server, 3000, 7779, b"nobody is there"),
        []
    );
}

/// Two services that echo must not answer each other for ever over a forged sender.
#[test]
fn services_are_not_answered() {
    let (mut stack, me, server) = stack();
    for port in [1, 7, 19, 53, 1023, PORT, COUNTERS_PORT] {
        assert_eq!(ask(&mut stack, me, server, port, PORT, b"hello"), []);
        assert_eq!(
            ask(&mut stack, me, server, port, COUNTERS_PORT, b"hello"),
            []
        );
    }
    assert_eq!(stack.refused().senders, 14);
    assert_eq!(ask(&mut stack, me, server, 1024, PORT, b"hello").len(), 1);
}

/// Broadcasts are not answered, and no reply goes to what is no address of one card.
#[test]
fn only_ends_of_the_line_are_answered() {
    let (mut stack, me, server) = stack();
    let all = EthernetAddress::BROADCAST;
    let everybody = End {
        mac: all,
        ip: Ipv4Address::BROADCAST,
    };
    assert_eq!(ask(&mut stack, me, everybody, 3000, PORT, b"hello"), []);
    let forged = End {
        mac: all,
        ip: me.ip,
    };
    assert_eq!(ask(&mut stack, forged, server, 3000, PORT, b"hello"), []);
    assert_eq!(ask(&mut stack, me, server, 3000, PORT, b"hello").len(), 1);
}

/// Forged senders that nobody has, on this network and elsewhere, hold up nobody: replies go where requests came from.
#[test]
fn forged_senders_hold_up_nobody() {
    let (mut stack, me, server) = stack();
    for last in 100..200 {
        for ip in [
            Ipv4Address::new(10, 0, 2, last),
            Ipv4Address::new(8, 8, 8, last),
        ] {
            let forged = End { ip, ..me };
            let frame = frames::datagram((forged, 3000), (server, PORT), b"forged");
            stack.card().to_guest.push_back(frame);
        }
    }
    assert_eq!(
        ask(&mut stack, me, server, 3000, PORT, b"hello"),
        [(3000, b"hello".to_vec())]
    );
}

/// An answer is never longer than what asked for it.
#[test]
fn counters_are_not_longer_than_the_question() {
    let (mut stack, me, server) = stack();
    assert_eq!(ask(&mut stack, me, server, 3000, COUNTERS_PORT, b""), []);
    assert_eq!(
        ask(&mut stack, me, server, 3000, COUNTERS_PORT, b"?"),
        [(3000, b"r".to_vec())]
    );
    let all = ask(&mut stack, me, server, 3000, COUNTERS_PORT, &[0; 1400]);
    assert!(all[0].1.len() == 1400 && all[0].1.starts_with(b"refused_senders 0\n"));
}

/// A card hands over what its buffers hold, more than it may send: such a request is not answered, nor a question.
#[test]
fn frames_that_are_too_long_are_dropped() {
    let (mut stack, me, server) = stack();
    for bytes in [1473, 1994, 60_000] {
        let long = vec![7; bytes];
        assert_eq!(ask(&mut stack, me, server, 3000, PORT, &long), []);
        assert_eq!(ask(&mut stack, me, server, 3000, COUNTERS_PORT, &long), []);
    }
    assert_eq!(stack.refused().frames, 6);
    assert_eq!(ask(&mut stack, me, server, 3000, PORT, b"hello").len(), 1);
}

/// More than there is room for: some are lost, none twice, and afterwards it answers as before.
#[test]
fn a_flood_passes() {
    let (mut stack, me, server) = stack();
    ask(&mut stack, me, server, 3000, PORT, b"hello");
    for i in 0..100_000u32 {
        stack.card().to_guest.push_back(frames::datagram(
            (me, 3000),
            (server, PORT),
            &i.to_le_bytes(),
        ));
    }
    let mut seen = vec![false; 100_000];
    while !stack.card().to_guest.is_empty() {
        for (_, bytes) in serve(&mut stack, me, 1_000_000) {
            let number = u32::from_le_bytes(bytes.try_into().unwrap()) as usize;
            assert!(
                !std::mem::replace(&mut seen[number], true),
                "{number} is answered twice"
            );
        }
    }
    assert!(seen.iter().filter(|seen| **seen).count() >= 1000);
    assert_eq!(ask(&mut stack, me, server, 3000, PORT, b"hello").len(), 1);
}

/// A million frames of somebody who means harm. None is a panic; nobody is answered who may not be; nothing grows; and
/// who means well is answered all the time.
#[test]
fn a_million_hostile_frames() {
    let (mut stack, me, server) = stack();
    let mut hostile = Hostile::new(20, me, server);
    let (mut datagrams, mut frames_sent) = (0, 0);
    for round in 0..10_000u64 {
        stack.card().to_guest.extend(hostile.by_ref().take(100));
        let now_us = round * 1000;
        while !stack.card().to_guest.is_empty() {
            stack.poll(now_us);
            while let Some((bytes, sender)) = stack.request() {
                assert!(sender.port >= 1024 && bytes.len() <= 1472);
                stack.reply(&bytes, sender, now_us);
            }
            stack.answer(now_us, |_| String::from("counters"));
        }
        stack.poll(now_us);
        for frame in stack.card().from_guest.drain(..) {
            frames_sent += 1;
            if let Some(Found::Datagram { from, to, .. }) = frames::read(me, &frame) {
                assert!(from == PORT || from == COUNTERS_PORT);
                assert!(
                    to >= 1024 && to != PORT && to != COUNTERS_PORT,
                    "port {to} is answered"
                );
                datagrams += 1;
            }
        }
        if round % 1000 == 999 {
            let good = frames::datagram((me, 3000), (server, PORT), b"good");
            stack.card().to_guest.push_back(good);
            let answered = serve(&mut stack, me, now_us)
                .into_iter()
                .any(|(to, bytes)| to == 3000 && bytes == b"good");
            assert!(answered, "not answered after {} frames", (round + 1) * 100);
        }
    }
    assert!(
        datagrams > 10_000 && frames_sent > datagrams,
        "{datagrams} of {frames_sent} were answers"
    );
}

/// Clients of its own, without any work in between: each is answered, in no time, and none asks twice at once.
#[test]
fn clients_of_its_own_are_answered() {
    let (me, server) = Clients::ends(MAC, IP, GATEWAY);
    let clients = Clients::new(me, server, 0, 40, 100, 1000, Sizes::new(1, 20, 0.0));
    let mut stack = Stack::new(clients, MAC, IP, GATEWAY, 1, 0);
    let mut now_us = 0;
    while let Some(due_us) = stack.card().due_us() {
        now_us = now_us.max(due_us);
        stack.poll(now_us);
        let mut taken = Vec::new();
        taken.extend(std::iter::from_fn(|| stack.request()));
        assert!(taken.len() <= 40);
        taken
            .into_iter()
            .for_each(|(bytes, sender)| assert!(stack.reply(&bytes, sender, now_us)));
        stack.poll(now_us);
    }
    assert_eq!(
        (stack.card().take_responses_us().len(), stack.card().wrong()),
        (1000, 0)
    );
    // 25 rounds of 40, a round trip apart.
    assert_eq!(now_us, 2400);
}
