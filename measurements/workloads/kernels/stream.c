/* A scaled copy of 1.5 MiB, the control: bound by stores to memory, which no curve in 1/f fits.
   Scale of STREAM (McCalpin 1995). */

#include "bare_metal.h"

#define WARM_UP 4096
#define WORDS (192 * 1024)

static uint64_t from[WORDS] IN_LINES, to[WORDS] IN_LINES;

static void scale(size_t first, size_t end)
{
	for (size_t i = first; i < end; i++)
		to[i] = 3 * from[i];
}

int main(void)
{
	for (size_t i = 0; i < WORDS; i += 512)
		from[i] = i;
	PREPARED();
	scale(0, WARM_UP);

	REGION_BEGINS();
	scale(WARM_UP, WORDS);
	REGION_ENDS();

	return to[WORDS - 512] != 3 * (WORDS - 512);
}
