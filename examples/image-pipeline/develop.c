// SPDX-License-Identifier: Apache-2.0
// Turns the counts of a camera's sensor into a picture: one colour per pixel becomes three, a histogram determines the
// exposure, and a curve makes bytes. Sensors have red at even columns of even rows, blue at odd columns of odd rows,
// and green elsewhere (RGGB).
#include "hpvm.h"

enum { kBins = 256 };

static int clamp(int value, int last) { return value < 0 ? 0 : value > last ? last : value; }

// The count above black, as a part of the full range, with the gain of the pixel's colour. One instance per pixel.
HPVM_KERNEL void balance(const unsigned short* raw, float* out, int width, float black, float white, float red,
                         float blue) {
  int x = hpvm_instance_id(0), y = hpvm_instance_id(1);
  float value = (raw[y * width + x] - black) / (white - black);
  float gain = (x & 1) != (y & 1) ? 1 : (x & 1) ? blue : red;
  value *= gain;
  out[y * width + x] = value < 0 ? 0 : value;
}

static float at(const float* mosaic, int x, int y, int width, int height) {
  return mosaic[clamp(y, height - 1) * width + clamp(x, width - 1)];
}

// The two colours that a pixel lacks, as means of the neighbours that have them.
HPVM_KERNEL void demosaic(const float* mosaic, float* rgb, int width, int height) {
  int x = hpvm_instance_id(0), y = hpvm_instance_id(1);
  float here = at(mosaic, x, y, width, height);
  float beside = (at(mosaic, x - 1, y, width, height) + at(mosaic, x + 1, y, width, height)) * 0.5f;
  float above = (at(mosaic, x, y - 1, width, height) + at(mosaic, x, y + 1, width, height)) * 0.5f;
  float corners = ((at(mosaic, x - 1, y - 1, width, height) + at(mosaic, x + 1, y - 1, width, height)) +
                   (at(mosaic, x - 1, y + 1, width, height) + at(mosaic, x + 1, y + 1, width, height))) *
                  0.25f;
  int odd_x = x & 1, odd_y = y & 1;
  float red = odd_y ? (odd_x ? corners : above) : (odd_x ? beside : here);
  float green = odd_x != odd_y ? here : (beside + above) * 0.5f;
  float blue = odd_y ? (odd_x ? here : beside) : (odd_x ? above : corners);
  float* pixel = rgb + 3 * (y * width + x);
  pixel[0] = red;
  pixel[1] = green;
  pixel[2] = blue;
}

// Counts the pixels of each brightness. Many instances add to one bin, so they add atomically.
HPVM_KERNEL void histogram(const float* rgb, int* bins, int width) {
  const float* pixel = rgb + 3 * (hpvm_instance_id(1) * width + hpvm_instance_id(0));
  float brightness = (pixel[0] + 2 * pixel[1] + pixel[2]) * 0.25f;
  hpvm_atomic_add_i32(bins + clamp((int)(brightness * kBins), kBins - 1), 1);
}

// The gain at which at most `overexposed` parts in a thousand of the pixels reach white. One instance.
HPVM_KERNEL void exposure(const int* bins, float* gain, int pixels, int overexposed) {
  int above = 0, bin = kBins - 1;
  while (bin > 0 && (above + bins[bin]) * 1000LL <= (long long)pixels * overexposed) {
    above += bins[bin];
    --bin;
  }
  *gain = (float)kBins / (bin + 1);
}

// Applies the gain, a shoulder that keeps bright parts from clipping hard, the square root for gamma, and makes bytes.
HPVM_KERNEL void tone(const float* rgb, const float* gain, unsigned char* out, int width) {
  int first = 3 * (hpvm_instance_id(1) * width + hpvm_instance_id(0));
  for (int c = 0; c < 3; ++c) {
    float value = rgb[first + c] * gain[0];
    value = value * 1.25f / (value + 0.25f);
    value = value > 1 ? 1 : value;
    out[first + c] = (unsigned char)(__builtin_sqrtf(value) * 255 + 0.5f);
  }
}
