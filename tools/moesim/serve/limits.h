// What a caller of `moesim serve` may ask for at most.
#pragma once

#include <cstddef>

namespace moesim::tools {

inline constexpr std::size_t kMostHeadBytes = 16 << 10;  // request line and headers
inline constexpr std::size_t kMostHeaders = 64;
inline constexpr std::size_t kMostTargetBytes = 1 << 10;  // the path with its query
inline constexpr std::size_t kMostBodyBytes = 256 << 10;
inline constexpr std::size_t kMostReplyBytes = 64 << 20;
inline constexpr double kReceiveSeconds = 5;  // until the last byte of a request has come
inline constexpr double kSendSeconds = 20;    // until the last byte of a reply is taken
inline constexpr double kWaitSeconds = 3;     // for a turn to be answered
inline constexpr double kAnswerSeconds = 10;  // of computing
inline constexpr std::size_t kAnswerBytes = std::size_t{2} << 30;  // of memory, for one answer
inline constexpr std::size_t kConnections = 64;                    // served at a time
inline constexpr std::size_t kWaitingConnections = 64;             // the others are told to come again

}  // namespace moesim::tools
