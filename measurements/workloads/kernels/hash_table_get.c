/* Gets from a cache of 262 144 objects of 64 bytes, as an object cache over a network serves them:
   hash the key of a request, follow the chain of its bucket, compare, write a reply. Keys are
   uniform, one in 16 is not there, and the 34 MiB do not fit the caches. */

#include "bare_metal.h"

#define ITEMS 262144
#define BUCKETS 262144
#define WARM_UP 1500
#define GETS 12000
#define REPLIES 64

struct key {
	uint64_t word[2];
};

struct value {
	uint64_t word[8];
};

struct item {
	struct item *next;
	struct key key;
	struct value value;
} IN_LINES;

struct reply {
	struct key key;
	struct value value;
};

static struct item items[ITEMS], *buckets[BUCKETS] IN_LINES;
static struct key requests[WARM_UP + GETS] IN_LINES;
static struct reply replies[REPLIES] IN_LINES;
static uint32_t hits;

/* "key:" and the number, in 16 bytes. */
static struct key key_of(uint32_t number)
{
	return (struct key){{0x3a79656b, number * 2654435761u}};
}

/* The end of MurmurHash3, https://github.com/aappleby/smhasher */
static struct item **bucket_of(const struct key *key)
{
	uint64_t hash = key->word[0] ^ key->word[1];
	hash = (hash ^ hash >> 33) * 0xff51afd7ed558ccdu;
	hash = (hash ^ hash >> 33) * 0xc4ceb9fe1a85ec53u;
	return &buckets[(hash ^ hash >> 33) % BUCKETS];
}

static int is_same(const struct key *one, const struct key *other)
{
	return one->word[0] == other->word[0] && one->word[1] == other->word[1];
}

static void serve(const struct key *key)
{
	const struct item *item = *bucket_of(key);
	while (item && !is_same(&item->key, key))
		item = item->next;
	if (item)
		replies[hits++ % REPLIES] = (struct reply){item->key, item->value};
}

static uint32_t prepare(void)
{
	for (uint32_t i = 0; i < ITEMS; i++) {
		struct item *item = &items[i];
		item->key = key_of(i);
		item->value.word[0] = i;
		item->value.word[7] = ~(uint64_t)i;
		item->next = *bucket_of(&item->key);
		*bucket_of(&item->key) = item;
	}
	uint32_t there = 0;
	for (uint32_t i = 0; i < WARM_UP + GETS; i++) {
		uint64_t drawn = random_bits();
		uint32_t present = (drawn & 15) != 0;
		requests[i] = key_of((uint32_t)(drawn >> 20) % ITEMS + (present ? 0 : ITEMS));
		there += present;
	}
	return there;
}

int main(void)
{
	uint32_t there = prepare();
	PREPARED();
	/* A line holds eight buckets, and an item has two lines: buckets are in the caches first. */
	touch(buckets, sizeof buckets);
	for (uint32_t i = 0; i < WARM_UP; i++)
		serve(&requests[i]);

	REGION_BEGINS();
	for (uint32_t i = WARM_UP; i < WARM_UP + GETS; i++)
		serve(&requests[i]);
	REGION_ENDS();

	uint32_t wrong = hits != there;
	for (uint32_t i = 0; i < REPLIES; i++)
		wrong += replies[i].value.word[7] != ~replies[i].value.word[0];
	return wrong != 0;
}
