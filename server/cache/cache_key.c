#include "server/cache/cache_key.h"

#include "base/encoding/little_endian.h"
#include "request/fields.h"

#include <string.h>

static const char label[] = "quire answer key 1";
/* Changes when a release matches the same grammar in another way: other tokens may then be allowed. */
static const char grammars[] = "grammars 1";

static void add(struct quire_sha256_state *s, uint16_t tag, const void *bytes, size_t n)
{
    uint8_t head[10];
    le_store_u16(head, tag);
    le_store_u64(head + 2, n);
    quire_sha256_add(s, head, sizeof head);
    if (n > 0)
        quire_sha256_add(s, bytes, n);
}

/* Every field that can change a bit, in the order of its tags. A field that is absent hashes like its default. An
 * optional number (the seed) adds no bytes if it is absent. */
static bool add_fields(struct quire_sha256_state *s, const struct request_spec *spec)
{
    size_t n_bytes = 0;
    for (size_t i = 0; i < request_n_fields; i++) {
        const struct request_field *f = &request_fields[i];
        if (!(f->flags & REQUEST_DRAWS))
            continue;
        if (request_field_is_list(f)) {
            const struct request_list list = request_field_list(f, spec);
            const size_t n = list.n * request_field_bytes(f);
            n_bytes += n;
            if (n_bytes > CACHE_KEY_MAX_BYTES)
                return false;
            add(s, f->tag, list.items, n);
        } else {
            const bool there = !f->has_at || !request_field_is_default(f, spec);
            add(s, f->tag, (const char *)spec + f->at, there ? request_field_bytes(f) : 0);
        }
    }
    return true;
}

bool cache_key(const struct key256 *identity, const struct request_spec *spec, const struct completion_terms *terms,
               struct key256 *out)
{
    struct quire_sha256_state s;
    quire_sha256_begin(&s);
    quire_sha256_add(&s, label, sizeof label);
    quire_sha256_add(&s, identity->bytes, sizeof identity->bytes);
    quire_sha256_add(&s, terms->domain.bytes, sizeof terms->domain.bytes);
    quire_sha256_add(&s, terms->cut.bytes, sizeof terms->cut.bytes);
    if (spec->n_grammar > 0)
        quire_sha256_add(&s, grammars, sizeof grammars);
    if (!add_fields(&s, spec))
        return false;
    *out = quire_sha256_now(&s);
    return true;
}
