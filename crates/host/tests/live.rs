// SPDX-License-Identifier: GPL-2.0-only
//! A real VM on this machine's KVM: one vCPU that never leaves the guest, one that waits in the kernel. The first is
//! always on a CPU: without debugfs, and on a KVM that charges no guest time (PVM emulates such a guest), its name has
//! to do. The second has a name that lies. Skipped, with the reason, where KVM cannot be used.
#![cfg(target_arch = "x86_64")]
use berth_host::counters::Sampler;
use berth_host::discover::Scanner;
use berth_host::model::{Evidence, Proof, Role};
use berth_host::root::Root;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Ends a test that hangs; nothing is judged by it.
const HUNG: Duration = Duration::from_secs(300);

// Numbers and layouts of `include/uapi/linux/kvm.h`.
const KVM_CREATE_VM: u64 = 0xae01;
const KVM_GET_VCPU_MMAP_SIZE: u64 = 0xae04;
const KVM_CREATE_VCPU: u64 = 0xae41;
const KVM_SET_USER_MEMORY_REGION: u64 = 0x4020_ae46;
const KVM_CREATE_IRQCHIP: u64 = 0xae60;
const KVM_RUN: u64 = 0xae80;
const KVM_SET_REGS: u64 = 0x4090_ae82;
const KVM_GET_SREGS: u64 = 0x8138_ae83;
const KVM_SET_SREGS: u64 = 0x4138_ae84;

fn ioctl(fd: &OwnedFd, request: u64, argument: u64) -> io::Result<i32> {
    // SAFETY: every argument is a number, or the address of a structure of the size that the request names.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), request, argument) };
    match result {
        0.. => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}

fn file(fd: i32) -> OwnedFd {
    // SAFETY: KVM has just made it for us.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// A VM whose memory holds `jmp .`, and its vCPUs.
fn machine(vcpus: u64) -> io::Result<(OwnedFd, Vec<OwnedFd>)> {
    let kvm: OwnedFd = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/kvm")?
        .into();
    let vm = file(ioctl(&kvm, KVM_CREATE_VM, 0)?);
    ioctl(&vm, KVM_CREATE_IRQCHIP, 0)?;
    // SAFETY: new private memory.
    let memory = unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        libc::mmap(std::ptr::null_mut(), 4096, protection, flags, -1, 0)
    };
    assert_ne!(memory, libc::MAP_FAILED);
    // SAFETY: the page is ours; nothing else knows it.
    unsafe { memory.cast::<[u8; 2]>().write([0xeb, 0xfe]) };
    let region: [u64; 4] = [0, 0x1000, 4096, memory as u64];
    ioctl(&vm, KVM_SET_USER_MEMORY_REGION, region.as_ptr() as u64)?;
    ioctl(&kvm, KVM_GET_VCPU_MMAP_SIZE, 0)?;
    let mut made = Vec::new();
    for index in 0..vcpus {
        let vcpu = file(ioctl(&vm, KVM_CREATE_VCPU, index)?);
        let mut sregs = [0u64; 39];
        ioctl(&vcpu, KVM_GET_SREGS, sregs.as_mut_ptr() as u64)?;
        // The code segment comes first: base, then limit (32 bits) and selector (16).
        sregs[0] = 0;
        sregs[1] &= !(0xffff << 32);
        ioctl(&vcpu, KVM_SET_SREGS, sregs.as_ptr() as u64)?;
        let mut regs = [0u64; 18];
        (regs[16], regs[17]) = (0x1000, 2);
        ioctl(&vcpu, KVM_SET_REGS, regs.as_ptr() as u64)?;
        made.push(vcpu);
    }
    Ok((vm, made))
}

#[test]
fn a_vm_of_this_machine_is_found() {
    let (_vm, vcpus) = match machine(2) {
        Ok(made) => made,
        Err(e) => {
            println!("skipped: this machine's KVM cannot be used: {e}");
            return;
        }
    };
    let mut scanner = Scanner::new(Root::live());
    let own = i32::try_from(std::process::id()).unwrap();
    let started = Instant::now();
    let (send, receive) = mpsc::channel();
    for (index, vcpu) in vcpus.into_iter().enumerate() {
        let send = send.clone();
        std::thread::Builder::new()
            .name("vcpu0".into())
            .spawn(move || {
                // SAFETY: asks for a number.
                let tid = unsafe { libc::syscall(libc::SYS_gettid) };
                send.send((index, i32::try_from(tid).unwrap())).unwrap();
                // Ends with the process: the first never leaves the guest, the second waits to be started.
                while ioctl(&vcpu, KVM_RUN, 0).is_ok() {}
            })
            .unwrap();
    }
    let mut tids = [0, 0];
    for _ in 0..2 {
        let (index, tid) = receive.recv().unwrap();
        tids[index] = tid;
    }
    // The second is seen as soon as it waits; guest time is charged at ticks.
    let vm = loop {
        let snapshot = scanner.scan().unwrap();
        let vm = snapshot
            .vms
            .iter()
            .find(|vm| vm.pid == own)
            .unwrap()
            .clone();
        assert_eq!((vm.proof, vm.vcpus), (Proof::Kvm, 2));
        let second = vm.threads.iter().find(|t| t.id.tid == tids[1]).unwrap();
        if second.evidence <= Evidence::KvmRun && started.elapsed() > Duration::from_millis(100) {
            break vm;
        }
        assert!(started.elapsed() < HUNG, "{vm:#?}");
        std::thread::sleep(Duration::from_millis(20));
    };
    for (index, tid) in tids.iter().enumerate() {
        let thread = vm.threads.iter().find(|t| t.id.tid == *tid).unwrap();
        assert_eq!(
            thread.role,
            Role::Vcpu(u32::try_from(index).unwrap()),
            "{vm:#?}"
        );
        println!(
            "vcpu{index}: {} ({:?})",
            thread.evidence.words(),
            started.elapsed()
        );
    }
    let mut sampler = Sampler::new(Root::live());
    let snapshot = scanner.scan().unwrap();
    sampler.refresh(&snapshot, None).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    sampler.refresh(&snapshot, None).unwrap();
    let busy = vm.threads.iter().find(|t| t.role == Role::Vcpu(0)).unwrap();
    let idle = vm.threads.iter().find(|t| t.role == Role::Vcpu(1)).unwrap();
    let (busy, idle) = (
        sampler.thread(&busy.id).unwrap(),
        sampler.thread(&idle.id).unwrap(),
    );
    // However loaded the machine is: what is not run is waited for.
    assert!(busy.cpus + busy.waiting > 0.5, "{busy:?}");
    assert!(idle.cpus < 0.1, "{idle:?}");
}
