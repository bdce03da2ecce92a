// Structures that native.cpp passes to the code for each instruction set (native_tile.inl). They
// are plain, because a standard-library template would be compiled for AVX-512 there, and the
// linker might keep this copy for machines without AVX-512.
#pragma once

#include <cstdint>

namespace nkn {

// Number of matrix entries that are computed together. Each unit of the network is a row of CHUNK
// numbers, few enough that all rows fit into the first-level cache.
constexpr int CHUNK = 64;
// Number of partial sums of a gradient, one per lane of the widest vector.
constexpr int LANES = 8;
// Number of rows of a tile, which has CHUNK columns. Tiles let the transposed weights be read by
// whole cache lines.
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

// Arguments of nkn_fill and nkn_vjp, documented in native.cpp.
struct Request {
    const int32_t* program;
    const double* constants;
    const double* theta;
    const double* x1;
    const double* x2t;
    int64_t theta_step, x1_step, x2_step;  // offsets between matrices, 0 if shared
    int64_t batch, n1, n2;
    bool lower;
    int64_t row_begin, row_end;
    int64_t ld, step;  // offsets between rows and between matrices of `out` or `weights`
    double* out;
    const double* weights;
    const double* alpha;
    double* d_theta;
    double* d_x1;
    double* d_x2t;
};

// One input column of a factor. Its coefficients are
//   RBF, MATERN*, RATIONAL_QUADRATIC a = 1 / l^2,
//   PERIODIC and ZERO_MEAN_PERIODIC  a = -2 / l, b = 1 / p,
//   LINEAR                           a = v,
//   CENTERED_LINEAR                  a = v, b = c,
//   SPECTRAL_COMPONENT               a = 1 / l^2, b = mu / (2 pi),
//   WIENER and INTEGRATED_WIENER     a = 1 / u and a = 1 / u^3, b = o,
//   DAMPED_TREND                     a = (l / u)^3, b = o,
//   STEP_BEFORE and STEP_AFTER       a = -1 / w and a = 1 / w, b = l,
//   CATEGORICAL of d columns         a = -1 / (d l).
// A slot is the index of the sum for the gradient of a coefficient's parameter.
struct Term {
    int32_t column;  // index among the columns in use
    int32_t slot_a, slot_b;
    double a, b;
};

// A primitive, or a factor of a product of kernels. Rows are indices of CHUNK numbers in the
// workspace.
struct Primitive {
    int32_t kind;
    int32_t num_terms;
    const Term* terms;
    double parameter;  // alpha of RATIONAL_QUADRATIC, amplitude of ZERO_MEAN_PERIODIC, l of DAMPED_TREND
    int32_t parameter_slot;
    bool scaled;
    double scale;
    int32_t scale_slot;
    int32_t base_row;   // values before the output scale
    int32_t value_row;  // equal to base_row without a scale
    int32_t saved_row;  // first row of values that the gradient needs
    int32_t unit;       // index of the primitive
    bool alone, first;  // whether it is the only or the first factor of the primitive
};

struct Layer {
    int32_t kind;
    int32_t num_in, num_out;
    int32_t in_row, out_row;
    const double* weights;
    const double* bias;  // or null
    int32_t weight_slot, bias_slot;
    const double* coefficients;  // sizes of the groups if the kind is PRODUCT
    int32_t num_coefficients;
};

// An input column in use, and whether factors need squares and differences, differences, products
// or the column itself.
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
    int32_t primitive_row;  // first row of the primitives
    int32_t result_row;
    int32_t skip_layer;  // index of the layer that also receives the primitives, or -1
    int32_t num_ahead;   // number of its inputs before the primitives
    int32_t skip_adjoint_row;
    // Inputs of a chunk: first of num_columns rows of x and of x', and the row of weights. The
    // other set is for chunks that are computed while another chunk is still incomplete.
    int32_t left, right, weight_row;
    int32_t other_left, other_right, other_weight_row;
    // First of num_columns rows each: x - x', (x - x')^2, x x'.
    int32_t difference, square, product;
    // First of num_columns rows each: gradients of x, x', x - x', (x - x')^2 and x x'.
    int32_t d_left, d_right, d_difference, d_square, d_product;
    int32_t adjoint_rows[2];
    int32_t factor_adjoint_row;
    double* workspace;   // rows, aligned to 64 bytes
    double* slots;       // LANES numbers each
    double* transposed;  // TILE_ROWS x CHUNK
};

}  // namespace nkn
