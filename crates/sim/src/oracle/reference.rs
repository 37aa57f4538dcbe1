// SPDX-License-Identifier: GPL-2.0-only
//! Sample paths of single-station queues by recursions that share nothing with the engine.
//!
//! Given the same arrivals and service times, the engine must give the same response time for every single
//! request: exactly where order decides (first come first served, round robin on one CPU), within rounding under
//! processor sharing. They also show what a statistical method does on a queue that is certainly right.
use berth_scenario::dist::{Rng, Stream};
use berth_scenario::model::Dist;
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

/// A closed system under round robin on several CPUs; see [`closed_round_robin`].
#[derive(Clone, Debug)]
pub struct Closed {
    pub cpus: u32,
    pub workers: u32,
    pub hogs: u32,
    pub think: Dist,
    pub service: Dist,
}

/// Response times (end of a think to the end of the computation after it) of all cycles that end up to `end`,
/// in the order of their ends. One queue, slices of `quantum` ns, whoever wakes joins the end of the queue;
/// random numbers as in [`super::load::Closed`].
pub fn closed_round_robin(c: &Closed, seed: u64, quantum: u64, end: u64) -> Vec<u64> {
    struct Worker {
        rng: Rng,
        round: u64,
        left: u64,
        woke: u64,
    }
    let mut workers: Vec<Worker> = (0..c.workers)
        .map(|i| Worker {
            rng: Rng::new(seed, Stream::Thread(i)),
            round: 0,
            left: 0,
            woke: 0,
        })
        .collect();
    // CPUs first, then the workers' wake-ups.
    let mut events: BinaryHeap<Reverse<(u64, u32)>> = BinaryHeap::new();
    let mut queue: VecDeque<u32> = (c.workers..c.workers + c.hogs).collect();
    let mut running = vec![None; c.cpus as usize];
    let mut responses = Vec::new();
    for (i, w) in (0..).zip(&mut workers) {
        let think = c.think.sample(&mut w.rng, 1);
        w.round = 1;
        events.push(Reverse((think, c.cpus + i)));
    }
    let mut now = 0;
    loop {
        for cpu in 0..c.cpus {
            if running[cpu as usize].is_none()
                && let Some(task) = queue.pop_front()
            {
                let slice = workers
                    .get(task as usize)
                    .map_or(quantum, |w| w.left.min(quantum));
                running[cpu as usize] = Some((task, slice));
                events.push(Reverse((now + slice, cpu)));
            }
        }
        let Some(Reverse((at, id))) = events.pop() else {
            return responses;
        };
        if at > end {
            return responses;
        }
        now = at;
        if id >= c.cpus {
            let w = &mut workers[(id - c.cpus) as usize];
            w.left = c.service.sample(&mut w.rng, w.round).max(1);
            w.woke = now;
            queue.push_back(id - c.cpus);
            continue;
        }
        let Some((task, slice)) = running[id as usize].take() else {
            continue;
        };
        match workers.get_mut(task as usize) {
            Some(w) if w.left == slice => {
                responses.push(now - w.woke);
                w.round += 1;
                let think = c.think.sample(&mut w.rng, w.round);
                events.push(Reverse((now + think, c.cpus + task)));
            }
            other => {
                if let Some(w) = other {
                    w.left -= slice;
                }
                queue.push_back(task);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::load::poisson;
    use crate::oracle::queue;
    use proptest::prelude::*;

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

    /// Round robin is biased, the less the shorter the quantum.
    #[test]
    fn closed_round_robin_converges_to_the_formula() {
        let exp = |ms: f64| Dist::Exp { mean_ns: ms * 1e6 };
        let w8 = Closed {
            cpus: 8,
            workers: 64,
            hogs: 16,
            think: exp(4.0),
            service: exp(1.0),
        };
        let truth = queue::closed_ps(64, 4.0, 1.0, 16, 8).response;
        let error = |quantum| {
            let all = closed_round_robin(&w8, 1, quantum, 2_000_000_000);
            let counted = &all[500..];
            let mean = counted.iter().sum::<u64>() as f64 / counted.len() as f64;
            mean / 1e6 / truth - 1.0
        };
        let errors = [3_000_000, 1_000_000, 200_000, 50_000].map(error);
        assert!(errors.windows(2).all(|e| e[0] > e[1]), "{errors:?}");
        assert!(errors[0] > 0.3 && errors[3].abs() < 0.05, "{errors:?}");
    }

    proptest! {
        /// Work is conserved: all disciplines empty the system at the same instants, so the last departure of a
        /// busy period is the same; a quantum longer than every service is first come first served.
        #[test]
        fn disciplines_agree_where_they_must(list in proptest::collection::vec((0u64..50, 1u64..40), 1..60)) {
            let mut at = 0;
            let r: Vec<Request> = list
                .iter()
                .map(|&(gap, service)| { at += gap; Request { arrival: at, service } })
                .collect();
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
