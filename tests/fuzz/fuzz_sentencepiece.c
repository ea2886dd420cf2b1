/* A tokenizer.model: it opens or leaves an error, and a tokenizer that opens encodes a text and decodes its ids. */
#include "fuzz.h"

#include "text/quire_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char dir[] = "/tmp/quire-fuzz-pieces-XXXXXX", path[sizeof dir + 16];

static void remove_files(void)
{
    unlink(path);
    rmdir(dir);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char input[] = "The  tide \xe6\xbd\xae <s> \xe2\x96\x81 comes.\n";
    struct quire_error err = {.text = ""};
    struct quire_text *text;
    uint32_t *ids;
    char *out;
    size_t n_ids, n_bytes;
    if (!path[0]) {
        if (!mkdtemp(dir))
            abort();
        snprintf(path, sizeof path, "%s/tokenizer.model", dir);
        atexit(remove_files);
    }
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, n, file) != n || fclose(file) != 0)
        abort();
    if (quire_text_open(dir, &text, &err) != QUIRE_OK) {
        if (err.text[0] == '\0')
            abort();
        return 0;
    }
    if (quire_text_encode(text, input, sizeof input - 1, true, &ids, &n_ids, &err) == QUIRE_OK) {
        if (quire_text_decode(text, ids, n_ids, false, &out, &n_bytes, &err) == QUIRE_OK)
            free(out);
        free(ids);
    }
    quire_text_close(text);
    return 0;
}
