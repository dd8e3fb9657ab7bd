/* Entry of a kernel on the bare machine, and the two functions that the compiler may call. */

#include "bare_metal.h"

int main(void);

__attribute__((used, noreturn)) static void run(void)
{
	control(EXIT, (uint64_t)main());
	for (;;)
		;
}

__asm__(".section .text.start, \"ax\"\n"
	".globl _start\n"
	"_start:\n"
	"	.option push\n"
	"	.option norelax\n"
	"	la gp, __global_pointer$\n"
	"	.option pop\n"
	"	la sp, _stack_top\n"
	"	j run\n"
	".text\n");

void *memset(void *to, int byte, size_t count)
{
	unsigned char *at = to;
	while (count--)
		*at++ = (unsigned char)byte;
	return to;
}

void *memcpy(void *restrict to, const void *restrict from, size_t count)
{
	unsigned char *at = to;
	const unsigned char *source = from;
	while (count--)
		*at++ = *source++;
	return to;
}
