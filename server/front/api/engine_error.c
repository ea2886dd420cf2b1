/* Turns an engine's error into the error that the client receives. */
#include "server/front/front_internal.h"

#include <stdio.h>

/* The message is already in e->why. */
static void fail_as_said(struct api_error *e, int status, const char *parameter, size_t n_parameter)
{
    char param[64];
    bool named = n_parameter < sizeof param; /* otherwise the engine is of another release */
    snprintf(param, sizeof param, "%.*s", named ? (int)n_parameter : 0, n_parameter > 0 ? parameter : "");
    api_fail_status(e, status, param[0] ? param : NULL);
}

void front_refused(const struct served_model *m, const struct wire_refuse *refuse, struct api_error *e)
{
    snprintf(e->why.text, sizeof e->why.text, "%.*s", (int)refuse->n_message,
             refuse->n_message > 0 ? refuse->message : "");
    int status = refuse->status == QUIRE_OK ? QUIRE_INTERNAL : (int)refuse->status;
    if (status == QUIRE_IO)
        front_failed_with(m, status, e);
    else
        fail_as_said(e, status, refuse->parameter, refuse->n_parameter);
    if (status != QUIRE_EXHAUSTED)
        return;
    e->retry_ms = refuse->retry_after_ms > 0 ? refuse->retry_after_ms : 1000;
    if (upstream_state(m->upstream) == UPSTREAM_DRAINING || m->front->draining) {
        e->status = 503;
        e->code = "server_draining";
    }
}

void front_failed(const struct wire_done *done, struct api_error *e)
{
    if (done->n_message > 0)
        snprintf(e->why.text, sizeof e->why.text, "%.*s", (int)done->n_message, done->message);
    else
        snprintf(e->why.text, sizeof e->why.text, "the engine failed");
    fail_as_said(e, done->status ? (int)done->status : QUIRE_INTERNAL, done->parameter, done->n_parameter);
    if (done->retry_after_ms > 0)
        e->retry_ms = done->retry_after_ms;
}
