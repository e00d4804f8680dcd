#include "machine.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace moesim::virtual_gpu {

std::string setting(const char* key, const char* otherwise) {
  const char* all = std::getenv("VIRTUAL_GPU");
  const std::string text = std::string(",") + (all ? all : "") + ",", want = std::string(",") + key + "=";
  const std::size_t at = text.find(want);
  if (at == std::string::npos) return otherwise;
  const std::size_t from = at + want.size();
  return text.substr(from, text.find(',', from) - from);
}
double number(const char* key, double otherwise) {
  const std::string text = setting(key, "");
  return text.empty() ? otherwise : std::strtod(text.c_str(), nullptr);
}
std::string name_of_gpu() { return setting("name", "NVIDIA H100 80GB HBM3"); }
int generation() { return name_of_gpu().find("B200") != std::string::npos ? 10 : 9; }
bool effects() {
  static const bool on = number("effects", 0) != 0;
  return on;
}
double capacity() {
  static const double bytes = number("memory", kMemory / 1e9) * 1e9;
  return bytes;
}
const std::string& wrong() {
  static const std::string kind = setting("wrong", "");
  return kind;
}
int node_of_this() {
  const char* text = std::getenv("VIRTUAL_NODE");
  return text ? std::atoi(text) : 0;
}

double host = 1;

namespace {

struct LastWord {
  ~LastWord() {
    const char* file = std::getenv("VIRTUAL_GPU_CLOCK");
    if (std::FILE* to = file ? std::fopen(file, "a") : nullptr) {
      std::fprintf(to, "%.3f\n", host);
      std::fclose(to);
    }
  }
} last_word;

constexpr double kTau = 0.7;  // seconds in which the chip heats and cools
double heat_then = 0, heated_at = 0;

void load(double now, double seconds) {
  heat_then *= std::exp(-std::max(0.0, now - heated_at) / kTau);
  heat_then += (1 - heat_then) * (1 - std::exp(-seconds / kTau));
  heated_at = now + seconds;
}

}  // namespace

double heat() { return heat_then; }
double clock_share(double now) {
  const double x = heat_then * std::exp(-std::max(0.0, now - heated_at) / kTau);
  return number("throttled", 1) * (1 - (1 - kHotClock) * std::clamp((x - 0.5) / 0.3, 0.0, 1.0));
}

std::map<const char*, std::size_t> blocks;

std::size_t bytes_behind(const void* memory) {
  const char* at = static_cast<const char*>(memory);
  auto found = blocks.upper_bound(at);
  if (found == blocks.begin()) return 0;
  --found;
  const std::size_t offset = static_cast<std::size_t>(at - found->first);
  return offset < found->second ? found->second - offset : 0;
}

// In its small form results are computed, so inputs that rotate through the L2 are few.
double l2_bytes() { return effects() ? 1e6 : kL2; }

Cache& l2() {
  static Cache one;
  return one;
}

Cache::Traffic Cache::touch(const void* memory, std::size_t size) {
  const double bytes = static_cast<double>(size), most = l2_bytes();
  Traffic traffic;
  const auto found = where_.find(memory);
  if (found != where_.end()) {
    traffic.hits = std::min(bytes, found->second->second);
    held_ -= found->second->second;
    pieces_.erase(found->second);
  }
  traffic.misses = bytes - traffic.hits;
  const double stays = std::min(bytes, most);
  where_[memory] = pieces_.insert(pieces_.end(), {memory, stays});
  held_ += stays;
  while (held_ > most) {
    const double gone = std::min(pieces_.front().second, held_ - most);
    held_ -= gone;
    if ((pieces_.front().second -= gone) > 0) break;
    where_.erase(pieces_.front().first);
    pieces_.pop_front();
  }
  return traffic;
}

namespace {

VirtualStream null_stream;

}  // namespace

std::vector<VirtualStream*>& streams() {
  static std::vector<VirtualStream*> all = {&null_stream};
  return all;
}

VirtualStream& of(cudaStream_t stream) { return stream ? *stream : null_stream; }

namespace {

// Seconds of work that is slowed while another stream does the other kind of work.
double slowed(const VirtualStream& own, double start, double seconds, Kind kind) {
  const double factor = kind == Kind::kCompute ? kComputeUnderCopies
                        : kind == Kind::kCopy  ? kCopiesUnderCompute
                                               : 1;
  if (factor == 1) return seconds;
  double now = start, left = seconds;
  for (const VirtualStream* other : streams()) {
    if (other == &own || other->last_kind == Kind::kNone || other->last_kind == kind) continue;
    for (const auto& [from, to] : other->busy) {
      if (to <= now) continue;
      if (from > now) {
        const double free = std::min(left, from - now);
        now += free, left -= free;
      }
      if (left <= 0) break;
      const double beside = std::min(left * factor, to - now);
      now += beside, left -= beside / factor;
      if (left <= 0) break;
    }
  }
  return now + left - start;
}

}  // namespace

void queue(VirtualStream& stream, double call, double seconds, Kind kind) {
  constexpr std::size_t kDepth = 1024;
  host += call;
  while (!stream.queued.empty() && stream.queued.front() <= host) stream.queued.pop_front();
  if (stream.queued.size() >= kDepth) {
    host = std::max(host, stream.queued.front());
    stream.queued.pop_front();
  }
  const double start = std::max(stream.ready, host + kSubmit);
  const double takes = slowed(stream, start, seconds, kind);
  if (stream.last_kind != kind) stream.busy.clear();
  stream.last_kind = kind;
  while (!stream.busy.empty() && stream.busy.front().second < host - 1) stream.busy.pop_front();
  stream.busy.emplace_back(start, start + takes);
  if (kind == Kind::kCompute) load(start, takes);
  stream.ready = start + takes;
  stream.queued.push_back(stream.ready);
}

void wait_for(double time) {
  if (time > host + 1e6) {  // never: a collective whose other ranks do not come
    std::fprintf(stderr, "virtual GPU: waits for what never ends\n");
    pause();
  }
  host = std::max(host, time) + kWake;
}

void bus_id(int physical, char* text, int length) {
  std::snprintf(text, static_cast<std::size_t>(length), "00000000:%02X:00.0", 0x10 + physical);
}

}  // namespace moesim::virtual_gpu
