// SPDX-License-Identifier: Apache-2.0
// Observation makes the daemon observable as configured: metrics and health over HTTP, spans over OTLP.
//
//   Call Start before the core exists; observer() subscribes to events; call Watch when core and gRPC server exist, and
//   Unwatch before they are destroyed. /livez, /readyz and /metrics answer from Start on.
#ifndef HPVMD_SERVER_OBSERVE_OBSERVATION_H_
#define HPVMD_SERVER_OBSERVE_OBSERVATION_H_

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "server/config/config.h"
#include "server/events/events.h"
#include "server/observe/http_endpoint.h"
#include "server/observe/watch.h"

namespace hpvm::server {

class Observation {
 public:
  // `clock` and `rng` must outlive the object. `certificates` are used for metrics.listen when other machines can
  // reach it. Fails when that address cannot be bound.
  static StatusOr<std::unique_ptr<Observation>> Start(const Config& config, const Clock& clock, Rng& rng,
                                                      HttpEndpoint::Certificates certificates = nullptr);
  // Sends the waiting spans, for up to a second.
  ~Observation();
  Observation(const Observation&) = delete;
  Observation& operator=(const Observation&) = delete;

  Observer& observer();
  // For the timer's loop, which beats each round.
  Heart& heart();
  // Returns the HTTP endpoint's address with the actual port; empty when there is none.
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
