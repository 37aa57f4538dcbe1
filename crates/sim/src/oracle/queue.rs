// SPDX-License-Identifier: GPL-2.0-only
//! Mean values of queues that have a closed form. Times in any one unit; `service` is the mean service time,
//! `rho` the utilisation of one server, 0 <= rho < 1.

/// M/M/1, first come first served: mean response time.
pub fn mm1_response(service: f64, rho: f64) -> f64 {
    service / (1.0 - rho)
}

/// Erlang's C: the probability that an arrival at M/M/c has to wait. `rho` = arrival rate x service / c.
///
/// By the recursion of Erlang's B over the number of servers, which neither overflows nor cancels.
pub fn erlang_c(servers: u32, rho: f64) -> f64 {
    let load = rho * f64::from(servers);
    let blocked = (1..=servers).fold(1.0, |b, k| load * b / (f64::from(k) + load * b));
    blocked / (1.0 - rho * (1.0 - blocked))
}

/// M/M/c, first come first served: mean response time.
pub fn mmc_response(servers: u32, service: f64, rho: f64) -> f64 {
    service + erlang_c(servers, rho) * service / (f64::from(servers) * (1.0 - rho))
}

/// M/G/1 under processor sharing: mean response time, whatever the service times' distribution.
pub fn mg1_ps_response(service: f64, rho: f64) -> f64 {
    service / (1.0 - rho)
}

/// M/G/1, first come first served (Pollaczek and Khinchine): mean response time.
/// `cv2`: squared coefficient of variation of the service times.
pub fn mg1_fcfs_response(service: f64, rho: f64, cv2: f64) -> f64 {
    service * (1.0 + rho * (1.0 + cv2) / (2.0 * (1.0 - rho)))
}

/// What [`closed_ps`] knows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClosedPs {
    /// Cycles (think, then compute) completed per unit of time, all workers together.
    pub throughput: f64,
    /// Mean time from the end of a think to the end of the computation after it.
    pub response: f64,
    /// Share of all CPU time that the hogs get.
    pub hog_share: f64,
}

/// `workers` alternate between thinking (mean `think`) and computing (mean `service`, exponential) on `cpus`
/// CPUs that they share equally with `hogs` tasks that never stop; nobody can use two CPUs at once.
///
/// Birth and death process of the number n of computing workers: n + hogs tasks share min(cpus, n + hogs)
/// CPUs, so that workers finish at rate mu(n) = n min(cpus, n + hogs) / ((n + hogs) service).
/// Insensitive to the distribution of `think`.
pub fn closed_ps(workers: u32, think: f64, service: f64, hogs: u32, cpus: u32) -> ClosedPs {
    let rate = |n: u32| {
        let all = f64::from(n + hogs);
        f64::from(n) * all.min(f64::from(cpus)) / (all * service)
    };
    // Relative to the largest term, so that neither end of a long chain under- or overflows into it.
    let mut log_p = vec![0.0f64];
    for n in 0..workers {
        let step = f64::from(workers - n) / (think * rate(n + 1));
        log_p.push(log_p[n as usize] + step.ln());
    }
    let top = log_p.iter().copied().fold(f64::MIN, f64::max);
    let p: Vec<f64> = log_p.iter().map(|l| (l - top).exp()).collect();
    let total: f64 = p.iter().sum();
    let mean = |f: &dyn Fn(u32) -> f64| (0..).zip(&p).map(|(n, p)| f(n) * p).sum::<f64>() / total;
    let throughput = mean(&|n| if n == 0 { 0.0 } else { rate(n) });
    let computing = mean(&f64::from);
    ClosedPs {
        throughput,
        response: computing / throughput,
        hog_share: if hogs == 0 {
            0.0
        } else {
            1.0 - throughput * service / f64::from(cpus)
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64, tolerance: f64) {
        assert!((a / b - 1.0).abs() < tolerance, "{a} instead of {b}");
    }

    /// The definition of Erlang's C, term by term.
    fn erlang_c_by_definition(servers: u32, rho: f64) -> f64 {
        let load = rho * f64::from(servers);
        let term = |k: u32| (1..=k).fold(1.0, |t, i| t * load / f64::from(i));
        let last = term(servers) / (1.0 - rho);
        last / ((0..servers).map(term).sum::<f64>() + last)
    }

    #[test]
    fn erlang_c_agrees_with_its_definition_and_with_published_values() {
        close(erlang_c(1, 0.8), 0.8, 1e-12);
        close(erlang_c(8, 0.8), 0.45764, 2e-5);
        for servers in [1, 2, 5, 8, 30] {
            for rho in [0.1, 0.5, 0.8, 0.95] {
                close(
                    erlang_c(servers, rho),
                    erlang_c_by_definition(servers, rho),
                    1e-10,
                );
            }
        }
        assert!(erlang_c(1024, 0.99).is_finite());
    }

    #[test]
    fn response_times_of_the_textbook_examples() {
        close(mm1_response(1.0, 0.8), 5.0, 1e-12);
        close(mmc_response(1, 1.0, 0.8), 5.0, 1e-12);
        close(mmc_response(8, 1.0, 0.8), 1.28603, 1e-5);
        close(mg1_ps_response(1.0, 0.8), 5.0, 1e-12);
        for (cv2, truth) in [(0.0, 3.0), (1.0, 5.0), (10.0, 23.0)] {
            close(mg1_fcfs_response(1.0, 0.8, cv2), truth, 1e-12);
        }
    }

    #[test]
    fn closed_network_of_w8() {
        let w8 = closed_ps(64, 4.0, 1.0, 16, 8);
        close(w8.throughput, 5.74165, 1e-6);
        close(w8.response, 7.1466, 1e-5);
        close(w8.hog_share, 0.28229, 1e-4);
    }

    /// One worker alone is never disturbed; two workers on one CPU without hogs are the machine repair model.
    #[test]
    fn closed_network_of_one_and_two_workers() {
        let one = closed_ps(1, 4.0, 1.0, 0, 8);
        close(one.throughput, 0.2, 1e-12);
        close(one.response, 1.0, 1e-12);
        let two = closed_ps(2, 1.0, 1.0, 0, 1);
        // p = (1, 2, 2) / 5: busy 4/5 of the time.
        close(two.throughput, 0.8, 1e-12);
        close(two.response, 1.5, 1e-12);
    }

    /// Little's law over the whole cycle: workers = throughput x (think + response).
    #[test]
    fn closed_network_obeys_littles_law() {
        for hogs in [0, 1, 16] {
            for cpus in [1, 3, 8] {
                let x = closed_ps(20, 3.0, 0.7, hogs, cpus);
                close(x.throughput * (3.0 + x.response), 20.0, 1e-12);
            }
        }
    }
}
