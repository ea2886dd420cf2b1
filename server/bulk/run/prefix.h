/* How prompts begin, to find those that begin alike without keeping them. Pure.
 *
 * A prompt is the text that a chat template renders first: tools, then system prompts, then messages. Its beginnings of 64
 * to 1,048,576 bytes, each about 1.41 times as long as the one before, have a checksum each. Two prompts with a common
 * beginning share its checksums, so the length of what they share is known within 30 %.
 */
#ifndef QUIRE_BULK_PREFIX_H
#define QUIRE_BULK_PREFIX_H

#include <stddef.h>
#include <stdint.h>

#define BULK_PREFIX_LEVELS 29

struct bulk_prefix {
    uint32_t line;
    uint32_t begins[BULK_PREFIX_LEVELS]; /* checksums; after bulk_prefix_sort(): the first line with that beginning */
};

/* body: a JSON object of a document that quire_doc_open() has checked. */
void bulk_prefix_of(const char *body, size_t n_bytes, uint32_t line, struct bulk_prefix *out);
/* Sorts all[n], whose lines ascend, so that prompts with a common beginning are neighbours; groups keep the order of their
 * first lines, and so do lines of a group. */
void bulk_prefix_sort(struct bulk_prefix *all, uint32_t n);

#endif
