/* Who gives a text its vector, a model beside the one that answers. Loop's thread. */
#ifndef QUIRE_LINK_EMBEDDER_H
#define QUIRE_LINK_EMBEDDER_H

#include <stddef.h>
#include <stdint.h>

struct embedding; /* a text on its way to its vector; the embedder's */

struct embedder { /* functions set; `self` is handed to each, and borrowed */
    void *self;
    /* text: UTF-8, copied; what is longer than the model takes is cut. tenant: who pays. done is called once, never from
     * within: of length 1 and borrowed until it returns, or NULL: there is none. NULL: there is no memory, or no model yet. */
    struct embedding *(*embed)(void *self, const char *text, size_t n, uint32_t tenant,
                               void (*done)(void *context, const float *vector, uint32_t n_numbers), void *context);
    /* done does not come. */
    void (*cancel)(void *self, struct embedding *e);
};

#endif
