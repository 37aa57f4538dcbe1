# SPDX-License-Identifier: GPL-2.0-only
# What a developer does daily. `make help` lists it.
.DEFAULT_GOAL := help
SHELL := /bin/bash
BERTH := $(or $(CARGO_TARGET_DIR),target)/release/berth
PROFILED := $(or $(CARGO_TARGET_DIR),target)/profiled
SCENARIO ?= noisy-neighbour
OUT ?= berth-out
JOBS ?= $(shell nproc)

.PHONY: help demo test test-quick lint release bench bench-profiled bench-host bench-jit libvirt-live oracles ran \
	same-bytes conformance fidelity compare guests guest-kernel lab-boots mrsf-lab flms-lab schedulers-lab \
	affinity-lab affinity-pairs survival fuzz kvm-table \
	readme papers mutants docs book-pictures unikernel unikernel-table wheel cluster setup-sim setup-lab setup-browser \
	clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

demo: ## the noisy neighbour, simulated, then on a real kernel in a throw-away VM, then both compared and judged
	@tools/demo

test: setup-sim setup-lab setup-browser ## everything: unit, property and oracle tests, then real kernels in the lab
	@tools/test full

test-quick: setup-sim setup-lab ## without the lab and the long suites; under 3 minutes when warm
	@tools/test quick

lint: setup-sim setup-lab ## rustfmt, clippy, rustdoc, clang-format, SPDX lines, the book's links and parts, columns
	@tools/lint

bench: setup-sim ## speed of engine and policies as ratios to a bare loop in the same process, built with fat LTO
	CARGO_PROFILE_RELEASE_LTO=fat cargo run --release -q -p berth-sim --example bench -- --json $(OUT)/bench.json

bench-profiled: setup-sim ## the same for two levels, of a build with a profile of other worlds' runs (6 minutes)
	@tools/profiled bench
	$(PROFILED)/bench --two-levels

bench-host: ## what watching 2,000 VMs costs, as a ratio to a bare loop too; then 500 real ones (KVM), by /proc and BPF
	cargo run --release -q -p berth-host --example cost
	cargo run --release -q -p berth-tracer --example real_cost

bench-jit: setup-sim ## translated C against a JIT library, same policy, same machine
	cargo run --release -q --manifest-path bench/jit/Cargo.toml

release: setup-sim setup-lab ## berth with a profile of its own runs (half an hour): some per cent faster
	@tools/profiled berth

oracles: setup-sim ## closed forms over 1,000 seeds: how often does the 95 % interval cover the truth?
	cargo run --release -q -p berth-sim --example closed_forms -- --seeds 1000 --check

same-bytes: setup-sim ## 200 scenarios x seeds: one hash in debug and release, 1 to 8 workers
	@tools/same-bytes

libvirt-live: ## a VM of a real libvirt, found with the role of every thread; in a throw-away root (as root)
	@tools/libvirt-live

conformance: setup-sim setup-lab ## the model against the kernel, callback by callback; writes docs/conformance.md
	cargo run --release -q -p berth-conformance --features lab,mutations -- table --record --out docs/conformance.md

FIDELITY = cargo run --release -q -p berth-cli -- compare crates/compare/set --sealed crates/compare/sealed -q \
	--out $(OUT) --markdown docs/fidelity-table.md --summary docs/fidelity.md

fidelity: setup-sim ## simulator against the kept records of a real kernel, both sets; writes docs/fidelity-table.md
	$(FIDELITY) --check
	cargo run --release -q -p berth-cli -- compare crates/compare/cfs -q --check --out $(OUT)

compare: setup-sim setup-lab ## the same, after recording what is missing or has changed (hours); RECORD=all: everything
	$(FIDELITY) --record $(or $(RECORD),changed)

GUESTS_RECORD = $(if $(filter undefined,$(origin RECORD)),missing,$(RECORD))
guests: setup-sim setup-lab ## real Linux guests under steal beside the simulator; records what is missing
	@[ -z "$(GUESTS_RECORD)" ] || tools/setup guest-kernel
	cargo run --release -q -p berth-cli -- guests $(if $(GUESTS_RECORD),--record $(GUESTS_RECORD)) \
		--markdown docs/guests-table.md

guest-kernel: setup-sim setup-lab ## the guest kernel that accounts for steal, from source (once, 160 MB, 4 to 10 min)
	@tools/setup guest-kernel
	cargo run --release -q -p berth-cli -- guests --build-kernel

lab-boots: setup-sim setup-lab ## 200 micro-VM boots under every policy, in the lab; the kernel's log must stay clean
	BERTH_LAB=1 BERTH_LAB_KERNELS= BERTH_LAB_CASES="boot and end" BERTH_LAB_BOOTS=200 \
		cargo test --release -q -p berth-lab --test lab

survival: setup-lab ## what acting without sched_ext has to survive, in full (hours)
	BERTH_RACES=10000 cargo test --release -q --locked -p berth-agent --test races
	cargo run --release -q --locked -p berth-agent --example pins -- 2000
	BERTH_LAB=1 BERTH_LAB_LONG=1 BERTH_LAB_KERNELS= BERTH_LAB_CASES="survives" \
		cargo test --release -q --locked -p berth-lab --test lab
	BERTH_LAB=1 BERTH_LAB_ROUNDS=200 BERTH_LAB_KERNELS= BERTH_LAB_CASES="found, switched, killed" \
		cargo test --release -q --locked -p berth-lab --test lab

fuzz: setup-sim ## what reads the words of others, given nonsense for a day (or: make fuzz MINUTES=60)
	@tools/fuzz $(or $(MINUTES),1440)

ran: setup-lab ## every shipped policy on every kernel line (ten minutes); writes down what need not run there again
	env -u BERTH_LAB_LONG -u BERTH_LAB_POLICY -u BERTH_LAB_KERNELS BERTH_LAB=1 BERTH_LAB_RECORD=1 \
	  BERTH_LAB_CASES="every shipped policy runs" cargo test --release -q --locked -p berth-lab --test lab

mrsf-lab: setup-lab ## E1, E2 and E4 of the M-RSF paper by a real kernel, in the lab (some five minutes); a table
	@BERTH_LAB=1 BERTH_LAB_LONG=1 BERTH_LAB_CASES="a batch of tasks" cargo test --release -q --locked -p berth-lab \
	  --test lab

flms-lab: setup-lab ## EF1, EF6, EF9 and EF13 of the FLMS paper by a real kernel, in the lab (half an hour)
	cargo build --release -q --locked -p berth-cli
	@tools/papers-lab $(BERTH) flms

schedulers-lab: setup-lab ## S2, S3 and S5 of the paper on Linux's schedulers by real kernels, in the lab (half an hour)
	cargo build --release -q --locked -p berth-cli
	@tools/papers-lab $(BERTH) schedulers

affinity-lab: setup-lab ## A3 and A5 of the affinity paper on the lab's network path, by a real kernel (three hours)
	@tools/papers-lab $(BERTH) affinity

affinity-pairs: setup-lab ## `auto` and others beside nothing bound on that path: ten boots, with the interval (hours)
	@kept=$$(realpath -m $(or $(CARGO_TARGET_DIR),target))/pairs-$$(git rev-parse --short HEAD) && mkdir -p "$$kept" && \
	  BERTH_LAB=1 BERTH_LAB_KERNELS= BERTH_LAB_CASES="network path" BERTH_LAB_WAYS=pairs BERTH_LAB_KEPT="$$kept" \
	  cargo test --release -q --locked -p berth-lab --test lab

kvm-table: setup-lab ## policies beside Linux on real KVM vCPUs, in the lab (some hours); writes docs/kvm-table.md
	cargo build --release -q -p berth-cli
	@tools/scx-schedulers || echo "kvm-table: schedulers that are not there are left out"
	@tools/kvm-table $(BERTH)

readme: setup-sim setup-lab ## README's figures, simulated and from the lab (some 20 minutes); the lint checks them
	cargo build --release -q -p berth-cli
	@tools/readme $(BERTH)

papers: setup-sim ## the papers' experiments, run and judged; writes docs/papers (minutes; goes on where it stopped)
	cargo build --release -q -p berth-cli --no-default-features
	$(BERTH) reproduce

unikernel: setup-lab ## the unikernel: built, booted in QEMU, asked over UDP, its schedulers compared and judged
	@tools/unikernel show

unikernel-table: setup-lab ## the same with seeds and repetitions (half an hour); writes docs/unikernel-table.md
	@tools/unikernel table

wheel: setup-sim ## the Python package as a wheel, in target/wheels (docs/python.md)
	@tools/python wheel

cluster: setup-sim ## sweeps on Ray while nodes are killed, and the figures of docs/python.md (some minutes)
	cargo build --release -q -p berth-cli --no-default-features
	@tools/python cluster

mutants: setup-sim ## at most 200 wrong changes of code and policies: which does no test notice? (hours; resumes)
	@tools/mutants

docs: setup-sim setup-lab ## the book as HTML with search, its links checked, in target/book; the API, in target/doc
	@tools/docs

book-pictures: setup-sim setup-lab setup-browser ## each page of the book as a browser shows it, at two widths
	@tools/docs --book
	@tools/book-pictures

setup-sim: ## what simulator and tests need (clang)
	@tools/setup sim

setup-browser: ## what the report's test needs (headless Chromium, 100 MB)
	@tools/setup browser

setup-lab: ## what the lab needs (libbpf's build, QEMU, kernels)
	@tools/setup lab

clean: ## build output; downloads in the cache stay
	cargo clean
