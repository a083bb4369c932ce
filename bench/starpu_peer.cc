// SPDX-License-Identifier: Apache-2.0
#include <starpu.h>
#include <stdlib.h>

#include "bench/graph_peers.h"
#include "bench/processes.h"

namespace hpvm::bench {
namespace {

Elements& ElementsOf(void* buffer) { return *reinterpret_cast<Elements*>(STARPU_VECTOR_GET_PTR(buffer)); }

void StepCpu(void* buffers[], void*) { Step(ElementsOf(buffers[0])); }
void MixCpu(void* buffers[], void*) { Mix(ElementsOf(buffers[0]), ElementsOf(buffers[1])); }

// The runtime of this process: its workers poll, so they are paused whenever no peer runs.
class Runtime {
 public:
  static StatusOr<Runtime*> Get() {
    static Runtime runtime;
    return runtime.error_ == 0 ? StatusOr<Runtime*>(&runtime)
                               : Unavailable("StarPU does not start (" + std::to_string(runtime.error_) + ").");
  }
  starpu_codelet step{}, mix{};

 private:
  Runtime() {
    // Its calibration files and notes stay out of the user's home and of the output.
    setenv("STARPU_HOME", home_.path().c_str(), 1);
    setenv("STARPU_SILENT", "1", 1);
    setenv("STARPU_GENERATE_TRACE", "0", 1);
    starpu_conf conf;
    starpu_conf_init(&conf);
    conf.ncuda = 0;
    conf.nopencl = 0;
    error_ = starpu_init(&conf);
    if (error_ == 0) {
      starpu_pause();
    }
    starpu_codelet_init(&step);
    step.cpu_funcs[0] = StepCpu;
    step.nbuffers = 1;
    step.modes[0] = STARPU_RW;
    starpu_codelet_init(&mix);
    mix.cpu_funcs[0] = MixCpu;
    mix.nbuffers = 2;
    mix.modes[0] = STARPU_R;
    mix.modes[1] = STARPU_RW;
  }
  ~Runtime() {
    if (error_ == 0) {
      starpu_resume();
      starpu_shutdown();
    }
  }

  TemporaryFolder home_;
  int error_ = 0;
};

class StarpuPeer final : public GraphPeer {
 public:
  StarpuPeer(Runtime& runtime, const Workload& workload)
      : runtime_(runtime), workload_(workload), buffers_(workload.buffers), handles_(workload.buffers.size()) {
    for (size_t i = 0; i < buffers_.size(); ++i) {
      starpu_vector_data_register(&handles_[i], STARPU_MAIN_RAM, reinterpret_cast<uintptr_t>(buffers_[i].data()),
                                  kBufferElements, sizeof(uint32_t));
    }
  }
  ~StarpuPeer() override {
    starpu_resume();
    for (starpu_data_handle_t handle : handles_) {
      starpu_data_unregister(handle);
    }
    starpu_pause();
  }

  StatusOr<Duration> Run() override {
    starpu_resume();
    for (size_t i = 0; i < buffers_.size(); ++i) {
      starpu_data_acquire(handles_[i], STARPU_W);
      buffers_[i] = workload_.buffers[i];
      starpu_data_release(handles_[i]);
    }
    const Time start = RealClock().Now();
    Status status = SubmitAll();
    starpu_task_wait_for_all();
    const Duration elapsed = RealClock().Now() - start;
    // Brings every handle's data back to main memory.
    for (starpu_data_handle_t handle : handles_) {
      starpu_data_acquire(handle, STARPU_R);
      starpu_data_release(handle);
    }
    starpu_pause();
    return status.ok() ? StatusOr<Duration>(elapsed) : status;
  }
  const std::vector<Elements>& buffers() const override { return buffers_; }

 private:
  Status SubmitAll() {
    for (const Task& task : workload_.tasks) {
      starpu_task* submitted = starpu_task_create();
      if (task.other == kNoBuffer) {
        submitted->cl = &runtime_.step;
        submitted->handles[0] = handles_[task.buffer];
      } else {
        submitted->cl = &runtime_.mix;
        submitted->handles[0] = handles_[task.other];
        submitted->handles[1] = handles_[task.buffer];
      }
      if (const int error = starpu_task_submit(submitted); error != 0) {
        return Unavailable("StarPU refuses a task (" + std::to_string(error) + ").");
      }
    }
    return absl::OkStatus();
  }

  Runtime& runtime_;
  const Workload& workload_;  // Borrowed.
  std::vector<Elements> buffers_;
  std::vector<starpu_data_handle_t> handles_;
};

}  // namespace

StatusOr<std::unique_ptr<GraphPeer>> MakeStarpuPeer(const Workload& workload) {
  HPVMD_ASSIGN_OR_RETURN(Runtime * runtime, Runtime::Get());
  return std::make_unique<StarpuPeer>(*runtime, workload);
}

}  // namespace hpvm::bench
