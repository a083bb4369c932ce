// SPDX-License-Identifier: Apache-2.0
// One submission in progress: its commands as they are enqueued, and the work left when the device is done.
#ifndef HPVMD_BACKENDS_OPENCL_FLIGHT_H_
#define HPVMD_BACKENDS_OPENCL_FLIGHT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "backends/gpu/arrivals.h"
#include "backends/gpu/dispatch.h"
#include "backends/gpu/small_copies.h"
#include "backends/gpu/submit_thread.h"
#include "backends/gpu/timed_groups.h"
#include "backends/gpu/trap_records.h"
#include "backends/opencl/executable.h"
#include "backends/opencl/queue.h"

namespace hpvm::opencl {

// The event after which everything of a flight is done on the device.
class EventMilestone final : public gpu::Milestone {
 public:
  explicit EventMilestone(Event event) : event_(std::move(event)) {}
  cl_event event() const { return event_.get(); }

 private:
  const Event event_;
};

class OpenClFlight final : public gpu::Flight {
 public:
  // Both are borrowed for its life.
  OpenClFlight(OpenClQueue& queue, const Submission& submission);
  ~OpenClFlight() override;

  // Passes everything to the driver; Finish reports failures. Called on the submit thread.
  void Enqueue(const gpu::Milestones& behind);
  Status Finish() override;
  // Nothing may be enqueued behind copies to host memory that are left for the end.
  gpu::Behind behind() const override;

 private:
  // A copy to host memory at the end of the submission.
  struct Download {
    OpenClBuffer* source = nullptr;
    uint64_t offset = 0, bytes = 0;
    uint8_t* target = nullptr;
    HostBlock* block = nullptr;  // The block that contains the target; or null.
  };
  // Consecutive dispatches that are timed together: from the start of event `first` (or, if it is empty, from the end
  // of the sample before) to the end of event `last`; an empty `last` means launches without instances.
  struct Sample {
    size_t first_node = 0, end_node = 0;  // Range in nodes_.
    Event first{}, last{};
    const DispatchCommand* like = nullptr;  // The first dispatch.
    bool is_mixed = false;                  // Some of the dispatches differ.
  };
  // A launch for which the executable's chooser requested a measurement.
  struct Measured {
    gpu::Chooser* chooser = nullptr;
    gpu::LaunchFacts facts;
    std::vector<gpu::Part> parts;
    Event first, last;
  };

  Status WaitFor(const gpu::Milestones& behind);
  Status EnqueueCommands();
  Status EnqueueCopy(const CopyCommand& copy, bool is_last);
  Status Upload(HostBlock* block, const uint8_t* source, OpenClBuffer& target, const CopyCommand& copy);
  // Copies through staging memory.
  Status UploadPieces(const uint8_t* source, OpenClBuffer& target, const CopyCommand& copy);
  // Submits the batched small uploads; called before any other command.
  Status FlushUploads();
  // A copy between pinned memory and the device, piece by piece.
  struct DirectCopy {
    cl_command_queue queue = nullptr;
    bool is_up = false;
    HostBlock* block = nullptr;
    Pin* pin = nullptr;
    uint64_t bytes = 0;
    std::string_view doing;
    std::function<cl_int(uint64_t at, uint64_t bytes, cl_event* done)> enqueue;
  };
  Status CopyDirectly(const DirectCopy& copy);
  Status CopyWithin(OpenClBuffer& source, OpenClBuffer& target, const CopyCommand& copy);
  Status EnqueueFill(const FillCommand& fill);
  Status FillPiece(cl_mem memory, uint64_t offset, uint64_t bytes, uint8_t value, uint32_t pattern_bytes);
  Status EnqueueDispatch(const DispatchCommand& dispatch);
  Status PrepareTraps(const DispatchCommand& dispatch, TrapTarget* traps);
  Status EnqueueParts(OpenClExecutable& executable, std::span<const gpu::Part> parts, const TrapTarget& traps,
                      bool is_timed, Event* first, Event* last);
  void Time(const DispatchCommand& dispatch, const Event& first, const Event& last);
  bool IsTimed() const;
  // Makes the buffer ready for the next command.
  Status Use(OpenClBuffer& buffer);
  Status SwitchTo(cl_command_queue queue);
  Status Close();

  Status WaitForDevice();
  Status RunDownloads();
  Status RunDownload(const Download& download, Pin* pin, gpu::Arrivals& arrivals);
  Status FlushDownloads(gpu::Arrivals& arrivals);
  void FillTimings();
  void TellChoosers();

  OpenClQueue& queue_;
  const Submission submission_;
  gpu::Milestones behind_;
  Status status_;
  uint32_t failed_node_ = 0xffffffffu;
  cl_command_queue current_ = nullptr;  // The queue of the last command.
  bool is_among_many_ = false;          // The launch being enqueued is one of many in a row.
  bool precedes_empty_ = false;         // The next launch has no instances.
  Event done_;                          // Follows everything that was enqueued.

  const uint32_t dispatch_count_;
  const gpu::TimedGroups groups_;
  gpu::LaunchInputs inputs_;  // For the dispatch being enqueued.
  gpu::Chosen chosen_;        // Likewise.
  gpu::TrapSlots slots_;
  std::unique_ptr<TrapMemory> traps_;
  std::vector<cl_mem> acquired_;     // Imported memory, to be released at the end.
  std::vector<Memory> temporaries_;  // For overlapping copies.
  gpu::SmallCopies small_uploads_{/*is_up=*/true};
  std::vector<Download> downloads_;
  gpu::SmallCopies small_downloads_{/*is_up=*/false};
  std::vector<uint32_t> nodes_;  // Nodes of the timed dispatches, in order.
  std::vector<Sample> samples_;
  bool follows_launch_ = false;  // The next command directly follows a launch.
  // The sample follows a command that is not a launch, and it has no start event yet.
  bool needs_start_ = false;
  std::vector<Measured> measured_;
};

}  // namespace hpvm::opencl

#endif  // HPVMD_BACKENDS_OPENCL_FLIGHT_H_
