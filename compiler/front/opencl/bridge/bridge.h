// SPDX-License-Identifier: Apache-2.0
// The interface between the compiler and clang: clang preprocesses a text in OpenCL C and lists its declarations. The
// bridge is a shared object with one plain C function, because linking clang costs processes that never see OpenCL C
// time and memory. It reads no file: the header that clang itself needs is embedded in the object.
#ifndef HPVMD_COMPILER_FRONT_OPENCL_BRIDGE_BRIDGE_H_
#define HPVMD_COMPILER_FRONT_OPENCL_BRIDGE_BRIDGE_H_

#include <cstddef>
#include <cstdint>

extern "C" {

// The kind of a parameter by its canonical type, with all typedefs resolved.
enum hpvm_opencl_kind {
  HPVM_OPENCL_GLOBAL = 0,   // A pointer to global or constant memory.
  HPVM_OPENCL_LOCAL = 1,    // A pointer to local memory.
  HPVM_OPENCL_INTEGER = 2,  // An integer of `bits` bits.
  HPVM_OPENCL_FLOAT = 3,    // A float of `bits` bits.
  HPVM_OPENCL_VECTOR = 4,   // float4 and the other vector types.
  HPVM_OPENCL_RECORD = 5,   // A struct or union by value.
  HPVM_OPENCL_OPAQUE = 6,   // An image, sampler, event, queue or pipe.
  HPVM_OPENCL_OTHER = 7,    // Any other type, private pointers included.
};

enum hpvm_opencl_space { HPVM_OPENCL_IN_PRIVATE = 0, HPVM_OPENCL_IN_LOCAL = 1, HPVM_OPENCL_IN_CONSTANT = 2 };

struct hpvm_opencl_place {
  uint32_t line, column;  // Position in the tenant's text, counted from 1; 0 when unknown.
};

struct hpvm_opencl_parameter {
  enum hpvm_opencl_kind kind;
  uint32_t bits;
  int is_const;      // For pointers: the pointee is const.
  const char* text;  // The type as written and, where it differs, the canonical type: "color (that is, float4)".
  struct hpvm_opencl_place place;
};

struct hpvm_opencl_variable {
  enum hpvm_opencl_space space;
  uint64_t bytes;
  const char* name;
  const char* function;  // Empty for variables outside functions.
  struct hpvm_opencl_place place;
};

// The bridge makes these calls in the order of the text. Strings live as long as the call; none is null.
struct hpvm_opencl_listener {
  void* context;
  void (*fault)(void* context, struct hpvm_opencl_place place, const char* message);
  // Calls for the kernel's parameters follow. `group` is the value of reqd_work_group_size, or zeros.
  void (*kernel)(void* context, const char* name, struct hpvm_opencl_place place, const uint32_t group[3]);
  void (*parameter)(void* context, const struct hpvm_opencl_parameter* parameter);
  // Reports a variable of static size that occupies memory.
  void (*variable)(void* context, const struct hpvm_opencl_variable* variable);
  // Reports the text with conditions and macros resolved. Line markers preserve line numbers.
  void (*text)(void* context, const char* bytes, size_t count);
};

struct hpvm_opencl_request {
  const char* text;  // A zero byte, which `text_bytes` does not count, ends the text; the text contains no other zero
                     // byte.
  size_t text_bytes;
  const char* const* arguments;  // Arguments for clang -cc1: -D..., -cl-...
  size_t argument_count;
};

typedef void (*hpvm_opencl_describe_function)(const struct hpvm_opencl_request* request,
                                              const struct hpvm_opencl_listener* listener);
__attribute__((visibility("default"))) void hpvm_opencl_describe(const struct hpvm_opencl_request* request,
                                                                 const struct hpvm_opencl_listener* listener);
}

#endif  // HPVMD_COMPILER_FRONT_OPENCL_BRIDGE_BRIDGE_H_
