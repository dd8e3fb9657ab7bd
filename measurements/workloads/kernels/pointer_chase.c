/* A chase of pointers through 8 MiB that verifies each node's checksum: each load waits for the one
   before it, and all of them for memory. The worst case of linked data, such as a large tree or the
   objects of a heap. */

#include "bare_metal.h"

#define NODES (128 * 1024)
#define WARM_UP_HOPS 500
#define HOPS 15000
#define WORDS 3

struct node {
	struct node *next;
	uint64_t payload[WORDS], checksum;
} IN_LINES;

static struct node nodes[NODES];
static int intact;

/* Node after another on a round through all nodes: a linear congruential generator of full period
   (Press et al., Numerical Recipes). */
static uint32_t after(uint32_t node)
{
	return (node * 1664525u + 1013904223u) % NODES;
}

/* FNV-1a by words, http://www.isthe.com/chongo/tech/comp/fnv/ */
static uint64_t checksum(const struct node *node)
{
	uint64_t sum = 14695981039346656037u;
	for (int word = 0; word < WORDS; word++)
		sum = (sum ^ node->payload[word]) * 1099511628211u;
	return sum;
}

static struct node *walk(struct node *node, int hops)
{
	for (; hops--; node = node->next)
		intact += checksum(node) == node->checksum;
	return node;
}

int main(void)
{
	/* Only the part of the round that is walked is linked. On a long walk too, the nodes ahead
	   would be those seen longest ago, so in no cache. */
	uint32_t at = 0;
	for (int hop = 0; hop < WARM_UP_HOPS + HOPS; hop++) {
		nodes[at].next = &nodes[after(at)];
		nodes[at].payload[0] = at;
		nodes[at].checksum = checksum(&nodes[at]);
		at = after(at);
	}
	PREPARED();
	struct node *node = walk(nodes, WARM_UP_HOPS);

	REGION_BEGINS();
	node = walk(node, HOPS);
	REGION_ENDS();

	return node != &nodes[at] || intact != WARM_UP_HOPS + HOPS;
}
