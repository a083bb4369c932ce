// SPDX-License-Identifier: Apache-2.0
#include <starpu.h>
#include <stdlib.h>

#include "bench/processes.h"
#include "bench/sched/graph_peers.h"

namespace hpvm::bench {
namespace {

Elements& ElementsOf(void* buffer) { return *reinterpret_cast<Elements*>(STARPU_VECTOR_GET_PTR(buffer)); }

void StepCpu(void* buffers[], void*) { Step(ElementsOf(buffers[0])); }
void MixCpu(void* buffers[], void*) { Mix(ElementsOf(buffers[0]), ElementsOf(buffers[1])); }
void GrindCpu(void* buffers[], void*) { Grind(ElementsOf(buffers[0]), ElementsOf(buffers[1])); }

void InitializeCodelet(starpu_codelet& codelet, starpu_cpu_func_t run, bool reads_another) {
  starpu_codelet_init(&codelet);
  codelet.cpu_funcs[0] = run;
  codelet.nbuffers = reads_another ? 2 : 1;
  codelet.modes[0] = reads_another ? STARPU_R : STARPU_RW;
  codelet.modes[1] = STARPU_RW;
}

// The runtime of this process: its workers poll, so they are paused whenever no peer runs.
class Runtime {
 public:
  static StatusOr<Runtime*> Get(uint32_t workers) {
    static Runtime runtime;
    if (runtime.is_up_ && runtime.workers_ != workers) {
      runtime.Stop();
    }
    if (!runtime.is_up_) {
      HPVMD_RETURN_IF_ERROR(runtime.Start(workers));
    }
    return &runtime;
  }
  starpu_codelet step{}, mix{}, grind{};

 private:
  Runtime() {
    // Keeps its calibration files out of the user's home, and its messages out of the output.
    setenv("STARPU_HOME", home_.path().c_str(), 1);
    setenv("STARPU_SILENT", "1", 1);
    setenv("STARPU_GENERATE_TRACE", "0", 1);
    InitializeCodelet(step, StepCpu, false);
    InitializeCodelet(mix, MixCpu, true);
    InitializeCodelet(grind, GrindCpu, true);
  }
  ~Runtime() {
    if (is_up_) {
      Stop();
    }
  }
  Status Start(uint32_t workers) {
    starpu_conf conf;
    starpu_conf_init(&conf);
    conf.ncuda = 0;
    conf.nopencl = 0;
    conf.ncpus = workers == 0 ? -1 : static_cast<int>(workers);
    if (const int error = starpu_init(&conf); error != 0) {
      return Unavailable("StarPU does not start (" + std::to_string(error) + ").");
    }
    starpu_pause();
    is_up_ = true;
    workers_ = workers;
    return absl::OkStatus();
  }
  void Stop() {
    starpu_resume();
    starpu_shutdown();
    is_up_ = false;
  }

  TemporaryFolder home_;
  bool is_up_ = false;
  uint32_t workers_ = 0;
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
    // Copies every handle's data back to main memory.
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
        submitted->cl = workload_.steps != 0 ? &runtime_.grind : &runtime_.mix;
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

StatusOr<std::unique_ptr<GraphPeer>> MakeStarpuPeer(const Workload& workload, uint32_t workers) {
  HPVMD_ASSIGN_OR_RETURN(Runtime * runtime, Runtime::Get(workers));
  return std::make_unique<StarpuPeer>(*runtime, workload);
}

}  // namespace hpvm::bench
