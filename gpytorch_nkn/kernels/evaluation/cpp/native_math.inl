// Vectors of double and branch-free elementary functions on them, for one instruction set.
// native.cpp includes this file once per instruction set, in separate namespaces and targets. It
// defines NKN_WIDTH (numbers in a vector) and, for x86 extensions, NKN_AVX512 or NKN_AVX2.

constexpr int WIDTH = NKN_WIDTH;

typedef double Vec __attribute__((vector_size(8 * NKN_WIDTH), may_alias));
typedef uint64_t Bits __attribute__((vector_size(8 * NKN_WIDTH), may_alias));

#define NKN_INLINE static inline __attribute__((always_inline))

NKN_INLINE Vec load(const double* p) { return *reinterpret_cast<const Vec*>(p); }
NKN_INLINE void store(double* p, Vec x) { *reinterpret_cast<Vec*>(p) = x; }
NKN_INLINE Vec broadcast(double x) { return x - Vec{}; }

// Adding and subtracting this number rounds to an integer; the lowest bits of the sum contain it.
constexpr double SHIFTER = 0x1.8p52;
constexpr uint64_t ONE_BITS = 0x3ff0000000000000;
constexpr uint64_t MAGNITUDE_BITS = 0x7fffffffffffffff;

#if defined(NKN_AVX512)
// With the unmasked intrinsics, GCC warns about uninitialised values.
constexpr __mmask8 ALL_LANES = 0xff;
#endif

NKN_INLINE Vec from_bits(Bits x) { return (Vec)x; }
NKN_INLINE Bits to_bits(Vec x) { return (Bits)x; }

// Return the maximum of x and a bound; NaN remains NaN.
NKN_INLINE Vec at_least(double bound, Vec x) {
#if defined(NKN_AVX512)
    return (Vec)_mm512_maskz_max_pd(ALL_LANES, (__m512d)broadcast(bound), (__m512d)x);
#elif defined(NKN_AVX2)
    return (Vec)_mm256_max_pd((__m256d)broadcast(bound), (__m256d)x);
#else
    return x < bound ? broadcast(bound) : x;
#endif
}

NKN_INLINE Vec at_most(double bound, Vec x) {
#if defined(NKN_AVX512)
    return (Vec)_mm512_maskz_min_pd(ALL_LANES, (__m512d)broadcast(bound), (__m512d)x);
#elif defined(NKN_AVX2)
    return (Vec)_mm256_min_pd((__m256d)broadcast(bound), (__m256d)x);
#else
    return x > bound ? broadcast(bound) : x;
#endif
}

NKN_INLINE Vec square_root(Vec x) {
#if defined(NKN_AVX512)
    return (Vec)_mm512_maskz_sqrt_pd(ALL_LANES, (__m512d)x);
#elif defined(NKN_AVX2)
    return (Vec)_mm256_sqrt_pd((__m256d)x);
#else
    Vec root;
    for (int k = 0; k < WIDTH; ++k) root[k] = __builtin_sqrt(x[k]);
    return root;
#endif
}

NKN_INLINE Vec nearest_integer(Vec x) {
#if defined(NKN_AVX512)
    return (Vec)_mm512_maskz_roundscale_pd(ALL_LANES, (__m512d)x,
                                           _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif defined(NKN_AVX2)
    return (Vec)_mm256_round_pd((__m256d)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
    const Vec rounded = (x + SHIFTER) - SHIFTER;
    const Vec magnitude = from_bits(to_bits(x) & MAGNITUDE_BITS);
    return magnitude < 0x1p51 ? rounded : x;  // larger numbers are treated as integers
#endif
}

// x 2^n for an integer n of magnitude below 2100, by two factors because 2^n may not be normal.
NKN_INLINE Vec scale_by_power(Vec x, Vec n) {
#if defined(NKN_AVX512)
    return (Vec)_mm512_maskz_scalef_pd(ALL_LANES, (__m512d)x, (__m512d)n);
#else
    const Vec half = n * 0.5 + SHIFTER;
    const Vec rest = (n - (half - SHIFTER)) + SHIFTER;
    const Vec first = from_bits((to_bits(half) << 52) + ONE_BITS);
    const Vec second = from_bits((to_bits(rest) << 52) + ONE_BITS);
    return x * first * second;
#endif
}

// 1 / x with an error of about 1 ulp, if x is neither tiny nor huge.
NKN_INLINE Vec reciprocal(Vec x) {
#if defined(NKN_AVX512)
    Vec inverse = (Vec)_mm512_maskz_rcp14_pd(ALL_LANES, (__m512d)x);
    inverse += inverse * (1.0 - x * inverse);
    inverse += inverse * (1.0 - x * inverse);
    return inverse;
#else
    return 1.0 / x;
#endif
}

// exp(x) = 2^power (1 + fraction) with a small relative error of the fraction, for |x| <= 1400.
struct Exponential {
    Vec power, fraction;
};

NKN_INLINE Exponential split_exponential(Vec x) {
    const Vec n = (x * 0x1.71547652b82fep0 + SHIFTER) - SHIFTER;
    const Vec r = (x - n * 0x1.62e42fee00000p-1) - n * 0x1.a39ef35793c76p-33;
    const Vec r2 = r * r;
    const Vec r4 = r2 * r2;
    const Vec q0 = r * 0x1.5555555555555p-3 + 0.5;
    const Vec q2 = r * 0x1.1111111110e6ap-7 + 0x1.5555555554cb7p-5;
    const Vec q4 = r * 0x1.a01a01a4b322fp-13 + 0x1.6c16c1738ff55p-10;
    const Vec q6 = r * 0x1.71de17e40edfep-19 + 0x1.a019c9a5652d3p-16;
    const Vec q8 = r * 0x1.af236aac51d05p-26 + 0x1.2880411bad1aap-22;
    const Vec q = ((q8 * r4 + (q6 * r2 + q4)) * r4) + (q2 * r2 + q0);
    return {n, q * r2 + r};
}

#if defined(NKN_AVX512)

// 2^(k / 16)
alignas(64) constexpr double SIXTEENTHS[16] = {
    0x1.0000000000000p+0, 0x1.0b5586cf9890fp+0, 0x1.172b83c7d517bp+0, 0x1.2387a6e756238p+0,
    0x1.306fe0a31b715p+0, 0x1.3dea64c123422p+0, 0x1.4bfdad5362a27p+0, 0x1.5ab07dd485429p+0,
    0x1.6a09e667f3bcdp+0, 0x1.7a11473eb0187p+0, 0x1.8ace5422aa0dbp+0, 0x1.9c49182a3f090p+0,
    0x1.ae89f995ad3adp+0, 0x1.c199bdd85529cp+0, 0x1.d5818dcfba487p+0, 0x1.ea4afa2a490dap+0,
};

// With a table of sixteenths of powers of two, the polynomial needs half as many terms.
NKN_INLINE Vec bounded_exponential(Vec x) {
    const Vec shifted = x * 0x1.71547652b82fep+4 + SHIFTER;
    const Vec n = shifted - SHIFTER;
    const Vec r = (x - n * 0x1.62e42fee00000p-5) - n * 0x1.a39ef35793c76p-37;
    const Vec r2 = r * r;
    const Vec q0 = r * 0x1.55555554dcc9bp-3 + 0.5;
    const Vec q2 = r * 0x1.11120b77051e7p-7 + 0x1.55555555190f9p-5;
    const Vec q = ((r2 * 0x1.6c17bbd1f560ap-10 + q2) * r2 + q0) * r2 + r;
    const Vec sixteenth =
        (Vec)_mm512_permutex2var_pd(_mm512_load_pd(SIXTEENTHS), (__m512i)shifted,
                                    _mm512_load_pd(SIXTEENTHS + 8));
    return scale_by_power(sixteenth * q + sixteenth, n * 0.0625);  // rounds the power down
}

#else

NKN_INLINE Vec bounded_exponential(Vec x) {
    const Exponential e = split_exponential(x);
    return scale_by_power(1.0 + e.fraction, e.power);
}

#endif

constexpr double LOWEST_EXPONENT = -750.0, HIGHEST_EXPONENT = 710.0;

NKN_INLINE Vec exponential(Vec x) {
    return bounded_exponential(at_most(HIGHEST_EXPONENT, at_least(LOWEST_EXPONENT, x)));
}

// exp(x) for x of at most 1400, usually negative
NKN_INLINE Vec decay(Vec x) { return bounded_exponential(at_least(LOWEST_EXPONENT, x)); }

// exp(x) - 1 for the same x as decay
NKN_INLINE Vec decay_minus_one(Vec x) {
    const Exponential e = split_exponential(at_least(LOWEST_EXPONENT, x));
    const Vec power = scale_by_power(broadcast(1.0), e.power);
    return scale_by_power(e.fraction, e.power) + (power - 1.0);
}

// log(1 + z) for z >= 0; the reduction and polynomial are those of fdlibm's log1p.
NKN_INLINE Vec log_one_plus(Vec z) {
    const Vec u = 1.0 + z;
    const Vec lost = z - (u - 1.0);  // what rounding to u dropped, exactly (u < 2^53)
    constexpr uint64_t SQRT_HALF_BITS = 0x3fe6a09e667f3bcd;
    const Bits exponent = (to_bits(u) - SQRT_HALF_BITS) >> 52;
    const Bits shift = exponent << 52;
    const Vec power = from_bits(exponent + to_bits(broadcast(SHIFTER))) - SHIFTER;
    // u / 2^exponent lies between sqrt(1/2) and sqrt(2)
    const Vec f = lost * from_bits(ONE_BITS - shift) + (from_bits(to_bits(u) - shift) - 1.0);
    const Vec s = f / (2.0 + f);
    const Vec s2 = s * s;
    const Vec s4 = s2 * s2;
    const Vec p0 = s2 * 0x1.999999997fa04p-2 + 0x1.5555555555593p-1;
    const Vec p2 = s2 * 0x1.c71c51d8e78afp-3 + 0x1.2492494229359p-2;
    const Vec p4 = s2 * 0x1.39a09d078c69fp-3 + 0x1.7466496cb03dep-3;
    const Vec p = ((s4 * 0x1.2f112df3e5244p-3 + p4) * s4 + p2) * s4 + p0;
    const Vec half_square = 0.5 * f * f;
    const Vec tail = s * (half_square + s2 * p) + power * 0x1.a39ef35793c76p-33;
    const Vec result = power * 0x1.62e42fee00000p-1 - ((half_square - tail) - f);
    return u < __builtin_inf() ? result : z;
}

// sin(pi t) for |t| <= 1/2. With the period divided out before, arguments of any size are exact.
NKN_INLINE Vec sine_of_half_turns(Vec t) {
    const Vec w = t * t;
    Vec p = w * 0x1.9ec5cdbeecd34p-21 - 0x1.6f866b70b27bdp-16;
    p = p * w + 0x1.e8f3b0121aafdp-12;
    p = p * w - 0x1.e3074ee5f4a61p-8;
    p = p * w + 0x1.50783486f190cp-4;
    p = p * w - 0x1.32d2cce62adb9p-1;
    p = p * w + 0x1.466bc6775aad6p+1;
    p = p * w - 0x1.4abbce625be53p+2;
    // pi t = 2 t + (pi - 2) t, where 2 t is exact, has a smaller error
    return t * (p * w + 0x1.243f6a8885a31p+0) + (t + t);
}

// cos(pi t) for |t| <= 1/2
NKN_INLINE Vec cosine_of_half_turns(Vec t) {
    return sine_of_half_turns(0.5 - from_bits(to_bits(t) & MAGNITUDE_BITS));
}
