# SPDX-License-Identifier: GPL-2.0-only
# Every vector: the registers onto the CPU's interrupt stack, those of SSE to where gs:8 says, then to Rust, which may
# have another thread's in their place when it comes back. Threads' own stacks are not used: code below them keeps
# values in the red zone, and a thread's stack may be given away while this runs.
.section .text.trap, "ax"
.code64
.macro STUB vector, has_error
.align 16
 .if \has_error == 0
  pushq $0
 .endif
  pushq $\vector
  jmp trap_common
.endm
.global trap_stubs
.align 16
trap_stubs:
.altmacro
.set vector, 0
.rept 64
 .if (vector == 8) || (vector == 17) || (vector == 21) || ((vector >= 10) && (vector <= 14))
  STUB %vector, 1
 .else
  STUB %vector, 0
 .endif
 .set vector, vector + 1
.endr
.noaltmacro
.align 16
trap_common:
  pushq %rax
  pushq %rcx
  pushq %rdx
  pushq %rbx
  pushq %rbp
  pushq %rsi
  pushq %rdi
  pushq %r8
  pushq %r9
  pushq %r10
  pushq %r11
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  cld
  movq %rsp, %rdi
  movq %gs:8, %rax
  fxsave64 (%rax)
  callq trap_entry
  movq %gs:8, %rax
  fxrstor64 (%rax)
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %r11
  popq %r10
  popq %r9
  popq %r8
  popq %rdi
  popq %rsi
  popq %rbp
  popq %rbx
  popq %rdx
  popq %rcx
  popq %rax
  addq $16, %rsp
  iretq
.text
