/* Words of a text and how often each occurs, as a map task counts them: split at blanks, hash,
   look up in a chained table, insert what is new. Few words make most of the text. It has just been
   read: it is in the caches. */

#include "bare_metal.h"

#define TEXT (256 * 1024)
#define WARM_UP (128 * 1024)
#define VOCABULARY_BITS 11
#define BUCKETS 4096
#define MOST_WORDS 2048

struct word {
	struct word *next;
	const char *letters;
	uint32_t hash, length, count;
};

static char text[TEXT] IN_LINES;
static struct word words[MOST_WORDS] IN_LINES, *buckets[BUCKETS] IN_LINES;
static uint32_t known, seen;

/* Words of 2 to 12 letters; the common ones are short. */
static char *spell(char *to, uint32_t rank)
{
	uint32_t bits = (rank + 1) * 2654435761u;
	int length = 2 + (int)(bits >> 29) + (rank > 7) + (rank > 255) * 2;
	while (length--) {
		*to++ = 'a' + (char)((bits >> 16 & 0xff) * 26 >> 8);
		bits = bits * 1664525u + 1013904223u;
	}
	return to;
}

static uint32_t write_text(void)
{
	uint32_t written = 0;
	char *to = text;
	while (to < text + TEXT - 16) {
		to = spell(to, random_rank(VOCABULARY_BITS));
		*to++ = ' ';
		written++;
	}
	while (to < text + TEXT)
		*to++ = ' ';
	return written;
}

static int is_same(const struct word *word, const char *letters, uint32_t length, uint32_t hash)
{
	if (word->hash != hash || word->length != length)
		return 0;
	for (uint32_t i = 0; i < length; i++)
		if (word->letters[i] != letters[i])
			return 0;
	return 1;
}

static void count_word(const char *letters, uint32_t length, uint32_t hash)
{
	struct word **bucket = &buckets[(hash ^ hash >> 15) % BUCKETS];
	struct word *word = *bucket;
	while (word && !is_same(word, letters, length, hash))
		word = word->next;
	if (!word) {
		word = &words[known++];
		*word = (struct word){*bucket, letters, hash, length, 0};
		*bucket = word;
	}
	word->count++;
	seen++;
}

static void count_words(const char *at, const char *end)
{
	while (at < end) {
		while (at < end && *at == ' ')
			at++;
		const char *start = at;
		/* FNV-1a, http://www.isthe.com/chongo/tech/comp/fnv/ */
		uint32_t hash = 2166136261u;
		while (at < end && *at != ' ')
			hash = (hash ^ (unsigned char)*at++) * 16777619u;
		if (at > start)
			count_word(start, (uint32_t)(at - start), hash);
	}
}

int main(void)
{
	uint32_t written = write_text();
	PREPARED();
	const char *middle = text + WARM_UP;
	while (middle[-1] != ' ')
		middle++;
	count_words(text, middle);
	touch(middle, (size_t)(text + TEXT - middle));

	REGION_BEGINS();
	count_words(middle, text + TEXT);
	REGION_ENDS();

	uint32_t total = 0;
	for (uint32_t i = 0; i < known; i++)
		total += words[i].count;
	return total != written || seen != written;
}
