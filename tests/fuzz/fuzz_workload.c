/* A workload from a file: an accepted one keeps the bounds of prompts. */
#include "fuzz.h"

#include "tools/bench/lib/workload.h"

#include <stdlib.h>
#include <string.h>

static void read_as(const uint8_t *data, size_t n, const struct bench_workload_form *form)
{
    struct bench_workload t;
    struct quire_error err;
    double last = 0;
    if (bench_workload_read((const char *)data, n, "trace", form, &t, &err) == QUIRE_OK) {
        if (t.n_rows == 0)
            abort();
        for (size_t i = 0; i < t.n_rows; i++) {
            const struct bench_workload_row *r = &t.rows[i];
            if (!(r->arrival_s >= last) || r->n_input == 0 || r->n_input > BENCH_MAX_LENGTH || r->n_output == 0 ||
                r->n_output > BENCH_MAX_LENGTH)
                abort();
            if (r->n_hashes > 0 && (r->first_hash + r->n_hashes > t.n_hashes ||
                                    (!form->own_tail && (uint64_t)r->n_hashes * form->block_tokens < r->n_input)))
                abort();
            if (r->tenant >= t.n_tenants ||
                !bench_workload_is_name(t.tenants[r->tenant], strlen(t.tenants[r->tenant])) || r->class_index > 7 ||
                !(r->deadline_ms >= 0))
                abort();
            last = r->arrival_s;
        }
    } else {
        for (const char *c = err.text; *c; c++)
            if ((unsigned char)*c < 0x20 || *c == 0x7f)
                abort();
    }
    bench_workload_free(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const struct bench_workload_form timed = {.unit_ms = 1000, .block_tokens = 16, .own_tail = true};
    read_as(data, n, &bench_workload_mooncake);
    read_as(data, n, &timed);
    return 0;
}
