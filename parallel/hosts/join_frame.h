/* The handshake of two processes before they are ranks of one group: four frames of fixed size over a new connection,
 * by which each proves that it has the group's secret without sending it. Little-endian. Pure; any thread.
 *
 * The connecting side identifies itself (HELLO), gets a nonce (CHALLENGE) and answers with a MAC under the secret over
 * both (PROOF). Only then the other side proves itself, with its own MAC over both, a status and a text (WELCOME). A
 * caller without the secret receives only a nonce.
 *
 *     HELLO      0  u32 "QRJ1"  4 u16 version  6 u8 kind  7 u8 carrier  8 u32 rank  12 u32 size  16 u32 to
 *               20  u32 process  24 u16 port  26 u16 0  28 u32 0  32 nonce [32]  64 host [64]
 *     CHALLENGE  0  u32 "QRJ2"  4 u32 rank  8 nonce [32]
 *     PROOF      0  u32 "QRJ3"  4 u32 0  8 MAC [32]
 *     WELCOME    0  u32 "QRJ4"  4 u32 status  8 MAC [32]  40 u32 process  44 host [64]  108 text [212]
 *     TABLE      0  u32 "QRJ5"  4 u32 n  8 for each of 8 ranks: u16 family (0, 4, 6)  u16 port  address [16]
 *
 * Rank 0 sends a TABLE when all have come: the addresses at which they listen.
 */
#ifndef QUIRE_PARALLEL_HOSTS_JOIN_FRAME_H
#define QUIRE_PARALLEL_HOSTS_JOIN_FRAME_H

#include "base/hash.h"
#include "base/status.h"
#include "parallel/collective.h"

#include <netinet/in.h>
#include <stdbool.h>

#define JOIN_VERSION 1u

#define JOIN_HELLO_BYTES 128u
#define JOIN_CHALLENGE_BYTES 40u
#define JOIN_PROOF_BYTES 40u
#define JOIN_WELCOME_BYTES 320u
#define JOIN_TABLE_BYTES 168u
#define JOIN_HOST_BYTES 64u
#define JOIN_TEXT_BYTES 212u
#define JOIN_NONCE_BYTES 32u

enum join_kind { JOIN_CONTROL = 1, JOIN_DATA };
enum join_carrier { JOIN_BY_TCP = 1, JOIN_BY_MPI };

struct join_hello {
    enum join_kind kind;
    enum join_carrier carrier;
    uint32_t rank, size, to; /* the caller, the size of its group, the called rank */
    uint32_t process;
    uint16_t port; /* where it listens; 0: nowhere */
    unsigned char nonce[JOIN_NONCE_BYTES];
    char host[JOIN_HOST_BYTES]; /* printable; for messages */
};

struct join_welcome {
    enum quire_status status;
    uint32_t process;
    char host[JOIN_HOST_BYTES], text[JOIN_TEXT_BYTES]; /* printable */
};

void join_hello_write(const struct join_hello *hello, unsigned char to[JOIN_HELLO_BYTES]);
/* QUIRE_UNSUPPORTED: another version; err names both. QUIRE_INVALID: not a HELLO. */
int join_hello_read(const unsigned char from[JOIN_HELLO_BYTES], struct join_hello *out, struct quire_error *err);

/* Writes a fresh nonce. */
void join_challenge_write(uint32_t rank, unsigned char to[JOIN_CHALLENGE_BYTES]);
int join_challenge_read(const unsigned char from[JOIN_CHALLENGE_BYTES], uint32_t rank, struct quire_error *err);

void join_proof_write(const struct key256 *key, const unsigned char hello[JOIN_HELLO_BYTES],
                      const unsigned char challenge[JOIN_CHALLENGE_BYTES], unsigned char to[JOIN_PROOF_BYTES]);
int join_proof_check(const struct key256 *key, const unsigned char hello[JOIN_HELLO_BYTES],
                     const unsigned char challenge[JOIN_CHALLENGE_BYTES], const unsigned char from[JOIN_PROOF_BYTES],
                     struct quire_error *err);

/* For a caller that has proven membership. */
void join_welcome_write(const struct key256 *key, const unsigned char hello[JOIN_HELLO_BYTES],
                        const unsigned char challenge[JOIN_CHALLENGE_BYTES], const struct join_welcome *welcome,
                        unsigned char to[JOIN_WELCOME_BYTES]);
/* QUIRE_INVALID: not a WELCOME, or its sender does not have the secret. Other statuses are in *out. */
int join_welcome_read(const struct key256 *key, const unsigned char hello[JOIN_HELLO_BYTES],
                      const unsigned char challenge[JOIN_CHALLENGE_BYTES], const unsigned char from[JOIN_WELCOME_BYTES],
                      struct join_welcome *out, struct quire_error *err);

/* addresses: [n], by rank, IPv4 or IPv6; rank 0's entry is ignored. */
void join_table_write(const struct sockaddr_storage *addresses, uint32_t n, unsigned char to[JOIN_TABLE_BYTES]);
int join_table_read(const unsigned char from[JOIN_TABLE_BYTES], uint32_t n, struct sockaddr_storage *addresses,
                    struct quire_error *err);

#endif
