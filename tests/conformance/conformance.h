// SPDX-License-Identifier: Apache-2.0
// The conformance suite: requirements on every backend, whatever its implementation.
//
// A case is a function over a Bench, which owns one device of the backend under test. Cases are registered once for
// each backend (see backends.cc) as Conformance.<backend>/<case>.
#ifndef HPVMD_TESTS_CONFORMANCE_CONFORMANCE_H_
#define HPVMD_TESTS_CONFORMANCE_CONFORMANCE_H_

#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"

#include "backends/contract/device.h"

namespace hpvm::conformance {

// One argument of a dispatch: a whole buffer, a view of one, a scalar, or a scalar from the submission's table.
struct Arg {
  Buffer* buffer = nullptr;
  uint64_t offset = 0, bytes = ~uint64_t{0};
  uint64_t scalar = 0;
  SlotIndex scalar_slot = kNoSlot;

  static Arg Of(Buffer& buffer) { return {&buffer, 0, buffer.bytes(), 0, kNoSlot}; }
  static Arg View(Buffer& buffer, uint64_t offset, uint64_t bytes) { return {&buffer, offset, bytes, 0, kNoSlot}; }
  static Arg Scalar(uint64_t bits) { return {nullptr, 0, 0, bits, kNoSlot}; }
  static Arg Scalar(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    return Scalar(uint64_t{bits});
  }
  static Arg Slot(SlotIndex slot) { return {nullptr, 0, 0, 0, slot}; }
};

// A part of a launch, as in DispatchCommand.
struct Box {
  std::array<uint64_t, 3> first{0, 0, 0};
  std::array<uint64_t, 3> count{kAllInstances, kAllInstances, kAllInstances};
};

// Commands with the tables they name; grows as dispatches are added.
class Work {
 public:
  void Dispatch(Executable& executable, std::array<uint64_t, 3> extent, std::array<uint64_t, 3> group,
                const std::vector<Arg>& args, const Box& box = {});
  void Copy(Buffer& source, uint64_t source_offset, Buffer& target, uint64_t target_offset, uint64_t bytes);
  void Fill(Buffer& target, uint64_t offset, uint64_t bytes, uint8_t value);

  CommandList commands;
  std::vector<Buffer*> buffers;
  std::vector<uint64_t> scalars;
  std::vector<NodeTiming> timings;  // One per dispatch; filled by Bench::Run.
  Failure failure;
  const std::atomic<uint32_t>* stop = nullptr;

 private:
  SlotIndex SlotOf(Buffer& buffer);
};

class Bench {
 public:
  // Suffix of the name of a driver's device: a device that is the host gets lanes and staging memory as if it were
  // not.
  static constexpr std::string_view kLanes = "_lanes";

  // `backend` is a name for CreateDevice, optionally followed by kLanes.
  explicit Bench(std::string_view backend);
  // Borrows an existing device.
  explicit Bench(Device& device) : backend_(device.info().id), device_(&device) {}

  // Returns a name for CreateDevice, optionally followed by kLanes.
  std::string_view backend() const { return backend_; }
  // Returns true when the device is behind a driver: running work cannot be stopped, nor work enqueued after a trap,
  // and kernels that a GPU cannot run are refused when they are compiled.
  bool is_driven() const;
  Device& device() { return *device_; }
  Hub& hub() { return hub_; }

  // Returns a kernel of kernels.h, compiled for this device; null after a reported failure.
  std::unique_ptr<Executable> Load(std::string_view kernel);
  std::unique_ptr<Buffer> Allocate(uint64_t bytes);
  std::unique_ptr<Timeline> CreateTimeline();
  // Submits without wait points, and waits for the end, as Await does.
  Status Run(Work& work);
  Status Submit(Work& work, std::span<const TimelinePoint> waits, std::span<const TimelinePoint> signals,
                Lane lane = Lane::kCompute);

  // Moves data to and from a buffer of any device.
  void WriteBytes(Buffer& buffer, uint64_t offset, const void* data, uint64_t bytes);
  void ReadBytes(Buffer& buffer, uint64_t offset, void* data, uint64_t bytes);
  template <typename T>
  std::unique_ptr<Buffer> Upload(const std::vector<T>& data) {
    std::unique_ptr<Buffer> buffer = Allocate(data.size() * sizeof(T));
    WriteBytes(*buffer, 0, data.data(), data.size() * sizeof(T));
    return buffer;
  }
  template <typename T>
  std::vector<T> Download(Buffer& buffer) {
    std::vector<T> data(buffer.bytes() / sizeof(T));
    ReadBytes(buffer, 0, data.data(), data.size() * sizeof(T));
    return data;
  }

 private:
  const std::string backend_;
  Hub hub_;
  std::unique_ptr<Device> owned_;
  Device* device_ = nullptr;
};

struct Case {
  std::string name;  // "dispatch_saxpy".
  void (*run)(Bench& bench);
  bool needs_kernels = false;  // Skipped where this build cannot compile for the device.
};
// The cases of each file.
std::vector<Case> CoreCases();
std::vector<Case> BufferCases();
std::vector<Case> TimelineCases();
std::vector<Case> DispatchCases();
std::vector<Case> FailureCases();
std::vector<Case> BoxCases();
std::vector<Case> LaneCases();

// A case that a backend does not pass, and the reason.
struct Exception {
  std::string name;
  std::string reason;
};
struct Backend {
  std::string name;                         // A name for CreateDevice.
  std::vector<Exception> unsupported;       // Not run.
  std::vector<Exception> expected_failure;  // Run; a pass fails the suite, so that the list stays correct.
};
const std::vector<Backend>& Backends();
// Backends without a device on this machine: skipped, with a message.
const std::vector<std::string>& AbsentBackends();

// Returns kernels in the IR's text form, by name.
std::string_view KernelText(std::string_view name);
// Compiles `text` to an artifact for that device.
StatusOr<Artifact> CompileText(std::string_view text, const Device& device);
StatusOr<Artifact> CompileModule(ir::Module module, const Device& device);
// Returns true when this build can compile for the kind.
bool CanCompile(ArtifactKind kind);

// A deadline far beyond what any case takes; keeps a broken backend from hanging the suite.
Time Soon();
// Like Timeline::Wait, until Soon(). Work that has not settled by then may still be in flight, and uses memory of the
// case, which would be freed when the case ends: so the program prints the case and exits with 1.
Status Await(Timeline& timeline, uint64_t value);

}  // namespace hpvm::conformance

#endif  // HPVMD_TESTS_CONFORMANCE_CONFORMANCE_H_
