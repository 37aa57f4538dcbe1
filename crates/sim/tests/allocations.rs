// SPDX-License-Identifier: GPL-2.0-only
//! Once everything has been seen to its largest, packets, locks and barriers need no memory: the event path does
//! not allocate.
use berth_scenario::model::Hz;
use berth_scenario::{Input, read};
use berth_sim::machine::Shape;
use berth_sim::workload::scenario::ScenarioWorkload;
use berth_sim::{MachineSpec, Simulation};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: the system's allocator does the work; counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = CALLS.try_with(|c| c.set(c.get() + 1));
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        // SAFETY: passed on.
        unsafe { System.dealloc(p, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations in the second second of this scenario, under the kernel model's own queue.
fn allocations(text: &str) -> u64 {
    let input = Input {
        name: "t".into(),
        shown: "t.toml".into(),
        text: text.into(),
        folder: None,
    };
    let scenario = read(&input, &[]).unwrap_or_else(|e| panic!("{e}")).scenario;
    let work = ScenarioWorkload::new(&scenario, 1).unwrap();
    let spec = MachineSpec {
        hz: Hz::Ticks(250),
        ..MachineSpec::new(Shape::flat(scenario.host.nr_cpus()))
    };
    let mut m = Simulation::new(&spec, &berth_sim::run::vm_specs(&scenario), work);
    m.load(Default::default());
    m.start();
    m.run_until(1_000_000_000).unwrap();
    let before = CALLS.get();
    m.run_until(2_000_000_000).unwrap();
    CALLS.get() - before
}

#[test]
fn packets_need_no_memory() {
    for path in ["vhost", "emulator", "direct", "driver-domain"] {
        let n = allocations(&format!(
            "[host]\ncores = 2\n[vm.v]\ntasks = [\"echo\"]\nguest = \"none\"\n\
             [vm.dom0]\nrole = \"driver\"\nguest = \"none\"\n\
             [task.echo]\nloop = [\"receive c\", \"compute 100us\", \"reply\"]\n\
             [client.c]\nto = \"v\"\nsends = \"every 500us\"\n[net]\npath = \"{path}\"\ncoalesce = \"1ms\"\n"
        ));
        assert_eq!(n, 0, "{path}");
    }
}

#[test]
fn waiting_for_each_other_needs_no_memory() {
    let n = allocations(
        "[host]\ncores = 2\n[vm.v]\nvcpus = 3\ntasks = [\"t\"]\nguest = \"none\"\n\
         [task.t]\nloop = [\"compute 100us\", \"lock a\", \"compute 100us\", \"unlock a\", \"spin s\", \
         \"compute 10us\", \"unlock s\", \"barrier b\"]\n\
         [vm.w]\nvcpus = 2\ntasks = [\"p\"]\nguest = \"none\"\n[task.p]\nmodel = \"parallel\"\n",
    );
    assert_eq!(n, 0);
}
