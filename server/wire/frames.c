/* Headers, and the frames that have few fields. */
#include "server/wire/decode.h"
#include "server/wire/encode.h"
#include "server/wire/fields.h"
#include "server/wire/frame.h"

#include <string.h>

static const struct {
    const char *name;
    bool has_request;
} types[] = {
    [WIRE_HELLO] = {"HELLO", false},    [WIRE_SUBMIT] = {"SUBMIT", true},
    [WIRE_ACCEPT] = {"ACCEPT", true},   [WIRE_REFUSE] = {"REFUSE", true},
    [WIRE_TOKENS] = {"TOKENS", true},   [WIRE_PROMPT_LOGPROBS] = {"PROMPT_LOGPROBS", true},
    [WIRE_DONE] = {"DONE", true},       [WIRE_CANCEL] = {"CANCEL", true},
    [WIRE_CREDIT] = {"CREDIT", false},  [WIRE_CONTROL] = {"CONTROL", false},
    [WIRE_STATS] = {"STATS", false},    [WIRE_DRAIN] = {"DRAIN", false},
    [WIRE_ERROR] = {"ERROR", false},    [WIRE_VECTOR] = {"VECTOR", true},
    [WIRE_PREDICT] = {"PREDICT", true}, [WIRE_HIT_REPORT] = {"HIT_REPORT", false},
};

static bool known_type(uint16_t type)
{
    return type >= WIRE_HELLO && type <= WIRE_HIT_REPORT;
}

const char *wire_type_name(uint16_t type)
{
    return known_type(type) ? types[type].name : "frame of unknown type";
}

int wire_header_read(const void *bytes, size_t n, struct wire_header *out, struct quire_error *err)
{
    const uint8_t *data = bytes;
    if (n < WIRE_HEADER_BYTES)
        return 0;
    uint16_t flags = le_load_u16(data + 6);
    out->body_bytes = le_load_u32(data);
    out->type = le_load_u16(data + 4);
    out->request = le_load_u64(data + 8);
    if (!known_type(out->type))
        return -quire_fail(err, QUIRE_INVALID, "header: type: %u is not a frame type", out->type);
    if (flags != 0)
        return -quire_fail(err, QUIRE_INVALID, "%s: flags: must be zero, got %u", types[out->type].name, flags);
    if (out->body_bytes > WIRE_MAX_BODY)
        return -quire_fail(err, QUIRE_INVALID, "%s: length: at most %u, got %u", types[out->type].name, WIRE_MAX_BODY,
                           out->body_bytes);
    /* REFUSE also answers CONTROL, which belongs to no request. */
    if (!types[out->type].has_request && out->request != 0)
        return -quire_fail(err, QUIRE_INVALID, "%s: request id: must be zero", types[out->type].name);
    if (types[out->type].has_request && out->request == 0 && out->type != WIRE_REFUSE)
        return -quire_fail(err, QUIRE_INVALID, "%s: request id: must not be zero", types[out->type].name);
    return 1;
}

uint32_t wire_u32(const void *bytes, size_t index)
{
    return le_load_u32((const uint8_t *)bytes + 4 * index);
}

float wire_f32(const void *bytes, size_t index)
{
    uint32_t bits = wire_u32(bytes, index);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* ---- REFUSE ---- */

static const struct wire_field refuse_rules[] = {
    FIELD_SCALAR(struct wire_refuse, status, 1, FIELD_32, FIELD_REQUIRED | FIELD_MUST, 0),
    FIELD_SCALAR(struct wire_refuse, retry_after_ms, 2, FIELD_32, 0, 0),
    FIELD_SPAN(struct wire_refuse, message, 3, FIELD_TEXT, 0, WIRE_MAX_TEXT),
    FIELD_SPAN(struct wire_refuse, parameter, 4, FIELD_TEXT, 0, WIRE_MAX_TEXT),
};
static const struct wire_refuse refuse_defaults;
static const struct wire_body refuse_body = {"REFUSE", refuse_rules, FIELD_COUNT(refuse_rules), &refuse_defaults,
                                             sizeof refuse_defaults};

int wire_put_refuse(struct buffer *b, uint64_t request, const struct wire_refuse *refuse)
{
    return wire_put_body(b, WIRE_REFUSE, request, &refuse_body, refuse);
}

int wire_get_refuse(const uint8_t *body, size_t n, struct wire_refuse *out, struct quire_error *err)
{
    return wire_get_body(&refuse_body, body, n, out, err);
}

/* ---- CANCEL ---- */

struct cancel {
    bool has_choice;
    uint32_t choice;
};
static const struct wire_field cancel_rules[] = {
    FIELD_OPTIONAL(struct cancel, choice, 1, FIELD_32, FIELD_MUST),
};
static const struct cancel cancel_defaults;
static const struct wire_body cancel_body = {"CANCEL", cancel_rules, FIELD_COUNT(cancel_rules), &cancel_defaults,
                                             sizeof cancel_defaults};

int wire_put_cancel(struct buffer *b, uint64_t request, int64_t choice)
{
    if (choice > UINT32_MAX)
        return QUIRE_INVALID;
    struct cancel cancel = {.has_choice = choice >= 0, .choice = choice >= 0 ? (uint32_t)choice : 0};
    return wire_put_body(b, WIRE_CANCEL, request, &cancel_body, &cancel);
}

int wire_get_cancel(const uint8_t *body, size_t n, int64_t *choice, struct quire_error *err)
{
    struct cancel cancel;
    int status = wire_get_body(&cancel_body, body, n, &cancel, err);
    if (!status)
        *choice = cancel.has_choice ? (int64_t)cancel.choice : -1;
    return status;
}

/* ---- CREDIT ---- */

struct credit {
    uint64_t bytes;
};
static const struct wire_field credit_rules[] = {
    FIELD_SCALAR(struct credit, bytes, 1, FIELD_64, FIELD_REQUIRED | FIELD_MUST, 0),
};
static const struct credit credit_defaults;
static const struct wire_body credit_body = {"CREDIT", credit_rules, FIELD_COUNT(credit_rules), &credit_defaults,
                                             sizeof credit_defaults};

int wire_put_credit(struct buffer *b, uint64_t n_bytes)
{
    struct credit credit = {.bytes = n_bytes};
    return wire_put_body(b, WIRE_CREDIT, 0, &credit_body, &credit);
}

int wire_get_credit(const uint8_t *body, size_t n, uint64_t *n_bytes, struct quire_error *err)
{
    struct credit credit;
    int status = wire_get_body(&credit_body, body, n, &credit, err);
    if (!status)
        *n_bytes = credit.bytes;
    return status;
}

/* ---- CONTROL ---- */

struct control {
    const char *command;
    size_t n_command;
};
static const struct wire_field control_rules[] = {
    FIELD_SPAN(struct control, command, 1, FIELD_TEXT, FIELD_REQUIRED | FIELD_MUST, WIRE_MAX_TEXT),
};
static const struct control control_defaults;
static const struct wire_body control_body = {"CONTROL", control_rules, FIELD_COUNT(control_rules), &control_defaults,
                                              sizeof control_defaults};

int wire_put_control(struct buffer *b, const char *command)
{
    struct control control = {.command = command, .n_command = strlen(command)};
    return wire_put_body(b, WIRE_CONTROL, 0, &control_body, &control);
}

int wire_get_control(const uint8_t *body, size_t n, const char **command, size_t *n_command, struct quire_error *err)
{
    struct control control;
    int status = wire_get_body(&control_body, body, n, &control, err);
    if (status)
        return status;
    *command = control.command;
    *n_command = control.n_command;
    return QUIRE_OK;
}

/* ---- HIT_REPORT ---- */

static const struct wire_field hit_report_rules[] = {
    {"served", 1, FIELD_WORDS, FIELD_REQUIRED | FIELD_MUST, offsetof(struct wire_hit_report, served),
     offsetof(struct wire_hit_report, n_served), offsetof(struct wire_hit_report, words), 3, WIRE_MAX_SERVED},
};
static const struct wire_hit_report hit_report_defaults;
static const struct wire_body hit_report_body = {"HIT_REPORT", hit_report_rules, FIELD_COUNT(hit_report_rules),
                                                 &hit_report_defaults, sizeof hit_report_defaults};

int wire_put_hit_report(struct buffer *b, const struct wire_hit_report *report)
{
    return wire_put_body(b, WIRE_HIT_REPORT, 0, &hit_report_body, report);
}

int wire_get_hit_report(const uint8_t *body, size_t n, struct wire_hit_report *out, struct quire_error *err)
{
    return wire_get_body(&hit_report_body, body, n, out, err);
}

/* ---- ERROR ---- */

struct error {
    uint32_t status;
    const char *message;
    size_t n_message;
};
static const struct wire_field error_rules[] = {
    FIELD_SCALAR(struct error, status, 1, FIELD_32, FIELD_REQUIRED, 0),
    FIELD_SPAN(struct error, message, 2, FIELD_TEXT, 0, WIRE_MAX_TEXT),
};
static const struct error error_defaults;
static const struct wire_body error_body = {"ERROR", error_rules, FIELD_COUNT(error_rules), &error_defaults,
                                            sizeof error_defaults};

int wire_put_error(struct buffer *b, uint32_t status, const char *message)
{
    struct error error = {.status = status, .message = message, .n_message = strlen(message)};
    return wire_put_body(b, WIRE_ERROR, 0, &error_body, &error);
}

int wire_get_error(const uint8_t *body, size_t n, uint32_t *status, const char **message, size_t *n_message,
                   struct quire_error *err)
{
    struct error error;
    int code = wire_get_body(&error_body, body, n, &error, err);
    if (code)
        return code;
    *status = error.status;
    *message = error.message;
    *n_message = error.n_message;
    return QUIRE_OK;
}

/* ---- ACCEPT ---- */

struct accept {
    uint64_t id;
};
static const struct wire_field accept_rules[] = {
    FIELD_SCALAR(struct accept, id, 1, FIELD_64, 0, 0),
};
static const struct accept accept_defaults;
static const struct wire_body accept_body = {"ACCEPT", accept_rules, FIELD_COUNT(accept_rules), &accept_defaults,
                                             sizeof accept_defaults};

int wire_put_accept(struct buffer *b, uint64_t request, uint64_t id)
{
    struct accept accept = {.id = id};
    return wire_put_body(b, WIRE_ACCEPT, request, &accept_body, &accept);
}

int wire_get_accept(const uint8_t *body, size_t n, uint64_t *id, struct quire_error *err)
{
    struct accept accept;
    int status = wire_get_body(&accept_body, body, n, &accept, err);
    if (!status)
        *id = accept.id;
    return status;
}

/* ---- DRAIN ---- */

static const struct wire_body drain_body = {"DRAIN", NULL, 0, "", 0};

int wire_put_drain(struct buffer *b)
{
    return wire_put_body(b, WIRE_DRAIN, 0, &drain_body, NULL);
}

int wire_get_drain(const uint8_t *body, size_t n, struct quire_error *err)
{
    char nothing;
    return wire_get_body(&drain_body, body, n, &nothing, err);
}
