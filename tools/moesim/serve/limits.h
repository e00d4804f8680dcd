// Limits on the requests of `moesim serve`.
#pragma once

#include <cstddef>

namespace moesim::tools {

inline constexpr std::size_t kMostHeadBytes = 16 << 10;  // request line and headers
inline constexpr std::size_t kMostHeaders = 64;
inline constexpr std::size_t kMostTargetBytes = 1 << 10;  // path with query
inline constexpr std::size_t kMostBodyBytes = 256 << 10;
inline constexpr std::size_t kMostReplyBytes = 64 << 20;
inline constexpr double kHeadSeconds =
    1;  // until its headers arrive: connections without a request end early
inline constexpr double kReceiveSeconds = 5;  // until the last byte of a request arrives
inline constexpr double kSendSeconds = 20;    // until the last byte of a reply is accepted
inline constexpr double kWaitSeconds = 3;     // for a turn to be answered
inline constexpr double kAnswerSeconds = 10;  // of computing
inline constexpr std::size_t kAnswerBytes = std::size_t{2} << 30;  // memory of one answer
inline constexpr std::size_t kConnections = 64;                    // served at a time
// further connections are refused with a retry message
inline constexpr std::size_t kWaitingConnections = 512;

}  // namespace moesim::tools
