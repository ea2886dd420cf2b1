/* Frames at the port where ranks join, and the replies to the joining rank, as an attacker may send them. The first
 * byte selects the frame. Accepted values are within bounds, and are written again to the same bytes if no part of
 * the frame is left out. */
#include "fuzz.h"

#include "parallel/hosts/join_frame.h"

#include <stdlib.h>
#include <string.h>

static const struct key256 key = {{1, 2, 3}};

static void check_text(const char *text, size_t n)
{
    if (!memchr(text, 0, n))
        abort();
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || (unsigned char)*text > 0x7e)
            abort();
}

static int hello(const uint8_t *data, struct quire_error *err)
{
    struct join_hello h;
    unsigned char again[JOIN_HELLO_BYTES];
    int status = join_hello_read(data, &h, err);
    if (status != QUIRE_OK)
        return status;
    if (h.rank >= h.size || h.to >= h.size || h.size > COLLECTIVE_MAX_RANKS)
        abort();
    check_text(h.host, sizeof h.host);
    join_hello_write(&h, again);
    if (memcmp(again, data, 26) != 0 || memcmp(again + 32, data + 32, JOIN_NONCE_BYTES) != 0)
        abort();
    return QUIRE_OK;
}

static int table(const uint8_t *data, struct quire_error *err)
{
    struct sockaddr_storage addresses[COLLECTIVE_MAX_RANKS];
    int status = join_table_read(data, 4, addresses, err);
    for (uint32_t r = 1; r < 4 && status == QUIRE_OK; r++)
        if (addresses[r].ss_family != AF_INET && addresses[r].ss_family != AF_INET6)
            abort();
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const size_t sizes[] = {JOIN_HELLO_BYTES, JOIN_CHALLENGE_BYTES, JOIN_PROOF_BYTES, JOIN_WELCOME_BYTES,
                                   JOIN_TABLE_BYTES};
    static const unsigned char said[JOIN_HELLO_BYTES], challenge[JOIN_CHALLENGE_BYTES];
    struct quire_error err = {.text = ""};
    struct join_welcome welcome;
    unsigned char *copy;
    int status;
    if (n < 1 || n - 1 < sizes[data[0] % 5] || !(copy = malloc(sizes[data[0] % 5])))
        return 0;
    memcpy(copy, data + 1, sizes[data[0] % 5]);
    switch (data[0] % 5) {
    case 0: status = hello(copy, &err); break;
    case 1: status = join_challenge_read(copy, 3, &err); break;
    case 2: status = join_proof_check(&key, said, challenge, copy, &err); break;
    case 3:
        status = join_welcome_read(&key, said, challenge, copy, &welcome, &err);
        if (status == QUIRE_OK) {
            check_text(welcome.host, sizeof welcome.host);
            check_text(welcome.text, sizeof welcome.text);
        }
        break;
    default: status = table(copy, &err);
    }
    if ((status == QUIRE_OK) != !err.text[0])
        abort();
    check_text(err.text, sizeof err.text);
    free(copy);
    return 0;
}
