// SPDX-License-Identifier: GPL-2.0-only
//! What a policy can reach of the kernel's objects, so that machines whose policy reaches little of them are small.
//!
//! A policy finds the fields of kernel structures by CO-RE relocations, and gets at objects through fields and
//! functions. What none of them in its code leads to, it cannot see; code that never runs counts, too.

/// What there must be, beyond what every machine has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// All of `task_struct`, not only its front ([`crate::kview::StructDesc::front`]).
    pub whole_tasks: bool,
    /// A structure of its own for the idle task of each CPU.
    pub idle_tasks: bool,
}

impl Needs {
    /// Of a policy nothing is known of.
    pub const ALL: Needs = Needs {
        whole_tasks: true,
        idle_tasks: true,
    };

    /// Of two, together.
    #[must_use]
    pub fn and(self, other: Needs) -> Needs {
        Needs {
            whole_tasks: self.whole_tasks || other.whole_tasks,
            idle_tasks: self.idle_tasks || other.idle_tasks,
        }
    }

    /// Is this enough for a policy with those needs?
    pub fn cover(self, other: Needs) -> bool {
        self.and(other) == self
    }

    /// Of a policy that calls this kernel function.
    pub(crate) fn of_function(name: &str) -> Needs {
        let (whole_tasks, idle_tasks) = match name {
            // They return the task on a CPU, or what it is called.
            "scx_bpf_cpu_curr"
            | "bpf_get_current_task"
            | "bpf_get_current_task_btf"
            | "bpf_get_current_comm" => (false, true),
            "bpf_get_current_pid_tgid" => (true, true),
            // They compare thread groups.
            "bpf_iter_task_new" | "bpf_iter_task_next" => (true, false),
            _ => (false, false),
        };
        Needs {
            whole_tasks,
            idle_tasks,
        }
    }

    /// Of a policy that reads this field of a structure of the kernel view; `None`: more than one field.
    pub(crate) fn of_field(structure: &str, field: Option<&str>) -> Needs {
        let desc = crate::kview::find(structure);
        match structure {
            "task_struct" => {
                let in_front = |name: &str| {
                    let found = desc.and_then(|d| d.fields.iter().find(|f| f.name == name));
                    found.zip(desc).is_some_and(|(f, d)| f.offset < d.front)
                };
                // The rest leads to parents, of whom some are idle tasks.
                if field.is_some_and(in_front) {
                    Needs::default()
                } else {
                    Needs::ALL
                }
            }
            "rq" => Needs {
                whole_tasks: false,
                idle_tasks: !field.is_some_and(|f| f != "curr" && f != "idle"),
            },
            _ => Needs::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_functions() {
        let idle = Needs {
            idle_tasks: true,
            ..Needs::default()
        };
        assert_eq!(
            Needs::of_field("task_struct", Some("scx")),
            Needs::default()
        );
        assert_eq!(Needs::of_field("task_struct", Some("tgid")), Needs::ALL);
        assert_eq!(Needs::of_field("task_struct", None), Needs::ALL);
        assert_eq!(Needs::of_field("rq", Some("clock")), Needs::default());
        assert_eq!(Needs::of_field("rq", Some("idle")), idle);
        assert_eq!(Needs::of_field("cgroup", None), Needs::default());
        assert_eq!(Needs::of_function("scx_bpf_cpu_curr"), idle);
        assert!(Needs::ALL.cover(idle) && !Needs::default().cover(idle));
    }

    /// A function that is misspelt here would not be found in a policy.
    #[test]
    fn functions_are_in_the_table() {
        for name in [
            "scx_bpf_cpu_curr",
            "bpf_get_current_task",
            "bpf_get_current_task_btf",
            "bpf_get_current_comm",
            "bpf_get_current_pid_tgid",
            "bpf_iter_task_new",
            "bpf_iter_task_next",
        ] {
            assert!(crate::table::by_name(name).is_some(), "{name}");
            assert_ne!(Needs::of_function(name), Needs::default(), "{name}");
        }
    }
}
