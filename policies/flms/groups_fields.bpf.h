/* SPDX-License-Identifier: GPL-2.0-only */
/* What groups.bpf.h keeps in each vCPU and each pCPU of credit.bpf.h. */
#ifndef __FLMS_GROUPS_FIELDS_BPF_H
#define __FLMS_GROUPS_FIELDS_BPF_H

/* counted: its weight in kind_weight[kind]; fits: its affinity leaves something of its group, as of
 * the groups of number fits_epoch. */
#define GROUP_VCPU                                                                                 \
	u32 kind;                                                                                  \
	u32 fits;                                                                                  \
	u64 fits_epoch;                                                                            \
	u64 counted;

/* short_slices: member of SP; rank: among online pCPUs ordered by package, core, thread. sample:
 * run time by kind since the last partition. */
#define GROUP_PCPU                                                                                 \
	u32 short_slices;                                                                          \
	u32 rank;                                                                                  \
	u64 sample_io;                                                                             \
	u64 sample_cpu;

#endif
