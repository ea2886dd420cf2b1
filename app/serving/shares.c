#include "app/serving/shares.h"

#include <string.h>

/* The number of the tenant's organisation: that of an earlier tenant, or a new one. 0: none. */
static uint32_t group_of(const struct tenants *tenants, uint32_t index, const struct sched_tenant *shares, uint32_t *n)
{
    const char *name = tenants_at(tenants, index)->organisation;
    if (name[0] == '\0')
        return 0;
    for (uint32_t i = 0; i < index; i++)
        if (strcmp(tenants_at(tenants, i)->organisation, name) == 0)
            return shares[i].group;
    return ++*n;
}

void tenant_shares(const struct tenants *tenants, struct sched_tenant out[TENANTS_MAX])
{
    uint32_t n_groups = 0;
    for (uint32_t i = 0; i < TENANTS_MAX; i++) {
        out[i] = (struct sched_tenant){.weight = 1, .group_weight = 1};
        if (i >= tenants_n(tenants))
            continue;
        const struct tenant *t = tenants_at(tenants, i);
        out[i] = (struct sched_tenant){.weight = t->weight,
                                       .group = group_of(tenants, i, out, &n_groups),
                                       .group_weight = t->organisation_weight,
                                       .max_seats = t->max_seats,
                                       .max_kv_blocks = t->max_kv_blocks};
    }
}
