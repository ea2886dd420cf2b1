/* The errors that a client receives: an HTTP status and an OpenAI error object {"error":{message,type,param,code}}
 * with string codes, or the object of Anthropic, Ollama or llama.cpp on their own routes.
 *
 * The clients of both APIs retry 408, 409, 429 and 5xx. A request that would fail again gets another 4xx.
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
    char param[96];       /* "" is sent as null */
    const char *code;     /* static; NULL is sent as null */
    uint32_t retry_ms;    /* 429 and 503: when to retry */
    struct quire_error why;
};

/* Fills in e and returns false, so that a failing path is one line. param may be NULL. */
bool api_fail(struct api_error *e, int status, const char *param, const char *code, const char *format, ...)
    __attribute__((format(printf, 5, 6), cold));
/* 400 for a value that is wrong: the message is "param: why". */
bool api_bad(struct api_error *e, const char *param, const char *format, ...)
    __attribute__((format(printf, 3, 4), cold));
/* 400 for a well-formed request for a feature that is not implemented. */
bool api_unsupported(struct api_error *e, const char *param, const char *format, ...)
    __attribute__((format(printf, 3, 4), cold));
/* 503: out of memory. */
bool api_no_memory(struct api_error *e) __attribute__((cold));
/* Fills in e from a quire_status and the message in e->why. */
bool api_fail_status(struct api_error *e, int status, const char *param);

/* {"error":{...}} */
void api_error_json(struct buffer *o, const struct api_error *e);
/* {"type":"error","error":{type,message},"request_id"} */
void api_error_json_anthropic(struct buffer *o, const struct api_error *e, const char *request_id);
/* {"error":{code,message,type,param}} with the status as code, as in llama.cpp's server */
void api_error_json_llama_cpp(struct buffer *o, const struct api_error *e);
/* The http_note() of an exchange on one of llama.cpp's own routes. */
#define API_NOTE_LLAMA_CPP 1
/* Returns whether a path belongs to Anthropic's API: /v1/messages and the paths below it. */
bool api_is_anthropic(const char *path);
/* {"error":message} */
void api_error_json_ollama(struct buffer *o, const struct api_error *e);
/* Returns whether a path belongs to Ollama's API: those below /api/. */
bool api_is_ollama(const char *path);
/* Replies with e in the format of the request's API. Adds Retry-After if a time is set. */
void api_error_reply(struct http_exchange *x, const struct api_error *e);

#endif
