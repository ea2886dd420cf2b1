#include "server/front/api/api_error.h"

#include "server/http/http.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void set(struct api_error *e, int status, const char *param, const char *code)
{
    e->status = status;
    e->code = code;
    e->retry_ms = 0;
    snprintf(e->param, sizeof e->param, "%s", param ? param : "");
}

bool api_fail(struct api_error *e, int status, const char *param, const char *code, const char *format, ...)
{
    va_list args;
    set(e, status, param, code);
    va_start(args, format);
    vsnprintf(e->why.text, sizeof e->why.text, format, args);
    va_end(args);
    return false;
}

static bool fail_param(struct api_error *e, const char *param, const char *code, const char *format, va_list args)
{
    set(e, 400, param, code);
    int n = snprintf(e->why.text, sizeof e->why.text, "%s: ", param);
    if (n > 0 && (size_t)n < sizeof e->why.text)
        vsnprintf(e->why.text + n, sizeof e->why.text - (size_t)n, format, args);
    return false;
}

bool api_bad(struct api_error *e, const char *param, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fail_param(e, param, "invalid_value", format, args);
    va_end(args);
    return false;
}

bool api_unsupported(struct api_error *e, const char *param, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fail_param(e, param, "unsupported_parameter", format, args);
    va_end(args);
    return false;
}

bool api_no_memory(struct api_error *e)
{
    return api_fail(e, 503, NULL, "out_of_memory", "out of memory");
}

bool api_fail_status(struct api_error *e, int status, const char *param)
{
    switch ((enum quire_status)status) {
    case QUIRE_INVALID: set(e, 400, param, "invalid_value"); break;
    case QUIRE_UNSUPPORTED: set(e, 400, param, "unsupported_parameter"); break;
    case QUIRE_NOT_FOUND: set(e, 404, param, "not_found"); break;
    case QUIRE_EXHAUSTED:
        set(e, 429, param, "rate_limit_exceeded");
        e->retry_ms = 1000;
        break;
    case QUIRE_IO:
    case QUIRE_UNAVAILABLE:
        set(e, 503, param, "engine_unavailable");
        e->retry_ms = 1000;
        break;
    case QUIRE_NO_MEMORY:
        set(e, 503, param, "out_of_memory");
        e->retry_ms = 1000;
        break;
    case QUIRE_OK:
    case QUIRE_INTERNAL: set(e, 500, param, "internal_error"); break;
    }
    return false;
}

static const char *type_of(int status)
{
    if (status == 429)
        return "rate_limit_error";
    return status >= 500 ? "server_error" : "invalid_request_error";
}

void api_error_json(struct buffer *o, const struct api_error *e)
{
    json_out_raw(o, "{\"error\":{\"message\":");
    json_out_text(o, e->why.text);
    json_out_raw(o, ",\"type\":");
    json_out_text(o, type_of(e->status));
    json_out_raw(o, ",\"param\":");
    json_out_text_or_null(o, e->param[0] ? e->param : NULL);
    json_out_raw(o, ",\"code\":");
    json_out_text_or_null(o, e->code);
    json_out_raw(o, "}}");
}

static const char *anthropic_type_of(int status)
{
    switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    case 503: return "overloaded_error";
    }
    return status >= 500 ? "api_error" : "invalid_request_error";
}

void api_error_json_anthropic(struct buffer *o, const struct api_error *e, const char *request_id)
{
    json_out_raw(o, "{\"type\":\"error\",\"error\":{\"type\":");
    /* Agents shorten their chat after an error with Anthropic's words. */
    const bool too_long = e->code && strcmp(e->code, "context_length_exceeded") == 0;
    char text[sizeof e->why.text + 24];
    snprintf(text, sizeof text, "%s%s", too_long ? "prompt is too long: " : "", e->why.text);
    json_out_text(o, anthropic_type_of(e->status));
    json_out_raw(o, ",\"message\":");
    json_out_text(o, text);
    json_out_raw(o, "},\"request_id\":");
    json_out_text(o, request_id);
    json_out_raw(o, "}");
}

bool api_is_anthropic(const char *path)
{
    static const char root[] = "/v1/messages";
    const size_t n = sizeof root - 1;
    return strncmp(path, root, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

void api_error_json_ollama(struct buffer *o, const struct api_error *e)
{
    json_out_raw(o, "{\"error\":");
    json_out_text(o, e->why.text);
    json_out_raw(o, "}");
}

bool api_is_ollama(const char *path)
{
    return strncmp(path, "/api/", 5) == 0;
}

static const char *llama_cpp_type_of(const struct api_error *e)
{
    if (e->code && strcmp(e->code, "context_length_exceeded") == 0)
        return "exceed_context_size_error";
    switch (e->status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    case 501: return "not_supported_error";
    case 503: return "unavailable_error";
    }
    return e->status >= 500 ? "server_error" : "invalid_request_error";
}

void api_error_json_llama_cpp(struct buffer *o, const struct api_error *e)
{
    json_out_raw(o, "{\"error\":{\"code\":");
    json_out_i64(o, e->status);
    json_out_raw(o, ",\"message\":");
    json_out_text(o, e->why.text);
    json_out_raw(o, ",\"type\":");
    json_out_text(o, llama_cpp_type_of(e));
    json_out_raw(o, ",\"param\":");
    json_out_text_or_null(o, e->param[0] ? e->param : NULL);
    json_out_raw(o, "}}");
}

void api_error_reply(struct http_exchange *x, const struct api_error *e)
{
    struct buffer o = {0};
    const char *path = http_path(x); /* NULL: the head of the request could not be parsed */
    if (e->retry_ms > 0) {
        char text[16];
        snprintf(text, sizeof text, "%u", e->retry_ms / 1000 + (e->retry_ms % 1000 > 0));
        http_add_header(x, "Retry-After", text);
        snprintf(text, sizeof text, "%u", e->retry_ms);
        http_add_header(x, "retry-after-ms", text);
    }
    if (e->status == 401)
        http_add_header(x, "WWW-Authenticate", "Bearer");
    if (path && api_is_anthropic(path))
        api_error_json_anthropic(&o, e, http_request_id(x));
    else if (path && api_is_ollama(path))
        api_error_json_ollama(&o, e);
    else if (http_note(x) == API_NOTE_LLAMA_CPP)
        api_error_json_llama_cpp(&o, e);
    else
        api_error_json(&o, e);
    http_reply(x, e->status, "application/json", o.failed ? "{}" : o.data, o.failed ? 2 : o.n);
    buffer_free(&o);
}
