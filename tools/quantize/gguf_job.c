#include "tools/quantize/job.h"
int quantizer_run_gguf(const struct quantizer_job *job, struct quantizer_report *report, struct quire_error *err)
{
    (void)job; (void)report;
    return quire_fail(err, QUIRE_UNSUPPORTED, "todo");
}
