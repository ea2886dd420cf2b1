/* The shared key of a connection: read from a file, and proven without sending it (protocol.md). Any thread. */
#ifndef QUIRE_SERVER_WIRE_KEY_H
#define QUIRE_SERVER_WIRE_KEY_H

#include "base/hash.h"
#include "base/status.h"

#include <stdint.h>

#define WIRE_NONCE_BYTES 32

/* key = BLAKE2b-256 of the file's bytes without trailing spaces, tabs and line ends. The file has 16 to 4,096 bytes;
 * a file that users outside the owner and the group may read is rejected. QUIRE_NOT_FOUND, QUIRE_INVALID, QUIRE_IO. */
int wire_key_read(const char *path, struct key256 *key, struct quire_error *err);

enum wire_key_role { WIRE_KEY_FRONT, WIRE_KEY_ENGINE };
/* Returns the bytes with which `role` proves that it has the key. */
struct key256 wire_key_proof(const struct key256 *key, enum wire_key_role role,
                             const uint8_t engine_nonce[WIRE_NONCE_BYTES], const uint8_t front_nonce[WIRE_NONCE_BYTES]);

#endif
