// Native evaluation of a Neural Kernel Network: entries k(x, x') of its kernel matrix, and the
// gradient of their weighted sum (vector-Jacobian product, vjp). The shared library has a C
// interface for ctypes. It keeps no state, so several threads may call it at once.
//
// Integers and floating-point numbers describe the network:
//   program    number P of primitives, number L of layers, input dimension d, length of theta,
//              number of constants, index of the layer that also receives the primitives (or -1),
//              number F of factors of all primitives;
//              then 7 integers per factor: kind, number of columns, position of the column indices
//                in `program`, offset in theta, 1 for one parameter per column or 0 for a shared
//                one, index of an output scale in theta or -1, index of the primitive that contains
//                the factor (in ascending order; most primitives have one factor);
//              then 7 integers per layer: kind, inputs, outputs, offset, offset of the bias in
//                theta or -1, count, 0; then the column indices.
//   theta      parameters; those of a factor are adjacent, each per column or shared:
//              RBF, MATERN: l; RATIONAL_QUADRATIC: alpha, l; PERIODIC: l, p; LINEAR: v;
//              CENTERED_LINEAR: v, c; ZERO_MEAN_PERIODIC: l, p, A; SPECTRAL_COMPONENT: l, mu;
//              WIENER, INTEGRATED_WIENER: o, u; DAMPED_TREND: o, u, l;
//              STEP_BEFORE, STEP_AFTER: l, w; CATEGORICAL: l.
//              DENSE layers have weights (outputs x inputs) at `offset`, with or without a bias.
//   constants  POLYNOMIAL layers have `count` coefficients at `offset`, constant term first;
//              PRODUCT layers have the sizes of their groups.
// native_plan.h lists the kinds.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "native_plan.h"

#if !defined(__GNUC__)
#error "The code needs the vector extensions of GCC or Clang."
#endif

#if defined(__x86_64__) && !defined(__clang__)
#define NKN_DISPATCH
#include <immintrin.h>
#endif

namespace nkn {

namespace baseline {
#define NKN_WIDTH 2
#include "native_math.inl"
#include "native_tile.inl"
#undef NKN_WIDTH
#undef NKN_INLINE
}  // namespace baseline

#if defined(NKN_DISPATCH)

#pragma GCC push_options
#pragma GCC target("avx2,fma")
namespace avx2 {
#define NKN_WIDTH 4
#define NKN_AVX2
#include "native_math.inl"
#include "native_tile.inl"
#undef NKN_WIDTH
#undef NKN_AVX2
#undef NKN_INLINE
}  // namespace avx2
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,avx512vl,avx2,fma,prefer-vector-width=512")
namespace avx512 {
#define NKN_WIDTH 8
#define NKN_AVX512
#include "native_math.inl"
#include "native_tile.inl"
#undef NKN_WIDTH
#undef NKN_AVX512
#undef NKN_INLINE
}  // namespace avx512
#pragma GCC pop_options

#endif

namespace {

struct InstructionSet {
    const char* name;
    void (*run)(const Request&, const Plan&);
};

InstructionSet instruction_set() {
#if defined(NKN_DISPATCH)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        return {"avx512", avx512::run_mode};
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return {"avx2", avx2::run_mode};
#endif
    return {"baseline", baseline::run_mode};
}

constexpr int HEADER_SIZE = 7;
constexpr int RECORD_SIZE = 7;

// Builds the plan of a request, and owns the memory to which the plan points.
class Builder {
public:
    explicit Builder(const Request& request) : request_(request) {
        slots_.reserve(request.program[3]);
        plan_.dimension = request.program[2];
        plan_.num_primitives = request.program[0];
        plan_.num_layers = request.program[1];
        plan_.skip_layer = request.program[5];
        plan_.num_factors = request.program[6];
        plan_unit_rows();
        for (int f = 0; f < plan_.num_factors; ++f) add_factor(f);
        for (int l = 0; l < plan_.num_layers; ++l) add_layer(l);
        plan_column_rows();
        allocate();
    }

    const Plan& plan() const { return plan_; }

    void add_gradient_to(double* d_theta) const {
        for (size_t s = 0; s < slots_.size(); ++s) {
            double sum = 0.0;
            for (int k = 0; k < LANES; ++k) sum += plan_.slots[s * LANES + k];
            d_theta[slots_[s].index] += slots_[s].factor * sum;
        }
    }

private:
    // The gradient with respect to theta[index] is `factor` times the sum in the slot.
    struct Slot {
        int32_t index;
        double factor;
    };

    const int32_t* factor_record(int f) const {
        return request_.program + HEADER_SIZE + RECORD_SIZE * f;
    }

    const int32_t* layer_record(int l) const { return factor_record(plan_.num_factors + l); }

    // The index of a factor's primitive; -1 before the first and after the last factor.
    int32_t unit_of(int f) const {
        return f < 0 || f >= plan_.num_factors ? -1 : factor_record(f)[6];
    }

    int32_t new_rows(int32_t count) {
        const int32_t first = num_rows_;
        num_rows_ += count;
        return first;
    }

    int32_t new_slot(int32_t index, double factor) {
        slots_.push_back({index, factor});
        return static_cast<int32_t>(slots_.size()) - 1;
    }

    // Rows for values of all units. Primitives come first, after any units that precede them in the
    // input of the layer that also receives the primitives.
    void plan_unit_rows() {
        const int32_t num_primitives = plan_.num_primitives, skip = plan_.skip_layer;
        int32_t widest = num_primitives;
        plan_.num_ahead = skip < 0 ? 0 : layer_record(skip - 1)[2];
        const int32_t ahead = new_rows(plan_.num_ahead);
        plan_.result_row = plan_.primitive_row = new_rows(num_primitives);
        for (int l = 0; l < plan_.num_layers; ++l) {
            const int32_t num_out = layer_record(l)[2];
            plan_.result_row = l == skip - 1 ? ahead : new_rows(num_out);
            out_rows_.push_back(plan_.result_row);
            widest = num_out > widest ? num_out : widest;
        }
        if (skip >= 0) plan_.skip_adjoint_row = new_rows(plan_.num_ahead + num_primitives);
        plan_.adjoint_rows[0] = new_rows(widest);
        plan_.adjoint_rows[1] = new_rows(widest);
        plan_.factor_adjoint_row = new_rows(1);
        plan_.weight_row = new_rows(1);
        plan_.other_weight_row = new_rows(1);
    }

    void plan_column_rows() {
        const int32_t count = static_cast<int32_t>(columns_.size());
        for (int32_t* first :
             {&plan_.left, &plan_.right, &plan_.other_left, &plan_.other_right, &plan_.difference,
              &plan_.square, &plan_.product, &plan_.d_left, &plan_.d_right, &plan_.d_difference,
              &plan_.d_square, &plan_.d_product})
            *first = new_rows(count);
    }

    int32_t column_in_use(int32_t index, int32_t kind) {
        size_t c = 0;
        while (c < columns_.size() && columns_[c].index != index) ++c;
        if (c == columns_.size()) columns_.push_back({index, false, false, false, false});
        Column& column = columns_[c];
        switch (kind) {
            case PERIODIC:
            case ZERO_MEAN_PERIODIC: column.periodic = true; break;
            case LINEAR: column.linear = true; break;
            case CENTERED_LINEAR:
            case WIENER:
            case INTEGRATED_WIENER:
            case DAMPED_TREND:
            case STEP_BEFORE:
            case STEP_AFTER: column.centered = true; break;
            case SPECTRAL_COMPONENT: column.stationary = column.periodic = true; break;
            case CATEGORICAL: break;
            default: column.stationary = true;
        }
        return static_cast<int32_t>(c);
    }

    static int32_t num_saved_rows(int32_t kind, int32_t num_terms) {
        switch (kind) {
            case MATERN12:
            case MATERN32:
            case MATERN52:
            case SPECTRAL_COMPONENT: return 1;
            case RATIONAL_QUADRATIC: return 2;
            case PERIODIC: return 2 * num_terms;
            case ZERO_MEAN_PERIODIC: return 1 + 2 * num_terms;
            default: return 0;
        }
    }

    void add_factor(int f) {
        const int32_t* record = factor_record(f);
        Primitive primitive{};
        primitive.unit = record[6];
        primitive.first = unit_of(f - 1) != primitive.unit;
        primitive.alone = primitive.first && unit_of(f + 1) != primitive.unit;
        primitive.kind = record[0];
        primitive.num_terms = record[1];
        add_parameter(primitive, record);
        primitive.scaled = record[5] >= 0;
        if (primitive.scaled) {
            primitive.scale = request_.theta[record[5]];
            primitive.scale_slot = new_slot(record[5], 1.0);
        }
        primitive.value_row =
            primitive.alone ? plan_.primitive_row + primitive.unit : new_rows(1);
        primitive.base_row = primitive.scaled ? new_rows(1) : primitive.value_row;
        primitive.saved_row = new_rows(num_saved_rows(primitive.kind, primitive.num_terms));
        terms_.push_back(terms_of(record));
        primitive.terms = terms_.back().data();
        primitives_.push_back(primitive);
    }

    void add_parameter(Primitive& primitive, const int32_t* record) {
        int32_t index;
        if (primitive.kind == RATIONAL_QUADRATIC)
            index = record[3];
        else if (primitive.kind == ZERO_MEAN_PERIODIC || primitive.kind == DAMPED_TREND)
            index = record[3] + 2;
        else
            return;
        primitive.parameter = request_.theta[index];
        primitive.parameter_slot = new_slot(index, 1.0);
    }

    std::vector<Term> terms_of(const int32_t* record) {
        const int32_t kind = record[0], num_terms = record[1];
        const bool by_column = record[4] != 0;
        const int32_t count = by_column ? num_terms : 1;
        const int32_t first = record[3] + (kind == RATIONAL_QUADRATIC ? 1 : 0);
        std::vector<Term> terms;
        for (int32_t t = 0; t < num_terms; ++t) {
            Term term{};
            if (t == 0 || by_column)
                set_coefficients(term, kind, first + t, first + count + t, num_terms);
            else
                term = terms[0];
            term.column = column_in_use(request_.program[record[2] + t], kind);
            terms.push_back(term);
        }
        return terms;
    }

    // The factors of slots are constants that the loops of native_tile.inl omit.
    void set_coefficients(Term& term, int32_t kind, int32_t index_a, int32_t index_b,
                          int32_t num_terms) {
        const double a = request_.theta[index_a];
        switch (kind) {
            case PERIODIC:
            case ZERO_MEAN_PERIODIC: {
                const double period = request_.theta[index_b];
                term.a = -2.0 / a;
                term.b = 1.0 / period;
                term.slot_a = new_slot(index_a, 2.0 / (a * a));
                term.slot_b = new_slot(index_b, 4.0 * M_PI / (a * period * period));
                break;
            }
            case LINEAR:
                term.a = a;
                term.slot_a = new_slot(index_a, 1.0);
                break;
            case CENTERED_LINEAR:
                term.a = a;
                term.b = request_.theta[index_b];
                term.slot_a = new_slot(index_a, 1.0);
                term.slot_b = new_slot(index_b, -a);
                break;
            case SPECTRAL_COMPONENT:
                term.a = 1.0 / (a * a);
                term.b = request_.theta[index_b] / (2.0 * M_PI);
                term.slot_a = new_slot(index_a, -2.0 / (a * a * a));
                term.slot_b = new_slot(index_b, 1.0);
                break;
            case WIENER:
            case INTEGRATED_WIENER: {
                const double unit = request_.theta[index_b];
                const double power = kind == WIENER ? 1.0 : 3.0;
                term.a = kind == WIENER ? 1.0 / unit : 1.0 / (unit * unit * unit);
                term.b = a;
                term.slot_a = new_slot(index_b, -power * term.a / unit);
                term.slot_b = new_slot(index_a, -term.a);
                break;
            }
            case DAMPED_TREND: {
                const double unit = request_.theta[index_b];
                const double lengthscale = request_.theta[index_b + 1];
                const double ratio = lengthscale / unit;
                term.a = ratio * ratio * ratio;
                term.b = a;
                term.slot_a = new_slot(index_b, -3.0 * term.a / unit);
                term.slot_b = new_slot(index_a, -term.a / lengthscale);
                break;
            }
            case STEP_BEFORE:
            case STEP_AFTER: {
                const double width = request_.theta[index_b];
                term.a = (kind == STEP_AFTER ? 1.0 : -1.0) / width;
                term.b = a;
                term.slot_a = new_slot(index_b, -1.0 / width);
                term.slot_b = new_slot(index_a, -term.a);
                break;
            }
            case CATEGORICAL:
                term.a = -1.0 / (num_terms * a);
                term.slot_a = new_slot(index_a, 1.0 / (num_terms * a * a));
                break;
            default:
                term.a = 1.0 / (a * a);
                term.slot_a = new_slot(index_a, -2.0 / (a * a * a));
        }
    }

    void add_layer(int l) {
        const int32_t* record = layer_record(l);
        Layer layer{};
        layer.kind = record[0];
        layer.num_in = record[1];
        layer.num_out = record[2];
        layer.in_row = l == 0 ? plan_.primitive_row : out_rows_[l - 1];
        layer.out_row = out_rows_[l];
        if (layer.kind == DENSE) {
            layer.weights = request_.theta + record[3];
            layer.weight_slot = new_slots(record[3], layer.num_in * layer.num_out);
            if (record[4] >= 0) {
                layer.bias = request_.theta + record[4];
                layer.bias_slot = new_slots(record[4], layer.num_out);
            }
        } else if (layer.kind == POLYNOMIAL || layer.kind == PRODUCT) {
            layer.coefficients = request_.constants + record[3];
            layer.num_coefficients = record[5];
        }
        layers_.push_back(layer);
    }

    int32_t new_slots(int32_t first_index, int32_t count) {
        const int32_t first = static_cast<int32_t>(slots_.size());
        for (int32_t k = 0; k < count; ++k) new_slot(first_index + k, 1.0);
        return first;
    }

    void allocate() {
        constexpr size_t ALIGNMENT = 64;
        const size_t rows = static_cast<size_t>(num_rows_) * CHUNK;
        const size_t slots = slots_.size() * LANES;
        const size_t size = rows + slots + TILE_ROWS * CHUNK + ALIGNMENT / sizeof(double);
        memory_.reset(new double[size]);  // without zeros, which would slow down short calls
        const size_t misaligned = reinterpret_cast<uintptr_t>(memory_.get()) % ALIGNMENT;
        plan_.workspace = memory_.get() + (ALIGNMENT - misaligned) / sizeof(double);
        plan_.slots = plan_.workspace + rows;
        std::fill_n(plan_.slots, slots, 0.0);
        plan_.transposed = plan_.slots + slots;
        plan_.num_columns = static_cast<int32_t>(columns_.size());
        plan_.columns = columns_.data();
        plan_.factors = primitives_.data();
        plan_.layers = layers_.data();
    }

    const Request& request_;
    Plan plan_{};
    int32_t num_rows_ = 0;
    std::vector<int32_t> out_rows_;
    std::vector<Column> columns_;
    std::vector<std::vector<Term>> terms_;
    std::vector<Primitive> primitives_;
    std::vector<Layer> layers_;
    std::vector<Slot> slots_;
    std::unique_ptr<double[]> memory_;
};

// The request for one matrix of a batch.
Request only(Request request, int64_t matrix) {
    request.batch = 1;
    request.theta += matrix * request.theta_step;
    request.x1 += matrix * request.x1_step;
    request.x2t += matrix * request.x2_step;
    if (request.out) request.out += matrix * request.step;
    if (request.weights) request.weights += matrix * request.step;
    if (request.d_theta) request.d_theta += matrix * request.theta_step;
    if (request.d_x1) request.d_x1 += matrix * request.x1_step;
    if (request.d_x2t) request.d_x2t += matrix * request.x2_step;
    return request;
}

void serve_alike(const Request& request) {
    const Builder builder(request);
    instruction_set().run(request, builder.plan());
    if (request.d_theta) builder.add_gradient_to(request.d_theta);
}

void serve(const Request& request) {
    if (request.theta_step == 0)
        serve_alike(request);
    else
        for (int64_t matrix = 0; matrix < request.batch; ++matrix)
            serve_alike(only(request, matrix));
}

}  // namespace
}  // namespace nkn

#define NKN_EXPORT extern "C" __attribute__((visibility("default")))

// Checksum of the sources, which identifies a library that was built from other sources.
#if !defined(NKN_VERSION)
#define NKN_VERSION 0
#endif
NKN_EXPORT int32_t nkn_version() noexcept { return NKN_VERSION; }

// The instruction set chosen for this machine: "avx512", "avx2" or "baseline".
NKN_EXPORT const char* nkn_instruction_set() noexcept { return nkn::instruction_set().name; }

// Writes rows row_begin to row_end of `batch` kernel matrices of x1 (n1 x d) and x2 (transposed:
// d x n2) into the same rows of `out` (leading dimension ld). With `lower`, only columns up to the
// diagonal are written. Steps are offsets between matrices of the batch, 0 if all matrices share
// theta, x1 or x2.
NKN_EXPORT void nkn_fill(const int32_t* program, const double* constants, const double* theta,
                         int64_t theta_step, const double* x1, int64_t x1_step, const double* x2t,
                         int64_t x2_step, int64_t batch, int64_t n1, int64_t n2, int32_t lower,
                         int64_t row_begin, int64_t row_end, double* out, int64_t ld,
                         int64_t step) noexcept {
    nkn::Request request{};
    request.program = program;
    request.constants = constants;
    request.theta = theta;
    request.theta_step = theta_step;
    request.x1 = x1;
    request.x1_step = x1_step;
    request.x2t = x2t;
    request.x2_step = x2_step;
    request.batch = batch;
    request.n1 = n1;
    request.n2 = n2;
    request.lower = lower != 0;
    request.row_begin = row_begin;
    request.row_end = row_end;
    request.out = out;
    request.ld = ld;
    request.step = step;
    nkn::serve(request);
}

// Adds the gradient of sum_ij w_ij k_ij, over the same entries, to d_theta, d_x1 and d_x2t, which
// have the layouts of theta, x1 and x2t (d_x1 and d_x2t may be null). The weights w are `weights`
// or, with `lower`,
//   alpha == null:  w_ij = weights_ij + weights_ji, and weights_ii on the diagonal;
//   otherwise:      w_ij = weights_ij - alpha_i alpha_j, and half of it on the diagonal.
NKN_EXPORT void nkn_vjp(const int32_t* program, const double* constants, const double* theta,
                        int64_t theta_step, const double* x1, int64_t x1_step, const double* x2t,
                        int64_t x2_step, int64_t batch, int64_t n1, int64_t n2, int32_t lower,
                        int64_t row_begin, int64_t row_end, const double* weights, int64_t ld,
                        int64_t step, const double* alpha, double* d_theta, double* d_x1,
                        double* d_x2t) noexcept {
    nkn::Request request{};
    request.program = program;
    request.constants = constants;
    request.theta = theta;
    request.theta_step = theta_step;
    request.x1 = x1;
    request.x1_step = x1_step;
    request.x2t = x2t;
    request.x2_step = x2_step;
    request.batch = batch;
    request.n1 = n1;
    request.n2 = n2;
    request.lower = lower != 0;
    request.row_begin = row_begin;
    request.row_end = row_end;
    request.weights = weights;
    request.ld = ld;
    request.step = step;
    request.alpha = alpha;
    request.d_theta = d_theta;
    request.d_x1 = d_x1;
    request.d_x2t = d_x2t;
    nkn::serve(request);
}
