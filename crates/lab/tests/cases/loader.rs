// SPDX-License-Identifier: GPL-2.0-only
//! Programs that a scheduler's own loader runs around its start, by a real kernel: with them the CPU that they name
//! takes turns among the others' threads, as weights say; a call that gives something else than 0 ends the start with
//! its name.
use super::{NEVER, check, options, read_scenario};
use berth_lab::assets::Assets;
use berth_lab::run::{LabArm, LabPolicy, run};
use berth_policy::compile::{CompileOptions, compile};
use berth_policy::loader::calls::{Call, When};
use berth_policy::loader::{Setup, ready};
use berth_scx::LoadOptions;
use std::collections::BTreeMap;
use std::path::Path;

/// Weights of nice 0 and -5 in Linux's table, per cent of nice 0.
const NICE: (f64, f64) = (100.0, 305.0);
const TEXT: &str = r#"
[vm.light]
count = 2
tasks = ["hog"]
[vm.heavy]
count = 2
nice = -5
tasks = ["hog"]
[task.hog]
model = "busy"
[compare]
policies = ["linux"]
"#;

/// What the table of loaders has for `tickless` on one CPU, where its timer is to begin on CPU `timer`.
fn setup(timer: i32) -> Setup {
    let primary = |cpu| Call {
        program: "enable_primary_cpu".into(),
        arguments: vec![cpu],
        when: When::Before,
    };
    let start = Call {
        program: "start_timer".into(),
        arguments: vec![timer],
        when: When::After { cpu: 0 },
    };
    Setup {
        values: [("slice_ns".to_string(), "20ms".to_string())].into(),
        cpus: 1,
        kernel: (7, 2),
        calls: vec![primary(-1), primary(0), start],
        ..Setup::default()
    }
}

/// Kernel functions find no scheduler before it is there: the program looks at what they give, as it does in the
/// simulator's test.
pub fn early(assets: &Assets) -> Result<String, String> {
    let setup = Setup {
        cpus: 1,
        kernel: (7, 2),
        calls: vec![Call {
            program: "early".into(),
            arguments: Vec::new(),
            when: When::Before,
        }],
        ..Setup::default()
    };
    let metrics = ran("early", &setup, assets)?;
    let all = ["light.cpu", "heavy.cpu"].map(|name| metrics.get(name).copied().unwrap_or(f64::NAN));
    let all = all[0] + all[1];
    check((all - 1.0).abs() < 0.02, format!("{all} CPUs of one"))?;
    Ok(format!("{all:.3} CPUs of one"))
}

/// What the scenario's VMs have under this scheduler of the tests, begun so.
fn ran(name: &str, setup: &Setup, assets: &Assets) -> Result<BTreeMap<String, f64>, String> {
    let mut scenario = read_scenario("cores = 1", TEXT)?;
    (scenario.run.warmup_ns, scenario.run.measure_ns) = (0, 4_000_000_000);
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../experiment/tests/policies");
    let source = here.join(format!("{name}.bpf.c"));
    let object = compile(&source, &CompileOptions::default()).map_err(|e| e.to_string())?;
    let ready = ready(&object, setup).map_err(|e| e.to_string())?;
    let arm = LabArm {
        name: name.into(),
        scenario,
        policy: Some(LabPolicy::Object {
            object: ready.object,
            options: LoadOptions::default(),
        }),
    };
    let mut done =
        run(&[arm], &[1], &options(), assets, &|_| (), &NEVER).map_err(|e| e.to_string())?;
    Ok(done.remove(0).metrics)
}

pub fn calls(assets: &Assets) -> Result<String, String> {
    let metrics = ran("tickless", &setup(0), assets)?;
    let metric = |name: &str| metrics.get(name).copied().unwrap_or(f64::NAN);
    let (light, heavy) = (metric("light.cpu"), metric("heavy.cpu"));
    let (share, due) = (heavy / (heavy + light), NICE.1 / (NICE.0 + NICE.1));
    check(
        (share - due).abs() < 0.02,
        format!("the heavy have {share:.3}, due {due:.3}: {metrics:?}"),
    )?;
    let said = ran("tickless", &setup(1), assets).err().unwrap_or_default();
    check(
        said.contains("`start_timer`") && said.contains("-22"),
        format!("a call on the wrong CPU: {said}"),
    )?;
    Ok(format!(
        "the heavy have {share:.3} of the time, due {due:.3}"
    ))
}
