/* quire serve --embedding-model: a second model in the process, which computes vectors. It has its own engine and text
 * part; the front serves both models. Main thread, on the loop. */
#ifndef QUIRE_APP_BESIDE_BESIDE_H
#define QUIRE_APP_BESIDE_BESIDE_H

#include "app/command/cli.h"
#include "engine/options.h"
#include "server/front/front_model.h"

struct companion;

struct companion_flags {
    const char *model; /* NULL: not configured */
    const char *option; /* that named it, for messages; NULL: --embedding-model */
    uint32_t batch_size;
    double batch_wait_ms;
};
#define COMPANION_FLAGS_MAX 4
size_t companion_flags(struct companion_flags *flags, struct cli_option out[COMPANION_FLAGS_MAX]);
const char *companion_option(const struct companion_flags *flags);
/* Checks of several options together. */
int companion_check(const struct companion_flags *flags, struct quire_error *err);

/* Device, threads and tenants are the first model's; model-specific options are the second model's own. */
struct engine_options companion_options(const struct companion_flags *flags, const char *model_dir,
                                        const struct engine_options *first, struct step_options *steps);

/* Opens the model and adds it to the front. options: the first model's; device, threads and tenants are taken from it.
 * first: the first model's options for messages are used for this one. gone: called when the engine stopped or was
 * lost; the loop must end. */
int companion_open(struct event_base *base, const struct companion_flags *flags, const struct engine_options *options,
                   struct front *front, const struct served_model_options *first, void (*gone)(void *context),
                   void *context, struct companion **out, struct quire_error *err);
struct served_model *companion_model(const struct companion *b);
/* Returns the size of its vectors, and the identity of their bits. */
uint32_t companion_vectors(const struct companion *b, struct key256 *identity);
/* Call once. */
int companion_connect(struct companion *b, struct quire_error *err);
/* Returns whether its engine failed; false for NULL. */
bool companion_died(const struct companion *b);
/* NULL is allowed. The front must already be closed. */
void companion_close(struct companion *b);

#endif
