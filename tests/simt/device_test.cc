/* Checks the operations of device/ against the PTX ISA and IEEE 754. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>

#include "tests/simt/device.h"
#include "tests/simt/simt.h"

static int n_bad;

static void check(bool is_right, const char *what, long i)
{
    if (!is_right && n_bad++ < 20)
        printf("FAIL %s, %ld\n", what, i);
}

/* ---- halves ---- */

/* Returns the value of a positive finite float with `fraction_bits` and this exponent bias. */
static double value_of(unsigned bits, int fraction_bits, int bias)
{
    int exponent = (int)(bits >> fraction_bits);
    double fraction = bits & ((1u << fraction_bits) - 1), one = 1u << fraction_bits;
    return exponent ? ldexp(one + fraction, exponent - bias - fraction_bits)
                    : ldexp(fraction, 1 - bias - fraction_bits);
}

/* Every value converts back; a number between two values goes to the nearer one, a tie to the even one; all NaNs become
 * one NaN. */
static void check_half(const char *what, int fraction_bits, int bias, uint16_t (*of_f32)(float),
                       float (*to_f32)(uint16_t))
{
    uint16_t infinity = (uint16_t)((2 * bias + 1) << fraction_bits);
    for (unsigned h = 0; h < infinity; h++) {
        float x = (float)value_of(h, fraction_bits, bias);
        double next = value_of(h + 1, fraction_bits, bias); /* after the largest: where infinity begins */
        float middle = (float)((x + next) / 2);
        bool is_exact = middle == (x + next) / 2; /* not exact between bf16's denormals */
        for (unsigned sign = 0; sign <= 0x8000; sign += 0x8000) {
            float s = sign ? -1.0f : 1.0f;
            check(to_f32((uint16_t)(h | sign)) == s * x, what, h);
            check(of_f32(copysignf(x, s)) == (h | sign), what, h);
            check(of_f32(s * nextafterf(middle, 0.0f)) == (h | sign), what, h);
            if (is_exact && isfinite(middle)) {
                check(of_f32(s * middle) == (((h & 1) ? h + 1 : h) | sign), what, h);
                check(of_f32(s * nextafterf(middle, INFINITY)) == ((h + 1) | sign), what, h);
            }
        }
    }
    check(of_f32(INFINITY) == infinity && of_f32(-INFINITY) == (infinity | 0x8000), what, infinity);
    check(to_f32(infinity) == INFINITY && to_f32(infinity | 0x8000) == -INFINITY, what, infinity);
    check(of_f32(__uint_as_float(0x7f800001)) == 0x7fff && of_f32(__uint_as_float(0xffc00000)) == 0x7fff, what, -1);
    for (unsigned h = infinity + 1u; h < 0x8000; h++)
        check(isnan(to_f32((uint16_t)h)) && isnan(to_f32((uint16_t)(h | 0x8000))), what, h);
}

/* ---- one thread's integers ---- */

static void check_scalars()
{
    const struct {
        bool is_right;
        const char *what;
    } checks[] = {
        {__float2int_rn(2.5f) == 2 && __float2int_rn(-3.5f) == -4, "rn to even"},
        {__float2int_rz(-2.9f) == -2 && __float2int_rd(-2.1f) == -3, "rz and rd"},
        {__float2int_rn(3e9f) == INT32_MAX && __float2int_rn(-3e9f) == INT32_MIN, "s32 saturates"},
        {__float2uint_rz(-1.0f) == 0 && __float2uint_rz(5e9f) == UINT32_MAX, "u32 saturates"},
        {__float2int_rn(NAN) == 0 && __double2int_rz((double)NAN) == INT32_MIN, "NaN to 32 bits"},
        {__double2ll_rn(1e19) == INT64_MAX && __double2ll_rn(-1e19) == INT64_MIN, "s64 saturates"},
        {__double2ull_rz(1.8e19) == 18000000000000000000ull && __double2ull_rz(2e19) == UINT64_MAX, "u64"},
        {__clz(0) == 32 && __clz(1) == 31 && __clz(-1) == 0 && __clzll(0) == 64 && __clzll(1ll << 40) == 23, "clz"},
        {__ffs(0) == 0 && __ffs(8) == 4 && __ffsll(1ll << 40) == 41, "ffs"},
        {__popc(0xf0f0u) == 8 && __popcll(~0ull) == 64, "popc"},
        {__brev(1u) == 1u << 31 && __brev(0x12345678u) == 0x1e6a2c48u && __brevll(2) == 1ull << 62, "brev"},
        {__mulhi(-1, 2) == -1 && __umulhi(~0u, ~0u) == ~0u - 1 && __umul64hi(~0ull, 3) == 2, "mulhi"},
        {__funnelshift_l(0x80000000u, 1u, 1) == 3 && __funnelshift_r(1u, 3u, 1) == 0x80000000u, "funnelshift"},
        {__byte_perm(0x33221100u, 0x77665544u, 0x7150u) == 0x77115500u, "byte_perm"},
        {__byte_perm(0x00000080u, 0u, 0x1118u) == 0x000000ffu, "byte_perm, sign"},
        {min(-1, 2u) == 2u && max(-1, 2u) == ~0u && min(1.0f, NAN) == 1.0f && max(NAN, 1.0f) == 1.0f, "min and max"},
        {__hiloint2double(__double2hiint(1.1), __double2loint(1.1)) == 1.1, "halves of a double"},
        {__fmaf_rn(1 + 0x1p-12f, 1 + 0x1p-12f, -1.0f) == 0x1p-11f + 0x1p-24f, "fma"},
        {alignof(float4) == 16 && alignof(ushort4) == 8 && alignof(uchar4) == 4 && alignof(float3) == 4 &&
             alignof(double2) == 16 && alignof(__half2) == 4 && sizeof(__half) == 2,
         "layouts"},
    };
    for (auto &c : checks)
        check(c.is_right, c.what, 0);
}

/* ---- a warp ---- */

/* PTX ISA, shfl.sync: the source lane of this lane. b is the operand, c the clamp and segment mask of a width. */
static int source_lane(int lane, char mode, int b, int width)
{
    int c = (32 - width) << 8 | (mode == 'u' ? 0 : 0x1f);
    int bval = b & 0x1f, cval = c & 0x1f, mask = c >> 8 & 0x1f;
    int max_lane = (lane & mask) | (cval & ~mask), min_lane = lane & mask;
    int j = mode == 'u'   ? lane - bval
            : mode == 'd' ? lane + bval
            : mode == 'b' ? lane ^ bval
                          : min_lane | (bval & ~mask);
    bool is_valid = mode == 'u' ? j >= max_lane : j <= max_lane;
    return is_valid ? j : lane;
}

static void check_shuffles()
{
    for (uint32_t width = 1; width <= 32; width *= 2)
        for (uint32_t operand = 0; operand < 32; operand++) {
            struct shuffles s = {};
            s.width = width;
            s.operand = operand;
            run_shuffles(&s);
            auto value = [](int lane) { return 1000000000000ull * ((unsigned)lane + 1); };
            for (int lane = 0; lane < 32; lane++) {
                auto from = [&](char mode) { return source_lane(lane, mode, (int)operand, (int)width); };
                check(s.index[lane] == value(from('i')), "__shfl_sync", lane);
                check(s.up[lane] == value(from('u')), "__shfl_up_sync", lane);
                check(s.down[lane] == value(from('d')), "__shfl_down_sync", lane);
                check(s.bfly[lane] == value(from('b')), "__shfl_xor_sync", lane);
                check(s.index_f32[lane] == (float)from('i'), "__shfl_sync of f32", lane);
                check(s.bfly_f64[lane] == (double)from('b'), "__shfl_xor_sync of f64", lane);
            }
        }
}

static void check_votes()
{
    uint32_t random = 3;
    for (uint32_t mask : {~0u, 0x0000ffffu, 0x80000001u, 0x00000010u}) {
        struct votes v = {};
        v.mask = mask;
        uint32_t ballot = 0, add = 0, low = ~0u, high = 0;
        int32_t signed_low = INT32_MAX, signed_high = INT32_MIN;
        bool any = false, all = true;
        for (int lane = 0; lane < 32; lane++) {
            random = random * 1664525u + 1013904223u;
            uint32_t x = v.value[lane] = random ^ random >> 16;
            if (!(mask >> lane & 1))
                continue;
            ballot |= (x & 1) << lane;
            add += x;
            low = std::min(low, x);
            high = std::max(high, x);
            signed_low = std::min(signed_low, (int32_t)x);
            signed_high = std::max(signed_high, (int32_t)x);
            any |= (x & 2) != 0;
            all &= (x & 4) != 0;
        }
        run_votes(&v);
        for (int lane = 0; lane < 32; lane++) {
            if (!(mask >> lane & 1))
                continue;
            check(v.ballot[lane] == ballot && v.any[lane] == any && v.all[lane] == all, "votes", lane);
            check(v.add[lane] == add && v.min[lane] == low && v.max[lane] == high, "reductions", lane);
            check(v.signed_min[lane] == signed_low && v.signed_max[lane] == signed_high, "signed reductions", lane);
        }
    }
}

/* ---- blocks ---- */

static void check_indices()
{
    static struct indices out[n_indices];
    run_indices(out);
    for (uint32_t i = 0; i < n_indices; i++) {
        uint32_t t = i % 105, b = i / 105;
        const uint32_t expected[] = {t % 5, t / 5 % 7, t / 35, b % 3, b / 3 % 2, b / 6, 5,           7,
                                     3,     3,         2,      2,     35,        1,     2 * b >= 105};
        check(!memcmp(&out[i], expected, sizeof expected), "indices and barriers with a predicate", i);
    }
}

static void check_atomics()
{
    const uint32_t n = 40 * 64, sum = n * (n - 1) / 2;
    struct atomics a = {};
    a.min = ~0u;
    a.signed_max = INT32_MIN;
    a.last = n;
    run_atomics(&a);
    uint32_t xor_all = 0;
    for (uint32_t i = 0; i < n; i++)
        xor_all ^= i;
    for (uint32_t bits : a.or_bits)
        check(bits == ~0u, "atomicOr", 0);
    check(a.add == sum && a.in_shared == sum && a.signed_sub == -(int32_t)sum, "atomicAdd, atomicSub", 0);
    check(a.max == n - 1 && a.min == 0 && a.xor_all == xor_all, "atomicMax, atomicMin, atomicXor", 0);
    check(a.signed_max == (int32_t)n - 5001 && a.signed_min == -5000, "atomicMax, atomicMin, signed", 0);
    check(a.add64 == (uint64_t)sum << 32 && a.max64 == (uint64_t)(n - 1) << 40, "atomics of 64 bits", 0);
    check(a.add_f32 == (float)n / 2, "atomicAdd of f32", 0);
    check(a.exchanged_sum + a.last == (uint64_t)sum + n, "atomicExch", 0); /* each value occurred once */
    check(a.by_cas == 3 * n, "atomicCAS", 0);
    check(a.wrapped == n % 1000 && a.n_wraps == n / 1000, "atomicInc", 0);
}

int main()
{
    check_half("f16", 10, 15, simt_f16_of_f32, simt_f32_of_f16);
    check(__float_as_uint(simt_f32_of_f16(0xfc01)) == 0x7fffffff, "f16's NaN", 0);
    check_half("bf16", 7, 127, simt_bf16_of_f32, simt_f32_of_bf16);
    check_scalars();
    for (simt::order = simt::ORDER_FORWARD; simt::order <= simt::ORDER_RANDOM; simt::order++) {
        check_shuffles();
        check_votes();
        check_indices();
        check_atomics();
    }
    for (const std::string &fault : simt::take_faults()) {
        printf("FAIL %s\n", fault.c_str());
        n_bad++;
    }
    printf("%s conversions, integers, shuffles, votes, barriers, atomics\n", n_bad ? "FAIL" : "ok");
    return n_bad != 0;
}
