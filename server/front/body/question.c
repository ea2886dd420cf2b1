#include "server/front/body/question.h"

#include "server/cache/answer.h"
#include "server/cache/cache_key.h"
#include "server/front/front_internal.h"

#include <string.h>

static void add(struct quire_sha256_state *s, const char *text, size_t n)
{
    const uint64_t length = n;
    quire_sha256_add(s, &length, sizeof length);
    quire_sha256_add(s, text, n);
}

/* With another tokenizer or template, the same words around a question are another prompt. */
static void begin(struct quire_sha256_state *s, const struct request_job *j)
{
    const struct key256 *identity = &j->served->config->prompt_identity;
    quire_sha256_begin(s);
    quire_sha256_add(s, identity->bytes, sizeof identity->bytes);
}

/* The model sees only a part of a truncated prompt, and the part is another question than the whole. */
static void add_cut(struct quire_sha256_state *s, const struct request_job *j)
{
    const uint8_t end = j->params.truncate_end;
    quire_sha256_add(s, &j->params.truncate, sizeof j->params.truncate);
    quire_sha256_add(s, &end, sizeof end);
}

/* Returns the last message's content as written; n is 0 if it is not the user's, or cannot be a question. */
static struct quire_value last_content(const struct request_job *j, size_t n_messages)
{
    struct quire_value rest = {j->messages, n_messages}, item, last = {0};
    while (quire_value_next(&rest, NULL, &item))
        last = item;
    if (!quire_value_is(quire_value_member(last, "role"), "user") || j->continue_final)
        return (struct quire_value){0};
    return quire_value_member(last, "content");
}

static void take_chat(struct request_job *j)
{
    const size_t n = strlen(j->messages), n_tools = j->tools ? strlen(j->tools) : 0,
                 n_kwargs = j->kwargs ? strlen(j->kwargs) : 0;
    const uint8_t how[2] = {j->add_generation_prompt, j->params.lead != NULL};
    struct quire_sha256_state s;
    if (n + n_tools + n_kwargs > CACHE_KEY_MAX_BYTES) /* longer requests are not cached */
        return;
    const struct quire_value content = last_content(j, n);
    /* An escape has at most six bytes for one byte of text. */
    if (content.n <= 2 || content.n > 6 * ANSWER_MAX_QUESTION ||
        quire_value_text(content, &j->question.text, &j->question.n, NULL) != QUIRE_OK)
        return;
    const char *end = content.text + content.n;
    begin(&s, j);
    quire_sha256_add(&s, "chat", 4);
    quire_sha256_add(&s, how, sizeof how);
    add_cut(&s, j);
    add(&s, j->messages, (size_t)(content.text - j->messages));
    add(&s, end, (size_t)(j->messages + n - end));
    add(&s, j->tools, n_tools);
    add(&s, j->kwargs, n_kwargs);
    j->question.around = quire_sha256_now(&s);
}

static void take_prompt(struct request_job *j)
{
    const struct request_item *item = &j->items[0];
    const uint8_t how = j->add_special;
    struct quire_sha256_state s;
    if (j->n_items != 1 || !item->text || item->n_text == 0 || item->n_text > ANSWER_MAX_QUESTION || j->params.echo)
        return;
    j->question.text = malloc(item->n_text);
    if (!j->question.text)
        return;
    j->question.n = item->n_text;
    memcpy(j->question.text, item->text, item->n_text);
    begin(&s, j);
    quire_sha256_add(&s, &how, sizeof how);
    add_cut(&s, j);
    j->question.around = quire_sha256_now(&s);
}

void question_take(struct request_job *j)
{
    if (j->messages)
        take_chat(j);
    else
        take_prompt(j);
    if (j->question.n > ANSWER_MAX_QUESTION) {
        free(j->question.text);
        j->question = (struct question){0};
    }
}
