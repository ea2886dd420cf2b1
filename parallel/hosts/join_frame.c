#include "parallel/hosts/join_frame.h"

#include "base/encoding/little_endian.h"
#include "parallel/hosts/message.h"

#include <string.h>

#define MAGIC_HELLO 0x314a5251u /* "QRJ1" */
#define MAGIC_CHALLENGE 0x324a5251u
#define MAGIC_PROOF 0x334a5251u
#define MAGIC_WELCOME 0x344a5251u
#define MAGIC_TABLE 0x354a5251u

#define MAC_AT 8
#define MAC_BYTES 32
#define ENTRY_BYTES 20

static int check_magic(const unsigned char *from, uint32_t magic, const char *name, struct quire_error *err)
{
    if (le_load_u32(from) == magic)
        return QUIRE_OK;
    return quire_fail(err, QUIRE_INVALID, "%s: wrong magic number 0x%08x", name, le_load_u32(from));
}

/* ---- HELLO and CHALLENGE ---- */

void join_hello_write(const struct join_hello *hello, unsigned char to[JOIN_HELLO_BYTES])
{
    memset(to, 0, JOIN_HELLO_BYTES);
    le_store_u32(to, MAGIC_HELLO);
    le_store_u16(to + 4, JOIN_VERSION);
    to[6] = (unsigned char)hello->kind;
    to[7] = (unsigned char)hello->carrier;
    le_store_u32(to + 8, hello->rank);
    le_store_u32(to + 12, hello->size);
    le_store_u32(to + 16, hello->to);
    le_store_u32(to + 20, hello->process);
    le_store_u16(to + 24, hello->port);
    memcpy(to + 32, hello->nonce, JOIN_NONCE_BYTES);
    memcpy(to + 64, hello->host, strnlen(hello->host, JOIN_HOST_BYTES - 1));
}

int join_hello_read(const unsigned char from[JOIN_HELLO_BYTES], struct join_hello *out, struct quire_error *err)
{
    int status = check_magic(from, MAGIC_HELLO, "hello", err);
    if (status != QUIRE_OK)
        return status;
    if (le_load_u16(from + 4) != JOIN_VERSION)
        return quire_fail(err, QUIRE_UNSUPPORTED, "hello: version %u is not supported; this program uses version %u",
                          le_load_u16(from + 4), JOIN_VERSION);
    *out = (struct join_hello){.kind = (enum join_kind)from[6],
                               .carrier = (enum join_carrier)from[7],
                               .rank = le_load_u32(from + 8),
                               .size = le_load_u32(from + 12),
                               .to = le_load_u32(from + 16),
                               .process = le_load_u32(from + 20),
                               .port = le_load_u16(from + 24)};
    memcpy(out->nonce, from + 32, JOIN_NONCE_BYTES);
    message_print(out->host, sizeof out->host, (const char *)from + 64, JOIN_HOST_BYTES);
    if (out->kind != JOIN_CONTROL && out->kind != JOIN_DATA)
        return quire_fail(err, QUIRE_INVALID, "hello: kind: %u is unknown", from[6]);
    if (out->carrier != JOIN_BY_TCP && out->carrier != JOIN_BY_MPI)
        return quire_fail(err, QUIRE_INVALID, "hello: carrier: %u is unknown", from[7]);
    if (out->size > COLLECTIVE_MAX_RANKS || out->rank >= out->size || out->to >= out->size)
        return quire_fail(err, QUIRE_INVALID, "hello: rank: %u of %u, to %u", out->rank, out->size, out->to);
    return QUIRE_OK;
}

void join_challenge_write(uint32_t rank, unsigned char to[JOIN_CHALLENGE_BYTES])
{
    le_store_u32(to, MAGIC_CHALLENGE);
    le_store_u32(to + 4, rank);
    quire_random(to + 8, JOIN_NONCE_BYTES);
}

int join_challenge_read(const unsigned char from[JOIN_CHALLENGE_BYTES], uint32_t rank, struct quire_error *err)
{
    int status = check_magic(from, MAGIC_CHALLENGE, "challenge", err);
    if (status == QUIRE_OK && le_load_u32(from + 4) != rank)
        status = quire_fail(err, QUIRE_INVALID, "challenge: from rank %u, but rank %u was called",
                            le_load_u32(from + 4), rank);
    return status;
}

/* ---- MACs ---- */

/* MAC of `label` (16 bytes, different for the two sides), everything that both have sent so far, and the new data. */
static struct key256 mac_of(const struct key256 *key, const char *label, const unsigned char *hello,
                            const unsigned char *challenge, const unsigned char *said, size_t n)
{
    unsigned char all[16 + JOIN_HELLO_BYTES + JOIN_CHALLENGE_BYTES + JOIN_WELCOME_BYTES];
    memcpy(all, label, 16);
    memcpy(all + 16, hello, JOIN_HELLO_BYTES);
    memcpy(all + 16 + JOIN_HELLO_BYTES, challenge, JOIN_CHALLENGE_BYTES);
    memcpy(all + 16 + JOIN_HELLO_BYTES + JOIN_CHALLENGE_BYTES, said, n);
    return quire_keyed_hash(key, all, 16 + JOIN_HELLO_BYTES + JOIN_CHALLENGE_BYTES + n);
}

#define LABEL_PROOF "quire rank join\n"
#define LABEL_WELCOME "quire rank here\n"

void join_proof_write(const struct key256 *key, const unsigned char hello[JOIN_HELLO_BYTES],
                      const unsigned char challenge[JOIN_CHALLENGE_BYTES], unsigned char to[JOIN_PROOF_BYTES])
{
    le_store_u32(to, MAGIC_PROOF);
    le_store_u32(to + 4, 0);
    const struct key256 mac = mac_of(key, LABEL_PROOF, hello, challenge, to, MAC_AT);
    memcpy(to + MAC_AT, mac.bytes, MAC_BYTES);
}

int join_proof_check(const struct key256 *key, const unsigned char hello[JOIN_HELLO_BYTES],
                     const unsigned char challenge[JOIN_CHALLENGE_BYTES], const unsigned char from[JOIN_PROOF_BYTES],
                     struct quire_error *err)
{
    int status = check_magic(from, MAGIC_PROOF, "proof", err);
    const struct key256 mac = mac_of(key, LABEL_PROOF, hello, challenge, from, MAC_AT);
    if (status == QUIRE_OK && !quire_secret_equal(from + MAC_AT, mac.bytes, MAC_BYTES))
        status = quire_fail(err, QUIRE_INVALID, "proof: the peer has another group secret (QUIRE_GROUP_SECRET)");
    return status;
}

/* ---- WELCOME ---- */

/* The MAC covers everything except itself. */
static struct key256 mac_of_welcome(const struct key256 *key, const unsigned char *hello,
                                    const unsigned char *challenge, const unsigned char *welcome)
{
    unsigned char said[JOIN_WELCOME_BYTES];
    memcpy(said, welcome, JOIN_WELCOME_BYTES);
    memset(said + MAC_AT, 0, MAC_BYTES);
    return mac_of(key, LABEL_WELCOME, hello, challenge, said, sizeof said);
}

void join_welcome_write(const struct key256 *key, const unsigned char hello[JOIN_HELLO_BYTES],
                        const unsigned char challenge[JOIN_CHALLENGE_BYTES], const struct join_welcome *welcome,
                        unsigned char to[JOIN_WELCOME_BYTES])
{
    memset(to, 0, JOIN_WELCOME_BYTES);
    le_store_u32(to, MAGIC_WELCOME);
    le_store_u32(to + 4, welcome->status);
    le_store_u32(to + 40, welcome->process);
    memcpy(to + 44, welcome->host, strnlen(welcome->host, JOIN_HOST_BYTES - 1));
    memcpy(to + 108, welcome->text, strnlen(welcome->text, JOIN_TEXT_BYTES - 1));
    const struct key256 mac = mac_of_welcome(key, hello, challenge, to);
    memcpy(to + MAC_AT, mac.bytes, MAC_BYTES);
}

int join_welcome_read(const struct key256 *key, const unsigned char hello[JOIN_HELLO_BYTES],
                      const unsigned char challenge[JOIN_CHALLENGE_BYTES], const unsigned char from[JOIN_WELCOME_BYTES],
                      struct join_welcome *out, struct quire_error *err)
{
    int status = check_magic(from, MAGIC_WELCOME, "welcome", err);
    if (status != QUIRE_OK)
        return status;
    const struct key256 mac = mac_of_welcome(key, hello, challenge, from);
    if (!quire_secret_equal(from + MAC_AT, mac.bytes, MAC_BYTES))
        return quire_fail(err, QUIRE_INVALID, "welcome: the peer has another group secret (QUIRE_GROUP_SECRET)");
    if (le_load_u32(from + 4) > QUIRE_UNAVAILABLE)
        return quire_fail(err, QUIRE_INVALID, "welcome: status: %u is unknown", le_load_u32(from + 4));
    out->status = (enum quire_status)le_load_u32(from + 4);
    out->process = le_load_u32(from + 40);
    message_print(out->host, sizeof out->host, (const char *)from + 44, JOIN_HOST_BYTES);
    message_print(out->text, sizeof out->text, (const char *)from + 108, JOIN_TEXT_BYTES);
    return QUIRE_OK;
}

/* ---- TABLE ---- */

void join_table_write(const struct sockaddr_storage *addresses, uint32_t n, unsigned char to[JOIN_TABLE_BYTES])
{
    memset(to, 0, JOIN_TABLE_BYTES);
    le_store_u32(to, MAGIC_TABLE);
    le_store_u32(to + 4, n);
    for (uint32_t r = 1; r < n; r++) {
        unsigned char *at = to + 8 + ENTRY_BYTES * r;
        const struct sockaddr_in *four = (const struct sockaddr_in *)(const void *)&addresses[r];
        const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)(const void *)&addresses[r];
        const bool is_six = addresses[r].ss_family == AF_INET6;
        le_store_u16(at, is_six ? 6 : 4);
        le_store_u16(at + 2, ntohs(is_six ? six->sin6_port : four->sin_port));
        if (is_six)
            memcpy(at + 4, &six->sin6_addr, 16);
        else
            memcpy(at + 4, &four->sin_addr, 4);
    }
}

int join_table_read(const unsigned char from[JOIN_TABLE_BYTES], uint32_t n, struct sockaddr_storage *addresses,
                    struct quire_error *err)
{
    int status = check_magic(from, MAGIC_TABLE, "table", err);
    if (status == QUIRE_OK && le_load_u32(from + 4) != n)
        status = quire_fail(err, QUIRE_INVALID, "table: has %u ranks, must have %u", le_load_u32(from + 4), n);
    memset(addresses, 0, n * sizeof *addresses);
    for (uint32_t r = 1; r < n && status == QUIRE_OK; r++) {
        const unsigned char *at = from + 8 + ENTRY_BYTES * r;
        struct sockaddr_in *four = (struct sockaddr_in *)(void *)&addresses[r];
        struct sockaddr_in6 *six = (struct sockaddr_in6 *)(void *)&addresses[r];
        if (le_load_u16(at) != 4 && le_load_u16(at) != 6)
            return quire_fail(err, QUIRE_INVALID, "table: family: %u of rank %u is unknown", le_load_u16(at), r);
        if (le_load_u16(at) == 6) {
            six->sin6_family = AF_INET6;
            six->sin6_port = htons(le_load_u16(at + 2));
            memcpy(&six->sin6_addr, at + 4, 16);
        } else {
            four->sin_family = AF_INET;
            four->sin_port = htons(le_load_u16(at + 2));
            memcpy(&four->sin_addr, at + 4, 4);
        }
    }
    return status;
}
