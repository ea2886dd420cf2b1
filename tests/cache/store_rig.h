/* What the tests of both stores put into them. */
#ifndef QUIRE_TESTS_STORE_RIG_H
#define QUIRE_TESTS_STORE_RIG_H

#include "server/cache/store.h"

#define STORE_RIG_MOST_BYTES 70000u

struct key256 key_of(uint32_t i);
/* Bytes that tell their key: what is torn or another's shows. */
size_t fill(uint32_t i, uint8_t out[STORE_RIG_MOST_BYTES]);
/* The answer of key i, of nobody's scope, made in_s seconds from now. */
void put_made(struct answer_store *s, uint32_t i, uint32_t ttl_s, int in_s);
void put(struct answer_store *s, uint32_t i, uint32_t ttl_s); /* now */

#endif
