#include "engine/record/sections.h"

#include "base/encoding/tagged.h"
#include "engine/record/recording.h"

#include <stdio.h>

/* In ascending order of tags from 1. A replay without one of these values would plan other steps. */
#define OF_CONFIG(kind_, member_, tag_, ...) \
    {.member = #member_, \
     .name = #member_, \
     .kind = kind_, \
     .tag = tag_, \
     .flags = REQUEST_MUST, \
     .at = offsetof(struct sched_config, member_), \
     __VA_ARGS__}
#define SIZE_OF(c) OF_CONFIG(REQUEST_U32, class_batch_size[c], 1 + (c), .range = {0})
#define WAIT_OF(c) OF_CONFIG(REQUEST_U64, class_wait_us[c], 9 + (c), .range = {.most = REQUEST_MAX_US})
#define SINKS_OF(g) OF_CONFIG(REQUEST_U32, kv.groups[g].sinks, 18 + (g), .range = {0})

static const struct request_field header_rows[] = {
    SIZE_OF(0),
    SIZE_OF(1),
    SIZE_OF(2),
    SIZE_OF(3),
    SIZE_OF(4),
    SIZE_OF(5),
    SIZE_OF(6),
    SIZE_OF(7),
    WAIT_OF(0),
    WAIT_OF(1),
    WAIT_OF(2),
    WAIT_OF(3),
    WAIT_OF(4),
    WAIT_OF(5),
    WAIT_OF(6),
    WAIT_OF(7),
    OF_CONFIG(REQUEST_BOOL, adaptive_batches, 17, .range = {0}),
    SINKS_OF(0),
    SINKS_OF(1),
    SINKS_OF(2),
    SINKS_OF(3),
};
_Static_assert(SCHED_MAX_CLASSES == 8, "a row for each class");
_Static_assert(KV_MAX_GROUPS == 4, "a row for each KV group");
static const struct sched_config no_config;
const struct request_layout record_header_sections = {.rows = header_rows,
                                                      .n_rows = sizeof header_rows / sizeof header_rows[0],
                                                      .defaults = &no_config,
                                                      .struct_bytes = sizeof no_config};

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
