#include "server/gateway/relay/repeat.h"

#include "base/encoding/utf8.h"
#include "text/quire_json.h"

#include <string.h>

#define MAX_EVENT 4096
#define MAX_MISSES 8

/* The text of the only choice of a chat's or a completion's event; empty if it has no such form. */
static struct quire_value text_of(const struct quire_doc *doc)
{
    struct quire_value rest = quire_doc_field(doc, "choices"), choice;
    const struct quire_value none = {NULL, 0};
    if (quire_value_kind(rest) != QUIRE_ARRAY || quire_value_count(rest) != 1 ||
        !quire_value_next(&rest, NULL, &choice) || quire_value_kind(choice) != QUIRE_OBJECT)
        return none;
    const struct quire_value delta = quire_value_member(choice, "delta");
    const struct quire_value text = quire_value_kind(delta) == QUIRE_OBJECT ? quire_value_member(delta, "content")
                                                                            : quire_value_member(choice, "text");
    return quire_value_kind(text) == QUIRE_STRING && text.n > 2 ? text : none;
}

void repeat_learn(struct repeat *r, const char *data, size_t n, const struct events_facts *facts)
{
    struct quire_doc *doc;
    if (r->n_misses >= MAX_MISSES || n > MAX_EVENT || !facts->has_token || facts->has_finish || facts->has_usage ||
        facts->is_error || memchr(data, '\n', n) || memchr(data, '\r', n))
        return;
    r->n_misses++;
    buffer_clear(&r->event);
    if (buffer_append(&r->event, data, n) != QUIRE_OK ||
        quire_doc_open(r->event.data, n, 64, "an event", &doc, NULL) != QUIRE_OK) {
        buffer_clear(&r->event);
        return;
    }
    const struct quire_value text = text_of(doc);
    if (text.n > 0) {
        r->text_at = (size_t)(text.text - r->event.data) + 1;
        r->text_end = r->text_at + text.n - 2;
    } else {
        buffer_clear(&r->event);
    }
    quire_doc_close(doc);
}

/* Whether bytes may stand in a JSON string as they are. A \u needs more care than it is worth. */
static bool is_string_part(const char *text, size_t n)
{
    bool is_ascii = true;
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)text[i];
        if (c < 32 || c == '"')
            return false;
        is_ascii &= c < 128;
        if (c == '\\' && (++i == n || !strchr("\"\\/bfnrt", text[i]) || !text[i]))
            return false;
    }
    for (size_t i = 0; i < n && !is_ascii;) {
        const size_t size = utf8_character((const uint8_t *)text + i, n - i);
        if (size == 0)
            return false;
        i += size;
    }
    return true;
}

bool repeat_is(struct repeat *r, const char *data, size_t n)
{
    const size_t n_behind = r->event.n - r->text_end;
    if (r->event.n == 0 || n <= r->text_at + n_behind || n > MAX_EVENT)
        return false;
    if (memcmp(data, r->event.data, r->text_at) != 0 ||
        memcmp(data + n - n_behind, r->event.data + r->text_end, n_behind) != 0 ||
        !is_string_part(data + r->text_at, n - n_behind - r->text_at))
        return false;
    r->n_misses = 0;
    return true;
}

void repeat_free(struct repeat *r)
{
    buffer_free(&r->event);
}
