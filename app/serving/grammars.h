/* The grammars of one model, shared by its engine and its front end.
 *
 * The engine knows them only as functions (engine/grammars.h). The tokenizer may come later than the engine, from
 * serving_grammars_use(), or is opened here when the first grammar is compiled. Any thread, except for begin, use and
 * end: main thread.
 */
#ifndef QUIRE_APP_SERVING_GRAMMARS_H
#define QUIRE_APP_SERVING_GRAMMARS_H

#include "engine/grammars.h"

struct model_config;
struct quire_grammars;
struct quire_text;
struct serving_grammars;

/* model_dir: where to open the tokenizer when it is needed; NULL: serving_grammars_use() brings it. Copies all. */
int serving_grammars_begin(const char *model_dir, const struct model_config *config, struct serving_grammars **out,
                           struct quire_error *err);
/* For engine_options.grammars. */
const struct engine_grammars *serving_grammars_engine(const struct serving_grammars *g);
/* Takes this tokenizer, which the caller keeps. Returns its grammars, borrowed; NULL with the reason in err if
 * grammars cannot be matched with this tokenizer: requests with a grammar are then rejected. */
struct quire_grammars *serving_grammars_use(struct serving_grammars *g, const struct quire_text *text,
                                            struct quire_error *err);
/* After the engine and the front end are closed. NULL is fine. */
void serving_grammars_end(struct serving_grammars *g);

#endif
