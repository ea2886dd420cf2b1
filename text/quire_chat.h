/* Chat templates of a model directory. The rules of quire_text.h hold: any number of threads, owned results, no panics. */
#ifndef QUIRE_CHAT_H
#define QUIRE_CHAT_H

#include "text/quire_text.h"

/* Renders a chat template as transformers does. messages_json: JSON array of objects, not empty; members that are
 * null are left out unless the template fails without them. tools_json: JSON array of objects, or NULL. kwargs_json:
 * JSON object or NULL (chat_template_kwargs: becomes variables of the template; `messages` and `tools` are
 * rejected). template_name: NULL selects "default", or "tool_use" if tools are given and the model has a template of
 * that name; QUIRE_NOT_FOUND if the model has no template of the name. continue_final: the last message stays open
 * (continue_final_message); QUIRE_INVALID together with add_generation_prompt. Returns QUIRE_UNSUPPORTED if the
 * model has no template, and QUIRE_INVALID with the template's own text if it called raise_exception, or if the JSON
 * or the rendering fails. Steps, output (16 MiB), values of JSON (262,144) and recursion are bounded. Numbers are
 * Python's: integers of any size print all their digits. The caller's stack may have any size. If less than
 * QUIRE_TEXT_STACK_BYTES is left, rendering runs on a thread of its own; starting it costs more than most templates. */
#define QUIRE_TEXT_STACK_BYTES ((size_t)257 << 20)
/* The treatment of special tokens that the text of messages, tools and documents spells. Those of the template
 * itself are always tokens. */
enum quire_specials {
    QUIRE_SPECIALS_ENCODE, /* they are tokens too */
    QUIRE_SPECIALS_REFUSE, /* QUIRE_INVALID, which names the place */
    QUIRE_SPECIALS_TEXT, /* they are text */
};
struct quire_chat {
    const char *messages_json;
    const char *tools_json;
    const char *kwargs_json;
    const char *template_name;
    bool add_generation_prompt;
    bool continue_final;
    enum quire_specials specials;
};
/* *mark: 0; or, of QUIRE_SPECIALS_TEXT, the character that stands in *out inside each special token that is text, and
 * nowhere else: quire_encoder_mark() takes it. The template sees it in the messages. NULL is fine for the others. */
int quire_text_chat(const struct quire_text *text, const struct quire_chat *chat, char **out, size_t *n_bytes,
                    uint32_t *mark, struct quire_error *err);

/* True when a chat template was found. */
bool quire_text_has_chat(const struct quire_text *text);
/* What the model directory says about its tokenizer: tokenizer_config.json as a JSON object, with the special tokens as
 * strings and the default chat template as "chat_template". */
int quire_text_about(const struct quire_text *text, char **out, size_t *n_bytes, struct quire_error *err);
/* Whether these words (UTF-8) appear in the text of a chat template, which shows the formats that a model was
 * trained to write. */
bool quire_text_chat_mentions(const struct quire_text *text, const char *words);
/* Whether this name (n_bytes of UTF-8) appears there, other than as a part of a longer one: a template that uses a
 * member of messages names it. */
bool quire_text_chat_uses(const struct quire_text *text, const char *name, size_t n_bytes);

#endif
