#include "text/quire_chat.h"
#include "server/front/prompt_identity.h"

/* Changes when a release renders or tokenizes the same files in another way. */
static const char label[] = "quire prompt 1";

static void add_number(struct quire_sha256_state *s, bool has, double value)
{
    const uint8_t there = has;
    const double said = has ? value : 0;
    quire_sha256_add(s, &there, sizeof there);
    quire_sha256_add(s, &said, sizeof said);
}

_Static_assert(sizeof(struct sampling_defaults) == 48, "a new default belongs into prompt_identity()");

struct key256 prompt_identity(const struct quire_text *text, const struct sampling_defaults *defaults,
                              enum quire_specials specials_in_messages, int tool_format, int reasoning_format,
                              bool keeps_billing_header, bool flexible_whitespace)
{
    const uint8_t how[4] = {(uint8_t)specials_in_messages, (uint8_t)tool_format, (uint8_t)reasoning_format,
                            (uint8_t)(keeps_billing_header | flexible_whitespace << 1)};
    struct quire_sha256_state s;
    struct key256 files = {{0}};
    if (text)
        quire_text_digest(text, files.bytes);
    quire_sha256_begin(&s);
    quire_sha256_add(&s, label, sizeof label);
    quire_sha256_add(&s, files.bytes, sizeof files.bytes);
    quire_sha256_add(&s, how, sizeof how);
    add_number(&s, defaults->has_temperature, defaults->temperature);
    add_number(&s, defaults->has_top_p, defaults->top_p);
    add_number(&s, defaults->has_min_p, defaults->min_p);
    add_number(&s, defaults->has_repetition_penalty, defaults->repetition_penalty);
    add_number(&s, defaults->has_top_k, defaults->top_k);
    return quire_sha256_now(&s);
}
