/* Heads of messages, and signs of life, as a peer may send them: what is accepted is within bounds and written again to the same
 * bytes; every error is one line of text. The first byte says which of the two. */
#include "fuzz.h"

#include "parallel/collective.h"
#include "parallel/hosts/message.h"

#include <stdlib.h>
#include <string.h>

static void check_text(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || (unsigned char)*text > 0x7e)
            abort();
}

static void read_head(const uint8_t *data)
{
    struct quire_error err = {.text = ""};
    struct message_head head;
    unsigned char again[MESSAGE_HEAD_BYTES];
    int status = message_read(data, &head, &err);
    if ((status == QUIRE_OK) != !err.text[0])
        abort();
    check_text(err.text);
    if (status != QUIRE_OK)
        return;
    if (head.n_payload > MESSAGE_MAX_BYTES || head.group > COLLECTIVE_MAX_PARTS ||
        head.call.root >= COLLECTIVE_MAX_RANKS)
        abort();
    message_write(&head, again);
    if (memcmp(again, data, sizeof again) != 0)
        abort();
}

/* A stream of them, cut where it ends. */
static void read_signs(const uint8_t *data, size_t n)
{
    struct quire_error err = {.text = ""};
    struct sign sign;
    unsigned char again[SIGN_MAX_BYTES];
    for (size_t used = 1; used > 0; data += used, n -= used) {
        int status = sign_read(data, n, &sign, &used, &err);
        if ((status == QUIRE_OK) != !err.text[0] || used > n || (status != QUIRE_OK && used > 0))
            abort();
        check_text(err.text);
        if (used == 0)
            return;
        check_text(sign.text);
        if (sign.rank != SIGN_NOBODY && sign.rank >= COLLECTIVE_MAX_RANKS)
            abort();
        if (sign_write(&sign, again) > used || memcmp(again, data, 6) != 0)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    unsigned char *copy;
    if (n < 2 || (data[0] % 2 == 0 && n - 1 < MESSAGE_HEAD_BYTES) || !(copy = malloc(n - 1)))
        return 0;
    memcpy(copy, data + 1, n - 1);
    if (data[0] % 2 == 0)
        read_head(copy);
    else
        read_signs(copy, n - 1);
    free(copy);
    return 0;
}
