/* quire serve --embedding-model: a second model in the process, that gives vectors. Its engine, its text and its front
 * are its own; the first model's listener answers for it. Main thread, on the loop. */
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

/* Opens the model and a front for it, beside s's. options: the first model's, of which device, threads and tenants are
 * taken. shared: of the front's options, what belongs to the server and not to a model. gone: the engine stopped, or was
 * lost; the loop is to end. */
int beside_open(struct event_base *base, const struct beside_flags *flags, const struct engine_options *options,
                const struct front_options *shared, void (*gone)(void *context), void *context, struct beside **out,
                struct quire_error *err);
struct front *beside_front(const struct beside *b);
/* How many numbers its vectors have, and on what their bits depend. */
uint32_t beside_vectors(const struct beside *b, struct key256 *identity);
/* After front_pair(). */
int beside_connect(struct beside *b, struct quire_error *err);
/* Whether its engine broke; also of NULL: false. */
bool beside_died(const struct beside *b);
/* NULL is fine. The front that it is beside is no more. */
void beside_close(struct beside *b);

#endif
