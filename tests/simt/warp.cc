/* The collective operations of a warp: the last lane of the mask to arrive computes for all. */
#include <string.h>

#include "tests/simt/state.h"

namespace simt
{

static const char *const op_names[] = {"shuffle",    "vote",     "reduce_add",     "reduce_min", "reduce_max",
                                       "__syncwarp", "ldmatrix", "ldmatrix.trans", "mma.f16",    "mma.s8"};

/* Loops over the lanes of a mask, from 0 up. */
#define FOR_LANES(lane, mask) \
    for (unsigned rest_ = (mask), lane; rest_ && (lane = (unsigned)__builtin_ctz(rest_), true); rest_ &= rest_ - 1)

static void shuffle(const Meeting &m)
{
    FOR_LANES(lane, m.mask)
    {
        auto *a = (ShuffleArgument *)m.argument[lane];
        if (!(m.mask >> a->from & 1))
            fault("BAD_MASK", true, nullptr, "shuffle from lane %d, which is not in mask %#x, at %s:%d", a->from,
                  m.mask, m.file, m.line);
        a->result = ((ShuffleArgument *)m.argument[a->from])->value;
    }
}

static void vote(const Meeting &m)
{
    unsigned result = m.op == REDUCE_MIN ? ~0u : 0;
    FOR_LANES(lane, m.mask)
    {
        unsigned value = ((VoteArgument *)m.argument[lane])->value;
        result = m.op == BALLOT       ? result | value << lane
                 : m.op == REDUCE_ADD ? result + value
                 : m.op == REDUCE_MIN ? min(result, value)
                                      : max(result, value);
    }
    FOR_LANES(lane, m.mask)((VoteArgument *)m.argument[lane])->result = result;
}

static void ldmatrix(const Meeting &m)
{
    uint16_t matrix[4][8][8]; /* lane 8 i + r supplies row r of matrix i */
    for (int lane = 0; lane < 32; lane++)
        memcpy(matrix[lane / 8][lane % 8], ((LdmatrixArgument *)m.argument[lane])->row, 16);
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++) {
            int g = lane / 4, t = 2 * (lane % 4);
            uint16_t low = m.op == LDMATRIX ? matrix[i][g][t] : matrix[i][t][g];
            uint16_t high = m.op == LDMATRIX ? matrix[i][g][t + 1] : matrix[i][t + 1][g];
            ((LdmatrixArgument *)m.argument[lane])->result[i] = low | (uint32_t)high << 16;
        }
}

/* Checks a row's address for the lane that supplies it, before the lanes meet. */
static void check_row(const void *row, int line, const char *file, const void *code)
{
    if ((uintptr_t)row % 16)
        fault("MISALIGNED", true, nullptr, "ldmatrix of a row at %p at %s:%d", row, file, line);
    if (instrumented)
        access(row, 16, READ, code);
}

/* Returns the meeting of lanes with this operation and mask, new or begun. A lane may arrive at one operation while
 * others of the warp wait in another, as on hardware since sm_70; but they must not wait for each other. */
static Meeting *find_meeting(Fiber *f, Op op, unsigned mask, int line, const char *file)
{
    Warp *w = f->warp;
    FOR_LANES(i, w->open)
    {
        Meeting &m = w->meetings[i];
        if (m.mask == mask && m.op == op && m.line == line && (m.file == file || !strcmp(m.file, file)))
            return &m;
        if ((m.arrived & mask) && (m.mask >> f->lane & 1))
            fault("DIVERGENT_WARP_OP", true, nullptr,
                  "%s with mask %#x at %s:%d while lanes %#x are in %s with mask %#x at %s:%d", op_names[op], mask,
                  file, line, m.arrived, op_names[m.op], m.mask, m.file, m.line);
    }
    constexpr unsigned n_meetings = sizeof w->meetings / sizeof w->meetings[0];
    unsigned i = (unsigned)__builtin_ctz(~w->open);
    if (i >= n_meetings)
        fault("DIVERGENT_WARP_OP", true, nullptr, "%s at %s:%d: the warp is in %u other operations", op_names[op], file,
              line, n_meetings);
    w->open |= 1u << i;
    Meeting &m = w->meetings[i];
    m.mask = mask;
    m.arrived = 0;
    m.op = op;
    m.line = line;
    m.file = file;
    return &m;
}

void collective(Op op, unsigned mask, void *argument, int line, const char *file)
{
    Fiber *f = this_fiber();
    Warp *w = f->warp;
    unsigned lanes_left = f->block->n_threads - f->index / 32 * 32;
    if (op == SYNCWARP && lanes_left < 32)
        mask &= (1u << lanes_left) - 1;
    if (!(mask >> f->lane & 1) || (mask & ~w->alive))
        fault("BAD_MASK", true, nullptr, "%s with mask %#x at %s:%d: a lane is absent or has exited", op_names[op],
              mask, file, line);
    if (op == LDMATRIX || op == LDMATRIX_TRANS)
        check_row(((LdmatrixArgument *)argument)->row, line, file, __builtin_return_address(0));

    Meeting *m = find_meeting(f, op, mask, line, file);
    m->argument[f->lane] = argument;
    m->arrived |= 1u << f->lane;
    if (m->arrived != mask)
        return wait_here(f, op_names[op], line, file);

    switch (op) {
    case SHUFFLE: shuffle(*m); break;
    case BALLOT:
    case REDUCE_ADD:
    case REDUCE_MIN:
    case REDUCE_MAX: vote(*m); break;
    case SYNCWARP: /* the only one that orders memory; for the whole warp even if the mask is a part of it */
        w->epoch++;
        break;
    case LDMATRIX:
    case LDMATRIX_TRANS: ldmatrix(*m); break;
    case MMA_F16: mma_f16(*m); break;
    case MMA_S8: mma_s8(*m); break;
    }
    w->open &= ~(1u << (m - w->meetings));
    w->ready |= mask;
    f->block->ready |= 1u << f->index / 32;
}

} // namespace simt
