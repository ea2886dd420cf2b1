/* cp.async. The destination is NaN from the issue on, and the bytes land in the wait for their group. A premature read
 * gets NaN, and the detector reports it. */
#include <string.h>

#include "tests/simt/state.h"

namespace simt
{

void copy_async(void *shared, const void *global, unsigned bytes, int line, const char *file)
{
    const void *code = __builtin_return_address(0);
    if (((uintptr_t)shared | (uintptr_t)global) % 16)
        fault("MISALIGNED", true, code, "cp.async of 16 bytes from %p to %p at %s:%d", global, shared, file, line);
    if (instrumented) {
        access(shared, 16, COPY_ISSUED, code);
        if (bytes)
            access(global, bytes, READ, code);
    }
    memset(shared, 0xff, 16);
    Fiber *f = this_fiber();
    f->copies.push_back({shared, global, bytes, f->copy_group});
}

void copy_commit()
{
    this_fiber()->copy_group++;
}

void copy_wait(unsigned n)
{
    Fiber *f = this_fiber();
    size_t i = 0;
    for (; i < f->copies.size() && f->copies[i].group + n < f->copy_group; i++) {
        const Copy &c = f->copies[i];
        memcpy(c.dst, c.src, c.bytes);
        memset((char *)c.dst + c.bytes, 0, 16 - c.bytes);
        if (instrumented)
            access(c.dst, 16, COPY_LANDED, nullptr);
    }
    f->copies.erase(f->copies.begin(), f->copies.begin() + (ptrdiff_t)i);
}

} // namespace simt
