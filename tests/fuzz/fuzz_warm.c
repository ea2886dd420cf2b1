/* Files that warm caches. Of prompts: an accepted line has a value and one prompt, and the lines sort. Of requests:
 * an accepted line has a path, a body and a cost, equal lines become one, and the lines sort. */
#include "fuzz.h"

#include "tools/cache/requests_file.h"
#include "app/warm/warm_file.h"

#include <stdlib.h>
#include <string.h>

static void check_message(const struct quire_error *err)
{
    for (const char *c = err->text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            abort();
}

static void read_prompts(const char *data, size_t n)
{
    struct warm_file file;
    struct quire_error err = {.text = ""};
    if (warm_file_parse(data, n, "prompts", &file, &err) == QUIRE_OK) {
        for (size_t i = 0; i < file.n; i++) {
            const struct warm_prompt *p = &file.prompts[i];
            if (p->line == 0 || !(p->value >= 0) || json_object_size(p->what) != 1)
                abort();
            file.prompts[i].n_tokens = i % 3;
        }
        warm_file_sort(&file);
        for (size_t i = 1; i < file.n; i++)
            if (file.prompts[i - 1].value * (double)file.prompts[i - 1].n_tokens <
                file.prompts[i].value * (double)file.prompts[i].n_tokens)
                abort();
    } else {
        check_message(&err);
    }
    warm_file_free(&file);
}

static double value_of(const struct asked_request *r)
{
    return (double)r->count * (double)request_cost(r);
}

static void read_requests(const char *data, size_t n)
{
    struct asked_requests all;
    struct quire_error err = {.text = ""};
    if (requests_parse(data, n, "requests", &all, &err) == QUIRE_OK) {
        uint64_t before = 0, after = 0;
        for (size_t i = 0; i < all.n; i++)
            before += all.items[i].count;
        requests_settle(&all);
        for (size_t i = 0; i < all.n; i++) {
            const struct asked_request *r = &all.items[i];
            after += r->count;
            if (r->order == 0 || r->count == 0 || !r->path || !json_is_object(r->body) ||
                request_cost(r) > 4000000000u || (i > 0 && value_of(r) > value_of(r - 1)))
                abort();
            for (size_t j = i > 8 ? i - 8 : 0; j < i; j++)
                if (strcmp(all.items[j].path, r->path) == 0 && json_equal(all.items[j].body, r->body))
                    abort();
        }
        if (before != after)
            abort();
    } else {
        check_message(&err);
    }
    requests_free(&all);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    read_prompts((const char *)data, n);
    read_requests((const char *)data, n);
    return 0;
}
