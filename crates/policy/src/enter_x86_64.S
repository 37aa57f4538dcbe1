/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Entering translated policy code on x86-64 (trampoline.c has it for other processors, with setjmp). By hand,
 * because what a setjmp saves need be restored only after a trap: an entry takes half the instructions.
 *
 * Where an entry's stack pointer was, there lie the place of the entry around it and the registers that a
 * function leaves as they were.
 */
	.text
	.p2align 5
	.globl	berth_enter_op
	.hidden	berth_enter_op
	.type	berth_enter_op, @function
berth_enter_op:
	.cfi_startproc
	pushq	%rbp
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %rbp, 0
	pushq	%rbx
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %rbx, 0
	pushq	%r12
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %r12, 0
	pushq	%r13
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %r13, 0
	pushq	%r14
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %r14, 0
	pushq	%r15
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %r15, 0
	movq	berth_innermost@gottpoff(%rip), %r11
	pushq	%fs:(%r11)
	.cfi_adjust_cfa_offset 8
	movq	%rsp, %fs:(%r11)
	movq	%rdx, %rax
	xorl	%edx, %edx
	xorl	%ecx, %ecx
	xorl	%r8d, %r8d
	xorl	%r9d, %r9d
	callq	*%rax
	movq	berth_innermost@gottpoff(%rip), %r11
	popq	%fs:(%r11)
	/* The callee has left the registers as they were. */
	addq	$48, %rsp
	.cfi_adjust_cfa_offset -56
	xorl	%edx, %edx
	retq
	.cfi_endproc
	.size	berth_enter_op, . - berth_enter_op

	.globl	berth_resume
	.hidden	berth_resume
	.type	berth_resume, @function
berth_resume:
	movq	berth_innermost@gottpoff(%rip), %r11
	movq	%fs:(%r11), %rsp
	popq	%fs:(%r11)
	popq	%r15
	popq	%r14
	popq	%r13
	popq	%r12
	popq	%rbx
	popq	%rbp
	xorl	%eax, %eax
	movl	$1, %edx
	retq
	.size	berth_resume, . - berth_resume

	.section .note.GNU-stack, "", @progbits
