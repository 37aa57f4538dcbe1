// SPDX-License-Identifier: GPL-2.0-only
//! Records of real guests: every answer, so that anything can be asked of them later.
use crate::guests::bounds::Recording;
use crate::guests::cases::Case;
use crate::record::{RecordError, compact};
use berth_results::guest::{Answer, Seen};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// Version of the record files.
const FORMAT: u32 = 1;

/// One case on a real guest. Times of answers are microseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GuestRecord {
    format: u32,
    /// Made in another way, until there is a recording: counts as missing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stands_in: bool,
    /// Kernel of the guest, and of the VM around it.
    pub guest_kernel: String,
    pub kernel: String,
    pub emulator: String,
    /// What a reader must know of how it was made.
    pub note: Option<String>,
    pub measure_ns: u64,
    /// Slice of the guest's scheduler.
    pub slice_ns: u64,
    /// Without competitors, p90.
    pub floor_p90_us: Option<f64>,
    /// CPUs of the machine that other programs had meanwhile, and other machines by stealing.
    #[serde(default)]
    pub others_cpus: Option<f64>,
    /// Counted by the kernel around the guest, and by the guest's own.
    pub steal: Option<f64>,
    pub counted_steal: Option<f64>,
    /// Mean length of a vCPU's turn on its CPU.
    pub turn_us: Option<f64>,
    /// CPU time of the guest's tasks, from what they did; milliseconds.
    pub ran_ms: BTreeMap<String, f64>,
    latency_us: Vec<f64>,
    work_us: Vec<f64>,
    hog_ran_us: Vec<f64>,
}

fn us(ns: u64) -> f64 {
    (ns as f64 / 1e3).round()
}

impl GuestRecord {
    /// A record with these answers and nothing else yet.
    pub fn of(seen: &Seen) -> GuestRecord {
        let column = |value: fn(&Answer) -> u64| -> Vec<f64> {
            seen.answers.iter().map(|a| us(value(a))).collect()
        };
        let ms = |ns: &f64| (ns / 1e4).round() / 100.0;
        GuestRecord {
            format: FORMAT,
            stands_in: false,
            guest_kernel: String::new(),
            kernel: String::new(),
            emulator: String::new(),
            note: None,
            measure_ns: 0,
            slice_ns: 0,
            floor_p90_us: None,
            others_cpus: None,
            steal: seen.steal.map(|s| (s * 1e4).round() / 1e4),
            counted_steal: None,
            turn_us: None,
            ran_ms: seen
                .ran_ns
                .iter()
                .map(|(t, ns)| (t.clone(), ms(ns)))
                .collect(),
            latency_us: column(|a| a.latency_ns),
            work_us: column(|a| a.work_ns),
            hog_ran_us: column(|a| a.hog_ran_ns),
        }
    }

    /// What was seen, to be compared.
    pub fn seen(&self) -> Seen {
        let ns = |us: f64| (us * 1e3) as u64;
        let rows = self
            .latency_us
            .iter()
            .zip(&self.work_us)
            .zip(&self.hog_ran_us);
        let answers = rows.map(|((latency, work), hog)| Answer {
            latency_ns: ns(*latency),
            work_ns: ns(*work),
            hog_ran_ns: ns(*hog),
        });
        Seen {
            answers: answers.collect(),
            steal: self.steal,
            ran_ns: self
                .ran_ms
                .iter()
                .map(|(t, ms)| (t.clone(), ms * 1e6))
                .collect(),
        }
    }

    /// Why the recording is not good, one sentence each; none: it is.
    pub fn faults(&self, case: &Case, rule: &Recording) -> Vec<String> {
        let mut faults = Vec::new();
        match (self.steal, case.steal) {
            (Some(counted), Some(due)) if (counted - due).abs() > rule.steal => {
                faults.push(format!("steal was {counted:.3}, calculated {due:.3}"));
            }
            (None, Some(_)) => faults.push("steal was not counted".into()),
            _ => (),
        }
        match self.floor_p90_us {
            _ if !case.floor => (),
            Some(us) if us > rule.floor_p90_ms * 1e3 => faults.push(format!(
                "p90 without competitors was {:.2} ms, at most {} ms is good",
                us / 1e3,
                rule.floor_p90_ms
            )),
            None => faults.push("nothing was answered without competitors".into()),
            _ => (),
        }
        let most = rule.others_cpus;
        if let Some(others) = self.others_cpus.filter(|o| *o > most) {
            faults.push(format!(
                "others had {others:.2} CPUs of the machine, at most {most} are good"
            ));
        }
        if self.latency_us.is_empty() {
            faults.push("nothing was answered".into());
        }
        faults
    }

    /// Reads the record of a case, if it has one.
    ///
    /// # Errors
    /// It cannot be read, or is another program version's.
    pub fn read(path: &Path) -> Result<Option<GuestRecord>, RecordError> {
        let wrong = |reason: String| RecordError::new(path, reason);
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(wrong(e.to_string())),
        };
        let record: GuestRecord = serde_json::from_str(&text).map_err(|e| wrong(e.to_string()))?;
        if record.format != FORMAT {
            return Err(wrong(format!(
                "a record of format {}, and this program knows {FORMAT}: make it anew with --record",
                record.format
            )));
        }
        let n = record.latency_us.len();
        if record.work_us.len() != n || record.hog_ran_us.len() != n {
            return Err(wrong(
                "its three columns of answers are not equally long".into(),
            ));
        }
        Ok(Some(record))
    }

    /// # Errors
    /// The disk's.
    pub fn write(&self, path: &Path) -> Result<(), RecordError> {
        let wrong = |reason: String| RecordError::new(path, reason);
        let text = serde_json::to_string_pretty(self).map_err(|e| wrong(e.to_string()))?;
        berth_results::write::atomic(path, compact(&text).as_bytes())
            .map_err(|e| wrong(e.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guests::bounds::GuestBounds;

    fn record() -> GuestRecord {
        let answer = |latency_ns| Answer {
            latency_ns,
            work_ns: 75_000,
            hog_ran_ns: 2_000,
        };
        let seen = Seen {
            answers: [500_000, 900_000].map(answer).to_vec(),
            steal: Some(0.501),
            ran_ns: [("hog".to_string(), 5e9)].into(),
        };
        GuestRecord {
            floor_p90_us: Some(800.0),
            others_cpus: Some(0.05),
            ..GuestRecord::of(&seen)
        }
    }

    fn case() -> Case {
        Case {
            name: "x".into(),
            steal_accounting: true,
            hrtick: true,
            steal: Some(0.5),
            floor: true,
            alone: None,
        }
    }

    #[test]
    fn a_record_comes_back_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r/x.json");
        assert_eq!(GuestRecord::read(&path).unwrap(), None);
        record().write(&path).unwrap();
        let read = GuestRecord::read(&path).unwrap().unwrap();
        assert_eq!(read, record());
        assert_eq!(read.seen().answers[1].latency_ns, 900_000);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("\"latency_us\": [500.0, 900.0],"), "{text}");
        std::fs::write(&path, text.replace("[500.0, 900.0]", "[500.0]")).unwrap();
        let said = GuestRecord::read(&path).unwrap_err().to_string();
        assert!(said.contains("equally long"), "{said}");
    }

    #[test]
    fn a_recording_is_refused_for_each_rule() {
        let rule = GuestBounds::built_in().unwrap().recording;
        assert_eq!(record().faults(&case(), &rule), [""; 0]);
        type Change = fn(&mut GuestRecord);
        let changed: [(Change, &str); 5] = [
            (|r| r.steal = Some(0.511), "steal was 0.511"),
            (|r| r.steal = None, "not counted"),
            (|r| r.floor_p90_us = Some(1_501.0), "p90 without"),
            (|r| r.others_cpus = Some(0.11), "others had 0.11"),
            (|r| r.latency_us.clear(), "nothing was answered"),
        ];
        for (change, word) in changed {
            let mut r = record();
            change(&mut r);
            let faults = r.faults(&case(), &rule);
            assert!(faults.len() == 1 && faults[0].contains(word), "{faults:?}");
        }
        let slow = Case {
            floor: false,
            ..case()
        };
        let mut r = record();
        r.floor_p90_us = Some(9_000.0);
        assert_eq!(r.faults(&slow, &rule), [""; 0]);
    }
}
