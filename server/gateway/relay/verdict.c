#include "server/gateway/relay/verdict.h"

#include <stdlib.h>
#include <string.h>

#define MAX_RETRY_S 3600

/* Codes that our own front end sends with a 5xx; an api_error has static ones. */
static const char *own_code(const char *code)
{
    static const char *const own[] = {"engine_unavailable", "server_draining", "out_of_memory", "internal_error",
                                      "deadline_exceeded"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strcmp(own[i], code) == 0)
            return own[i];
    return "upstream_error";
}

/* Of "Retry-After: 3". A date is not read. */
static uint32_t retry_ms(const char *header)
{
    char *end;
    if (!header)
        return 0;
    const double s = strtod(header, &end);
    if (end == header || !(s >= 0))
        return 0;
    return s > MAX_RETRY_S ? MAX_RETRY_S * 1000u : (uint32_t)(s * 1000);
}

static bool is_too_long(const struct events_facts *facts)
{
    return strcmp(facts->code, "context_length_exceeded") == 0 || strstr(facts->message, "maximum context length") ||
           strstr(facts->message, "prompt is too long");
}

static void no_reply(const struct verdict_reply *r, struct attempt_end *out)
{
    out->result = r->end == REMOTE_UNREACHED ? ATTEMPT_UNREACHED : ATTEMPT_FAILED;
    switch (r->end) {
    case REMOTE_UNREACHED:
        api_fail(&out->e, 502, NULL, "upstream_unreachable", "target %.60s cannot be reached: %.200s", r->target,
                 r->why);
        break;
    case REMOTE_TIMEOUT:
        api_fail(&out->e, 504, NULL, "upstream_timeout", "target %.60s: %.200s", r->target, r->why);
        break;
    case REMOTE_INVALID:
        api_fail(&out->e, 502, NULL, "upstream_invalid_reply", "target %.60s sent a reply that cannot be used: %.200s",
                 r->target, r->why);
        break;
    case REMOTE_WHOLE:
    case REMOTE_CUT:
        api_fail(&out->e, 502, NULL, "upstream_cut",
                 "target %.60s ended the connection before the end of its reply%s%.150s", r->target,
                 r->why[0] ? ": " : "", r->why);
        break;
    }
}

/* A 4xx without an error object, as other servers than OpenAI's send it, is the client's, too. */
static void rejected(const struct verdict_reply *r, const char *said, struct attempt_end *out)
{
    const bool is_long = is_too_long(&r->facts), lacks = !r->facts.is_error && (r->status == 404 || r->status == 405);
    out->result = lacks ? ATTEMPT_LACKS : is_long ? ATTEMPT_TOO_LONG : ATTEMPT_REJECTED;
    if (!r->facts.is_json)
        buffer_clear(out->reply);
    if (r->facts.is_error)
        api_fail(&out->e, r->status, NULL, is_long ? "context_length_exceeded" : "upstream_rejected", "%s", said);
    else
        api_fail(&out->e, r->status, NULL, "upstream_rejected", "target %.60s refused the request with status %d: %s",
                 r->target, r->status, said);
}

/* A whole reply with an error status. */
static void refused(const struct verdict_reply *r, struct attempt_end *out)
{
    const char *said = r->facts.is_error ? r->facts.message : "no error object";
    out->result = ATTEMPT_FAILED;
    if (r->status == 429) {
        out->result = ATTEMPT_OVERLOADED;
        out->retry_ms = retry_ms(r->retry_after);
        api_fail(&out->e, 429, NULL, "rate_limit_exceeded", "target %.60s is overloaded: %s", r->target, said);
        out->e.retry_ms = out->retry_ms > 0 ? out->retry_ms : 1000;
    } else if (r->status >= 500 && r->is_engine && r->facts.is_error) {
        api_fail(&out->e, r->status, NULL, own_code(r->facts.code), "%s", said);
        out->e.retry_ms = retry_ms(r->retry_after);
    } else if (r->status >= 300 && r->status < 400) {
        api_fail(&out->e, 502, NULL, "upstream_redirect",
                 "target %.60s redirects with status %d, which is not followed: "
                 "correct its url",
                 r->target, r->status);
    } else if (r->status == 401 || r->status == 403) {
        api_fail(&out->e, 502, NULL, "upstream_unauthorized",
                 "target %.60s refuses the gateway's key with status %d: %s", r->target, r->status, said);
    } else if (r->status >= 500 || r->status < 400 || (r->status == 408 && !r->facts.is_error)) {
        api_fail(&out->e, 502, NULL, "upstream_error", "target %.60s failed with status %d: %s", r->target, r->status,
                 said);
    } else {
        rejected(r, said, out);
    }
}

void verdict_of(const struct verdict_reply *r, struct attempt_end *out)
{
    out->status = r->status;
    out->retry_ms = 0;
    if (r->is_full) {
        out->result = ATTEMPT_FULL;
        api_fail(&out->e, 503, NULL, "server_overloaded",
                 "the gateway holds too many large replies that their clients have not read; try again later");
        out->e.retry_ms = 1000;
    } else if (r->wrong[0] && r->status == 200) {
        out->result = ATTEMPT_FAILED;
        api_fail(&out->e, 502, NULL, "upstream_invalid_reply", "target %.60s: %.250s", r->target, r->wrong);
    } else if (r->end != REMOTE_WHOLE) {
        no_reply(r, out);
    } else if (r->status != 200) {
        refused(r, out);
    } else {
        out->result = ATTEMPT_ANSWERED;
    }
}
