/* Test data for both stores. */
#ifndef QUIRE_TESTS_STORE_RIG_H
#define QUIRE_TESTS_STORE_RIG_H

#include "server/cache/store/store.h"

#include <time.h>

#define STORE_RIG_MOST_BYTES 70000u
#define STORE_RIG_PATIENCE_MS 60000u /* for what happens at once, unless the machine is busy */

struct key256 key_of(uint32_t i);
/* Bytes that tell their key: what is torn or another's shows. */
size_t fill(uint32_t i, uint8_t out[STORE_RIG_MOST_BYTES]);
/* Stores the answer of key i, without a scope. */
void put_made(struct answer_store *s, uint32_t i, uint32_t ttl_s, time_t created_s);
void put(struct answer_store *s, uint32_t i, uint32_t ttl_s); /* now */

#endif
