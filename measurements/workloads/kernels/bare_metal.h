/* What every kernel shares: its marks, and repeatable random numbers.

   `main` of a kernel has four parts. It prepares the input, which is simulated once and not in
   detail: PREPARED() is where every run of the kernel begins, with cold caches. It warms up. It
   runs the measured region. It returns 0 if the result of the region is right. */

#pragma once

#include <stddef.h>
#include <stdint.h>

#define CACHE_LINE 64
#define IN_LINES __attribute__((aligned(CACHE_LINE)))

/* The simulator's control device: an argument at the second word, then a command at the first. */
#define CONTROL ((volatile uint64_t *)0x102000)
enum command { DUMP_COUNTERS = 2, EXIT = 3, STOP_HERE = 4 };

static inline void control(enum command command, uint64_t argument)
{
	/* Loads and stores before the mark belong before it. */
	__asm__ volatile("fence" ::: "memory");
	CONTROL[1] = argument;
	CONTROL[0] = command;
}

#define PREPARED() control(STOP_HERE, 0)
#define REGION_BEGINS() control(DUMP_COUNTERS, 1)
#define REGION_ENDS() control(DUMP_COUNTERS, 2)

/* Read a range once, line by line, so that caches hold as much of it as they can. */
static inline void touch(const void *start, size_t bytes)
{
	for (size_t at = 0; at < bytes; at += CACHE_LINE)
		(void)*((const volatile char *)start + at);
}

/* Marsaglia's xorshift64 (2003), https://doi.org/10.18637/jss.v008.i14 */
static uint64_t random_state = 88172645463325252u;

static inline uint64_t random_bits(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

/* One of 2^bits numbers, each power of two of them as likely as the next: rank r has a share of
   about 1/r, as words of a language do (Zipf). */
static inline uint32_t random_rank(int bits)
{
	uint64_t drawn = random_bits();
	int octave = (int)((drawn & 0xffff) * (uint64_t)(bits + 1) >> 16);
	return octave ? (1u << (octave - 1)) + (uint32_t)((drawn >> 20) & ((1u << (octave - 1)) - 1)) : 0;
}
