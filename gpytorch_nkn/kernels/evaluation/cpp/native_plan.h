// What native.cpp hands to the instruction-set specific code in native_tile.inl: plain structures,
// because a standard-library template used there would be compiled for AVX-512, and the linker may
// keep that copy for machines without it.
#pragma once

#include <cstdint>

namespace nkn {

// Entries of the kernel matrix that are computed together: every intermediate value of the network
// is a row of CHUNK numbers, few enough for all rows to stay in the first-level cache.
constexpr int CHUNK = 64;
// Gradients are summed lane by lane: the space for one, in numbers, is the widest vector.
constexpr int LANES = 8;
// Matrix entries are visited by tiles of this many rows and CHUNK columns, so that what is read of
// the transposed weights comes by cache lines.
constexpr int TILE_ROWS = 32;

enum PrimitiveKind : int32_t {
    RBF = 0,
    MATERN12 = 1,
    MATERN32 = 2,
    MATERN52 = 3,
    RATIONAL_QUADRATIC = 4,
    PERIODIC = 5,
    LINEAR = 6,
    CENTERED_LINEAR = 7,
    ZERO_MEAN_PERIODIC = 8,
    SPECTRAL_COMPONENT = 9,
    WIENER = 10,
    INTEGRATED_WIENER = 11,
    DAMPED_TREND = 12,
    STEP_BEFORE = 13,
    STEP_AFTER = 14,
    CATEGORICAL = 15,
};

enum LayerKind : int32_t { DENSE = 0, PRODUCT = 1, POLYNOMIAL = 2, EXPONENTIAL = 3 };

// Arguments of nkn_fill and nkn_pull_back, as documented in native.cpp.
struct Request {
    const int32_t* program;
    const double* constants;
    const double* theta;
    const double* x1;
    const double* x2t;
    int64_t theta_step, x1_step, x2_step;  // from one matrix to the next, 0 where they share
    int64_t batch, n1, n2;
    bool lower;
    int64_t row_begin, row_end;
    int64_t ld, step;  // from one row of `out` or `weights` to the next, from one matrix to the next
    double* out;
    const double* weights;
    const double* alpha;
    double* d_theta;
    double* d_x1;
    double* d_x2t;
};

// One column of the inputs in a primitive. Of the two coefficients
//   RBF, MATERN*, RATIONAL_QUADRATIC have a = 1 / l^2,
//   PERIODIC and ZERO_MEAN_PERIODIC  a = -2 / l, b = 1 / p,
//   LINEAR                           a = v,
//   CENTERED_LINEAR                  a = v, b = c,
//   SPECTRAL_COMPONENT               a = 1 / l^2, b = mu / (2 pi),
//   WIENER and INTEGRATED_WIENER     a = 1 / u and 1 / u^3, b = o,
//   DAMPED_TREND                     a = (l / u)^3, b = o,
//   STEP_BEFORE and STEP_AFTER       a = -1 / w and 1 / w, b = l,
//   CATEGORICAL of d columns         a = -1 / (d l).
// A slot is where the sum for the gradient of the parameter behind a coefficient stands.
struct Term {
    int32_t column;  // among the columns in use
    int32_t slot_a, slot_b;
    double a, b;
};

// A primitive, or one of the factors of which it is the product. Row numbers count rows of CHUNK
// numbers in the workspace.
struct Primitive {
    int32_t kind;
    int32_t num_terms;
    const Term* terms;
    double parameter;  // alpha of RATIONAL_QUADRATIC, amplitude of ZERO_MEAN_PERIODIC, l of DAMPED_TREND
    int32_t parameter_slot;
    bool scaled;
    double scale;
    int32_t scale_slot;
    int32_t base_row;   // the value before the output scale
    int32_t value_row;  // equal to base_row without a scale
    int32_t saved_row;  // the first of the rows kept for the gradient
    int32_t unit;       // the number of the primitive
    bool alone, first;  // among its factors
};

struct Layer {
    int32_t kind;
    int32_t num_in, num_out;
    int32_t in_row, out_row;
    const double* weights;
    const double* bias;  // or null
    int32_t weight_slot, bias_slot;
    const double* coefficients;  // of a PRODUCT the sizes of its groups
    int32_t num_coefficients;
};

// A column of the inputs that some primitive reads, and what they need of it.
struct Column {
    int32_t index;
    bool stationary, periodic, linear, centered;
};

struct Plan {
    int32_t dimension;
    int32_t num_columns, num_primitives, num_factors, num_layers, num_slots;
    const Column* columns;
    const Primitive* factors;
    const Layer* layers;
    int32_t primitive_row;  // the first of them
    int32_t result_row;
    int32_t skip_layer;  // the one that sees the primitives behind the layer before it, or -1
    int32_t num_ahead;   // outputs of that layer before it
    int32_t skip_adjoint_row;
    // What a chunk starts from: the first of num_columns rows of x and of x', the row of weights.
    // Another set serves chunks that are computed while the entries of one are still collected.
    int32_t left, right, weight_row;
    int32_t other_left, other_right, other_weight_row;
    // First of num_columns rows each: x - x', (x - x')^2, x x'.
    int32_t difference, square, product;
    // First of num_columns rows each: the gradients of x, x' and of the three before.
    int32_t d_left, d_right, d_difference, d_square, d_product;
    int32_t adjoint_rows[2];
    int32_t factor_adjoint_row;
    double* workspace;   // rows, aligned to 64 bytes
    double* slots;       // LANES numbers each
    double* transposed;  // TILE_ROWS x CHUNK
};

}  // namespace nkn
