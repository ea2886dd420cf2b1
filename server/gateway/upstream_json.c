#include "server/gateway/upstream_json.h"

#include "base/buffer.h"
#include "base/encoding/json.h"
#include "base/encoding/utf8.h"

#include <stdlib.h>

/* A tree of it takes up to 16 times as much memory. */
#define MAX_REWRITTEN_BYTES (4u << 20)

/* A copy with U+FFFD for bytes that are not UTF-8: some servers cut a character between two events. */
static char *mend_characters(const char *text, size_t n, size_t *n_out)
{
    struct buffer o = {0};
    for (size_t at = 0, len; at < n; at += len ? len : 1) {
        len = utf8_character((const uint8_t *)text + at, n - at);
        buffer_append(&o, len ? text + at : "\xef\xbf\xbd", len ? len : 3);
    }
    *n_out = o.n;
    return buffer_text(&o) ? o.data : (buffer_free(&o), NULL);
}

/* The text as JSON that quire_doc_open() reads; NULL: it is not JSON, or memory is short. */
static char *rewrite(const char *text, size_t n_bytes, const char *what)
{
    size_t n = 0;
    json_t *tree = NULL;
    char *mended = mend_characters(text, n_bytes, &n), *out = NULL;
    if (mended && quire_json_parse_python(mended, n, what, &tree, NULL) == QUIRE_OK)
        out = json_dumps(tree, JSON_COMPACT | JSON_ENCODE_ANY);
    json_decref(tree);
    free(mended);
    return out;
}

int upstream_json_open(const char *text, size_t n_bytes, const char *what, struct upstream_json *out,
                       struct quire_error *err)
{
    *out = (struct upstream_json){0};
    int status = quire_doc_open(text, n_bytes, UPSTREAM_JSON_MAX_DEPTH, what, &out->doc, err);
    if (status != QUIRE_INVALID || n_bytes > MAX_REWRITTEN_BYTES)
        return status;
    out->rewritten = rewrite(text, n_bytes, what);
    if (!out->rewritten)
        return status;
    status = quire_doc_open(out->rewritten, strlen(out->rewritten), UPSTREAM_JSON_MAX_DEPTH, what, &out->doc, err);
    if (status != QUIRE_OK)
        upstream_json_close(out);
    return status;
}

void upstream_json_close(struct upstream_json *j)
{
    quire_doc_close(j->doc);
    free(j->rewritten);
    *j = (struct upstream_json){0};
}
