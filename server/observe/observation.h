// SPDX-License-Identifier: Apache-2.0
// All that makes the daemon observable, as the configuration asks: metrics and health over HTTP, spans over OTLP.
//
//   Start, before the core; observer() subscribes to what happens; Watch when core and gRPC server stand; Unwatch
//   before they go. /livez, /readyz and /metrics answer from Start on.
#ifndef HPVMD_SERVER_OBSERVE_OBSERVATION_H_
#define HPVMD_SERVER_OBSERVE_OBSERVATION_H_

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "server/config/config.h"
#include "server/events/events.h"
#include "server/observe/watch.h"

namespace hpvm::server {

class Observation {
 public:
  // `clock` and `rng` live longer. Fails when metrics.listen cannot be had.
  static StatusOr<std::unique_ptr<Observation>> Start(const Config& config, const Clock& clock, Rng& rng);
  // Sends the spans that wait, for up to a second.
  ~Observation();
  Observation(const Observation&) = delete;
  Observation& operator=(const Observation&) = delete;

  Observer& observer();
  // For the timer's loop: beats each round.
  Heart& heart();
  // The HTTP endpoint's address with the port that was chosen; empty: none.
  const std::string& metrics_address() const;

  // Tenants are watched when there is an endpoint that shows them.
  void Watch(WatchedParts parts);
  void Unwatch();

 private:
  struct Parts;
  Observation();
  std::unique_ptr<Parts> parts_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_OBSERVE_OBSERVATION_H_
