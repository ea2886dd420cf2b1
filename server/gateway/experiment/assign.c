#include "server/gateway/experiment/assign.h"

#include "base/hash.h"

#include <math.h>
#include <string.h>

static struct key256 hash_of(const char *name, const char *arm, const char *unit, size_t n)
{
    struct quire_sha256_state s;
    quire_sha256_begin(&s);
    quire_sha256_add(&s, name, strlen(name));
    quire_sha256_add(&s, "\n", 1);
    quire_sha256_add(&s, arm, strlen(arm));
    quire_sha256_add(&s, "\n", 1);
    quire_sha256_add(&s, unit, n);
    return quire_sha256_now(&s);
}

static double score_of(const struct key256 *hash, uint32_t weight)
{
    uint64_t h = 0;
    for (size_t i = 0; i < 8; i++)
        h = h << 8 | hash->bytes[i];
    const double u = ((double)(h >> 11) + 0.5) * 0x1p-53;
    return -log(u) / weight;
}

uint32_t assign_arm(const struct gateway_experiment *e, const char *name, const char *unit, size_t n)
{
    uint32_t best = 0;
    double least = INFINITY;
    for (uint32_t i = 0; i < e->n_arms; i++) {
        const struct key256 hash = hash_of(name, e->arms[i].name, unit, n);
        const double score = score_of(&hash, e->arms[i].weight);
        if (score < least) {
            least = score;
            best = i;
        }
    }
    return best;
}

uint32_t assign_bucket(const char *name, const char *unit, size_t n)
{
    return hash_of(name, "", unit, n).bytes[0];
}
