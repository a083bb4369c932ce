/* SPDX-License-Identifier: Apache-2.0 */
/* The bodies of the Parallel Research Kernels, each for one instance: what stands inside of the loops. */
#ifndef HPVMD_BENCH_CPU_PRK_H_
#define HPVMD_BENCH_CPU_PRK_H_

#include "language.h"

/* A += B + scalar * C. */
BODY void nstream_at(GLOBAL double* restrict a, GLOBAL const double* restrict b, GLOBAL const double* restrict c,
                     double scalar, int i) {
  a[i] += b[i] + scalar * c[i];
}

/* B += A transposed, then A += 1. */
BODY void transpose_at(GLOBAL double* restrict a, GLOBAL double* restrict b, int order, int i, int j) {
  b[i * order + j] += a[j * order + i];
  a[j * order + i] += 1.0;
}

/* A star of radius 2; `weights` is the 5 by 5 matrix. (i, j) counts the interior. */
#define STAR_RADIUS 2
BODY void star_at(GLOBAL const double* restrict in, GLOBAL const double* restrict weights, GLOBAL double* restrict out,
                  int order, int i, int j) {
  const int width = 2 * STAR_RADIUS + 1;
  const int row = i + STAR_RADIUS, column = j + STAR_RADIUS;
  double sum = out[row * order + column];
  for (int jj = -STAR_RADIUS; jj <= STAR_RADIUS; ++jj) {
    sum += weights[STAR_RADIUS * width + STAR_RADIUS + jj] * in[row * order + column + jj];
  }
  for (int ii = -STAR_RADIUS; ii < 0; ++ii) {
    sum += weights[(STAR_RADIUS + ii) * width + STAR_RADIUS] * in[(row + ii) * order + column];
  }
  for (int ii = 1; ii <= STAR_RADIUS; ++ii) {
    sum += weights[(STAR_RADIUS + ii) * width + STAR_RADIUS] * in[(row + ii) * order + column];
  }
  out[row * order + column] = sum;
}

/* C += A B; A is m by k, B is k by n. */
BODY void dgemm_at(GLOBAL const double* restrict a, GLOBAL const double* restrict b, GLOBAL double* restrict c, int n,
                   int k, int row, int column) {
  double sum = 0;
  for (int p = 0; p < k; ++p) {
    sum += a[row * k + p] * b[p * n + column];
  }
  c[row * n + column] += sum;
}

/* result += M vector, M with `per_row` entries in each row. */
BODY void sparse_at(GLOBAL const double* restrict matrix, GLOBAL const int* restrict columns,
                    GLOBAL const double* restrict vector, GLOBAL double* restrict result, int per_row, int row) {
  double sum = 0;
  for (int k = row * per_row; k < (row + 1) * per_row; ++k) {
    sum += matrix[k] * vector[columns[k]];
  }
  result[row] += sum;
}

/* The element-wise sum of `count` vectors that lie one after the other. */
BODY void reduce_at(GLOBAL const double* restrict vectors, GLOBAL double* restrict sum, int count, int length, int i) {
  double total = vectors[i];
  for (int v = 1; v < count; ++v) {
    total += vectors[v * length + i];
  }
  sum[i] = total;
}

/* Particles in a field of fixed charges on a periodic grid; one time step. A particle is 7 doubles. */
#define PARTICLE_X 0
#define PARTICLE_Y 1
#define PARTICLE_VX 2
#define PARTICLE_VY 3
#define PARTICLE_Q 4
#define PARTICLE_X0 5
#define PARTICLE_Y0 6
#define PARTICLE_FIELDS 7

BODY double coulomb_x(double dx, double dy, double q1, double q2) {
  const double r2 = dx * dx + dy * dy;
  return q1 * q2 / r2 * dx / SQRT(r2);
}

BODY void pic_at(GLOBAL const double* restrict charges, GLOBAL double* restrict particles, int cells, double step,
                 int i) {
  GLOBAL double* particle = particles + i * PARTICLE_FIELDS;
  const double x = particle[PARTICLE_X], y = particle[PARTICLE_Y], q = particle[PARTICLE_Q];
  const int column = (int)x, row = (int)y;
  const double left = x - column, top = y - row, right = 1.0 - left, bottom = 1.0 - top;
  const int points = cells + 1;
  const double top_left = charges[row * points + column], top_right = charges[row * points + column + 1];
  const double bottom_left = charges[(row + 1) * points + column];
  const double bottom_right = charges[(row + 1) * points + column + 1];
  double ax = coulomb_x(left, top, q, top_left);
  double ay = coulomb_x(top, left, q, top_left);
  ax += coulomb_x(left, bottom, q, bottom_left);
  ay -= coulomb_x(bottom, left, q, bottom_left);
  ax -= coulomb_x(right, top, q, top_right);
  ay += coulomb_x(top, right, q, top_right);
  ax -= coulomb_x(right, bottom, q, bottom_right);
  ay -= coulomb_x(bottom, right, q, bottom_right);
  const double vx = particle[PARTICLE_VX], vy = particle[PARTICLE_VY];
  particle[PARTICLE_X] = FMOD(x + vx * step + 0.5 * ax * step * step + cells, (double)cells);
  particle[PARTICLE_Y] = FMOD(y + vy * step + 0.5 * ay * step * step + cells, (double)cells);
  particle[PARTICLE_VX] = vx + ax * step;
  particle[PARTICLE_VY] = vy + ay * step;
}

#endif /* HPVMD_BENCH_CPU_PRK_H_ */
