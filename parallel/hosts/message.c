#include "parallel/hosts/message.h"

#include "base/encoding/little_endian.h"
#include "parallel/collective.h"

#include <string.h>

#define MESSAGE_MAGIC 0x314d5251u /* "QRM1" */
#define SIGN_MAGIC 0x31535251u /* "QRS1" */

void message_write(const struct message_head *head, unsigned char to[MESSAGE_HEAD_BYTES])
{
    le_store_u32(to, MESSAGE_MAGIC);
    le_store_u16(to + 4, head->group);
    le_store_u16(to + 6, head->call.operation);
    le_store_u32(to + 8, head->call.number);
    le_store_u16(to + 12, head->call.root);
    le_store_u16(to + 14, 0);
    le_store_u64(to + 16, head->call.n_bytes);
    le_store_u32(to + 24, head->n_payload);
    le_store_u32(to + 28, 0);
}

int message_read(const unsigned char from[MESSAGE_HEAD_BYTES], struct message_head *out, struct quire_error *err)
{
    *out = (struct message_head){.call = {.number = le_load_u32(from + 8),
                                          .operation = le_load_u16(from + 6),
                                          .root = le_load_u16(from + 12),
                                          .n_bytes = le_load_u64(from + 16)},
                                 .group = le_load_u16(from + 4),
                                 .n_payload = le_load_u32(from + 24)};
    if (le_load_u32(from) != MESSAGE_MAGIC)
        return quire_fail(err, QUIRE_INVALID, "message: wrong magic number 0x%08x", le_load_u32(from));
    if (out->group > COLLECTIVE_MAX_PARTS)
        return quire_fail(err, QUIRE_INVALID, "message: group: must be below %u, got %u", out->group,
                          COLLECTIVE_MAX_PARTS);
    if (out->call.operation < MESSAGE_ALL_REDUCE || out->call.operation > MESSAGE_BARRIER)
        return quire_fail(err, QUIRE_INVALID, "message: operation: %u is unknown", out->call.operation);
    if (out->call.root >= COLLECTIVE_MAX_RANKS)
        return quire_fail(err, QUIRE_INVALID, "message: root: rank %u does not exist", out->call.root);
    if (out->n_payload > MESSAGE_MAX_BYTES)
        return quire_fail(err, QUIRE_INVALID, "message: has %u bytes, at most %u are allowed", out->n_payload,
                          MESSAGE_MAX_BYTES);
    if (out->n_payload > out->call.n_bytes)
        return quire_fail(err, QUIRE_INVALID, "message: has %u bytes of a call with %llu bytes", out->n_payload,
                          (unsigned long long)out->call.n_bytes);
    if (le_load_u16(from + 14) != 0 || le_load_u32(from + 28) != 0)
        return quire_fail(err, QUIRE_INVALID, "message: reserved bytes must be 0");
    return QUIRE_OK;
}

void message_print(char *to, size_t n, const char *text, size_t n_text)
{
    size_t i = 0;
    for (; i < n_text && i + 1 < n && text[i]; i++)
        to[i] = text[i] >= 0x20 && text[i] < 0x7f ? text[i] : '?';
    to[i] = 0;
}

size_t sign_write(const struct sign *sign, unsigned char to[SIGN_MAX_BYTES])
{
    size_t n = strlen(sign->text);
    n = n < SIGN_MAX_TEXT ? n : SIGN_MAX_TEXT;
    le_store_u32(to, SIGN_MAGIC);
    to[4] = (unsigned char)sign->kind;
    to[5] = (unsigned char)sign->status;
    le_store_u16(to + 6, (uint32_t)n);
    le_store_u64(to + 8, sign->work_ns);
    memset(to + 16, 0, 8);
    to[16] = (unsigned char)(sign->rank + 1); /* 0 for SIGN_NOBODY */
    memcpy(to + SIGN_HEAD_BYTES, sign->text, n);
    return SIGN_HEAD_BYTES + n;
}

int sign_read(const unsigned char *from, size_t n, struct sign *out, size_t *used, struct quire_error *err)
{
    *used = 0;
    if (n < SIGN_HEAD_BYTES)
        return QUIRE_OK;
    const size_t n_text = le_load_u16(from + 6);
    if (le_load_u32(from) != SIGN_MAGIC)
        return quire_fail(err, QUIRE_INVALID, "sign: wrong magic number 0x%08x", le_load_u32(from));
    if (from[4] < SIGN_ALIVE || from[4] > SIGN_ENDS)
        return quire_fail(err, QUIRE_INVALID, "sign: kind: %u is unknown", from[4]);
    if (n_text > SIGN_MAX_TEXT || (n_text > 0 && from[4] != SIGN_ENDS))
        return quire_fail(err, QUIRE_INVALID, "sign: has %zu bytes of text, at most %u are allowed", n_text,
                          from[4] == SIGN_ENDS ? SIGN_MAX_TEXT : 0);
    if (from[5] != (from[4] != SIGN_ENDS ? QUIRE_OK : from[5] == QUIRE_INVALID ? QUIRE_INVALID : QUIRE_UNAVAILABLE))
        return quire_fail(err, QUIRE_INVALID, "sign: status: %u does not match kind %u", from[5], from[4]);
    for (size_t i = 16; i < SIGN_HEAD_BYTES; i++)
        if (from[i] > (i == 16 ? COLLECTIVE_MAX_RANKS : 0))
            return quire_fail(err, QUIRE_INVALID, "sign: rank: %u does not exist", from[i]);
    if (n < SIGN_HEAD_BYTES + n_text)
        return QUIRE_OK;
    out->kind = (enum sign_kind)from[4];
    out->status = (enum quire_status)from[5];
    out->work_ns = le_load_u64(from + 8);
    out->rank = from[16] ? from[16] - 1u : SIGN_NOBODY;
    message_print(out->text, sizeof out->text, (const char *)from + SIGN_HEAD_BYTES, n_text);
    *used = SIGN_HEAD_BYTES + n_text;
    return QUIRE_OK;
}
