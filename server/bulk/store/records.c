#include "server/bulk/store/records.h"

#include "base/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const bulk_state_names[BULK_N_STATES] = {
    [BULK_VALIDATING] = "validating", [BULK_IN_PROGRESS] = "in_progress", [BULK_FINALIZING] = "finalizing",
    [BULK_COMPLETED] = "completed",   [BULK_FAILED] = "failed",           [BULK_CANCELLING] = "cancelling",
    [BULK_STOPPED] = "cancelled",     [BULK_TIMED_OUT] = "expired",
};

void bulk_batch_free(struct bulk_batch *b)
{
    free(b->metadata);
    free(b->why);
    b->metadata = b->why = NULL;
}

int bulk_batch_copy(struct bulk_batch *to, const struct bulk_batch *from)
{
    *to = *from;
    to->metadata = from->metadata ? strdup(from->metadata) : NULL;
    to->why = from->why ? strdup(from->why) : NULL;
    if ((!from->metadata || to->metadata) && (!from->why || to->why))
        return QUIRE_OK;
    bulk_batch_free(to);
    return QUIRE_NO_MEMORY;
}

bool bulk_state_is_last(enum bulk_state state)
{
    return state == BULK_COMPLETED || state == BULK_FAILED || state == BULK_STOPPED || state == BULK_TIMED_OUT;
}

int64_t bulk_batch_expires(const struct bulk_batch *b)
{
    return b->at[BULK_VALIDATING] + b->window_s;
}

void bulk_new_id(const char *prefix, char out[BULK_ID_BYTES])
{
    uint64_t random[2];
    quire_random(random, sizeof random);
    snprintf(out, BULK_ID_BYTES, "%s%016" PRIx64 "%016" PRIx64, prefix, random[0], random[1]);
}

bool bulk_is_id(const char *text, const char *prefix)
{
    const size_t n = strlen(prefix);
    return strncmp(text, prefix, n) == 0 && strlen(text) == n + 32 && strspn(text + n, "0123456789abcdef") == 32;
}
