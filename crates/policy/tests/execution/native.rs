// SPDX-License-Identifier: GPL-2.0-only
//! Translated code: a whole program becomes one shared library, because every compiler run costs a tenth of a second.
use crate::harness::{self, Host, Input, Outcome};
use berth_policy::abi::{Inst, KernelFn, Trap};
use berth_policy::cc::Compiler;
use berth_policy::emit;
use berth_policy::ir::Program;
use berth_policy::native::{self, NativeTable, Passed, TRAP_FN};

pub struct Native {
    table: NativeTable,
    names: Vec<String>,
}

impl Native {
    pub fn translate(program: &Program) -> Native {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let (c, o, so) = (
            dir.path().join("t.c"),
            dir.path().join("t.o"),
            dir.path().join("t.so"),
        );
        let translation = emit::translate(program, "test", emit::Guarding::Trusted);
        let compiler = Compiler::find().expect("a C compiler");
        compiler
            .object(&translation, &c, &o)
            .expect("translated code compiles");
        compiler.shared(&o, &so).expect("translated code links");
        // SAFETY: the library has no initialisers; it stays loaded for the rest of the process, as its code is
        // registered with the trap handler.
        let table = unsafe {
            let library = Box::leak(Box::new(libloading::Library::new(&so).expect("it loads")));
            **library
                .get::<*const NativeTable>(b"berth_native_test")
                .expect("it has a table")
        };
        native::register(&table);
        Native {
            table,
            names: program.funcs.iter().map(|f| f.name.clone()).collect(),
        }
    }

    pub fn run(&self, func: usize, input: &Input, limit: u64) -> Result<Outcome, Trap> {
        let fns: [KernelFn; 1] = [TRAP_FN];
        let mut host = Host::new(input, self.table.code, &fns);
        host.inst.insns_limit = limit;
        let mut context = harness::context(input);
        let args = [context.as_mut_ptr() as u64, 0, 0, 0, 0];
        let code = self.table.functions()[func];
        let inst: *mut Inst = &mut *host.inst;
        let args = Passed::Registers(&args);
        // SAFETY: the program touches its context and the host's section only, or traps.
        unsafe { native::enter(&self.table, code, inst, args, |i| self.names[i].clone()) }
            .map_err(|t| *t)?;
        Ok(Outcome {
            registers: harness::registers(&context),
            section: host.section(),
            insns: host.inst.insns,
        })
    }
}
