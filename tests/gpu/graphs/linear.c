// SPDX-License-Identifier: Apache-2.0
// Matrices, dense and sparse, transforms and small networks.
#include "common.h"
#include "hpvm.h"

HPVM_KERNEL void product32(const float* restrict a, const float* restrict b, float* restrict c, int n, int k) {
  float sum = 0;
  for (int i = 0; i < k; ++i) {
    sum += a[Y * k + i] * b[i * n + X];
  }
  c[Y * n + X] = sum;
}

HPVM_KERNEL void product64(const double* restrict a, const double* restrict b, double* restrict c, int n, int k,
                           double beta) {
  double sum = beta * c[Y * n + X];
  for (int i = 0; i < k; ++i) {
    sum += a[Y * k + i] * b[X * k + i];  // The second matrix is transposed.
  }
  c[Y * n + X] = sum;
}

HPVM_KERNEL void product_tile(const float* restrict a, const float* restrict b, float* restrict c, int n) {
  float* at = hpvm_local_alloc(2 * 8 * 9 * sizeof(float));
  float* bt = at + 8 * 9;
  int lx = (int)hpvm_local_id(0), ly = (int)hpvm_local_id(1);
  float sum = 0;
  for (int k = 0; k < n; k += 8) {
    at[ly * 9 + lx] = a[Y * n + k + lx];
    bt[ly * 9 + lx] = b[(k + ly) * n + X];
    hpvm_barrier();
    for (int i = 0; i < 8; ++i) {
      sum += at[ly * 9 + i] * bt[i * 9 + lx];
    }
    hpvm_barrier();
  }
  c[Y * n + X] = sum;
}

// One column of a decomposition for each repetition.
HPVM_KERNEL void lu_column(const double* restrict a, const int* restrict step, double* restrict factors, int n) {
  int y = X, k = step[0];
  factors[y] = y > k ? a[y * n + k] / a[k * n + k] : 0.0;
}

HPVM_KERNEL void lu_update(const double* restrict a, const double* restrict factors, const int* restrict step,
                           double* restrict next, int* restrict next_step, int n) {
  int x = X, y = Y, k = step[0];
  double v = a[y * n + x];
  if (y > k) {
    v = x == k ? factors[y] : x > k ? v - factors[y] * a[k * n + x] : v;
  }
  next[y * n + x] = v;
  if (x == 0 && y == 0) {
    next_step[0] = k + 1;
  }
}

HPVM_KERNEL void lu_prepare(const double* restrict in, double* restrict out, int n) {
  out[Y * n + X] = in[Y * n + X] + (X == Y ? (double)n : 0.0);
}

enum { kSmall = 8 };

// Many matrices of 8 by 8, one for each instance, packed triangles on the stack.
HPVM_KERNEL void cholesky8(const float* restrict roots, double* restrict lower) {
  const float* r = roots + X * kSmall * kSmall;
  double a[kSmall * (kSmall + 1) / 2];
  for (int i = 0; i < kSmall; ++i) {
    for (int j = 0; j <= i; ++j) {
      double sum = i == j ? 8.0 : 0.0;
      for (int k = 0; k < kSmall; ++k) {
        sum += (double)r[i * kSmall + k] * (double)r[j * kSmall + k];
      }
      a[i * (i + 1) / 2 + j] = sum;
    }
  }
  for (int j = 0; j < kSmall; ++j) {
    double d = a[j * (j + 1) / 2 + j];
    for (int k = 0; k < j; ++k) {
      d -= a[j * (j + 1) / 2 + k] * a[j * (j + 1) / 2 + k];
    }
    d = hpvm_sqrt_f64(d);
    a[j * (j + 1) / 2 + j] = d;
    for (int i = j + 1; i < kSmall; ++i) {
      double v = a[i * (i + 1) / 2 + j];
      for (int k = 0; k < j; ++k) {
        v -= a[i * (i + 1) / 2 + k] * a[j * (j + 1) / 2 + k];
      }
      a[i * (i + 1) / 2 + j] = v / d;
    }
  }
  for (int k = 0; k < kSmall * (kSmall + 1) / 2; ++k) {
    lower[X * 36 + k] = a[k];
  }
}

HPVM_KERNEL void solve8(const double* restrict lower, const double* restrict b, double* restrict x) {
  const double* a = lower + X * 36;
  double v[kSmall];
  for (int i = 0; i < kSmall; ++i) {
    double sum = b[X * kSmall + i];
    for (int k = 0; k < i; ++k) {
      sum -= a[i * (i + 1) / 2 + k] * v[k];
    }
    v[i] = sum / a[i * (i + 1) / 2 + i];
  }
  for (int i = kSmall - 1; i >= 0; --i) {
    double sum = v[i];
    for (int k = i + 1; k < kSmall; ++k) {
      sum -= a[k * (k + 1) / 2 + i] * v[k];
    }
    v[i] = sum / a[i * (i + 1) / 2 + i];
  }
  for (int i = 0; i < kSmall; ++i) {
    x[X * kSmall + i] = v[i];
  }
}

HPVM_KERNEL void sparse_rows(const int* restrict starts, const int* restrict columns, const double* restrict values,
                             const double* restrict x, double* restrict y) {
  double sum = 0;
  for (int k = starts[X]; k < starts[X + 1]; ++k) {
    sum += values[k] * x[columns[k]];
  }
  y[X] = sum;
}

// Columns one after the other, `rows` elements apart.
HPVM_KERNEL void sparse_ell(const int* restrict columns, const float* restrict values, const float* restrict x,
                            float* restrict y, int rows, int width) {
  float sum = 0;
  for (int k = 0; k < width; ++k) {
    int column = columns[k * rows + X];
    if (column >= 0) {
      sum += values[k * rows + X] * x[column];
    }
  }
  y[X] = sum;
}

// Coordinates; sums in fixed point, whose order does not matter.
HPVM_KERNEL void sparse_coo(const int* restrict places, const float* restrict values, const float* restrict x,
                            int64_t* y) {
  int row = places[2 * X], column = places[2 * X + 1];
  hpvm_atomic_add_i64(y + row, (int64_t)(values[X] * x[column] * 1048576.0f));
}

HPVM_KERNEL void fixed_to_float(const int64_t* restrict in, float* restrict out) {
  out[X] = (float)((double)in[X] / 1048576.0);
}

// A Poisson matrix in one dimension, never stored.
HPVM_KERNEL void cg_apply(const double* restrict p, double* restrict q, int n) {
  int i = X;
  q[i] = 2.5 * p[i] - (i > 0 ? p[i - 1] : 0.0) - (i < n - 1 ? p[i + 1] : 0.0);
}

HPVM_KERNEL void cg_dots(const double* restrict r, const double* restrict p, const double* restrict q,
                         double* restrict sums, int n) {
  double* part = hpvm_local_alloc(2 * 64 * sizeof(double));
  int t = (int)hpvm_local_id(0);
  double rr = 0, pq = 0;
  for (int i = t; i < n; i += 64) {
    rr += r[i] * r[i];
    pq += p[i] * q[i];
  }
  part[t] = rr;
  part[64 + t] = pq;
  for (int step = 32; step > 0; step /= 2) {
    hpvm_barrier();
    if (t < step) {
      part[t] += part[t + step];
      part[64 + t] += part[64 + t + step];
    }
  }
  if (t == 0) {
    sums[0] = part[0];
    sums[1] = part[64];
  }
}

HPVM_KERNEL void cg_step(const double* restrict x, const double* restrict r, const double* restrict p,
                         const double* restrict q, const double* restrict sums, double* restrict x_next,
                         double* restrict r_next) {
  int i = X;
  double alpha = sums[0] / sums[1];
  x_next[i] = x[i] + alpha * p[i];
  r_next[i] = r[i] - alpha * q[i];
}

HPVM_KERNEL void cg_turn(const double* restrict r, const double* restrict p, const double* restrict old,
                         const double* restrict now, double* restrict next) {
  next[X] = r[X] + now[0] / old[0] * p[X];
}

typedef struct {
  float re, im;
} Complex;

// One pass of Stockham's transform; the span doubles from pass to pass.
HPVM_KERNEL void fft_pass(const Complex* restrict in, const int* restrict span, Complex* restrict out,
                          int* restrict next_span, int n) {
  int i = X, s = span[0], k = i & (s - 1), j = (i - k) * 2 + k;
  float angle = -3.14159265f * (float)k / (float)s;
  float c = hpvm_cos_f32(angle), d = hpvm_sin_f32(angle);
  Complex a = in[i], b = in[i + n / 2];
  Complex t = {b.re * c - b.im * d, b.re * d + b.im * c};
  out[j].re = a.re + t.re;
  out[j].im = a.im + t.im;
  out[j + s].re = a.re - t.re;
  out[j + s].im = a.im - t.im;
  if (i == 0) {
    next_span[0] = 2 * s < n ? 2 * s : 1;
  }
}

HPVM_KERNEL void dft(const double* restrict in, double* restrict out, int n) {
  int k = X;
  double re = 0, im = 0;
  for (int i = 0; i < n; ++i) {
    double angle = 6.283185307179586 * (double)(i * k % n) / (double)n;
    re += in[i] * hpvm_cos_f64(angle);
    im -= in[i] * hpvm_sin_f64(angle);
  }
  out[2 * k] = re;
  out[2 * k + 1] = im;
}

// Eight-bit weights, sums of 32 bits.
HPVM_KERNEL void convolve8(const uint8_t* restrict in, const int8_t* restrict weights, int16_t* restrict out, int w,
                           int h, int channels) {
  int x = X, y = Y, c = Z, sum = 0;
  for (int k = 0; k < channels; ++k) {
    for (int j = 0; j < 3; ++j) {
      for (int i = 0; i < 3; ++i) {
        sum += in[(k * (h + 2) + y + j) * (w + 2) + x + i] * weights[((c * channels + k) * 3 + j) * 3 + i];
      }
    }
  }
  out[(c * h + y) * w + x] = (int16_t)Clamp(sum >> 4, -32768, 32767);
}

HPVM_KERNEL void pool8(const int16_t* restrict in, uint8_t* restrict out, int w, int h) {
  int x = X, y = Y, c = Z, best = 0;
  for (int k = 0; k < 4; ++k) {
    best = Most(best, in[(c * h + 2 * y + (k >> 1)) * w + 2 * x + (k & 1)]);
  }
  out[(c * (h / 2) + y) * (w / 2) + x] = (uint8_t)Least(best >> 3, 255);
}

HPVM_KERNEL void dense8(const uint8_t* restrict in, const int8_t* restrict weights, int* restrict out, int n) {
  int sum = 0;
  for (int i = 0; i < n; ++i) {
    sum += in[i] * weights[X * n + i];
  }
  out[X] = sum;
}

HPVM_KERNEL void transpose16(const uint16_t* restrict in, uint16_t* restrict out, int w, int h) {
  uint16_t* tile = hpvm_local_alloc(8 * 9 * sizeof(uint16_t));
  int lx = (int)hpvm_local_id(0), ly = (int)hpvm_local_id(1);
  tile[ly * 9 + lx] = in[Y * w + X];
  hpvm_barrier();
  int x = (int)hpvm_group_id(1) * 8 + lx, y = (int)hpvm_group_id(0) * 8 + ly;
  out[y * h + x] = tile[lx * 9 + ly];
}

HPVM_KERNEL void power_step(const float* restrict packed, const float* restrict v, float* restrict out, int n) {
  int i = X;
  float sum = 0;
  for (int k = 0; k < n; ++k) {
    int low = Least(i, k), high = Most(i, k);
    sum += packed[high * (high + 1) / 2 + low] * v[k];
  }
  out[i] = sum;
}

HPVM_KERNEL void power_norm(const float* restrict in, float* restrict out, float* restrict norm, int n) {
  float sum = 0;
  for (int k = 0; k < n; ++k) {
    sum += in[k] * in[k];
  }
  sum = hpvm_sqrt_f32(sum);
  out[X] = in[X] / sum;
  if (X == 0) {
    norm[0] = sum;
  }
}
