#include "engine/record/seqs.h"

#include <stdlib.h>
#include <string.h>

int recording_seqs_set(struct recording_seqs *s, uint32_t seq, size_t request, uint32_t choice)
{
    if (seq >= s->n) {
        uint32_t n = 2 * (seq + 1);
        struct recording_owner *owners = realloc(s->owners, n * sizeof *owners);
        if (!owners)
            return QUIRE_NO_MEMORY;
        memset(owners + s->n, 0, (n - s->n) * sizeof *owners);
        s->owners = owners;
        s->n = n;
    }
    s->owners[seq] = (struct recording_owner){.request = request, .choice = choice, .lives = true};
    return QUIRE_OK;
}

const struct recording_owner *recording_seqs_owner(const struct recording_seqs *s, uint32_t seq)
{
    return seq < s->n && s->owners[seq].lives ? &s->owners[seq] : NULL;
}

void recording_seqs_drop(struct recording_seqs *s, uint32_t seq)
{
    if (seq < s->n)
        s->owners[seq].lives = false;
}

void recording_seqs_free(struct recording_seqs *s)
{
    free(s->owners);
    *s = (struct recording_seqs){0};
}
