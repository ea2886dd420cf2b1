/* The messages between ranks of different hosts, as bytes. Everything is little-endian. Pure; any thread.
 *
 * Data of collectives: a head of 32 bytes, then at most MESSAGE_MAX_BYTES of the call's data.
 *
 *     0  u32  "QRM1"          8  u32  number of the call     16  u64  bytes of the call
 *     4  u16  group           12 u16  root                   24  u32  bytes that follow
 *     6  u16  operation       14 u16  0                      28  u32  0
 *
 * Signs, of life and of the end: a head of 24 bytes, then at most SIGN_MAX_TEXT bytes of text for an end.
 *
 *     0  u32  "QRS1"          6  u16  bytes of text                          16  u8   rank + 1
 *     4  u8   kind            8  u64  time worked, in ns                     17  0
 *     5  u8   status
 *
 * Both come from a peer that has proven membership and are checked nevertheless: QUIRE_INVALID names the wrong field.
 */
#ifndef QUIRE_PARALLEL_HOSTS_MESSAGE_H
#define QUIRE_PARALLEL_HOSTS_MESSAGE_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

#define MESSAGE_HEAD_BYTES 32u
#define MESSAGE_MAX_BYTES (128u << 10)

enum message_operation {
    MESSAGE_ALL_REDUCE = 1,
    MESSAGE_ALL_GATHER,
    MESSAGE_GATHER,
    MESSAGE_BROADCAST,
    MESSAGE_BARRIER
};

/* A call, the same at every rank of its group. */
struct message_call {
    uint32_t number; /* calls of the group so far, modulo 2^32 */
    uint16_t operation, root;
    uint64_t n_bytes;
};

struct message_head {
    struct message_call call;
    uint16_t group; /* 0: all ranks; otherwise 1 + the part */
    uint32_t n_payload;
};

void message_write(const struct message_head *head, unsigned char to[MESSAGE_HEAD_BYTES]);
int message_read(const unsigned char from[MESSAGE_HEAD_BYTES], struct message_head *out, struct quire_error *err);

/* ---- signs ---- */

#define SIGN_HEAD_BYTES 24u
#define SIGN_MAX_TEXT 320u
#define SIGN_MAX_BYTES (SIGN_HEAD_BYTES + SIGN_MAX_TEXT)

enum sign_kind { SIGN_ALIVE = 1, SIGN_LEAVES, SIGN_ENDS };

#define SIGN_NOBODY UINT32_MAX

struct sign {
    enum sign_kind kind;
    enum quire_status status; /* of an end: QUIRE_INVALID or QUIRE_UNAVAILABLE */
    uint64_t work_ns; /* of a sign of life: never decreases */
    uint32_t rank; /* of an end: the rank that caused it; of a sign of life: the rank it waits for; SIGN_NOBODY: none */
    char text[SIGN_MAX_TEXT + 1]; /* printable */
};

/* Longer text is truncated. Returns the number of bytes. */
size_t sign_write(const struct sign *sign, unsigned char to[SIGN_MAX_BYTES]);
/* Reads the first sign of n bytes; *used: its bytes, 0 if more must arrive. */
int sign_read(const unsigned char *from, size_t n, struct sign *out, size_t *used, struct quire_error *err);

/* Copies at most n - 1 bytes of text and terminates it; characters other than printable ASCII become '?'. */
void message_print(char *to, size_t n, const char *text, size_t n_text);

#endif
