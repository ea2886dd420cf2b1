#include "server/front/prompt_job.h"

#include "server/front/json_out.h"

#include <stdlib.h>
#include <string.h>

static int no_memory(struct prompt_job *j)
{
    return quire_fail(&j->err, QUIRE_NO_MEMORY, "out of memory");
}

/* The library's memory has its own way back, so what it gives is copied and returned. */
static int take_text(struct prompt_job *j, struct prompt_item *item, char *given, size_t n)
{
    item->text = malloc(n + 1);
    if (item->text) {
        memcpy(item->text, given, n);
        item->n_text = n;
    }
    quire_text_free(given);
    return item->text ? QUIRE_OK : no_memory(j);
}

static int render(struct prompt_job *j)
{
    const struct quire_chat chat = {
        .messages_json = j->messages,
        .tools_json = j->tools,
        .kwargs_json = j->kwargs,
        .add_generation_prompt = j->add_generation_prompt,
        .continue_final = j->continue_final,
    };
    char *text;
    size_t n;
    int status = quire_text_chat(j->text, &chat, &text, &n, &j->err);
    if (status != QUIRE_OK) {
        j->failed_in_template = true;
        return status;
    }
    return take_text(j, &j->items[0], text, n);
}

static int encode(struct prompt_job *j, struct prompt_item *item)
{
    uint32_t *ids;
    size_t n;
    int status = quire_text_encode(j->text, item->text, item->n_text, j->add_special, &ids, &n,
                                   &j->err);
    if (status != QUIRE_OK)
        return status;
    item->ids = malloc(n ? n * sizeof *ids : 1);
    if (item->ids) {
        if (n > 0)
            memcpy(item->ids, ids, n * sizeof *ids);
        item->n_ids = n;
    }
    quire_text_free(ids);
    return item->ids ? QUIRE_OK : no_memory(j);
}

static int decode(struct prompt_job *j, struct prompt_item *item)
{
    char *text;
    size_t n;
    int status = quire_text_decode(j->text, item->ids, item->n_ids, j->skip_special, &text, &n,
                                   &j->err);
    return status == QUIRE_OK ? take_text(j, item, text, n) : status;
}

static int make_strings(struct prompt_job *j)
{
    struct json_out o = {0};
    int status = QUIRE_OK;
    for (size_t i = 0; i < j->items[0].n_ids && status == QUIRE_OK; i++) {
        uint8_t *bytes;
        size_t n;
        status = quire_text_token_bytes(j->text, j->items[0].ids[i], &bytes, &n, &j->err);
        if (status != QUIRE_OK)
            break;
        if (i > 0)
            json_out_bytes(&o, ",", 1);
        json_out_string(&o, (const char *)bytes, n);
        quire_text_free(bytes);
    }
    if (o.failed && status == QUIRE_OK)
        status = no_memory(j);
    j->token_strings = o.data;
    j->n_token_strings = o.n;
    return status;
}

static void work(struct text_job *job)
{
    struct prompt_job *j = (struct prompt_job *)job;
    j->status = j->messages ? render(j) : QUIRE_OK;
    for (size_t i = 0; i < j->n_items && j->status == QUIRE_OK; i++) {
        struct prompt_item *item = &j->items[i];
        j->failed_item = i;
        if (!item->ids)
            j->status = encode(j, item);
        else if (!item->text && j->want_text)
            j->status = decode(j, item);
    }
    if (j->status == QUIRE_OK && j->want_strings)
        j->status = make_strings(j);
}

static void done(struct text_job *job)
{
    struct prompt_job *j = (struct prompt_job *)job;
    j->finished(j->owner, j);
}

static void release(struct text_job *job)
{
    prompt_job_free((struct prompt_job *)job);
}

struct prompt_job *prompt_job_new(const struct quire_text *text, size_t n_items,
                                  void (*finished)(void *owner, struct prompt_job *job),
                                  void *owner)
{
    struct prompt_job *j = calloc(1, sizeof *j);
    if (!j)
        return NULL;
    j->items = calloc(n_items, sizeof *j->items);
    if (!j->items) {
        free(j);
        return NULL;
    }
    j->job = (struct text_job){.work = work, .done = done, .release = release};
    j->text = text;
    j->n_items = n_items;
    j->finished = finished;
    j->owner = owner;
    return j;
}

void prompt_job_free(struct prompt_job *j)
{
    if (!j)
        return;
    for (size_t i = 0; i < j->n_items; i++) {
        free(j->items[i].text);
        free(j->items[i].ids);
    }
    free(j->items);
    free(j->messages);
    free(j->tools);
    free(j->kwargs);
    free(j->token_strings);
    free(j);
}
