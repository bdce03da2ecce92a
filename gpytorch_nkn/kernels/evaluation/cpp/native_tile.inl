// Evaluation of a network and its gradient by chunks of matrix entries, for one instruction set.
// native.cpp includes this file like native_math.inl. Do not use standard-library templates here,
// see native_plan.h.

// Number of vectors of a row that loops of dense layers process together, limited by registers.
constexpr int SPAN = WIDTH == 8 ? 4 : 2;
constexpr int OUTER_IN = WIDTH == 8 ? 4 : 2;
constexpr int BLOCK = 8 * WIDTH < CHUNK ? 8 * WIDTH : CHUNK;

NKN_INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

NKN_INLINE double sum_of(const double* values, int64_t count) {
    double sum = 0.0;
#pragma omp simd reduction(+ : sum)
    for (int64_t k = 0; k < count; ++k) sum += values[k];
    return sum;
}

NKN_INLINE void set_zero(double* row) {
    for (int v = 0; v < CHUNK; v += WIDTH) store(row + v, Vec{});
}

NKN_INLINE void add_to_slot(double* slot, Vec x) { store(slot, load(slot) + x); }

// slot += sum of a b over the chunk
NKN_INLINE void accumulate_product(double* slot, const double* a, const double* b) {
    Vec sum{};
    for (int v = 0; v < CHUNK; v += WIDTH) sum += load(a + v) * load(b + v);
    add_to_slot(slot, sum);
}

NKN_INLINE void accumulate(double* slot, const double* a) {
    Vec sum{};
    for (int v = 0; v < CHUNK; v += WIDTH) sum += load(a + v);
    add_to_slot(slot, sum);
}

// ---------------------------------------------------------------------------------- dense layers

// out_o = bias_o + sum_i weights[o stride_out + i stride_in] in_i for NUM_OUT rows
template <int NUM_OUT>
NKN_INLINE void combine_rows(const double* weights, int64_t stride_out, int64_t stride_in,
                             const double* bias, const double* in, int num_in, double* out) {
    for (int v = 0; v < CHUNK; v += SPAN * WIDTH) {
        Vec sum[NUM_OUT][SPAN];
        for (int o = 0; o < NUM_OUT; ++o)
            for (int s = 0; s < SPAN; ++s) sum[o][s] = bias ? broadcast(bias[o]) : Vec{};
        for (int i = 0; i < num_in; ++i) {
            const double* row = in + i * CHUNK + v;
            for (int o = 0; o < NUM_OUT; ++o) {
                const Vec weight = broadcast(weights[o * stride_out + i * stride_in]);
                for (int s = 0; s < SPAN; ++s) sum[o][s] += weight * load(row + s * WIDTH);
            }
        }
        for (int o = 0; o < NUM_OUT; ++o)
            for (int s = 0; s < SPAN; ++s) store(out + o * CHUNK + v + s * WIDTH, sum[o][s]);
    }
}

static void combine(const double* weights, int64_t stride_out, int64_t stride_in,
                    const double* bias, const double* in, int num_in, double* out, int num_out) {
    int o = 0;
    for (; o + 4 <= num_out; o += 4)
        combine_rows<4>(weights + o * stride_out, stride_out, stride_in, bias ? bias + o : nullptr,
                        in, num_in, out + o * CHUNK);
    weights += o * stride_out;
    bias = bias ? bias + o : nullptr;
    out += o * CHUNK;
    switch (num_out - o) {
        case 3: combine_rows<3>(weights, stride_out, stride_in, bias, in, num_in, out); break;
        case 2: combine_rows<2>(weights, stride_out, stride_in, bias, in, num_in, out); break;
        case 1: combine_rows<1>(weights, stride_out, stride_in, bias, in, num_in, out); break;
    }
}

// slots[o num_in + i] += sum of d_out_o in_i over the chunk, for NUM_OUT x NUM_IN pairs
template <int NUM_OUT, int NUM_IN>
NKN_INLINE void accumulate_outer(const double* d_out, const double* in, int num_in,
                                 double* slots) {
    Vec sum[NUM_OUT][NUM_IN] = {};
    for (int v = 0; v < CHUNK; v += WIDTH)
        for (int o = 0; o < NUM_OUT; ++o) {
            const Vec d = load(d_out + o * CHUNK + v);
            for (int i = 0; i < NUM_IN; ++i) sum[o][i] += d * load(in + i * CHUNK + v);
        }
    for (int o = 0; o < NUM_OUT; ++o)
        for (int i = 0; i < NUM_IN; ++i)
            add_to_slot(slots + (static_cast<int64_t>(o) * num_in + i) * LANES, sum[o][i]);
}

template <int NUM_OUT>
NKN_INLINE void accumulate_outer_rows(const double* d_out, const double* in, int num_in,
                                      double* slots) {
    int i = 0;
    for (; i + OUTER_IN <= num_in; i += OUTER_IN)
        accumulate_outer<NUM_OUT, OUTER_IN>(d_out, in + i * CHUNK, num_in, slots + i * LANES);
    for (; i < num_in; ++i)
        accumulate_outer<NUM_OUT, 1>(d_out, in + i * CHUNK, num_in, slots + i * LANES);
}

static void dense_weights_gradient(const double* d_out, int num_out, const double* in, int num_in,
                                   double* slots) {
    const int64_t step = static_cast<int64_t>(num_in) * LANES;
    int o = 0;
    for (; o + 4 <= num_out; o += 4)
        accumulate_outer_rows<4>(d_out + o * CHUNK, in, num_in, slots + o * step);
    d_out += o * CHUNK;
    slots += o * step;
    switch (num_out - o) {
        case 3: accumulate_outer_rows<3>(d_out, in, num_in, slots); break;
        case 2: accumulate_outer_rows<2>(d_out, in, num_in, slots); break;
        case 1: accumulate_outer_rows<1>(d_out, in, num_in, slots); break;
    }
}

// ---------------------------------------------------------------------------------- other layers

static void product_forward(const Layer& layer, const double* in, double* out) {
    int start = 0;
    for (int o = 0; o < layer.num_out; ++o) {
        const int group = static_cast<int>(layer.coefficients[o]);
        for (int v = 0; v < CHUNK; v += WIDTH) {
            const double* factors = in + start * CHUNK + v;
            Vec product = load(factors);
            for (int i = 1; i < group; ++i) product *= load(factors + i * CHUNK);
            store(out + o * CHUNK + v, product);
        }
        start += group;
    }
}

static void product_backward(const Layer& layer, const double* in, const double* d_out,
                             double* d_in) {
    int start = 0;
    for (int o = 0; o < layer.num_out; ++o) {
        const int group = static_cast<int>(layer.coefficients[o]);
        for (int v = 0; v < CHUNK; v += WIDTH) {
            const double* factors = in + start * CHUNK + v;
            double* d_factors = d_in + start * CHUNK + v;
            Vec before = load(d_out + o * CHUNK + v);
            for (int i = 0; i < group; ++i) {
                store(d_factors + i * CHUNK, before);
                before *= load(factors + i * CHUNK);
            }
            Vec after = load(factors + (group - 1) * CHUNK);
            for (int i = group - 2; i >= 0; --i) {
                store(d_factors + i * CHUNK, load(d_factors + i * CHUNK) * after);
                after *= load(factors + i * CHUNK);
            }
        }
        start += group;
    }
}

static void polynomial_forward(const Layer& layer, const double* in, double* out) {
    for (int v = 0; v < layer.num_in * CHUNK; v += WIDTH) {
        const Vec z = load(in + v);
        Vec value{};
        for (int k = layer.num_coefficients - 1; k >= 0; --k)
            value = value * z + layer.coefficients[k];
        store(out + v, value);
    }
}

static void polynomial_backward(const Layer& layer, const double* in, const double* d_out,
                                double* d_in) {
    for (int v = 0; v < layer.num_in * CHUNK; v += WIDTH) {
        const Vec z = load(in + v);
        Vec slope{};
        for (int k = layer.num_coefficients - 1; k >= 1; --k)
            slope = slope * z + k * layer.coefficients[k];
        store(d_in + v, load(d_out + v) * slope);
    }
}

static void exponential_forward(const double* in, double* out, int num_rows) {
    for (int v = 0; v < num_rows * CHUNK; v += WIDTH) store(out + v, exponential(load(in + v)));
}

static void exponential_backward(const double* out, const double* d_out, double* d_in,
                                 int num_rows) {
    for (int v = 0; v < num_rows * CHUNK; v += WIDTH)
        store(d_in + v, load(d_out + v) * load(out + v));
}

static void layer_forward(const Plan& plan, const Layer& layer) {
    const double* in = plan.workspace + layer.in_row * CHUNK;
    double* out = plan.workspace + layer.out_row * CHUNK;
    switch (layer.kind) {
        case DENSE:
            combine(layer.weights, layer.num_in, 1, layer.bias, in, layer.num_in, out,
                    layer.num_out);
            break;
        case PRODUCT:
            product_forward(layer, in, out);
            break;
        case POLYNOMIAL: polynomial_forward(layer, in, out); break;
        case EXPONENTIAL: exponential_forward(in, out, layer.num_in); break;
    }
}

static void layer_backward(const Plan& plan, const Layer& layer, const double* d_out,
                           double* d_in) {
    const double* in = plan.workspace + layer.in_row * CHUNK;
    const double* out = plan.workspace + layer.out_row * CHUNK;
    switch (layer.kind) {
        case DENSE:
            dense_weights_gradient(d_out, layer.num_out, in, layer.num_in,
                                   plan.slots + layer.weight_slot * LANES);
            if (layer.bias)
                for (int o = 0; o < layer.num_out; ++o)
                    accumulate(plan.slots + (layer.bias_slot + o) * LANES, d_out + o * CHUNK);
            combine(layer.weights, 1, layer.num_in, nullptr, d_out, layer.num_out, d_in,
                    layer.num_in);
            break;
        case PRODUCT:
            product_backward(layer, in, d_out, d_in);
            break;
        case POLYNOMIAL: polynomial_backward(layer, in, d_out, d_in); break;
        case EXPONENTIAL: exponential_backward(out, d_out, d_in, layer.num_in); break;
    }
}

// ------------------------------------------------------------------------------------ primitives

// out = sum over the terms of a times the row of their column
static void sum_terms(const Primitive& primitive, const double* rows, double* out) {
    constexpr int VECTORS = BLOCK / WIDTH;
    for (int start = 0; start < CHUNK; start += BLOCK) {
        Vec sum[VECTORS] = {};
        for (int t = 0; t < primitive.num_terms; ++t) {
            const Term& term = primitive.terms[t];
            const double* row = rows + term.column * CHUNK + start;
            const Vec a = broadcast(term.a);
            for (int s = 0; s < VECTORS; ++s) sum[s] += a * load(row + s * WIDTH);
        }
        for (int s = 0; s < VECTORS; ++s) store(out + start + s * WIDTH, sum[s]);
    }
}

static void sum_centered_terms(const Plan& plan, const Primitive& primitive, double* out) {
    for (int v = 0; v < CHUNK; v += WIDTH) {
        Vec sum{};
        for (int t = 0; t < primitive.num_terms; ++t) {
            const Term& term = primitive.terms[t];
            const Vec left = load(plan.workspace + (plan.left + term.column) * CHUNK + v);
            const Vec right = load(plan.workspace + (plan.right + term.column) * CHUNK + v);
            sum += term.a * (left - term.b) * (right - term.b);
        }
        store(out + v, sum);
    }
}

// out = sum over the terms of a sin^2(pi b (x - x')); saves sin^2 and sin cos of each term
template <bool GRADIENT>
NKN_INLINE void sum_periodic_terms(const Plan& plan, const Primitive& primitive, double* saved,
                                   double* out) {
    for (int t = 0; t < primitive.num_terms; ++t) {
        const Term& term = primitive.terms[t];
        const double* difference = plan.workspace + (plan.difference + term.column) * CHUNK;
        for (int v = 0; v < CHUNK; v += WIDTH) {
            const Vec periods = load(difference + v) * term.b;
            const Vec phase = periods - nearest_integer(periods);
            const Vec sine = sine_of_half_turns(phase);
            const Vec square = sine * sine;
            const Vec exponent = term.a * square;
            store(out + v, t == 0 ? exponent : load(out + v) + exponent);
            if (GRADIENT) {
                store(saved + 2 * t * CHUNK + v, square);
                store(saved + (2 * t + 1) * CHUNK + v, sine * cosine_of_half_turns(phase));
            }
        }
    }
}

// exp(-r^2 / 2) cos(2 pi t), with t the sum over the terms of b (x - x'); saves the negative
// derivative with respect to the phase 2 pi t
template <bool GRADIENT>
NKN_INLINE void spectral_values(const Plan& plan, const Primitive& primitive, double* saved,
                                double* out) {
    constexpr int VECTORS = SPAN;
    for (int start = 0; start < CHUNK; start += VECTORS * WIDTH) {
        Vec square[VECTORS] = {}, turns[VECTORS] = {};
        for (int t = 0; t < primitive.num_terms; ++t) {
            const Term& term = primitive.terms[t];
            const double* squares = plan.workspace + (plan.square + term.column) * CHUNK + start;
            const double* differences =
                plan.workspace + (plan.difference + term.column) * CHUNK + start;
            const Vec a = broadcast(term.a), b = broadcast(term.b);
            for (int s = 0; s < VECTORS; ++s) {
                square[s] += a * load(squares + s * WIDTH);
                turns[s] += b * load(differences + s * WIDTH);
            }
        }
        for (int s = 0; s < VECTORS; ++s) {
            const int v = start + s * WIDTH;
            const Vec falling = decay(-0.5 * square[s]);
            const Vec phase = turns[s] - nearest_integer(turns[s]);
            const Vec sine = sine_of_half_turns(phase);  // of half the angle
            store(out + v, falling * (1.0 - 2.0 * sine * sine));
            if (GRADIENT) store(saved + v, 2.0 * falling * sine * cosine_of_half_turns(phase));
        }
    }
}

// Covariance of a walk at times a and b since its origin, and its derivative with respect to a.
// Times before the origin are zero; times of DAMPED_TREND are in lengthscales. NaN remains NaN.
NKN_INLINE Vec earlier(Vec a, Vec b) {
    const Vec early = a <= b ? a : b;
    return a != a ? a : early;
}

// x - e - e^2 / 2 with e = 1 - exp(-x), by a series where cancellation would lose digits
NKN_INLINE Vec damped_variance(Vec x, Vec settled) {
    constexpr double SERIES[] = {  // highest power first
        2.1549737648205952e-12, -2.0472094573725967e-11, 1.8424603970627936e-10,
        -1.5660435427300506e-09, 1.2527583625467223e-08, -9.394540644540644e-08,
        6.574572546794769e-07, -4.2713844797178134e-06, 2.5603254769921436e-05,
        -0.00014054232804232804, 0.0006999559082892416, -0.003125, 0.012301587301587301,
        -0.041666666666666664, 0.11666666666666667, -0.25, 0.3333333333333333,
    };
    Vec series{};
    for (double coefficient : SERIES) series = series * x + coefficient;
    return x < 0.5 ? series * x * x * x : x - settled - 0.5 * settled * settled;
}

template <int KIND>
NKN_INLINE Vec walk_covariance(Vec a, Vec b) {
    const Vec early = earlier(a, b);
    if (KIND == WIENER) return early;
    const Vec late = a < b ? b : a;
    if (KIND == INTEGRATED_WIENER) return early * early * (3.0 * late - early) * (1.0 / 6.0);
    const Vec settled = -decay_minus_one(-early);
    return damped_variance(early, settled) - 0.5 * decay_minus_one(early - late) * settled * settled;
}

template <int KIND>
NKN_INLINE Vec walk_slope(Vec a, Vec b) {
    const Vec early = earlier(a, b);
    if (KIND == WIENER) return a < b ? broadcast(1.0) : a == b ? broadcast(0.5) : Vec{};
    if (KIND == INTEGRATED_WIENER) return early * (b - 0.5 * early);
    const Vec settled = -decay_minus_one(-early), half = 0.5 * settled;
    const Vec between = -decay_minus_one(a < b ? a - b : b - a);
    return settled * (a < b ? half + between * (1.0 - half) : (1.0 - between) * half);
}

NKN_INLINE Vec time_since(Vec apart) { return apart <= 0.0 ? Vec{} : apart; }

template <int KIND>
NKN_INLINE void walk_values(const Plan& plan, const Primitive& primitive, double* out) {
    const Term& term = primitive.terms[0];
    const double* left = plan.workspace + (plan.left + term.column) * CHUNK;
    const double* right = plan.workspace + (plan.right + term.column) * CHUNK;
    const double rate = KIND == DAMPED_TREND ? 1.0 / primitive.parameter : 1.0;
    for (int v = 0; v < CHUNK; v += WIDTH) {
        const Vec a = rate * time_since(load(left + v) - term.b);
        const Vec b = rate * time_since(load(right + v) - term.b);
        store(out + v, term.a * walk_covariance<KIND>(a, b));
    }
}

// Distance from a step in widths, bounded so that the slope far from the step is zero.
NKN_INLINE Vec step_distance(Vec apart, double rate) {
    constexpr double FAR = 700.0;
    const Vec distance = rate * apart;
    const Vec low = distance < -FAR ? broadcast(-FAR) : distance;
    return low > FAR ? broadcast(FAR) : low;
}

NKN_INLINE Vec logistic(Vec z) {
    const Vec falling = decay(z < 0.0 ? z : -z), share = reciprocal(1.0 + falling);
    return z < 0.0 ? falling * share : share;
}

NKN_INLINE void step_values(const Plan& plan, const Primitive& primitive, double* out) {
    const Term& term = primitive.terms[0];
    const double* left = plan.workspace + (plan.left + term.column) * CHUNK;
    const double* right = plan.workspace + (plan.right + term.column) * CHUNK;
    for (int v = 0; v < CHUNK; v += WIDTH) {
        const Vec one = logistic(step_distance(load(left + v) - term.b, term.a));
        const Vec other = logistic(step_distance(load(right + v) - term.b, term.a));
        store(out + v, one * other);
    }
}

// 1 if two codes differ, else 0; NaN if a code is not finite
NKN_INLINE Vec differ(const Plan& plan, const Term& term, int v) {
    const Vec delta = load(plan.workspace + (plan.left + term.column) * CHUNK + v) -
                      load(plan.workspace + (plan.right + term.column) * CHUNK + v);
    return 0.0 * delta + (delta == 0.0 ? Vec{} : broadcast(1.0));
}

// out = sum of a over the terms whose codes differ
NKN_INLINE void sum_differences(const Plan& plan, const Primitive& primitive, double* out) {
    for (int v = 0; v < CHUNK; v += WIDTH) {
        Vec sum{};
        for (int t = 0; t < primitive.num_terms; ++t)
            sum += primitive.terms[t].a * differ(plan, primitive.terms[t], v);
        store(out + v, sum);
    }
}

// The following functions turn a row of exponents or r^2 into values. They save values for the
// gradient: Matern kernels the derivative with respect to r^2, the rational quadratic kernel
// log(1 + z) and z.

NKN_INLINE void decay_values(double* row) {
    for (int v = 0; v < CHUNK; v += WIDTH) store(row + v, decay(load(row + v)));
}

NKN_INLINE void rbf_values(double* row) {
    for (int v = 0; v < CHUNK; v += WIDTH) store(row + v, decay(-0.5 * load(row + v)));
}

template <int KIND, bool GRADIENT>
NKN_INLINE void matern_values(double* row, double* saved) {
    constexpr double SQUARED_RATE = KIND == MATERN12 ? 1.0 : KIND == MATERN32 ? 3.0 : 5.0;
    for (int v = 0; v < CHUNK; v += WIDTH) {
        const Vec r = square_root(SQUARED_RATE * load(row + v));
        const Vec falling = decay(-r);
        Vec value = falling, slope{};
        if (KIND == MATERN12) {
            if (GRADIENT) slope = r == 0.0 ? Vec{} : -0.5 * falling / r;
        } else if (KIND == MATERN32) {
            value = (1.0 + r) * falling;
            slope = -1.5 * falling;
        } else {
            value = (1.0 + r + r * r * (1.0 / 3.0)) * falling;
            slope = (-5.0 / 6.0) * (1.0 + r) * falling;
        }
        store(row + v, value);
        if (GRADIENT) store(saved + v, slope);
    }
}

template <bool GRADIENT>
NKN_INLINE void rational_quadratic_values(double alpha, double* row, double* saved) {
    const double half_inverse = 0.5 / alpha;
    for (int v = 0; v < CHUNK; v += WIDTH) {
        const Vec z = half_inverse * load(row + v);
        const Vec logarithm = log_one_plus(z);
        store(row + v, decay(-alpha * logarithm));
        if (GRADIENT) {
            store(saved + v, logarithm);
            store(saved + CHUNK + v, z);
        }
    }
}

template <bool GRADIENT>
NKN_INLINE void zero_mean_values(double amplitude, double* row, double* saved) {
    for (int v = 0; v < CHUNK; v += WIDTH) {
        const Vec change = decay_minus_one(load(row + v));
        store(row + v, 1.0 + amplitude * change);
        if (GRADIENT) store(saved + v, change);
    }
}

template <bool GRADIENT>
static void primitive_forward(const Plan& plan, const Primitive& primitive) {
    double* row = plan.workspace + primitive.base_row * CHUNK;
    double* saved = plan.workspace + primitive.saved_row * CHUNK;
    const double* squares = plan.workspace + plan.square * CHUNK;
    switch (primitive.kind) {
        case RBF:
            sum_terms(primitive, squares, row);
            rbf_values(row);
            break;
        case MATERN12:
            sum_terms(primitive, squares, row);
            matern_values<MATERN12, GRADIENT>(row, saved);
            break;
        case MATERN32:
            sum_terms(primitive, squares, row);
            matern_values<MATERN32, GRADIENT>(row, saved);
            break;
        case MATERN52:
            sum_terms(primitive, squares, row);
            matern_values<MATERN52, GRADIENT>(row, saved);
            break;
        case RATIONAL_QUADRATIC:
            sum_terms(primitive, squares, row);
            rational_quadratic_values<GRADIENT>(primitive.parameter, row, saved);
            break;
        case PERIODIC:
            sum_periodic_terms<GRADIENT>(plan, primitive, saved, row);
            decay_values(row);
            break;
        case LINEAR: sum_terms(primitive, plan.workspace + plan.product * CHUNK, row); break;
        case CENTERED_LINEAR: sum_centered_terms(plan, primitive, row); break;
        case ZERO_MEAN_PERIODIC:
            sum_periodic_terms<GRADIENT>(plan, primitive, saved + CHUNK, row);
            zero_mean_values<GRADIENT>(primitive.parameter, row, saved);
            break;
        case SPECTRAL_COMPONENT: spectral_values<GRADIENT>(plan, primitive, saved, row); break;
        case WIENER: walk_values<WIENER>(plan, primitive, row); break;
        case INTEGRATED_WIENER: walk_values<INTEGRATED_WIENER>(plan, primitive, row); break;
        case DAMPED_TREND: walk_values<DAMPED_TREND>(plan, primitive, row); break;
        case STEP_BEFORE:
        case STEP_AFTER: step_values(plan, primitive, row); break;
        case CATEGORICAL:
            sum_differences(plan, primitive, row);
            decay_values(row);
            break;
    }
    if (primitive.scaled)
        for (int v = 0; v < CHUNK; v += WIDTH)
            store(plan.workspace + primitive.value_row * CHUNK + v,
                  primitive.scale * load(row + v));
}

// d: adjoints of r^2
template <bool INPUTS>
NKN_INLINE void stationary_backward(const Plan& plan, const Primitive& primitive,
                                    const double* d) {
    for (int t = 0; t < primitive.num_terms; ++t) {
        const Term& term = primitive.terms[t];
        const double* square = plan.workspace + (plan.square + term.column) * CHUNK;
        double* target = plan.workspace + (plan.d_square + term.column) * CHUNK;
        Vec sum{};
        for (int v = 0; v < CHUNK; v += WIDTH) {
            const Vec adjoint = load(d + v);
            sum += adjoint * load(square + v);
            if (INPUTS) store(target + v, load(target + v) + term.a * adjoint);
        }
        add_to_slot(plan.slots + term.slot_a * LANES, sum);
    }
}

// d: adjoints of the exponent
template <bool INPUTS>
NKN_INLINE void periodic_backward(const Plan& plan, const Primitive& primitive,
                                  const double* saved, const double* d) {
    for (int t = 0; t < primitive.num_terms; ++t) {
        const Term& term = primitive.terms[t];
        const double* square = saved + 2 * t * CHUNK;
        const double* sine_cosine = square + CHUNK;
        const double* difference = plan.workspace + (plan.difference + term.column) * CHUNK;
        double* target = plan.workspace + (plan.d_difference + term.column) * CHUNK;
        const double rate = 2.0 * M_PI * term.a * term.b;
        Vec sum_a{}, sum_b{};
        for (int v = 0; v < CHUNK; v += WIDTH) {
            const Vec slope = load(d + v) * load(sine_cosine + v);
            sum_a += load(d + v) * load(square + v);
            sum_b += slope * load(difference + v);
            if (INPUTS) store(target + v, load(target + v) + rate * slope);
        }
        add_to_slot(plan.slots + term.slot_a * LANES, sum_a);
        add_to_slot(plan.slots + term.slot_b * LANES, sum_b);
    }
}

// d: adjoints of r^2; d_phase: negative adjoints of the phase
template <bool INPUTS>
NKN_INLINE void spectral_backward(const Plan& plan, const Primitive& primitive, const double* d,
                                  const double* d_phase) {
    for (int t = 0; t < primitive.num_terms; ++t) {
        const Term& term = primitive.terms[t];
        const double* square = plan.workspace + (plan.square + term.column) * CHUNK;
        const double* difference = plan.workspace + (plan.difference + term.column) * CHUNK;
        double* d_square = plan.workspace + (plan.d_square + term.column) * CHUNK;
        double* d_difference = plan.workspace + (plan.d_difference + term.column) * CHUNK;
        const double frequency = 2.0 * M_PI * term.b;
        Vec sum_a{}, sum_b{};
        for (int v = 0; v < CHUNK; v += WIDTH) {
            const Vec of_square = load(d + v), of_phase = load(d_phase + v);
            sum_a += of_square * load(square + v);
            sum_b -= of_phase * load(difference + v);
            if (INPUTS) {
                store(d_square + v, load(d_square + v) + term.a * of_square);
                store(d_difference + v, load(d_difference + v) - frequency * of_phase);
            }
        }
        add_to_slot(plan.slots + term.slot_a * LANES, sum_a);
        add_to_slot(plan.slots + term.slot_b * LANES, sum_b);
    }
}

template <bool INPUTS>
NKN_INLINE void linear_backward(const Plan& plan, const Primitive& primitive, const double* d) {
    for (int t = 0; t < primitive.num_terms; ++t) {
        const Term& term = primitive.terms[t];
        const double* product = plan.workspace + (plan.product + term.column) * CHUNK;
        double* target = plan.workspace + (plan.d_product + term.column) * CHUNK;
        Vec sum{};
        for (int v = 0; v < CHUNK; v += WIDTH) {
            const Vec adjoint = load(d + v);
            sum += adjoint * load(product + v);
            if (INPUTS) store(target + v, load(target + v) + term.a * adjoint);
        }
        add_to_slot(plan.slots + term.slot_a * LANES, sum);
    }
}

template <bool INPUTS>
NKN_INLINE void centered_backward(const Plan& plan, const Primitive& primitive, const double* d) {
    for (int t = 0; t < primitive.num_terms; ++t) {
        const Term& term = primitive.terms[t];
        const double* left_row = plan.workspace + (plan.left + term.column) * CHUNK;
        const double* right_row = plan.workspace + (plan.right + term.column) * CHUNK;
        double* d_left = plan.workspace + (plan.d_left + term.column) * CHUNK;
        double* d_right = plan.workspace + (plan.d_right + term.column) * CHUNK;
        Vec sum_a{}, sum_b{};
        for (int v = 0; v < CHUNK; v += WIDTH) {
            const Vec adjoint = load(d + v);
            const Vec left = load(left_row + v) - term.b;
            const Vec right = load(right_row + v) - term.b;
            sum_a += adjoint * left * right;
            sum_b += adjoint * (left + right);
            if (INPUTS) {
                store(d_left + v, load(d_left + v) + term.a * adjoint * right);
                store(d_right + v, load(d_right + v) + term.a * adjoint * left);
            }
        }
        add_to_slot(plan.slots + term.slot_a * LANES, sum_a);
        add_to_slot(plan.slots + term.slot_b * LANES, sum_b);
    }
}

template <int KIND, bool INPUTS>
NKN_INLINE void walk_backward(const Plan& plan, const Primitive& primitive, const double* d) {
    const Term& term = primitive.terms[0];
    const double* left_row = plan.workspace + (plan.left + term.column) * CHUNK;
    const double* right_row = plan.workspace + (plan.right + term.column) * CHUNK;
    double* d_left = plan.workspace + (plan.d_left + term.column) * CHUNK;
    double* d_right = plan.workspace + (plan.d_right + term.column) * CHUNK;
    const double rate = KIND == DAMPED_TREND ? 1.0 / primitive.parameter : 1.0;
    Vec sum_a{}, sum_b{}, sum_length{};
    for (int v = 0; v < CHUNK; v += WIDTH) {
        const Vec adjoint = load(d + v);
        const Vec left = load(left_row + v) - term.b, right = load(right_row + v) - term.b;
        const Vec a = rate * time_since(left), b = rate * time_since(right);
        const Vec value = adjoint * walk_covariance<KIND>(a, b);
        const Vec of_left = left >= 0.0 ? adjoint * walk_slope<KIND>(a, b) : Vec{};
        const Vec of_right = right >= 0.0 ? adjoint * walk_slope<KIND>(b, a) : Vec{};
        sum_a += value;
        sum_b += of_left + of_right;
        if (KIND == DAMPED_TREND) sum_length += 3.0 * value - a * of_left - b * of_right;
        if (INPUTS) {
            store(d_left + v, load(d_left + v) + term.a * rate * of_left);
            store(d_right + v, load(d_right + v) + term.a * rate * of_right);
        }
    }
    add_to_slot(plan.slots + term.slot_a * LANES, sum_a);
    add_to_slot(plan.slots + term.slot_b * LANES, sum_b);
    if (KIND == DAMPED_TREND)
        add_to_slot(plan.slots + primitive.parameter_slot * LANES, term.a * rate * sum_length);
}

template <bool INPUTS>
NKN_INLINE void step_backward(const Plan& plan, const Primitive& primitive, const double* value,
                              const double* d) {
    const Term& term = primitive.terms[0];
    const double* left_row = plan.workspace + (plan.left + term.column) * CHUNK;
    const double* right_row = plan.workspace + (plan.right + term.column) * CHUNK;
    double* d_left = plan.workspace + (plan.d_left + term.column) * CHUNK;
    double* d_right = plan.workspace + (plan.d_right + term.column) * CHUNK;
    Vec sum_a{}, sum_b{};
    for (int v = 0; v < CHUNK; v += WIDTH) {
        const Vec adjoint = load(d + v) * load(value + v);
        const Vec left = step_distance(load(left_row + v) - term.b, term.a);
        const Vec right = step_distance(load(right_row + v) - term.b, term.a);
        const Vec of_left = adjoint * logistic(-left), of_right = adjoint * logistic(-right);
        sum_a += of_left * left + of_right * right;
        sum_b += of_left + of_right;
        if (INPUTS) {
            store(d_left + v, load(d_left + v) + term.a * of_left);
            store(d_right + v, load(d_right + v) + term.a * of_right);
        }
    }
    add_to_slot(plan.slots + term.slot_a * LANES, sum_a);
    add_to_slot(plan.slots + term.slot_b * LANES, sum_b);
}

// d: adjoints of the exponent; codes have no gradients
NKN_INLINE void differences_backward(const Plan& plan, const Primitive& primitive,
                                     const double* d) {
    for (int t = 0; t < primitive.num_terms; ++t) {
        const Term& term = primitive.terms[t];
        Vec sum{};
        for (int v = 0; v < CHUNK; v += WIDTH) sum += load(d + v) * differ(plan, term, v);
        add_to_slot(plan.slots + term.slot_a * LANES, sum);
    }
}

// The following functions turn adjoints of values into adjoints of r^2 or of the exponent.

NKN_INLINE void rbf_adjoints(const double* value, double* d) {
    for (int v = 0; v < CHUNK; v += WIDTH) store(d + v, -0.5 * load(d + v) * load(value + v));
}

NKN_INLINE void multiply_into(const double* factor, double* d) {
    for (int v = 0; v < CHUNK; v += WIDTH) store(d + v, load(d + v) * load(factor + v));
}

NKN_INLINE void rational_quadratic_adjoints(const double* value, const double* saved, double* slot,
                                            double* d) {
    Vec sum{};
    for (int v = 0; v < CHUNK; v += WIDTH) {
        const Vec z = load(saved + CHUNK + v);
        const Vec inverse = reciprocal(1.0 + z);
        const Vec adjoint = load(d + v) * load(value + v);
        sum += adjoint * (z * inverse - load(saved + v));
        store(d + v, -0.5 * adjoint * inverse);
    }
    add_to_slot(slot, sum);
}

NKN_INLINE void zero_mean_adjoints(double amplitude, const double* change, double* slot,
                                   double* d) {
    Vec sum{};
    for (int v = 0; v < CHUNK; v += WIDTH) {
        const Vec adjoint = load(d + v);
        sum += adjoint * load(change + v);
        store(d + v, amplitude * adjoint * (1.0 + load(change + v)));
    }
    add_to_slot(slot, sum);
}

// d: adjoints of the primitive, overwritten
template <bool INPUTS>
static void primitive_backward(const Plan& plan, const Primitive& primitive, double* d) {
    const double* value = plan.workspace + primitive.base_row * CHUNK;
    double* saved = plan.workspace + primitive.saved_row * CHUNK;
    double* slot = plan.slots + primitive.parameter_slot * LANES;
    if (primitive.scaled) {
        accumulate_product(plan.slots + primitive.scale_slot * LANES, d, value);
        for (int v = 0; v < CHUNK; v += WIDTH) store(d + v, primitive.scale * load(d + v));
    }
    switch (primitive.kind) {
        case RBF:
            rbf_adjoints(value, d);
            stationary_backward<INPUTS>(plan, primitive, d);
            break;
        case MATERN12:
        case MATERN32:
        case MATERN52:
            multiply_into(saved, d);
            stationary_backward<INPUTS>(plan, primitive, d);
            break;
        case RATIONAL_QUADRATIC:
            rational_quadratic_adjoints(value, saved, slot, d);
            stationary_backward<INPUTS>(plan, primitive, d);
            break;
        case PERIODIC:
            multiply_into(value, d);
            periodic_backward<INPUTS>(plan, primitive, saved, d);
            break;
        case LINEAR: linear_backward<INPUTS>(plan, primitive, d); break;
        case CENTERED_LINEAR: centered_backward<INPUTS>(plan, primitive, d); break;
        case ZERO_MEAN_PERIODIC:
            zero_mean_adjoints(primitive.parameter, saved, slot, d);
            periodic_backward<INPUTS>(plan, primitive, saved + CHUNK, d);
            break;
        case SPECTRAL_COMPONENT:
            multiply_into(d, saved);
            rbf_adjoints(value, d);
            spectral_backward<INPUTS>(plan, primitive, d, saved);
            break;
        case WIENER: walk_backward<WIENER, INPUTS>(plan, primitive, d); break;
        case INTEGRATED_WIENER:
            walk_backward<INTEGRATED_WIENER, INPUTS>(plan, primitive, d);
            break;
        case DAMPED_TREND: walk_backward<DAMPED_TREND, INPUTS>(plan, primitive, d); break;
        case STEP_BEFORE:
        case STEP_AFTER: step_backward<INPUTS>(plan, primitive, value, d); break;
        case CATEGORICAL:
            multiply_into(value, d);
            differences_backward(plan, primitive, d);
            break;
    }
}

// Multiply the value of a primitive by one of its factors.
static void multiply_factor(const Plan& plan, const Primitive& factor) {
    const double* value = plan.workspace + factor.value_row * CHUNK;
    double* product = plan.workspace + (plan.primitive_row + factor.unit) * CHUNK;
    if (factor.first)
        std::memcpy(product, value, CHUNK * sizeof(double));
    else
        multiply_into(value, product);
}

// d: adjoints of the primitive, which are kept for its other factors
template <bool INPUTS>
static void factor_backward(const Plan& plan, int f, const double* d) {
    const Primitive& factor = plan.factors[f];
    double* own = plan.workspace + plan.factor_adjoint_row * CHUNK;
    std::memcpy(own, d, CHUNK * sizeof(double));
    int other = f;
    while (!plan.factors[other].first) --other;
    for (; other < plan.num_factors && plan.factors[other].unit == factor.unit; ++other)
        if (other != f)
            multiply_into(plan.workspace + plan.factors[other].value_row * CHUNK, own);
    primitive_backward<INPUTS>(plan, factor, own);
}

// ----------------------------------------------------------------------------------------- chunk

// Whether to compute values, gradients of parameters, or gradients of parameters and inputs.
enum Mode { VALUES, PARAMETERS, ALL };

// Adjacent entries of one matrix row, stored in the chunk from `offset` on.
struct Run {
    int64_t matrix, row, column;
    int offset, count;
};

struct Chunk {
    int size, num_runs;
    Run runs[CHUNK];
};

static void compute_columns(const Plan& plan) {
    for (int c = 0; c < plan.num_columns; ++c) {
        const Column& column = plan.columns[c];
        const double* left = plan.workspace + (plan.left + c) * CHUNK;
        const double* right = plan.workspace + (plan.right + c) * CHUNK;
        double* difference = plan.workspace + (plan.difference + c) * CHUNK;
        double* square = plan.workspace + (plan.square + c) * CHUNK;
        double* product = plan.workspace + (plan.product + c) * CHUNK;
        if (column.stationary || column.periodic)
            for (int v = 0; v < CHUNK; v += WIDTH) {
                const Vec delta = load(left + v) - load(right + v);
                store(difference + v, delta);
                store(square + v, delta * delta);
            }
        if (column.linear)
            for (int v = 0; v < CHUNK; v += WIDTH)
                store(product + v, load(left + v) * load(right + v));
    }
}

static void start_column_gradients(const Plan& plan) {
    for (int c = 0; c < plan.num_columns; ++c) {
        const Column& column = plan.columns[c];
        if (column.stationary) set_zero(plan.workspace + (plan.d_square + c) * CHUNK);
        if (column.periodic) set_zero(plan.workspace + (plan.d_difference + c) * CHUNK);
        if (column.linear) set_zero(plan.workspace + (plan.d_product + c) * CHUNK);
        if (column.centered) {
            set_zero(plan.workspace + (plan.d_left + c) * CHUNK);
            set_zero(plan.workspace + (plan.d_right + c) * CHUNK);
        }
    }
}

// Add gradients of differences, squares and products to gradients of x (d_left) and x' (d_right).
static void combine_column_gradients(const Plan& plan, int c, double* d_left, double* d_right) {
    const Column column = plan.columns[c];
    const double* left = plan.workspace + (plan.left + c) * CHUNK;
    const double* right = plan.workspace + (plan.right + c) * CHUNK;
    const double* difference = plan.workspace + (plan.difference + c) * CHUNK;
    const double* d_difference = plan.workspace + (plan.d_difference + c) * CHUNK;
    const double* d_square = plan.workspace + (plan.d_square + c) * CHUNK;
    const double* d_product = plan.workspace + (plan.d_product + c) * CHUNK;
    const double* of_left = plan.workspace + (plan.d_left + c) * CHUNK;
    const double* of_right = plan.workspace + (plan.d_right + c) * CHUNK;
    for (int v = 0; v < CHUNK; v += WIDTH) {
        Vec sum = column.periodic ? load(d_difference + v) : Vec{};
        if (column.stationary) sum += 2.0 * load(d_square + v) * load(difference + v);
        Vec sum_left = sum, sum_right = -sum;
        if (column.linear) {
            sum_left += load(d_product + v) * load(right + v);
            sum_right += load(d_product + v) * load(left + v);
        }
        if (column.centered) {
            sum_left += load(of_left + v);
            sum_right += load(of_right + v);
        }
        store(d_left + v, sum_left);
        store(d_right + v, sum_right);
    }
}

static void scatter_inputs(const Request& request, const Plan& plan, const Chunk& chunk) {
    // reuse the rows of the units' adjoints, which are no longer needed
    double* d_left = plan.workspace + plan.adjoint_rows[0] * CHUNK;
    double* d_right = plan.workspace + plan.adjoint_rows[1] * CHUNK;
    for (int c = 0; c < plan.num_columns; ++c) {
        const int64_t index = plan.columns[c].index;
        combine_column_gradients(plan, c, d_left, d_right);
        for (int k = 0; k < chunk.num_runs; ++k) {
            const Run& run = chunk.runs[k];
            if (request.d_x1)
                request.d_x1[run.matrix * request.x1_step + run.row * plan.dimension + index] +=
                    sum_of(d_left + run.offset, run.count);
            if (request.d_x2t) {
                double* target = request.d_x2t + run.matrix * request.x2_step +
                                 index * request.n2 + run.column;
                for (int i = 0; i < run.count; ++i) target[i] += d_right[run.offset + i];
            }
        }
    }
}

template <Mode MODE>
static void forward(const Plan& plan) {
    compute_columns(plan);
    for (int f = 0; f < plan.num_factors; ++f) {
        primitive_forward<MODE != VALUES>(plan, plan.factors[f]);
        if (!plan.factors[f].alone) multiply_factor(plan, plan.factors[f]);
    }
    for (int l = 0; l < plan.num_layers; ++l) layer_forward(plan, plan.layers[l]);
}

template <Mode MODE>
static void backward(const Request& request, const Plan& plan, const Chunk& chunk) {
    double* d = plan.workspace + plan.weight_row * CHUNK;
    for (int l = plan.num_layers - 1; l >= 0; --l) {
        const int32_t row = l == plan.skip_layer ? plan.skip_adjoint_row : plan.adjoint_rows[l % 2];
        double* d_in = plan.workspace + row * CHUNK;
        layer_backward(plan, plan.layers[l], d, d_in);
        d = d_in;
    }
    if (plan.skip_layer >= 0) {
        const double* skipped = plan.workspace + (plan.skip_adjoint_row + plan.num_ahead) * CHUNK;
        for (int v = 0; v < plan.num_primitives * CHUNK; v += WIDTH)
            store(d + v, load(d + v) + load(skipped + v));
    }
    if (MODE == ALL) start_column_gradients(plan);
    for (int f = 0; f < plan.num_factors; ++f) {
        double* own = d + plan.factors[f].unit * CHUNK;
        if (plan.factors[f].alone)
            primitive_backward<MODE == ALL>(plan, plan.factors[f], own);
        else
            factor_backward<MODE == ALL>(plan, f, own);
    }
    if (MODE == ALL) scatter_inputs(request, plan, chunk);
}

static void write_values(const Request& request, const Plan& plan, const Chunk& chunk) {
    const double* result = plan.workspace + plan.result_row * CHUNK;
    for (int k = 0; k < chunk.num_runs; ++k) {
        const Run& run = chunk.runs[k];
        std::memcpy(request.out + run.matrix * request.step + run.row * request.ld + run.column,
                    result + run.offset, run.count * sizeof(double));
    }
}

template <Mode MODE>
static void process(const Request& request, const Plan& plan, const Chunk& chunk) {
    forward<MODE>(plan);
    if (MODE == VALUES)
        write_values(request, plan, chunk);
    else
        backward<MODE>(request, plan, chunk);
}

// --------------------------------------------------------------------------------------- packing

// Weights of the entries (row, begin), ...; `transposed` contains weights of the mirrored entries.
NKN_INLINE void pack_weights(const Request& request, const double* transposed, int64_t matrix,
                             int64_t row, int64_t begin, int count, double* target) {
    const double* weights = request.weights + matrix * request.step + row * request.ld + begin;
    if (!request.lower) {
        std::memcpy(target, weights, count * sizeof(double));
        return;
    }
    if (request.alpha) {
        const double own = request.alpha[row];
        const double* others = request.alpha + begin;
        for (int k = 0; k < count; ++k) target[k] = weights[k] - own * others[k];
    } else {
        for (int k = 0; k < count; ++k) target[k] = weights[k] + transposed[k];
    }
    if (begin + count > row) target[count - 1] *= 0.5;  // counted twice on the diagonal
}

NKN_INLINE void pack_columns(const Request& request, const Plan& plan, int64_t matrix,
                             int64_t row, int64_t begin, int count, int offset) {
    const double* x1 = request.x1 + matrix * request.x1_step + row * plan.dimension;
    const double* x2t = request.x2t + matrix * request.x2_step + begin;
    for (int c = 0; c < plan.num_columns; ++c) {
        const int64_t index = plan.columns[c].index;
        const double own = x1[index];
        double* left = plan.workspace + (plan.left + c) * CHUNK + offset;
        for (int k = 0; k < count; ++k) left[k] = own;
        std::memcpy(plan.workspace + (plan.right + c) * CHUNK + offset, x2t + index * request.n2,
                    count * sizeof(double));
    }
}

// Fill the rest of the chunk with copies of its first entry of weight zero.
template <Mode MODE>
static void pad(const Plan& plan, const Chunk& chunk) {
    for (int c = 0; c < plan.num_columns; ++c) {
        double* left = plan.workspace + (plan.left + c) * CHUNK;
        double* right = plan.workspace + (plan.right + c) * CHUNK;
        for (int k = chunk.size; k < CHUNK; ++k) {
            left[k] = left[0];
            right[k] = right[0];
        }
    }
    if (MODE != VALUES)
        for (int k = chunk.size; k < CHUNK; ++k)
            plan.workspace[plan.weight_row * CHUNK + k] = 0.0;
}

// Append `count` entries of a matrix, from (row, column) on, to the chunk.
template <Mode MODE>
NKN_INLINE void pack(const Request& request, const Plan& plan, Chunk& chunk, int64_t matrix,
                     int64_t row, int64_t column, int count, const double* transposed) {
    pack_columns(request, plan, matrix, row, column, count, chunk.size);
    if (MODE != VALUES)
        pack_weights(request, transposed, matrix, row, column, count,
                     plan.workspace + plan.weight_row * CHUNK + chunk.size);
    chunk.runs[chunk.num_runs++] = {matrix, row, column, chunk.size, count};
    chunk.size += count;
}

template <Mode MODE>
static void add_entries(const Request& request, const Plan& plan, Chunk& chunk, int64_t matrix,
                        int64_t row, int64_t begin, int64_t end, const double* transposed) {
    while (begin < end) {
        const int count = static_cast<int>(smaller(CHUNK - chunk.size, end - begin));
        pack<MODE>(request, plan, chunk, matrix, row, begin, count, transposed);
        begin += count;
        transposed += count;
        if (chunk.size == CHUNK) {
            process<MODE>(request, plan, chunk);
            chunk.size = chunk.num_runs = 0;
        }
    }
}

// Process a full row of a tile at once; in an incomplete chunk it would be split in two.
template <Mode MODE>
static void process_full_row(const Request& request, const Plan& plan, int64_t matrix,
                             int64_t row, int64_t column, const double* transposed) {
    Chunk chunk;
    chunk.size = chunk.num_runs = 0;
    pack<MODE>(request, plan, chunk, matrix, row, column, CHUNK, transposed);
    process<MODE>(request, plan, chunk);
}

// transposed[i][j] = weights[left + j][top + i]
static void transpose_weights(const Request& request, int64_t matrix, int64_t top, int64_t bottom,
                              int64_t left, int64_t right, double* transposed) {
    for (int64_t j = left; j < right; ++j) {
        const double* weights = request.weights + matrix * request.step + j * request.ld;
        for (int64_t i = top; i < bottom; ++i)
            transposed[(i - top) * CHUNK + (j - left)] = weights[i];
    }
}

// `rest` collects ends of rows, across matrices of the batch.
template <Mode MODE>
static void run_matrix(const Request& request, const Plan& plan, const Plan& other, Chunk& rest,
                       int64_t matrix) {
    const bool mirrored = MODE != VALUES && request.lower && !request.alpha;
    for (int64_t top = request.row_begin; top < request.row_end; top += TILE_ROWS) {
        const int64_t bottom = smaller(top + TILE_ROWS, request.row_end);
        const int64_t columns = request.lower ? smaller(bottom, request.n2) : request.n2;
        for (int64_t left = 0; left < columns; left += CHUNK) {
            const int64_t right = smaller(left + CHUNK, columns);
            if (mirrored)
                transpose_weights(request, matrix, top, bottom, left, right, plan.transposed);
            for (int64_t row = top; row < bottom; ++row) {
                const int64_t end = request.lower ? smaller(right, row + 1) : right;
                const double* transposed = plan.transposed + (row - top) * CHUNK;
                if (end - left == CHUNK)
                    process_full_row<MODE>(request, other, matrix, row, left, transposed);
                else
                    add_entries<MODE>(request, plan, rest, matrix, row, left, end, transposed);
            }
        }
    }
}

template <Mode MODE>
static void run(const Request& request, const Plan& plan) {
    Plan other = plan;
    other.left = plan.other_left;
    other.right = plan.other_right;
    other.weight_row = plan.other_weight_row;
    Chunk rest;
    rest.size = rest.num_runs = 0;
    for (int64_t matrix = 0; matrix < request.batch; ++matrix)
        run_matrix<MODE>(request, plan, other, rest, matrix);
    if (rest.size) {
        pad<MODE>(plan, rest);
        process<MODE>(request, plan, rest);
    }
}

static void run_mode(const Request& request, const Plan& plan) {
    if (request.out)
        run<VALUES>(request, plan);
    else if (request.d_x1 || request.d_x2t)
        run<ALL>(request, plan);
    else
        run<PARAMETERS>(request, plan);
}
