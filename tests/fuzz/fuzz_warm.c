/* A file of prompts: whatever is accepted has a line, a value and one prompt, and sorts. */
#include "fuzz.h"

#include "tools/cache/warm_file.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct warm_file file;
    struct quire_error err = {.text = ""};
    if (warm_file_parse((const char *)data, n, "prompts", &file, &err) == QUIRE_OK) {
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
        for (const char *c = err.text; *c; c++)
            if ((unsigned char)*c < 0x20 || *c == 0x7f)
                abort();
    }
    warm_file_free(&file);
    return 0;
}
