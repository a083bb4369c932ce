// SPDX-License-Identifier: Apache-2.0
// Prices two call options by simulation: one on the price of the last day, one on the mean price over all days (Asian).
// Random numbers are a function of seed, path and day, so that each instance makes its own and the results are
// repeatable.
#include "hpvm.h"

static unsigned hash(unsigned value) {  // PCG's output function.
  value = value * 747796405u + 2891336453u;
  unsigned word = ((value >> ((value >> 28) + 4)) ^ value) * 277803737u;
  return (word >> 22) ^ word;
}

static double uniform(unsigned bits) { return (bits + 0.5) * 0x1p-32; }

// One instance per path. Each day multiplies the price by the exponential of a normally distributed number.
HPVM_KERNEL void simulate(double* last, double* european, double* asian, int seed, int days, double start,
                          double strike, double rate, double volatility, double years) {
  unsigned path = hpvm_instance_id(0), key = hash(hash((unsigned)seed) ^ path);
  double step = years / days, drift = (rate - 0.5 * volatility * volatility) * step,
         spread = volatility * hpvm_sqrt_f64(step);
  double log_price = hpvm_log_f64(start), sum = 0, price = start;
  for (int day = 0; day < days; ++day) {
    double radius = hpvm_sqrt_f64(-2 * hpvm_log_f64(uniform(hash(key + 2 * day))));
    double normal = radius * hpvm_cos_f64(6.283185307179586 * uniform(hash(key + 2 * day + 1)));
    log_price += drift + spread * normal;
    price = hpvm_exp_f64(log_price);
    sum += price;
  }
  double discount = hpvm_exp_f64(-rate * years), mean = sum / days;
  last[path] = price;
  european[path] = discount * (price > strike ? price - strike : 0);
  asian[path] = discount * (mean > strike ? mean - strike : 0);
}

// Sums of european payoffs, their squares, asian payoffs and their squares; one instance per part of the paths.
HPVM_KERNEL void add_up(const double* european, const double* asian, double* sums, int paths) {
  int part = hpvm_instance_id(0), parts = hpvm_instance_count(0);
  double e = 0, ee = 0, a = 0, aa = 0;
  for (int i = part; i < paths; i += parts) {
    e += european[i];
    ee += european[i] * european[i];
    a += asian[i];
    aa += asian[i] * asian[i];
  }
  sums[4 * part] = e;
  sums[4 * part + 1] = ee;
  sums[4 * part + 2] = a;
  sums[4 * part + 3] = aa;
}
