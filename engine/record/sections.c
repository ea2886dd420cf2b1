#include "engine/record/sections.h"

#include "base/encoding/tagged.h"
#include "engine/record/recording.h"

#include <stdio.h>

/* Add rows here, in ascending order of tags from 1. There are no rows after the fixed part yet. */
static const struct recording_header no_header;
const struct request_layout record_header_sections = {.defaults = &no_header, .struct_bytes = sizeof no_header};

static const struct recording_submit no_submit;
const struct request_layout record_submit_sections = {.defaults = &no_submit, .struct_bytes = sizeof no_submit};

/* Tag 0 is not a section: zeros after the fixed part are an error of the writer. */
static bool has_tag_0(const struct body *b)
{
    struct tagged t;
    size_t cursor = 0, n = (size_t)(b->end - b->at);
    while (tagged_next("sections", b->at, n, &cursor, &t, NULL) > 0)
        if (t.tag == 0)
            return true;
    return false;
}

void record_sections_read(struct body *b, const struct request_layout *layout, void *out)
{
    static const struct request_layout no_rows;
    struct quire_error err = {0};
    if (b->wrong)
        return;
    if (!layout)
        layout = &no_rows;
    if (has_tag_0(b)) {
        body_wrong(b, "is longer than its fields");
        return;
    }
    int status = request_layout_get("sections", layout, b->at, (size_t)(b->end - b->at), out, &err);
    if (status == QUIRE_OK)
        status = request_layout_check(layout, out, UINT32_MAX, &err);
    b->at = b->end;
    if (status == QUIRE_OK)
        return;
    snprintf(b->text, sizeof b->text,
             status == QUIRE_UNSUPPORTED ? "needs a newer program: %s"
                                         : "is longer than its fields, or has a wrong section: %s",
             err.text);
    body_wrong(b, b->text);
}
