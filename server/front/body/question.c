#include "server/front/body/question.h"

#include "server/cache/answer.h"
#include "server/cache/cache_key.h"
#include "server/front/body/params.h"
#include "server/front/text/text_work.h"
#include "text/quire_json.h"

#include <stdlib.h>
#include <string.h>

static void add(struct quire_sha256_state *s, const char *text, size_t n)
{
    const uint64_t length = n;
    quire_sha256_add(s, &length, sizeof length);
    quire_sha256_add(s, text, n);
}

/* With another tokenizer or template, the same words around a question are another prompt. */
static void begin(struct quire_sha256_state *s, const struct key256 *identity)
{
    quire_sha256_begin(s);
    quire_sha256_add(s, identity->bytes, sizeof identity->bytes);
}

/* A question that is answered in another form has another answer. */
static void add_form(struct quire_sha256_state *s, const struct params *p)
{
    if (p->grammar)
        quire_sha256_add(s, p->grammar->digest.bytes, sizeof p->grammar->digest.bytes);
}

/* The model sees only a part of a truncated prompt, and the part is another question than the whole. */
static void add_cut(struct quire_sha256_state *s, const struct params *p)
{
    const uint8_t end = p->truncate_end;
    quire_sha256_add(s, &p->truncate, sizeof p->truncate);
    quire_sha256_add(s, &end, sizeof end);
}

/* Returns the last message's content as written; n is 0 if it is not the user's, or cannot be a question. */
static struct quire_value last_content(const struct text_chat *chat, size_t n_messages)
{
    struct quire_value rest = {chat->messages, n_messages}, item, last = {0};
    while (quire_value_next(&rest, NULL, &item))
        last = item;
    if (!quire_value_is(quire_value_member(last, "role"), "user") || chat->continue_final)
        return (struct quire_value){0};
    return quire_value_member(last, "content");
}

static void take_chat(struct question *q, const struct text_chat *c, const struct params *p,
                      const struct key256 *identity)
{
    const size_t n = strlen(c->messages), n_tools = c->tools ? strlen(c->tools) : 0,
                 n_kwargs = c->kwargs ? strlen(c->kwargs) : 0;
    const uint8_t how[2] = {c->add_generation_prompt, p->lead != NULL};
    struct quire_sha256_state s;
    if (n + n_tools + n_kwargs > CACHE_KEY_MAX_BYTES) /* longer requests are not cached */
        return;
    const struct quire_value content = last_content(c, n);
    /* An escape has at most six bytes for one byte of text. */
    if (content.n <= 2 || content.n > 6 * ANSWER_MAX_QUESTION ||
        quire_value_text(content, &q->text, &q->n, NULL) != QUIRE_OK)
        return;
    const char *end = content.text + content.n;
    begin(&s, identity);
    quire_sha256_add(&s, "chat", 4);
    quire_sha256_add(&s, how, sizeof how);
    add_cut(&s, p);
    add_form(&s, p);
    add(&s, c->messages, (size_t)(content.text - c->messages));
    add(&s, end, (size_t)(c->messages + n - end));
    add(&s, c->tools, n_tools);
    add(&s, c->kwargs, n_kwargs);
    q->around = quire_sha256_now(&s);
}

static void take_prompt(struct question *q, const struct text_task *task, const struct params *p,
                        const struct key256 *identity)
{
    const struct request_item *item = &task->items[0];
    const uint8_t how = task->add_special;
    struct quire_sha256_state s;
    if (task->n_items != 1 || !item->text || item->n_text == 0 || item->n_text > ANSWER_MAX_QUESTION || p->echo)
        return;
    q->text = malloc(item->n_text);
    if (!q->text)
        return;
    q->n = item->n_text;
    memcpy(q->text, item->text, item->n_text);
    begin(&s, identity);
    quire_sha256_add(&s, &how, sizeof how);
    add_cut(&s, p);
    add_form(&s, p);
    q->around = quire_sha256_now(&s);
}

void question_destroy(struct question *q)
{
    if (q)
        free(q->text);
    free(q);
}

struct question *question_take(const struct text_task *task, const struct params *params,
                               const struct key256 *prompt_identity)
{
    struct question *q = calloc(1, sizeof *q);
    if (!q)
        return NULL;
    if (task->chat.messages)
        take_chat(q, &task->chat, params, prompt_identity);
    else
        take_prompt(q, task, params, prompt_identity);
    if (q->text && q->n <= ANSWER_MAX_QUESTION)
        return q;
    question_destroy(q);
    return NULL;
}
