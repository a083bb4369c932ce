// SPDX-License-Identifier: Apache-2.0
// Renders the photograph for edge detection: spheres on a chequered plane under a low sun, with soft shadow, haze, grain and a
// vignette. One instance per pixel.
#include "hpvm.h"

typedef struct {
  float x, y, z;
} Vec;

static Vec add(Vec a, Vec b) { return (Vec){a.x + b.x, a.y + b.y, a.z + b.z}; }
static Vec scale(Vec a, float s) { return (Vec){a.x * s, a.y * s, a.z * s}; }
static float dot(Vec a, Vec b) { return a.x * b.x + a.y * b.y + a.z * b.z; }
static Vec unit(Vec a) { return scale(a, 1 / __builtin_sqrtf(dot(a, a))); }

typedef struct {
  Vec center;
  float radius, albedo, gloss;
} Sphere;

static const Sphere kSpheres[] = {
    {{-1.9f, 1.0f, 6.5f}, 1.0f, 0.85f, 0.3f}, {{0.3f, 1.4f, 8.2f}, 1.4f, 0.45f, 0.8f}, {{2.4f, 0.7f, 5.6f}, 0.7f, 0.7f, 0.5f},
    {{-0.5f, 0.45f, 4.6f}, 0.45f, 0.3f, 0.9f}, {{1.1f, 0.3f, 3.9f}, 0.3f, 0.9f, 0.2f}, {{-3.6f, 2.1f, 11.0f}, 2.1f, 0.6f, 0.4f},
    {{4.8f, 1.7f, 10.5f}, 1.7f, 0.75f, 0.6f},
};
enum { kSphereCount = sizeof(kSpheres) / sizeof(kSpheres[0]) };

static unsigned hash(unsigned a) {
  a = (a ^ 61) ^ (a >> 16);
  a *= 9;
  a ^= a >> 4;
  a *= 0x27d4eb2d;
  return a ^ (a >> 15);
}

// The nearest sphere that the ray meets beyond 0.001, or -1.
static int nearest(Vec from, Vec along, float* distance) {
  int found = -1;
  for (int i = 0; i < kSphereCount; ++i) {
    Vec to = add(from, scale(kSpheres[i].center, -1));
    float b = dot(to, along), c = dot(to, to) - kSpheres[i].radius * kSpheres[i].radius;
    float discriminant = b * b - c;
    if (discriminant <= 0) {
      continue;
    }
    float t = -b - __builtin_sqrtf(discriminant);
    if (t > 0.001f && t < *distance) {
      *distance = t;
      found = i;
    }
  }
  return found;
}

static float sunlight(Vec from, unsigned seed) {
  float light = 0;
  for (unsigned i = 0; i < 4; ++i) {  // Four points of the sun make the shadow's edge soft.
    unsigned h = hash(seed * 4 + i);
    Vec sun = unit((Vec){-0.6f + (h & 255) * 0.0004f, 0.55f + (h >> 8 & 255) * 0.0004f, -0.35f});
    float far = 1e9f;
    light += nearest(from, sun, &far) < 0 ? 0.25f : 0;
  }
  return light;
}

static float shade(Vec from, Vec along, unsigned seed) {
  Vec sun = unit((Vec){-0.6f, 0.6f, -0.35f});
  float distance = 1e9f, brightness = 0, weight = 1;
  for (int bounce = 0; bounce < 3; ++bounce) {
    distance = 1e9f;
    int hit = nearest(from, along, &distance);
    float plane = along.y < 0 ? -from.y / along.y : 1e9f;
    if (hit < 0 && plane > 60) {
      return brightness + weight * (0.55f + 0.4f * along.y);  // Sky.
    }
    int is_plane = plane < distance;
    distance = is_plane ? plane : distance;
    Vec at = add(from, scale(along, distance));
    Vec normal = is_plane ? (Vec){0, 1, 0} : unit(add(at, scale(kSpheres[hit].center, -1)));
    int chequer = ((int)(at.x + 1000) + (int)(at.z + 1000)) & 1;
    float albedo = is_plane ? (chequer ? 0.75f : 0.25f) : kSpheres[hit].albedo;
    float gloss = is_plane ? 0.08f : kSpheres[hit].gloss;
    float direct = dot(normal, sun);
    direct = direct > 0 ? direct * sunlight(at, seed + bounce) : 0;
    float haze = distance / (distance + 25);
    brightness += weight * ((1 - gloss) * albedo * (0.18f + 0.9f * direct) * (1 - haze) + 0.55f * haze);
    weight *= gloss * (1 - haze);
    along = add(along, scale(normal, -2 * dot(along, normal)));
    from = at;
  }
  return brightness;
}

HPVM_KERNEL void scene(unsigned char* image, int width, int height) {
  int x = hpvm_instance_id(0), y = hpvm_instance_id(1);
  float sum = 0;
  for (int sample = 0; sample < 4; ++sample) {
    float u = (x + 0.25f + 0.5f * (sample & 1) - width * 0.5f) / height;
    float v = (height * 0.5f - y - 0.25f - 0.5f * (sample >> 1)) / height;
    Vec along = unit((Vec){u, v - 0.12f, 1.1f});
    sum += shade((Vec){0, 1.9f, -1.5f}, along, (unsigned)((y * width + x) * 4 + sample));
  }
  float u = (float)x / width - 0.5f, v = (float)y / height - 0.5f;
  float value = sum * 0.25f * (1 - 0.7f * (u * u + v * v));
  value += ((int)(hash((unsigned)(y * width + x)) & 255) - 128) * 0.00008f;  // Grain.
  value = value < 0 ? 0 : value > 1 ? 1 : value;
  image[y * width + x] = (unsigned char)(__builtin_sqrtf(value) * 255 + 0.5f);
}
