#include "tools/quantize/job.h"

#include "base/encoding/little_endian.h"
#include "tools/quantize/loads.h"

#include <string.h>

#define ARITHMETIC 3u /* raise it when a method computes other bytes */

struct key256 quantizer_job_identity(const struct quantizer_job *job, const struct key256 *source,
                                     const struct quantizer_inputs *inputs)
{
    struct quire_sha256_state s;
    uint8_t numbers[32];
    const uint32_t values[] = {
        ARITHMETIC,     job->how.bits,          job->how.group, job->how.symmetric,
        job->how.scale, job->choices->desc_act, inputs->form,   (uint32_t)(job->choices->damp * 1e6)};
    for (uint32_t i = 0; i < sizeof values / sizeof *values; i++)
        le_store_u32(numbers + i * 4, values[i]);
    quire_sha256_begin(&s);
    quire_sha256_add(&s, numbers, sizeof numbers);
    quire_sha256_add(&s, job->method->name, strlen(job->method->name) + 1);
    quire_sha256_add(&s, source, sizeof *source);
    quire_sha256_add(&s, inputs->head, inputs->n_head);
    quire_sha256_add(&s, &inputs->importance, sizeof inputs->importance);
    if (inputs->ids)
        quire_sha256_add(&s, inputs->ids, inputs->n_ids * sizeof *inputs->ids);
    return quire_sha256_now(&s);
}

int quantizer_job_finish(const struct quantizer_job *job, struct quantizer_output *output, struct quire_error *err)
{
    int status = quantizer_loads(job, quantizer_output_partial(output), err);
    if (status == QUIRE_OK)
        return quantizer_output_finish(output, err);
    quire_error_prefix(err, "%.250s: Quire cannot load what was written, so it is deleted", job->out);
    return status;
}
