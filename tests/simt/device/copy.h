/* Copies from global to shared memory that a thread does not wait for at once (cp.async). */
#ifndef QUIRE_TESTS_SIMT_DEVICE_COPY_H
#define QUIRE_TESTS_SIMT_DEVICE_COPY_H

namespace simt
{

/* 16 bytes: the first `bytes` of them from global memory, zeros behind. */
void copy_async(void *shared, const void *global, unsigned bytes, int line, const char *file);
void copy_commit();
/* All groups but the last `n` land. */
void copy_wait(unsigned n);

} // namespace simt

#endif
