/* llama.cpp's importance matrices, in both forms. */
#include "tests/fuzz/fuzz.h"
#include "tools/quantize/gguf/imatrix.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct imatrix *m;
    struct quire_error err;
    const float *values;
    if (imatrix_read(data, size, &m, &err) != QUIRE_OK)
        return 0;
    imatrix_find(m, "blk.0.ffn_up.weight", 1, 4, &values, &err);
    imatrix_hash(m);
    imatrix_close(m);
    return 0;
}
