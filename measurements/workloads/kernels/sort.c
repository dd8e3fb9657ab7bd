/* A merge sort of 12 288 keys of 8 bytes with references to their records, as a map task sorts a
   block of its output before it is written. It has just made the keys: they are in the caches. */

#include "bare_metal.h"

#define RECORDS 12288
#define WARM_UP 512
/* Below this, insertion is quicker. */
#define SHORT 12

struct entry {
	uint64_t key;
	uint64_t record;
};

static struct entry entries[RECORDS] IN_LINES, warm_up[WARM_UP] IN_LINES;
static struct entry scratch[RECORDS / 2 + 1] IN_LINES;

static void insertion_sort(struct entry *run, size_t count)
{
	for (size_t i = 1; i < count; i++) {
		struct entry moved = run[i];
		size_t to = i;
		for (; to && run[to - 1].key > moved.key; to--)
			run[to] = run[to - 1];
		run[to] = moved;
	}
}

static void merge(struct entry *run, size_t middle, size_t count)
{
	for (size_t i = 0; i < middle; i++)
		scratch[i] = run[i];
	size_t left = 0, right = middle, to = 0;
	while (left < middle && right < count)
		run[to++] = scratch[left].key <= run[right].key ? scratch[left++] : run[right++];
	while (left < middle)
		run[to++] = scratch[left++];
}

static void sort(struct entry *run, size_t count)
{
	if (count <= SHORT) {
		insertion_sort(run, count);
		return;
	}
	size_t middle = count / 2;
	sort(run, middle);
	sort(run + middle, count - middle);
	merge(run, middle, count);
}

static uint64_t fill(struct entry *run, size_t count)
{
	uint64_t sum = 0;
	for (size_t i = 0; i < count; i++) {
		run[i] = (struct entry){random_bits(), i};
		sum += run[i].key;
	}
	return sum;
}

static int is_sorted(const struct entry *run, size_t count, uint64_t sum)
{
	for (size_t i = 0; i < count; i++) {
		sum -= run[i].key;
		if (i && run[i - 1].key > run[i].key)
			return 0;
	}
	return sum == 0;
}

int main(void)
{
	fill(warm_up, WARM_UP);
	uint64_t sum = fill(entries, RECORDS);
	PREPARED();
	sort(warm_up, WARM_UP);
	touch(scratch, sizeof scratch);
	touch(entries, sizeof entries);

	REGION_BEGINS();
	sort(entries, RECORDS);
	REGION_ENDS();

	return !is_sorted(entries, RECORDS, sum);
}
