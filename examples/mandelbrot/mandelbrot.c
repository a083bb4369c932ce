// SPDX-License-Identifier: Apache-2.0
// The Mandelbrot set's neighbourhood of the seahorse valley in smooth colours; one instance per pixel.
#include "hpvm.h"

// log2 of a positive number to about 1e-3: the exponent, and a parabola through the mantissa; enough for colours.
static float rough_log2(float value) {
  unsigned bits;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  unsigned mantissa_bits = (bits & 0x007fffffu) | 0x3f800000u;
  float mantissa;
  __builtin_memcpy(&mantissa, &mantissa_bits, sizeof(mantissa));
  return (float)((int)(bits >> 23) - 127) + (-0.33582878f * mantissa + 2.0f) * mantissa - 1.65871024f;
}

// A palette of cosine-like waves made of parabolas: period 1, range [0, 1].
static float wave(float phase) {
  phase -= __builtin_floorf(phase);
  float t = phase < 0.5f ? phase : 1 - phase;
  return t < 0.25f ? 8 * t * t : 1 - 8 * (0.5f - t) * (0.5f - t);
}

HPVM_KERNEL void mandelbrot(unsigned char* image, int width, int height, double center_x, double center_y, double span,
                            int iterations_max) {
  int px = hpvm_instance_id(0), py = hpvm_instance_id(1);
  double cx = center_x + ((px + 0.5) / width - 0.5) * span;
  double cy = center_y - ((py + 0.5) / height - 0.5) * span * height / width;
  double x = 0, y = 0, x2 = 0, y2 = 0;
  int iterations = 0;
  while (iterations < iterations_max && x2 + y2 < 256) {
    y = 2 * x * y + cy;
    x = x2 - y2 + cx;
    x2 = x * x;
    y2 = y * y;
    ++iterations;
  }
  unsigned char* pixel = image + 3 * (py * width + px);
  if (iterations == iterations_max) {
    pixel[0] = pixel[1] = pixel[2] = 0;
    return;
  }
  // The escape count made continuous: n + 1 - log2(log2 |z|).
  float smooth = (float)iterations + 2 - rough_log2(rough_log2((float)(x2 + y2)));
  float phase = __builtin_sqrtf(smooth) * 0.11f;
  pixel[0] = (unsigned char)(255 * wave(phase + 0.52f));
  pixel[1] = (unsigned char)(255 * wave(phase + 0.42f));
  pixel[2] = (unsigned char)(255 * wave(phase + 0.28f));
}
