/* The identity of everything between a request's body and the engine's tokens: the tokenizer, the chat template, the
 * generation defaults, and the options that change their use. Cache entries with a text as their key (a reply by its
 * body, a question's neighbours, an answer cut by a stop string) include it, since the same text is another prompt
 * under another identity. Entries keyed by tokens alone do not need it. Pure; any thread.
 */
#ifndef QUIRE_FRONT_PROMPT_IDENTITY_H
#define QUIRE_FRONT_PROMPT_IDENTITY_H

#include "base/hash.h"
#include "request/spec.h"
#include "text/quire_chat.h"
#include "text/quire_text.h"

/* tool_format: an enum tool_format; reasoning_format: an enum reasoning_format. */
struct key256 prompt_identity(const struct quire_text *text, const struct sampling_defaults *defaults,
                              enum quire_specials specials_in_messages, int tool_format, int reasoning_format,
                              bool keeps_billing_header, bool flexible_whitespace);

#endif
