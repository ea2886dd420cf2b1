/* The program's image: its segments, and where kernels' shared variables lie in them. */
#ifndef QUIRE_TESTS_SIMT_IMAGE_H
#define QUIRE_TESTS_SIMT_IMAGE_H

#include <stddef.h>
#include <stdint.h>

#include <vector>

namespace simt
{

enum TlsKind : uint8_t { TLS_GAP, TLS_STATIC_SHARED, TLS_HOST, TLS_DYNAMIC_SHARED };
struct Image {
    uintptr_t base, low, high; /* load address; its segments */
    std::vector<uint8_t> tls; /* a TlsKind per byte of the thread-local segment */
    struct Span {
        size_t offset, bytes;
    };
    std::vector<Span> static_shared;
};
const Image &image();
char *image_tls(); /* the calling OS thread's */

} // namespace simt

#endif
