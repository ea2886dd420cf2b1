/* Reads a record's body field by field. It trusts no input: a fault is reported, and no read goes past the end. Only
 * the reader's files include this. One thread at a time. */
#ifndef QUIRE_ENGINE_RECORD_BODY_H
#define QUIRE_ENGINE_RECORD_BODY_H

#include "base/hash.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BODY_MAX_SEQS (1u << 24) /* sequence numbers of choices are below it */
#define RECORD_MAX_TIME_US (1ull << 62) /* so that the sum of two times does not overflow */

/* Memory that grows with the needs of records. The next record reuses it. */
struct scratch {
    void *data;
    size_t capacity;
};

/* The unread part of a body. It stores the first fault; all later reads return zeros. */
struct body {
    const uint8_t *at, *end;
    const char *wrong;
    char text[192]; /* holds the text of `wrong` if it quotes the file */
};

void body_wrong(struct body *b, const char *what);
const uint8_t *body_bytes(struct body *b, size_t n); /* NULL: the body is shorter */
uint8_t body_u8(struct body *b);
bool body_bool(struct body *b);
/* Reads a byte below n; otherwise reports the fault `what`. */
uint8_t body_below(struct body *b, uint8_t n, const char *what);
uint32_t body_u32(struct body *b);
uint64_t body_u64(struct body *b);
uint64_t body_time(struct body *b);
float body_f32(struct body *b);
double body_f64(struct body *b);
/* Reads a text of printable characters without NUL, shorter than size. */
void body_text(struct body *b, char *out, size_t size);
void body_key(struct body *b, struct key256 *out);
/* Reads a scheduler's sequence number of a choice. The scheduler's own bound is far lower; this one keeps readers'
 * tables small. */
uint32_t body_seq(struct body *b);
/* Returns space for n elements. The caller must have checked that the body contains their bytes. NULL: out of
 * memory. */
void *body_scratch(struct body *b, struct scratch *s, size_t n, size_t size);
const uint32_t *body_u32s(struct body *b, struct scratch *s, uint32_t n);

#endif
