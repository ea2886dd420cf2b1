/* What a client is told when its request cannot be served: an HTTP status and an OpenAI error
 * object {"error":{message,type,param,code}} with string codes, or Anthropic's on its own routes.
 *
 * Both their clients retry 408, 409, 429 and 5xx: what would fail again is a 4xx of another number.
 */
#ifndef QUIRE_FRONT_API_ERROR_H
#define QUIRE_FRONT_API_ERROR_H

#include "base/status.h"
#include "server/front/output/json_out.h"

#include <stdbool.h>
#include <stdint.h>

struct http_exchange;

struct api_error {
    int status;
    char param[96];       /* "" = null */
    const char *code;     /* static; NULL = null */
    uint32_t retry_ms;    /* 429 and 503: when to come back */
    struct quire_error why;
};

/* Fills in e and returns false, so that a failing path is one line. param may be NULL. */
bool api_fail(struct api_error *e, int status, const char *param, const char *code, const char *format, ...)
    __attribute__((format(printf, 5, 6), cold));
/* 400 for a value that is wrong: the message is "param: why". */
bool api_bad(struct api_error *e, const char *param, const char *format, ...)
    __attribute__((format(printf, 3, 4), cold));
/* 400 for what is well formed but not built. */
bool api_unsupported(struct api_error *e, const char *param, const char *format, ...)
    __attribute__((format(printf, 3, 4), cold));
/* From a status of ours and the message in e->why. */
bool api_fail_status(struct api_error *e, int status, const char *param);

/* {"error":{...}} */
void api_error_json(struct buffer *o, const struct api_error *e);
/* {"type":"error","error":{type,message},"request_id"} */
void api_error_json_anthropic(struct buffer *o, const struct api_error *e, const char *request_id);
/* Whether a path is of Anthropic's API: /v1/messages and what is below it. */
bool api_is_anthropic(const char *path);
/* Replies with it as the API of the request's path has it, with Retry-After where there is a time. */
void api_error_reply(struct http_exchange *x, const struct api_error *e);

#endif
