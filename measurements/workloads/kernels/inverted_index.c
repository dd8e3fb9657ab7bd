/* An inverted index of documents of 64 tokens, as a crawler's indexer builds it and a search reads
   it: a posting for each document and term, in one list a term. Documents are added, then a quarter
   of the lists are read. Few terms make most of the tokens. Its 1.8 MiB are more than the small
   core's cache and about as much as the large one's. */

#include "bare_metal.h"

#define TERM_BITS 14
#define TERMS (1u << TERM_BITS)
#define INDEXED (200 * 1024)
#define TOKENS (INDEXED + 10 * 1024)
#define DOCUMENT 64
#define READ_EVERY 4

struct term {
	uint32_t latest, documents;
};

struct posting {
	uint32_t document, earlier;
};

static uint16_t tokens[TOKENS] IN_LINES;
static struct term terms[TERMS] IN_LINES;
static struct posting postings[TOKENS + 1] IN_LINES;
static uint32_t last_posting;

static void index_tokens(uint32_t first, uint32_t end)
{
	for (uint32_t i = first; i < end; i++) {
		struct term *term = &terms[tokens[i]];
		uint32_t document = 1 + i / DOCUMENT;
		if (term->latest && postings[term->latest].document == document)
			continue;
		postings[++last_posting] = (struct posting){document, term->latest};
		term->latest = last_posting;
		term->documents++;
	}
}

/* Postings read that are in order: the latest document comes first. */
static uint32_t read_lists(void)
{
	uint32_t in_order = 0;
	for (uint32_t t = 0; t < TERMS; t += READ_EVERY) {
		uint32_t later = UINT32_MAX;
		for (uint32_t at = terms[t].latest; at; at = postings[at].earlier) {
			in_order += postings[at].document < later;
			later = postings[at].document;
		}
	}
	return in_order;
}

int main(void)
{
	for (uint32_t i = 0; i < TOKENS; i++)
		tokens[i] = (uint16_t)(random_rank(TERM_BITS) * 40503u % TERMS);
	index_tokens(0, INDEXED);
	PREPARED();
	touch(postings, sizeof postings);
	touch(terms, sizeof terms);

	REGION_BEGINS();
	index_tokens(INDEXED, TOKENS);
	uint32_t in_order = read_lists();
	REGION_ENDS();

	uint32_t documents = 0, read = 0;
	for (uint32_t t = 0; t < TERMS; t++) {
		documents += terms[t].documents;
		read += t % READ_EVERY ? 0 : terms[t].documents;
	}
	return documents != last_posting || read != in_order;
}
