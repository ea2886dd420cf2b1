/* How the lanes of a warp meet: the collective operations and their arguments. Each lane passes a pointer to its own argument,
 * and the last one computes the result for all (warp.cc). */
#ifndef QUIRE_TESTS_SIMT_DEVICE_MEETING_H
#define QUIRE_TESTS_SIMT_DEVICE_MEETING_H

#include <stdint.h>
#include <string.h>

#include "tests/simt/device/thread.h"

namespace simt
{

enum Op { SHUFFLE, BALLOT, REDUCE_ADD, REDUCE_MIN, REDUCE_MAX, SYNCWARP, LDMATRIX, LDMATRIX_TRANS, MMA_F16, MMA_S8 };

struct ShuffleArgument {
    uint64_t value, result;
    int from; /* lane */
};
struct VoteArgument { /* BALLOT: value is the predicate */
    unsigned value, result;
};
struct LdmatrixArgument {
    const void *row;
    uint32_t *result; /* [4] */
};
struct MmaArgument {
    float *c; /* [4], in and out */
    const uint32_t *a, *b; /* [4], [2] */
};
struct MmaS8Argument {
    int32_t *c;
    const uint32_t *a, *b;
};

void collective(Op op, unsigned mask, void *argument, int line, const char *file);

template <class T> inline T shuffle(unsigned mask, T value, int from, int line, const char *file)
{
    static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
    ShuffleArgument a = {0, 0, from};
    memcpy(&a.value, &value, sizeof value);
    collective(SHUFFLE, mask, &a, line, file);
    memcpy(&value, &a.result, sizeof value);
    return value;
}

inline unsigned vote(Op op, unsigned mask, unsigned value, int line, const char *file)
{
    VoteArgument a = {value, 0};
    collective(op, mask, &a, line, file);
    return a.result;
}

inline int lane()
{
    return (int)simt_thread->lane;
}

/* Returns the first lane of the segment of `width` lanes that contains the lane. */
inline int segment(int lane, int width)
{
    return lane & ~(width - 1);
}

} // namespace simt

#endif
