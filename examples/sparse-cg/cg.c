// SPDX-License-Identifier: Apache-2.0
// One iteration of conjugate gradients for A x = b, with A in compressed rows (CSR): the numbers and columns of row i
// are those from row_start[i] to row_start[i + 1]. Vectors are summed in two steps, first chunks and then their sums,
// so that the results do not depend on the order of instances.
#include "hpvm.h"

enum { kChunk = 64 };

// q = A p; one instance per row.
HPVM_KERNEL void multiply(const int* row_start, const int* columns, const double* numbers, const double* p, double* q) {
  int row = hpvm_instance_id(0);
  double sum = 0;
  for (int k = row_start[row]; k < row_start[row + 1]; ++k) {
    sum += numbers[k] * p[columns[k]];
  }
  q[row] = sum;
}

// One instance per chunk.
HPVM_KERNEL void dot(const double* a, const double* b, double* sums, int count) {
  int chunk = hpvm_instance_id(0), end = (chunk + 1) * kChunk;
  double sum = 0;
  for (int i = chunk * kChunk; i < end && i < count; ++i) {
    sum += a[i] * b[i];
  }
  sums[chunk] = sum;
}

static double total(const double* sums, int count) {
  double sum = 0;
  for (int i = 0; i < count; ++i) {
    sum += sums[i];
  }
  return sum;
}

// alpha = rho / (p, q); one instance.
HPVM_KERNEL void step_length(const double* rho, const double* p_q, double* alpha, int chunks) {
  *alpha = *rho / total(p_q, chunks);
}

// x += alpha p and r -= alpha q; one instance per element, in place.
HPVM_KERNEL void advance(const double* alpha, const double* p, const double* q, double* x, double* r) {
  int i = hpvm_instance_id(0);
  x[i] += *alpha * p[i];
  r[i] -= *alpha * q[i];
}

// rho = (r, r) of the new residual, the factor of the next direction, and a flag for a small enough residual; one
// instance.
HPVM_KERNEL void judge(const double* rho, const double* r_r, double* rho_next, double* beta, unsigned* done, int chunks,
                       double enough) {
  *rho_next = total(r_r, chunks);
  *beta = *rho_next / *rho;
  *done = *rho_next <= enough;
}

// p = r + beta p; one instance per element, in place.
HPVM_KERNEL void direction(const double* r, const double* beta, double* p) {
  int i = hpvm_instance_id(0);
  p[i] = r[i] + *beta * p[i];
}
