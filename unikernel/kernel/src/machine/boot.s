# SPDX-License-Identifier: GPL-2.0-only
# From the virtual machine monitor to Rust, for the first CPU and for the others.

# --- PVH: who reads this note enters at the address it has, in 32-bit mode, with EBX at the start information ---
.section .note.pvh, "a", @note
.align 4
.long 4
.long 8
.long 18
.asciz "Xen"
.quad pvh_start

.section .text.boot, "ax"
.code32
.global pvh_start
pvh_start:
  cld
  cli
  movl %ebx, %ebp
  # Nothing below touches memory of ours before it is known to be there.
  movl $said_no_pvh, %esi
pvh_magic:
  cmpl $0x336ec578, (%ebp)
  jne refuse
  movl $said_no_memory_map, %esi
  cmpl $1, 4(%ebp)
  jb refuse
  movl $said_no_long_mode, %esi
  movl $0x80000000, %eax
  cpuid
  cmpl $0x80000001, %eax
  jb refuse
  movl $0x80000001, %eax
  cpuid
  btl $29, %edx
  jnc refuse
  # Is the image, with what it needs besides, in one piece of memory?
  movl $said_no_memory, %esi
  movl 40(%ebp), %edi
  movl 48(%ebp), %ecx
1:
  testl %ecx, %ecx
  jz refuse
  cmpl $1, 16(%edi)
  jne 2f
  cmpl $0, 4(%edi)
  jne 2f
  cmpl $__image_start, (%edi)
  ja 2f
  cmpl $0, 12(%edi)
  jne 3f
  movl (%edi), %eax
  addl 8(%edi), %eax
  jc 3f
  cmpl $__image_end + LEAST_HEAP, %eax
  jae 3f
2:
  addl $24, %edi
  decl %ecx
  jmp 1b

3:
  movl $boot_stack_top, %esp
  # 0 to 4 GiB as they are, in pages of 2 MiB; the last GiB is devices.
  movl $boot_pdpt, %eax
  orl $3, %eax
  movl %eax, boot_pml4
  movl $boot_pd, %eax
  orl $3, %eax
  movl $boot_pdpt, %edi
  movl $4, %ecx
1:
  movl %eax, (%edi)
  addl $4096, %eax
  addl $8, %edi
  decl %ecx
  jnz 1b
  movl $boot_pd, %edi
  movl $0x83, %eax
  movl $2048, %ecx
2:
  cmpl $0xC0000083, %eax
  jne 3f
  orl $0x18, %eax
3:
  movl %eax, (%edi)
  addl $0x200000, %eax
  addl $8, %edi
  decl %ecx
  jnz 2b
  call enter_paging
  lgdt boot_gdtr
  ljmp $0x08, $long64

enter_paging:
  movl $boot_pml4, %eax
  movl %eax, %cr3
  movl %cr4, %eax
  orl $0x620, %eax        # PAE, OSFXSR, OSXMMEXCPT
  movl %eax, %cr4
  movl $0xC0000080, %ecx
  rdmsr
  orl $0x100, %eax        # LME
  wrmsr
  movl %cr0, %eax
  andl $0x9FFFFFFB, %eax  # not CD, NW, EM
  orl $0x80010023, %eax   # PG, WP, NE, MP, PE
  movl %eax, %cr0
  ret

# One line on the serial port (ESI), then out of QEMU by isa-debug-exit, or else stop.
refuse:
  movb (%esi), %al
  testb %al, %al
  jz 2f
  movb %al, %ah
  movw $0x3fd, %dx
1:
  inb %dx, %al
  testb $0x20, %al
  jz 1b
  movb %ah, %al
  movw $0x3f8, %dx
  outb %al, %dx
  incl %esi
  jmp refuse
2:
  movl $CANNOT_RUN, %eax
  movw $0xf4, %dx
  outl %eax, %dx
3:
  hlt
  jmp 3b

.code64
long64:
  movw $0x10, %ax
  movw %ax, %ds
  movw %ax, %es
  movw %ax, %ss
  xorl %eax, %eax
  movw %ax, %fs
  movw %ax, %gs
  movl %ebp, %edi
  movl $boot_stack_top, %esp
  xorl %ebp, %ebp
  callq start_first
1:
  hlt
  jmp 1b

.section .rodata.said, "a"
said_no_pvh:
  .asciz "unikernel: refused: not started by PVH (QEMU: -kernel on microvm, q35 or pc)\n"
said_no_memory_map:
  .asciz "unikernel: refused: started by a PVH without a memory map (version 0)\n"
said_no_long_mode:
  .asciz "unikernel: refused: this CPU has no 64-bit mode\n"
said_no_memory:
  .asciz "unikernel: refused: not enough memory (QEMU: -m 8 or more)\n"

# --- the other CPUs begin in 16-bit mode, at a page below 1 MiB: this is copied to 0x8000 ---
.section .rodata.trampoline, "a"
.global trampoline_start, trampoline_end
.code16
trampoline_start:
  cli
  cld
  xorw %ax, %ax
  movw %ax, %ds
  lgdtl (0x8000 + other_gdtr - trampoline_start)
  movl %cr0, %eax
  orl $1, %eax
  movl %eax, %cr0
  ljmpl $0x18, $(0x8000 + other_protected - trampoline_start)
.code32
other_protected:
  movw $0x10, %ax
  movw %ax, %ds
  movw %ax, %es
  movw %ax, %ss
  movl $boot_pml4, %eax
  movl %eax, %cr3
  movl %cr4, %eax
  orl $0x620, %eax
  movl %eax, %cr4
  movl $0xC0000080, %ecx
  rdmsr
  orl $0x100, %eax
  wrmsr
  movl %cr0, %eax
  andl $0x9FFFFFFB, %eax
  orl $0x80010023, %eax
  movl %eax, %cr0
  ljmp $0x08, $other_long64
.align 8
other_gdtr:
  .word 31
  .long boot_gdt
trampoline_end:

.section .text.other, "ax"
.code64
other_long64:
  movw $0x10, %ax
  movw %ax, %ds
  movw %ax, %es
  movw %ax, %ss
  xorl %eax, %eax
  movw %ax, %fs
  movw %ax, %gs
  movq OTHER_STACK(%rip), %rsp
  movq OTHER_INDEX(%rip), %rdi
  xorl %ebp, %ebp
  callq start_other
1:
  hlt
  jmp 1b

.section .data.boot, "aw"
.align 16
boot_gdt:
  .quad 0
  .quad 0x00af9b000000ffff
  .quad 0x00cf93000000ffff
  .quad 0x00cf9b000000ffff
boot_gdtr:
  .word 31
  .quad boot_gdt

.section .bss.boot, "aw", @nobits
.align 4096
boot_pml4: .skip 4096
boot_pdpt: .skip 4096
boot_pd:   .skip 16384
# Drivers build large values on it.
.skip 524288
boot_stack_top:
.text
