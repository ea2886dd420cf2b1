#include "server/front/fields/field_report.h"

#include "base/clock.h"
#include "base/log.h"
#include "server/http/http.h"

#include <stdio.h>
#include <string.h>

#define LINES_PER_MINUTE 20

void field_log_init(struct field_log *log)
{
    *log = (struct field_log){.n_left_out = 0};
    bucket_init(&log->lines, LINES_PER_MINUTE, quire_now_us());
}

static size_t n_shown(const struct field_notes *notes)
{
    return notes->n < FIELD_NOTES_SHOWN ? notes->n : FIELD_NOTES_SHOWN;
}

/* Returns whether there is a text: "and 3 more". */
static bool put_more(const struct field_notes *notes, char out[48])
{
    const bool is_cut = notes->n == FIELD_NOTES_MOST;
    snprintf(out, 48, "and %s%zu more", is_cut ? "at least " : "", notes->n - n_shown(notes));
    return notes->n > n_shown(notes);
}

static void write_line(struct field_log *log, const struct http_exchange *x, const struct field_notes *notes)
{
    char client[HTTP_ADDRESS_BYTES], more[48], text[FIELD_NOTES_SHOWN * (FIELD_NOTE_BYTES + 2) + sizeof more] = "";
    size_t n = 0;
    for (size_t i = 0; i < n_shown(notes); i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", i > 0 ? "; " : "", notes->texts[i]);
    if (put_more(notes, more))
        snprintf(text + n, sizeof text - n, "; %s", more);
    http_client(x, client);
    struct quire_log_field fields[] = {
        {.key = "request_id", .text = http_request_id(x)},
        {.key = "client", .text = client},
        {.key = "route", .text = http_path(x)},
        {.key = "lines_left_out", .number = (double)log->n_left_out},
    };
    const size_t n_fields = sizeof fields / sizeof *fields - (log->n_left_out == 0);
    quire_log_fields(QUIRE_LOG_WARN, "server", fields, n_fields, "%s", text);
    log->n_left_out = 0;
}

void field_report(struct field_log *log, struct http_exchange *x, const struct field_notes *notes)
{
    char more[48];
    for (size_t i = 0; i < n_shown(notes); i++)
        http_add_header(x, "x-quire-warning", notes->texts[i]);
    if (put_more(notes, more))
        http_add_header(x, "x-quire-warning", more);
    if (bucket_take(&log->lines, 1, quire_now_us()))
        write_line(log, x, notes);
    else
        log->n_left_out++;
}
