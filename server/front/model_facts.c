#include "server/front/model_facts.h"

#include "server/wire/decode.h"

#include <stdlib.h>

static struct model_facts *new_facts(uint32_t n_eos)
{
    struct model_facts *facts = calloc(1, sizeof *facts + n_eos * sizeof *facts->eos);
    if (!facts)
        return NULL;
    facts->n_eos = n_eos;
    atomic_init(&facts->n_holders, 1);
    return facts;
}

const struct model_facts *model_facts_unknown(void)
{
    return new_facts(0);
}

const struct model_facts *model_facts_of(const struct wire_hello *hello)
{
    struct model_facts *facts = new_facts(hello->n_eos);
    if (!facts)
        return NULL;
    for (uint32_t i = 0; i < hello->n_eos; i++)
        facts->eos[i] = wire_u32(hello->eos, i);
    facts->vocab_size = hello->vocab_size;
    facts->max_model_len = hello->max_model_len;
    facts->max_num_seqs = hello->max_num_seqs;
    facts->vector_size = hello->vector_size;
    facts->vector_is_scores = hello->vector_is_scores;
    if (hello->n_arithmetic > 0)
        quire_key256_hex(&hello->identity_arithmetic, facts->arithmetic);
    return facts;
}

/* Only the count of holders changes. For all other code, facts are const. */
static struct model_facts *counted(const struct model_facts *facts)
{
    return (struct model_facts *)(uintptr_t)facts;
}

const struct model_facts *model_facts_hold(const struct model_facts *facts)
{
    atomic_fetch_add_explicit(&counted(facts)->n_holders, 1, memory_order_relaxed);
    return facts;
}

void model_facts_release(const struct model_facts *facts)
{
    if (facts && atomic_fetch_sub_explicit(&counted(facts)->n_holders, 1, memory_order_acq_rel) == 1)
        free(counted(facts));
}
