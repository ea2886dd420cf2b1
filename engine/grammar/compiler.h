/* Compiles the grammars of submitted requests on a thread of its own, because that may take seconds. A request waits
 * outside the scheduler until its grammar is ready.
 *
 * Requests with the same text share one entry while it is compiled. engine_grammars caches what was compiled.
 */
#ifndef QUIRE_ENGINE_COMPILER_H
#define QUIRE_ENGINE_COMPILER_H

#include "engine/grammars.h"

struct compiler;
struct compiled; /* a grammar on its way; reference counted */

enum compiled_state { COMPILED_PENDING, COMPILED_READY, COMPILED_FAILED };

/* changed: called on the compiler's thread after an entry became ready or failed. */
int compiler_create(const struct engine_grammars *grammars, void (*changed)(void *context), void *context,
                    struct compiler **out, struct quire_error *err);
/* The grammar that is being compiled, and entries that still wait, fail. NULL is fine. */
void compiler_destroy(struct compiler *c);

/* Any thread. The text is copied. */
int compiler_add(struct compiler *c, const char *text, size_t n_text, struct compiled **out, struct quire_error *err);
/* Any thread, with a reference. */
enum compiled_state compiled_state(const struct compiled *g);
/* Of a ready entry: the grammar, valid as long as the reference. */
void *compiled_grammar(const struct compiled *g);
/* Of a failed one. */
const struct quire_error *compiled_error(const struct compiled *g);
void compiled_release(struct compiled *g); /* NULL is fine; any thread, also after compiler_destroy() */

#endif
