/* CONTROL: a name and words in plain text; protocol.md lists them. The reply comes after the engine has carried out
 * the command, from the engine's thread. */
#include "engine/engine.h"
#include "server/daemon/connection.h"
#include "server/daemon/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_WORDS 32
#define MAX_ANSWERS 256 /* per connection, waiting for the end of a step */

/* A reply, held until the engine has carried out the earlier commands and this one. */
struct control_answer {
    TAILQ_ENTRY(control_answer) link;
    struct connection *c;
    uint64_t order;
    struct buffer frame;
};
struct control_answers {
    TAILQ_HEAD(, control_answer) waiting; /* in ascending `order` */
    uint64_t orders_given, orders_done;
};

int control_open(struct daemon *d)
{
    d->answers = calloc(1, sizeof *d->answers);
    if (!d->answers)
        return QUIRE_NO_MEMORY;
    TAILQ_INIT(&d->answers->waiting);
    return QUIRE_OK;
}

void control_close(struct daemon *d)
{
    free(d->answers);
}

/* ---- values ---- */

/* Reads a decimal integer of at most max. */
static int read_number(const char *key, const char *text, uint64_t max, uint64_t *out, struct quire_error *err)
{
    char *end = NULL;
    errno = 0;
    if (*text >= '0' && *text <= '9')
        *out = strtoull(text, &end, 10);
    if (!end || *end != '\0' || errno != 0 || *out > max)
        return quire_fail(err, QUIRE_INVALID, "CONTROL: %s: must be a number of at most %llu, got \"%.40s\"", key,
                          (unsigned long long)max, text);
    return QUIRE_OK;
}

/* Reads at most ENGINE_MAX_CLASSES numbers, separated by commas; the others stay 0. */
static int read_classes(const char *key, char *text, uint64_t max, uint64_t out[ENGINE_MAX_CLASSES],
                        struct quire_error *err)
{
    uint32_t n = 0;
    int status = QUIRE_OK;
    for (char *at = text; at && !status; n++) {
        char *comma = strchr(at, ',');
        if (comma)
            *comma = '\0';
        if (n == ENGINE_MAX_CLASSES)
            return quire_fail(err, QUIRE_INVALID, "CONTROL: %s: at most %u numbers", key, ENGINE_MAX_CLASSES);
        status = read_number(key, at, max, &out[n], err);
        at = comma ? comma + 1 : NULL;
    }
    return status;
}

static int read_option(char *word, struct engine_policy_options *o, struct quire_error *err)
{
    const uint64_t most_ms = UINT64_MAX / 1000000;
    uint64_t classes[ENGINE_MAX_CLASSES] = {0}, number = 0;
    char *value = strchr(word, '=');
    if (!value)
        return quire_fail(err, QUIRE_INVALID, "CONTROL: \"%.40s\": must be KEY=VALUE", word);
    *value++ = '\0';
    int status;
    if (strcmp(word, "ageing_ms") == 0) {
        status = read_number(word, value, most_ms, &number, err);
        o->ageing_us = number * 1000;
    } else if (strcmp(word, "prompt_price") == 0) {
        status = read_number(word, value, UINT32_MAX, &number, err);
        o->prompt_price = (uint32_t)number;
    } else if (strcmp(word, "output_price") == 0) {
        status = read_number(word, value, UINT32_MAX, &number, err);
        o->output_price = (uint32_t)number;
    } else if (strcmp(word, "prefill_share") == 0) {
        status = read_number(word, value, 100, &number, err);
        o->prefill_share = (uint32_t)number;
    } else if (strcmp(word, "class_weights") == 0) {
        status = read_classes(word, value, UINT32_MAX, classes, err);
        for (uint32_t i = 0; i < ENGINE_MAX_CLASSES; i++)
            o->class_weights[i] = (uint32_t)classes[i];
    } else if (strcmp(word, "class_ttft_ms") == 0) {
        status = read_classes(word, value, most_ms, classes, err);
        for (uint32_t i = 0; i < ENGINE_MAX_CLASSES; i++)
            o->class_ttft_us[i] = classes[i] * 1000;
    } else {
        return quire_fail(err, QUIRE_INVALID,
                          "CONTROL: \"%.40s\" is none of ageing_ms, class_weights, class_ttft_ms, "
                          "prompt_price, output_price, prefill_share",
                          word);
    }
    return status;
}

/* ---- commands ---- */

static int set_policy(struct daemon *d, char **words, size_t n, uint64_t *order, struct quire_error *err)
{
    struct engine_policy_options options = {.ageing_us = 0};
    if (n == 0)
        return quire_fail(err, QUIRE_INVALID, "CONTROL: set-policy: which one?");
    for (size_t i = 1; i < n; i++) {
        int status = read_option(words[i], &options, err);
        if (status)
            return status;
    }
    return engine_set_policy(d->engine, words[0], n > 1 ? &options : NULL, order, err);
}

static int unpin(struct daemon *d, char **words, size_t n, uint64_t *order, struct quire_error *err)
{
    uint64_t tenant;
    if (n != 1)
        return quire_fail(err, QUIRE_INVALID, "CONTROL: unpin: takes one tenant's index");
    int status = read_number("unpin", words[0], ENGINE_MAX_TENANTS - 1, &tenant, err);
    if (!status)
        *order = engine_unpin(d->engine, (uint32_t)tenant);
    return status;
}

int control_run(struct daemon *d, const char *command, size_t n_command, uint64_t *order, struct quire_error *err)
{
    char text[WIRE_MAX_TEXT + 1], *words[MAX_WORDS], *rest = NULL;
    size_t n = 0;
    if (n_command > WIRE_MAX_TEXT || memchr(command, '\0', n_command))
        return quire_fail(err, QUIRE_INVALID, "CONTROL: command: is not text");
    memcpy(text, command, n_command);
    text[n_command] = '\0';
    for (char *word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        if (n == MAX_WORDS)
            return quire_fail(err, QUIRE_INVALID, "CONTROL: command: more than %d words", MAX_WORDS);
        words[n++] = word;
    }
    if (n > 0 && strcmp(words[0], "set-policy") == 0)
        return set_policy(d, words + 1, n - 1, order, err);
    if (n > 0 && strcmp(words[0], "unpin") == 0)
        return unpin(d, words + 1, n - 1, order, err);
    return quire_fail(err, QUIRE_UNSUPPORTED, "CONTROL: command: '%.*s' is not known here",
                      (int)(n_command < 64 ? n_command : 64), command);
}

/* ---- replies ---- */

static void put_frame(struct connection *c, struct buffer *frame)
{
    if (!c->overflowed) {
        if (frame->failed)
            c->pending.failed = true;
        else
            buffer_append(&c->pending, frame->data, frame->n);
        queue_changed(c);
    }
    buffer_free(frame);
}

int control_answer(struct connection *c, uint64_t order, struct buffer *frame, struct quire_error *err)
{
    struct daemon *d = c->d;
    struct control_answer *a = NULL;
    int status = QUIRE_OK;
    pthread_mutex_lock(&d->mutex);
    if (order > d->answers->orders_given)
        d->answers->orders_given = order;
    if (d->answers->orders_given <= d->answers->orders_done)
        put_frame(c, frame);
    else if (c->n_answers >= MAX_ANSWERS)
        status = quire_fail(err, QUIRE_EXHAUSTED, "CONTROL: more than %d at once", MAX_ANSWERS);
    else if (!(a = malloc(sizeof *a)))
        status = quire_fail(err, QUIRE_NO_MEMORY, "CONTROL: out of memory");
    if (a) {
        *a = (struct control_answer){.c = c, .order = d->answers->orders_given, .frame = *frame};
        *frame = (struct buffer){0};
        TAILQ_INSERT_TAIL(&d->answers->waiting, a, link);
        c->n_answers++;
    }
    pthread_mutex_unlock(&d->mutex);
    buffer_free(frame);
    return status;
}

void control_carried_out(struct daemon *d, uint64_t order)
{
    struct control_answer *a;
    d->answers->orders_done = order;
    while ((a = TAILQ_FIRST(&d->answers->waiting)) && a->order <= order) {
        TAILQ_REMOVE(&d->answers->waiting, a, link);
        a->c->n_answers--;
        put_frame(a->c, &a->frame);
        free(a);
    }
}

void control_forget(struct connection *c)
{
    struct control_answer *next;
    for (struct control_answer *a = TAILQ_FIRST(&c->d->answers->waiting); a; a = next) {
        next = TAILQ_NEXT(a, link);
        if (a->c != c)
            continue;
        TAILQ_REMOVE(&c->d->answers->waiting, a, link);
        buffer_free(&a->frame);
        free(a);
    }
    c->n_answers = 0;
}
