/* Asynchronous copies from global to shared memory (cp.async). */
#ifndef QUIRE_TESTS_SIMT_DEVICE_COPY_H
#define QUIRE_TESTS_SIMT_DEVICE_COPY_H

namespace simt
{

/* Copies 16 bytes: the first `bytes` of them from global memory, then zeros. */
void copy_async(void *shared, const void *global, unsigned bytes, int line, const char *file);
void copy_commit();
/* Waits for all groups except the last `n`. */
void copy_wait(unsigned n);

} // namespace simt

#endif
