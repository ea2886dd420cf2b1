/* quire serve --embedding-model: a second model in the process, which computes vectors. It has its own engine, text
 * part and front; the first model's listener serves it. Main thread, on the loop. */
#ifndef QUIRE_TOOLS_BESIDE_H
#define QUIRE_TOOLS_BESIDE_H

#include "engine/options.h"
#include "server/front/front.h"
#include "tools/cli/cli.h"

struct beside;

struct beside_flags {
    const char *model; /* NULL: not configured */
    uint32_t batch_size;
    double batch_wait_ms;
};
#define BESIDE_FLAGS_MAX 4
size_t beside_flags(struct beside_flags *flags, struct cli_option out[BESIDE_FLAGS_MAX]);
/* Checks of several options together. */
int beside_check(const struct beside_flags *flags, struct quire_error *err);

/* Device, threads and tenants are the first model's; model-specific options are the second model's own. */
struct engine_options beside_options(const struct beside_flags *flags, const char *model_dir,
                                     const struct engine_options *first);

/* Opens the model and a front for it, paired with s. options: the first model's; device, threads and tenants are taken
 * from it. shared: the front's options that belong to the server, not to a model. gone: called when the engine stopped
 * or was lost; the loop must end. */
int beside_open(struct event_base *base, const struct beside_flags *flags, const struct engine_options *options,
                const struct front_options *shared, void (*gone)(void *context), void *context, struct beside **out,
                struct quire_error *err);
struct front *beside_front(const struct beside *b);
/* The size of its vectors, and the identity of their bits. */
uint32_t beside_vectors(const struct beside *b, struct key256 *identity);
/* After front_pair(). */
int beside_connect(struct beside *b, struct quire_error *err);
/* Returns whether its engine failed; false for NULL. */
bool beside_died(const struct beside *b);
/* NULL is allowed. The paired front must already be closed. */
void beside_close(struct beside *b);

#endif
