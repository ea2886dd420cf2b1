/* A record's body, read field by field. Nothing of it is believed: what is wrong is said, not read past. For the reader's
 * files; nobody else includes this. One thread at a time. */
#ifndef QUIRE_ENGINE_RECORD_BODY_H
#define QUIRE_ENGINE_RECORD_BODY_H

#include "base/hash.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BODY_MAX_SEQS (1u << 24) /* names of choices are below it */
#define RECORD_MAX_TIME_US (1ull << 62) /* so that sums of two times stay times */

/* Memory that grows with what records need, and is used again by the next one. */
struct scratch {
    void *data;
    size_t capacity;
};

/* What is left of a body. The first thing that is wrong is kept, and everything after it reads as
 * zeros. */
struct body {
    const uint8_t *at, *end;
    const char *wrong;
    char text[192]; /* of `wrong` where it names something found in the file */
};

void body_wrong(struct body *b, const char *what);
const uint8_t *body_bytes(struct body *b, size_t n); /* NULL: it is shorter */
uint8_t body_u8(struct body *b);
bool body_bool(struct body *b);
/* A byte below n; else `what` is wrong. */
uint8_t body_below(struct body *b, uint8_t n, const char *what);
uint32_t body_u32(struct body *b);
uint64_t body_u64(struct body *b);
uint64_t body_time(struct body *b);
float body_f32(struct body *b);
double body_f64(struct body *b);
/* Printable, without a NUL, shorter than size. */
void body_text(struct body *b, char *out, size_t size);
void body_key(struct body *b, struct key256 *out);
/* A scheduler's name for a choice. Its own bound lies far below this one, which keeps readers' tables small. */
uint32_t body_seq(struct body *b);
/* Room for n elements whose bytes in the body are known to be there; NULL: out of memory. */
void *body_room(struct body *b, struct scratch *s, size_t n, size_t size);
const uint32_t *body_u32s(struct body *b, struct scratch *s, uint32_t n);

#endif
