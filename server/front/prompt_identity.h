/* The identity of what lies between a request's body and the engine's tokens: the tokenizer, the chat template, the generation
 * defaults, and the options by which they are used. Whatever is kept by a text (a reply by its body, a question's neighbours, an
 * answer that a stop string cut) is kept under it, since the same text is another prompt under another one. What is kept by
 * tokens alone needs it not. Pure; any thread.
 */
#ifndef QUIRE_FRONT_PROMPT_IDENTITY_H
#define QUIRE_FRONT_PROMPT_IDENTITY_H

#include "base/hash.h"
#include "request/spec.h"
#include "text/quire_text.h"

/* tool_format: as an enum tool_format. */
struct key256 prompt_identity(const struct quire_text *text, const struct sampling_defaults *defaults,
                              enum quire_specials specials_in_messages, int tool_format, bool keeps_billing_header);

#endif
