#include "server/gateway/upstream_json.h"

#include "base/encoding/json.h"

#include <stdlib.h>

int upstream_json_open(const char *text, size_t n_bytes, const char *what, struct upstream_json *out,
                       struct quire_error *err)
{
    json_t *tree;
    *out = (struct upstream_json){0};
    int status = quire_doc_open(text, n_bytes, UPSTREAM_JSON_MAX_DEPTH, what, &out->doc, err);
    if (status != QUIRE_INVALID || quire_json_parse_python(text, n_bytes, what, &tree, NULL) != QUIRE_OK)
        return status;
    out->rewritten = json_dumps(tree, JSON_COMPACT | JSON_ENCODE_ANY);
    json_decref(tree);
    if (!out->rewritten)
        return quire_fail(err, QUIRE_NO_MEMORY, "%s: out of memory", what);
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
