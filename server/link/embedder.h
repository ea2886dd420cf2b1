/* The interface that computes a text's vector, with a companion model. Loop's thread. */
#ifndef QUIRE_LINK_EMBEDDER_H
#define QUIRE_LINK_EMBEDDER_H

#include <stddef.h>
#include <stdint.h>

struct embedding; /* a text whose vector is being computed; owned by the embedder */

struct embedder { /* functions set; `self` is passed to each, and borrowed */
    void *self;
    /* text: UTF-8, copied; text beyond the model's length is cut. tenant: whose share of the engine it uses. done is
     * called once, never from within embed(). The vector has length 1 and is borrowed until done returns; NULL: it
     * could not be computed. Returns NULL if memory is out, or if there is no model yet. */
    struct embedding *(*embed)(void *self, const char *text, size_t n, uint32_t tenant,
                               void (*done)(void *context, const float *vector, uint32_t n_numbers), void *context);
    /* done is not called. */
    void (*cancel)(void *self, struct embedding *e);
};

#endif
