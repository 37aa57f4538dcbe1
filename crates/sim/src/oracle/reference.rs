// SPDX-License-Identifier: GPL-2.0-only
//! Sample paths of single-station queues by recursions that share nothing with the engine.
//!
//! Given the same arrivals and service times, the engine must give the same response time for every single
//! request: exactly where order decides (first come first served, round robin on one CPU), within rounding under
//! processor sharing. They also show what a statistical method does on a queue that is certainly right.
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// A request: when it comes and how long it takes, ns. Requests are given in the order of their arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub arrival: u64,
    pub service: u64,
}

/// Response times of `servers` servers and one queue, first come first served (Kiefer and Wolfowitz: a request
/// starts when it has come and the server that is free first is free).
pub fn fcfs(servers: usize, requests: &[Request]) -> Vec<u64> {
    let mut free: BinaryHeap<Reverse<u64>> = (0..servers).map(|_| Reverse(0)).collect();
    let mut response = |r: &Request| {
        let Reverse(at) = free.pop().unwrap_or(Reverse(u64::MAX));
        let end = at.max(r.arrival).saturating_add(r.service);
        free.push(Reverse(end));
        end - r.arrival
    };
    requests.iter().map(&mut response).collect()
}

/// Response times of one server that all present requests share equally.
///
/// In virtual time, which runs 1/n as fast as real time while n requests are present, a request leaves when
/// it has stayed as long as its service time.
pub fn processor_sharing(requests: &[Request]) -> Vec<f64> {
    let mut responses = vec![0.0; requests.len()];
    // Virtual departure times, as ordered bits: they are not negative.
    let mut present: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    let (mut now, mut virt) = (0.0f64, 0.0f64);
    let mut serve = |present: &mut BinaryHeap<Reverse<(u64, usize)>>, until: f64| {
        while let Some(&Reverse((bits, i))) = present.peek() {
            let n = present.len() as f64;
            let leaves = now + (f64::from_bits(bits) - virt) * n;
            if leaves > until {
                virt += (until - now) / n;
                break;
            }
            present.pop();
            (now, virt) = (leaves, f64::from_bits(bits));
            responses[i] = leaves - requests[i].arrival as f64;
        }
        if present.is_empty() {
            virt = 0.0;
        }
        now = now.max(until);
        virt
    };
    for (i, r) in requests.iter().enumerate() {
        let virt = serve(&mut present, r.arrival as f64);
        present.push(Reverse(((virt + r.service as f64).to_bits(), i)));
    }
    serve(&mut present, f64::MAX);
    responses
}

/// Response times of one server that serves present requests in turn, `quantum` ns each. A request that arrives
/// joins the end of the queue; at the same instant, an arrival is queued before the one whose turn ends.
pub fn round_robin(quantum: u64, requests: &[Request]) -> Vec<u64> {
    let mut responses = vec![0; requests.len()];
    let mut queue: VecDeque<(usize, u64)> = VecDeque::new();
    let mut next = 0;
    let mut now = 0;
    loop {
        let Some((i, left)) = queue.pop_front() else {
            let Some(r) = requests.get(next) else {
                return responses;
            };
            now = now.max(r.arrival);
            queue.push_back((next, r.service));
            next += 1;
            continue;
        };
        let ran = left.min(quantum);
        now += ran;
        while let Some(r) = requests.get(next)
            && r.arrival <= now
        {
            queue.push_back((next, r.service));
            next += 1;
        }
        if ran == left {
            responses[i] = now - requests[i].arrival;
        } else {
            queue.push_back((i, left - ran));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::queue;
    use berth_scenario::dist::{Rng, Stream};
    use berth_scenario::model::Dist;
    use proptest::prelude::*;

    fn poisson(seed: u64, n: u64, gap_ns: f64, service: &Dist) -> Vec<Request> {
        let gap = Dist::Exp { mean_ns: gap_ns };
        let (mut a, mut s) = (
            Rng::new(seed, Stream::Thread(0)),
            Rng::new(seed, Stream::Thread(1)),
        );
        let mut at = 0;
        (0..n)
            .map(|i| {
                at += gap.sample(&mut a, i);
                let service = service.sample(&mut s, i);
                Request {
                    arrival: at,
                    service,
                }
            })
            .collect()
    }

    fn requests(list: &[(u64, u64)]) -> Vec<Request> {
        let request = |&(arrival, service)| Request { arrival, service };
        list.iter().map(request).collect()
    }

    #[test]
    fn worked_examples() {
        let r = requests(&[(0, 10), (2, 4), (3, 1)]);
        assert_eq!(fcfs(1, &r), [10, 12, 12]);
        assert_eq!(fcfs(2, &r), [10, 4, 4]);
        // Turns: 0 until 2, 1 (which came at 2, before the turn ended) until 4, 0 until 6, 2 until 7, 1 until 9.
        assert_eq!(round_robin(2, &r), [15, 7, 4]);
        // 0 alone until 2 (8 left), with 1 until 3, all three until 6 (2 done), 0 and 1 until 11, 0 until 15.
        let ps = processor_sharing(&r);
        for (got, want) in ps.iter().zip([15.0, 9.0, 3.0]) {
            assert!((got - want).abs() < 1e-9, "{ps:?}");
        }
    }

    #[test]
    fn means_agree_with_the_formulas() {
        let mean = |x: Vec<f64>| x.iter().sum::<f64>() / x.len() as f64;
        let float = |x: Vec<u64>| x.into_iter().map(|x| x as f64).collect();
        let s = 1e6;
        let exp = Dist::Exp { mean_ns: s };
        let r = poisson(1, 1_000_000, 2.0 * s, &exp);
        let close = |got: f64, want: f64| assert!((got / want - 1.0).abs() < 0.02, "{got} {want}");
        close(mean(float(fcfs(1, &r))), queue::mm1_response(s, 0.5));
        let r8 = poisson(1, 1_000_000, s / 6.4, &exp);
        close(mean(float(fcfs(8, &r8))), queue::mmc_response(8, s, 0.8));
        for d in [
            Dist::Const(s as u64),
            exp,
            Dist::Hyperexp {
                mean_ns: s,
                cv2: 10.0,
            },
        ] {
            let r = poisson(2, 1_000_000, 2.0 * s, &d);
            close(mean(processor_sharing(&r)), queue::mg1_ps_response(s, 0.5));
        }
        let d = Dist::Const(s as u64);
        let r = poisson(3, 1_000_000, 2.0 * s, &d);
        close(
            mean(float(fcfs(1, &r))),
            queue::mg1_fcfs_response(s, 0.5, 0.0),
        );
    }

    proptest! {
        /// Work is conserved: all disciplines empty the system at the same instants, so the last departure of a
        /// busy period is the same; a quantum longer than every service is first come first served.
        #[test]
        fn disciplines_agree_where_they_must(list in proptest::collection::vec((0u64..50, 1u64..40), 1..60)) {
            let mut at = 0;
            let r: Vec<Request> = list.iter().map(|&(gap, service)| { at += gap; Request { arrival: at, service } }).collect();
            let last = |x: &[u64]| x.iter().zip(&r).map(|(x, r)| x + r.arrival).max();
            let (f, rr) = (fcfs(1, &r), round_robin(3, &r));
            prop_assert_eq!(last(&f), last(&rr));
            prop_assert_eq!(&round_robin(40, &r), &f);
            let ps = processor_sharing(&r);
            let end = ps.iter().zip(&r).map(|(x, r)| x + r.arrival as f64).fold(0.0, f64::max);
            prop_assert!((end - last(&f).unwrap() as f64).abs() < 1e-6 * end.max(1.0));
        }
    }
}
