// SPDX-License-Identifier: GPL-2.0-only
//! What a kernel function does with the pointers it gets, read from its prototype in [`crate::table`]: so the
//! interpreter can check them before the call, as the kernel's verifier does before the program runs.
//!
//! Objects of the kernel (tasks, cgroups) are not judged here when they are NULL: some functions accept that, the
//! others eject the policy.
use crate::abi::{Inst, Map};
use crate::kview;
use crate::table::{Home, KernelFunc};

/// What one argument must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operand {
    /// A map of the instance.
    Map,
    /// As many bytes as the key or value of the call's map.
    Key,
    Value {
        write: bool,
    },
    /// A value to start with, or NULL.
    Initial,
    /// As many bytes as another argument says (by its position).
    Bytes {
        size_in: usize,
        write: bool,
    },
    /// A fixed number of bytes.
    Fixed {
        size: u32,
        write: bool,
    },
    /// A kernel object of that many bytes, or NULL.
    Object {
        size: u32,
    },
    /// As many words as the machine's CPUs need bits.
    Mask {
        write: bool,
    },
}

/// The pointers among the arguments of one function: position and meaning. And whether the function itself refuses, or
/// reads as a number of its own width, a size that is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Operands(Vec<(usize, Operand)>, bool);

/// Largest size argument that is believed; more is not a size (a negative number), and what begins there is nobody's.
const MAX_BYTES: u64 = 1 << 30;

impl Operands {
    /// Reads the prototype of a function. Tasks and cgroups that go to the kernel model are its own to judge: it says
    /// in its own words what is wrong with them.
    pub fn of(function: &KernelFunc) -> Operands {
        let judged =
            |o: &Operand| !(function.home == Home::Kernel && matches!(o, Operand::Object { .. }));
        let Some((_, rest)) = function.proto.split_once('(') else {
            return Operands::default();
        };
        let parameters: Vec<Parameter> = rest
            .trim_end_matches(')')
            .split(',')
            .map(Parameter::parse)
            .take(5)
            .collect();
        let mut operands = Vec::new();
        for (i, p) in parameters.iter().enumerate() {
            if let Some(operand) =
                p.operand(i, parameters.get(i.wrapping_sub(1)), parameters.get(i + 1))
            {
                operands.push((i, operand));
            }
        }
        operands.retain(|(_, o)| judged(o));
        let own = [
            "bpf_probe_read",
            "bpf_snprintf",
            "bpf_strto",
            "bpf_trace_",
            "bpf_ringbuf_output",
        ];
        let own = own.iter().any(|name| function.name.starts_with(name));
        Operands(operands, own || function.name.ends_with("_bstr"))
    }

    /// It gets no pointers, or none that are judged here.
    pub fn none(&self) -> bool {
        self.0.is_empty()
    }

    /// First access that the arguments would lead to and `allowed` refuses: address, size, write.
    ///
    /// # Safety
    /// `inst.map` has `maps` entries.
    pub unsafe fn refused(
        &self,
        inst: *const Inst,
        maps: usize,
        args: &[u64; 5],
        allowed: impl Fn(u64, u32, bool) -> bool,
    ) -> Option<(u64, u32, bool)> {
        let mut map: *const Map = std::ptr::null();
        for &(position, operand) in &self.0 {
            let address = args[position];
            let (size, write) = match operand {
                Operand::Map => {
                    // SAFETY: the caller's promise.
                    let from = address.wrapping_sub(unsafe { (*inst).map as u64 });
                    let each = size_of::<Map>() as u64;
                    if !from.is_multiple_of(each) || from / each >= maps as u64 {
                        return Some((address, size_of::<Map>() as u32, false));
                    }
                    map = address as *const Map;
                    continue;
                }
                // SAFETY: a map of the instance, checked before: the prototypes name the map first.
                Operand::Key if !map.is_null() => (unsafe { (*map).key_size }, false),
                // A storage's initial value, which may be left out and is only read.
                // SAFETY: as above.
                Operand::Value { .. } if !map.is_null() && is_storage(unsafe { &*map }) => {
                    if address == 0 {
                        continue;
                    }
                    // SAFETY: as above.
                    (unsafe { (*map).value_size }, false)
                }
                // SAFETY: as above.
                Operand::Value { write } if !map.is_null() => (unsafe { (*map).value_size }, write),
                // SAFETY: as above.
                Operand::Initial if !map.is_null() && address != 0 => {
                    (unsafe { (*map).value_size }, false)
                }
                Operand::Key | Operand::Value { .. } | Operand::Initial => continue,
                Operand::Bytes { size_in, write } => match args[size_in] {
                    0 => continue,
                    n if n > MAX_BYTES && self.1 => continue,
                    n => (u32::try_from(n).unwrap_or(u32::MAX), write),
                },
                Operand::Fixed { size, write } => (size, write),
                // SAFETY: the caller's promise.
                Operand::Mask { write } => (unsafe { (*inst).nr_cpus }.div_ceil(64) * 8, write),
                Operand::Object { .. } if address == 0 => continue,
                Operand::Object { size } => (size, false),
            };
            if size > 0 && !allowed(address, size, write) {
                return Some((address, size, write));
            }
        }
        None
    }
}

fn is_storage(map: &Map) -> bool {
    matches!(
        map.kind,
        crate::maps::kind::TASK_STORAGE | crate::maps::kind::CGRP_STORAGE
    )
}

/// One parameter of a prototype.
struct Parameter<'p> {
    constant: bool,
    /// Type without `const`, `struct` and stars.
    base: &'p str,
    pointer: bool,
    name: &'p str,
}

impl<'p> Parameter<'p> {
    fn parse(text: &'p str) -> Parameter<'p> {
        let text = text.trim();
        let start = text
            .rfind(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
            .map_or(0, |i| i + 1);
        let (head, name) = text.split_at(start);
        let head = head.trim();
        let base = head.trim_end_matches(['*', ' ']);
        let base = base.strip_prefix("const ").unwrap_or(base);
        Parameter {
            constant: head.starts_with("const "),
            base: base.strip_prefix("struct ").unwrap_or(base),
            pointer: head.ends_with('*'),
            name,
        }
    }

    /// Whether this is the size of the pointer before it.
    fn is_size(&self) -> bool {
        let n = self.name;
        !self.pointer
            && (n.starts_with("size")
                || n.ends_with("__sz")
                || n.ends_with("_sz")
                || n.ends_with("_size")
                || n.ends_with("_len"))
    }

    fn operand(
        &self,
        position: usize,
        before: Option<&Parameter>,
        after: Option<&Parameter>,
    ) -> Option<Operand> {
        if !self.pointer {
            return None;
        }
        let write = !self.constant;
        let bytes = |size_in| Some(Operand::Bytes { size_in, write });
        let fixed = |size| Some(Operand::Fixed { size, write: true });
        match (self.base, self.name) {
            // Whatever the policy says: these are checked, and reported as an error code, by the function itself.
            (
                _,
                "unsafe_ptr" | "unsafe_ptr__ign" | "obj" | "obj__ign" | "callback_fn"
                | "callback_ctx" | "addr__ign" | "ptr__ign" | "p__alloc" | "meta__ign" | "less",
            ) => None,
            ("bpf_map", _) | (_, "p__map") => Some(Operand::Map),
            (_, "key") => Some(Operand::Key),
            (_, "map_value") => fixed(8),
            ("void", "value__nullable") => Some(Operand::Initial),
            ("void", "value") => Some(Operand::Value { write }),
            // None may be NULL.
            ("cpumask" | "bpf_cpumask", _) => Some(Operand::Mask { write }),
            ("bpf_iter_num", _) => fixed(8),
            ("bpf_iter_bits", _) => fixed(16),
            ("bpf_iter_task" | "bpf_iter_css", _) => fixed(24),
            ("bpf_iter_scx_dsq", _) => fixed(48),
            ("bpf_rb_root" | "bpf_list_head", _) => fixed(16),
            ("bpf_rb_node", _) => fixed(32),
            ("bpf_list_node", _) => fixed(24),
            ("bpf_timer", _) => fixed(16),
            ("bpf_spin_lock" | "bpf_res_spin_lock", _) => fixed(4),
            ("unsigned long" | "long", _) => fixed(8),
            ("bool", _) => fixed(1),
            ("scx_bpf_select_cpu_and_args" | "scx_bpf_dsq_insert_vtime_args", _) => {
                kview::find(self.base).map(|s| Operand::Fixed {
                    size: s.front,
                    write: false,
                })
            }
            (
                "void"
                | "char"
                | "u64"
                | "unsigned long long"
                | "scx_event_stats"
                | "bpf_perf_event_value",
                _,
            ) => {
                if after.is_some_and(Parameter::is_size) {
                    bytes(position + 1)
                } else if before.is_some_and(Parameter::is_size) && self.name == "data" {
                    bytes(position - 1)
                } else {
                    None
                }
            }
            (object, _) => kview::find(object).map(|s| Operand::Object { size: s.front }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::by_name;

    fn of(name: &str) -> Vec<(usize, Operand)> {
        Operands::of(by_name(name).expect("in the table")).0
    }

    #[test]
    fn prototypes_say_what_is_touched() {
        use Operand::*;
        assert_eq!(
            of("bpf_map_update_elem"),
            [(0, Map), (1, Key), (2, Value { write: false })]
        );
        assert_eq!(
            of("bpf_map_pop_elem"),
            [(0, Map), (1, Value { write: true })]
        );
        assert_eq!(
            of("bpf_probe_read_kernel"),
            [(
                0,
                Bytes {
                    size_in: 1,
                    write: true
                }
            )]
        );
        assert_eq!(
            of("bpf_iter_num_new"),
            [(
                0,
                Fixed {
                    size: 8,
                    write: true
                }
            )]
        );
        assert_eq!(of("bpf_cpumask_set_cpu"), [(1, Mask { write: true })]);
        assert_eq!(of("bpf_get_smp_processor_id"), []);
        let task = kview::find("task_struct").expect("known").front;
        assert_eq!(of("scx_bpf_kick_cpu"), []);
        assert_eq!(
            of("bpf_task_storage_delete"),
            [(0, Map), (1, Object { size: task })]
        );
        assert_eq!(of("scx_bpf_dsq_insert"), []);
        assert_eq!(
            of("scx_bpf_select_cpu_dfl"),
            [(
                3,
                Fixed {
                    size: 1,
                    write: true
                }
            )]
        );
    }

    /// Functions with a pointer that nobody checks before the call: they look it up, read it byte by byte with a check
    /// of their own, or never follow it. A new row that is not here and not understood by [`Parameter::operand`] fails.
    #[test]
    fn pointers_that_functions_check_themselves() {
        let own = [
            "bpf_arena_alloc_pages",
            "bpf_arena_free_pages",
            "bpf_arena_reserve_pages",
            "bpf_cast_to_kern_ctx",
            "bpf_for_each_map_elem",
            "bpf_iter_bits_new",
            "bpf_kptr_xchg",
            "bpf_list_push_back_impl",
            "bpf_list_push_front_impl",
            "bpf_loop",
            "bpf_obj_drop",
            "bpf_obj_drop_impl",
            "bpf_obj_new_impl",
            "bpf_per_cpu_ptr",
            "bpf_perf_event_output",
            "bpf_rbtree_add",
            "bpf_rbtree_add_impl",
            "bpf_rdonly_cast",
            "bpf_ringbuf_discard",
            "bpf_ringbuf_submit",
            "bpf_snprintf",
            "bpf_strncmp",
            "bpf_this_cpu_ptr",
            "bpf_timer_set_callback",
            "scx_bpf_dump_bstr",
            "scx_bpf_error_bstr",
            "scx_bpf_exit_bstr",
        ];
        let unchecked = |f: &&KernelFunc| {
            let Some((_, rest)) = f.proto.split_once('(') else {
                return false;
            };
            let checked = Operands::of(f).0;
            let parameters = rest.trim_end_matches(')').split(',').map(Parameter::parse);
            let mut pointers = parameters.enumerate().filter(|(_, p)| p.pointer);
            pointers.any(|(i, p)| {
                let found = checked.iter().any(|(at, _)| *at == i);
                // The kernel model finds tasks, cgroups and iterators' objects by their addresses.
                !(found || f.home == Home::Kernel && kview::find(p.base).is_some())
            })
        };
        let mut names: Vec<_> = crate::table::FUNCS.iter().filter(unchecked).collect();
        names.retain(|f| !f.name.starts_with("bpf_probe_read"));
        names.sort_by_key(|f| f.name);
        let mut names: Vec<_> = names.iter().map(|f| f.name).collect();
        names.dedup();
        assert_eq!(names, own);
    }
}
