// SPDX-License-Identifier: GPL-2.0-only
//! Policy objects: compile, load (ELF, BTF, CO-RE), translate, run; no libbpf
