/* Lines of batches, and bodies of message batches. The first byte selects: a line of OpenAI's (o), one of a batch of chats
 * (c), one of Anthropic's (a), or a body of POST /v1/messages/batches (s). An accepted line consists of spans of the text
 * that are JSON; an error has a reason in plain text. A body becomes the same lines in whatever pieces it arrives, and each
 * accepted one is a line. */
#include "tests/fuzz/fuzz.h"

#include "server/bulk/run/line.h"
#include "server/bulk/upload/split.h"
#include "text/quire_json.h"

#include <stdlib.h>
#include <string.h>

static void check_json(const char *text, size_t n, enum quire_kind kind)
{
    struct quire_doc *doc;
    if (quire_doc_open(text, n, BULK_MAX_DEPTH, "a part", &doc, NULL) != QUIRE_OK)
        abort();
    if (quire_value_kind(quire_doc_root(doc)) != kind)
        abort();
    quire_doc_close(doc);
}

static bool is_within(const char *part, size_t n_part, const char *text, size_t n)
{
    return part >= text && n_part <= n && part + n_part <= text + n;
}

static void check_error(const struct quire_error *err)
{
    if (!err->text[0] || strlen(err->text) >= sizeof err->text)
        abort();
}

static void try_line(const char *text, size_t n, enum bulk_dialect dialect, const char *url)
{
    struct bulk_line line;
    struct quire_error err = {.text = ""};
    const int status = bulk_line_read(text, n, dialect, url, &line, &err);
    if (line.custom_id) {
        if (!is_within(line.custom_id, line.n_custom_id, text, n) || line.n_custom_id > BULK_MAX_CUSTOM_ID ||
            line.n_custom_id < 3)
            abort();
        check_json(line.custom_id, line.n_custom_id, QUIRE_STRING);
    }
    if (status != QUIRE_OK) {
        check_error(&err);
        return;
    }
    if (!line.custom_id || !line.url || (url && strcmp(line.url, url) != 0) ||
        !is_within(line.body, line.n_body, text, n))
        abort();
    check_json(line.body, line.n_body, QUIRE_OBJECT);
}

/* The status, and the lines so far. */
static int split(const char *text, size_t n, size_t piece, struct buffer *lines)
{
    struct bulk_split *s;
    struct quire_error err = {.text = ""};
    if (bulk_split_open(&s, &err) != QUIRE_OK)
        abort();
    int status = QUIRE_OK;
    for (size_t at = 0; at < n && status == QUIRE_OK; at += piece)
        status = bulk_split_feed(s, text + at, n - at < piece ? n - at : piece, lines, &err);
    if (status == QUIRE_OK)
        status = bulk_split_end(s, &err);
    if (status != QUIRE_OK)
        check_error(&err);
    bulk_split_close(s);
    return status;
}

static void try_body(const char *text, size_t n)
{
    struct buffer whole = {0}, pieces = {0};
    const int status = split(text, n, n, &whole);
    if (split(text, n, 1, &pieces) != status || pieces.n != whole.n ||
        (whole.n && memcmp(pieces.data, whole.data, whole.n)))
        abort();
    for (size_t at = 0; status == QUIRE_OK && at < whole.n;) {
        const char *end = memchr(whole.data + at, '\n', whole.n - at);
        if (!end)
            abort();
        try_line(whole.data + at, (size_t)(end - whole.data) - at, BULK_ANTHROPIC, BULK_MESSAGES_URL);
        at = (size_t)(end - whole.data) + 1;
    }
    buffer_free(&whole);
    buffer_free(&pieces);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const char *text = (const char *)data + 1;
    if (n < 2)
        return 0;
    switch (data[0]) {
    case 'o': try_line(text, n - 1, BULK_OPENAI, NULL); break;
    case 'c': try_line(text, n - 1, BULK_OPENAI, bulk_endpoint(0)); break;
    case 'a': try_line(text, n - 1, BULK_ANTHROPIC, BULK_MESSAGES_URL); break;
    case 's': try_body(text, n - 1); break;
    default: break;
    }
    return 0;
}
