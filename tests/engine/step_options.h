/* Options of steps for tests that return engine_options by value. */
#ifndef QUIRE_TESTS_ENGINE_STEP_OPTIONS_H
#define QUIRE_TESTS_ENGINE_STEP_OPTIONS_H

#include "engine/options.h"

/* Defaults, valid until seven further calls in the same file. */
static inline struct step_options *client_steps(void)
{
    static struct step_options all[8];
    static uint32_t n;
    struct step_options *out = &all[n++ % 8];
    step_options_default(out);
    return out;
}

#endif
