# SPDX-License-Identifier: GPL-2.0-only
# What compilers call for bytes; the toolchain takes it from the C library, which is not here.
.section .text.memory, "ax"
.code64
.global memcpy, memmove, memset, memcmp, bcmp, strlen
memcpy:
  movq %rdi, %rax
  movq %rdx, %rcx
  shrq $3, %rcx
  rep movsq
  movl %edx, %ecx
  andl $7, %ecx
  rep movsb
  ret
memmove:
  movq %rdi, %rax
  cmpq %rsi, %rdi
  jbe memcpy
  leaq (%rsi,%rdx), %r8
  cmpq %r8, %rdi
  jae memcpy
  movq %rdx, %rcx
  leaq -1(%rdi,%rdx), %rdi
  leaq -1(%rsi,%rdx), %rsi
  std
  rep movsb
  cld
  ret
memset:
  movq %rdi, %r8
  movzbl %sil, %eax
  movabsq $0x0101010101010101, %r9
  imulq %r9, %rax
  movq %rdx, %rcx
  shrq $3, %rcx
  rep stosq
  movl %edx, %ecx
  andl $7, %ecx
  rep stosb
  movq %r8, %rax
  ret
bcmp:
memcmp:
  xorl %ecx, %ecx
1:
  cmpq %rdx, %rcx
  je 2f
  movzbl (%rdi,%rcx), %eax
  movzbl (%rsi,%rcx), %r8d
  incq %rcx
  subl %r8d, %eax
  je 1b
  ret
2:
  xorl %eax, %eax
  ret
strlen:
  xorl %eax, %eax
1:
  cmpb $0, (%rdi,%rax)
  je 2f
  incq %rax
  jmp 1b
2:
  ret
.text
