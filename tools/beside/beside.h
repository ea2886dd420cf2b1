/* quire serve --embedding-model: a second model in the process, that gives vectors. Its engine and its text are its
 * own; the front answers for both. Main thread, on the loop. */
#ifndef QUIRE_TOOLS_BESIDE_H
#define QUIRE_TOOLS_BESIDE_H

#include "engine/options.h"
#include "server/front/front.h"
#include "tools/cli/cli.h"

struct beside;

struct beside_flags {
    const char *model; /* NULL: there is none */
    uint32_t batch_size;
    double batch_wait_ms;
};
#define BESIDE_FLAGS_MAX 4
size_t beside_flags(struct beside_flags *flags, struct cli_option out[BESIDE_FLAGS_MAX]);
/* What one of them alone cannot say. */
int beside_check(const struct beside_flags *flags, struct quire_error *err);

/* Where it computes and who pays are as of the first model; what suits a model is its own. */
struct engine_options beside_options(const struct beside_flags *flags, const char *model_dir,
                                     const struct engine_options *first);

/* Opens the model and adds it to the front. options: the first model's, of which device, threads and tenants are taken.
 * first: the first model's, of which what is said of messages is taken. gone: the engine stopped, or was lost; the loop is
 * to end. */
int beside_open(struct event_base *base, const struct beside_flags *flags, const struct engine_options *options,
                struct front *front, const struct served_model_options *first, void (*gone)(void *context),
                void *context, struct beside **out, struct quire_error *err);
struct served_model *beside_model(const struct beside *b);
/* How many numbers its vectors have, and on what their bits depend. */
uint32_t beside_vectors(const struct beside *b, struct key256 *identity);
/* Once. */
int beside_connect(struct beside *b, struct quire_error *err);
/* Whether its engine broke; also of NULL: false. */
bool beside_died(const struct beside *b);
/* NULL is fine. The front is no more. */
void beside_close(struct beside *b);

#endif
