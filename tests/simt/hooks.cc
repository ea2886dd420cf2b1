/* The functions that the compiler calls in instrumented kernels: the entry points of ThreadSanitizer's and UBSan's
 * libraries, which are not linked. So kernels are instrumented without changes to their source, at every optimization
 * level. The hooks run after vectorization: a 16-byte copy may arrive as two of 8 bytes, so UBSan checks alignment. */
#include "tests/simt/state.h"

#define CODE __builtin_return_address(0)

using namespace simt;

extern "C" {

/* Called by a constructor of every instrumented file. */
void __tsan_init()
{
    instrumented = true;
}

void __tsan_func_entry(void *)
{
}

void __tsan_func_exit()
{
}

void __tsan_vptr_update(void *, void *)
{
}

#define HOOKS(bytes) \
    void __tsan_read##bytes(void *p) \
    { \
        access(p, bytes, READ, CODE); \
    } \
    void __tsan_write##bytes(void *p) \
    { \
        access(p, bytes, WRITE, CODE); \
    } \
    void __tsan_volatile_read##bytes(void *p) \
    { \
        access(p, bytes, READ, CODE); \
    } \
    void __tsan_volatile_write##bytes(void *p) \
    { \
        access(p, bytes, WRITE, CODE); \
    }

HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)

void __tsan_read_range(void *p, size_t bytes)
{
    access(p, bytes, READ, CODE);
}

void __tsan_write_range(void *p, size_t bytes)
{
    access(p, bytes, WRITE, CODE);
}

/* GCC's data for each report starts with the source position. */
struct SourceLocation {
    const char *file;
    unsigned line, column;
};

void __ubsan_handle_type_mismatch_v1(void *data, uintptr_t p)
{
    struct Data {
        SourceLocation at;
        void *type;
        uint8_t log_alignment;
    } *d = (Data *)data;
    fault("MISALIGNED", true, CODE, "%s:%u: address %#lx where %u-byte alignment is needed", d->at.file, d->at.line, p,
          1u << d->log_alignment);
}

void __ubsan_handle_out_of_bounds(void *data, uintptr_t index)
{
    SourceLocation *at = (SourceLocation *)data;
    fault("OOB_INDEX", true, CODE, "%s:%u: index %ld is out of the array's bounds", at->file, at->line, (long)index);
}

} /* extern "C" */
