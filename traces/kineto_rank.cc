#include "traces/kineto_rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/input_error.h"
#include "base/text.h"
#include "traces/recording.h"

namespace moesim::traces {

namespace {

constexpr std::size_t kNone = static_cast<std::size_t>(-1);

// Returns the kind of communication in the name of a collective, an annotation or a kernel; "" for none.
std::string_view comm_of(std::string_view name) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kWords{{
      {"allreduce", "allreduce"},
      {"allgather", "allgather"},
      {"reducescatter", "reduce_scatter"},
      {"alltoall", "all_to_all"},
      {"broadcast", "broadcast"},
      {"barrier", "allreduce"},
      {"sendrecv", ""},  // for a kernel: an all-to-all, a send or a receive
      {"irecv", "recv"},
      {"recv", "recv"},
      {"send", "send"},
  }};
  std::string text = lower(name);
  std::erase(text, '_');
  for (const auto& [word, comm] : kWords)
    if (text.find(word) != std::string::npos) return comm;
  return {};
}

std::string dtype_of(std::string_view name) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 12> kTypes{{
      {"bfloat16", "torch.bfloat16"},
      {"float8_e4m3fn", "torch.float8_e4m3fn"},
      {"float8_e5m2", "torch.float8_e5m2"},
      {"half", "torch.float16"},
      {"float", "torch.float32"},
      {"double", "torch.float64"},
      {"long", "torch.int64"},
      {"unsigned char", "torch.uint8"},
      {"byte", "torch.uint8"},
      {"char", "torch.int8"},
      {"int", "torch.int32"},
      {"bool", "torch.bool"},
  }};
  const std::string text = lower(name);
  for (const auto& [word, dtype] : kTypes)
    if (text.find(word) != std::string::npos) return std::string(dtype);
  return "None";
}

bool is_nccl(std::string_view kernel) {
  const std::string text = lower(kernel.substr(0, 24));
  return text.find("nccl") != std::string::npos || text.find("rccl") != std::string::npos;
}

// Returns the content of a kernel of DeepEP ("deep_ep::internode::dispatch", "dpsk::ep::..." in DeepSeek's
// own traces) or HybridEP ("hybrid_ep::dispatch_kernel"): rows, or row counts; "" for other kernels.
std::string_view expert_comm_of(std::string_view kernel) {
  const std::string text = lower(kernel);
  const auto has = [&](const char* word) { return text.find(word) != std::string::npos; };
  if (!has("deep_ep::") && !has("hybrid_ep") && !has("hybridep") && !has("dpsk::ep::")) return {};
  if (has("notify") || has("layout") || has("metadata") || has("preprocess") || has("scan"))
    return "allgather";
  if (has("dispatch") || has("combine")) return "all_to_all";
  return {};
}

// A range of host time on one thread.
struct HostRange {
  int thread = 0;
  std::int64_t start_ns = 0, end_ns = 0;
};

struct Launch {
  std::int64_t at_ns = 0;
  int thread = 0;
};

// Tests whether a launch lies in any of many ranges, which may nest.
class HostRanges {
 public:
  explicit HostRanges(std::vector<HostRange> ranges) : ranges_(std::move(ranges)) {
    std::sort(ranges_.begin(), ranges_.end(), [](const HostRange& a, const HostRange& b) {
      return std::pair(a.thread, a.start_ns) < std::pair(b.thread, b.start_ns);
    });
    for (std::size_t i = 1; i < ranges_.size(); ++i)  // the latest end of all that began before
      if (ranges_[i].thread == ranges_[i - 1].thread)
        ranges_[i].end_ns = std::max(ranges_[i].end_ns, ranges_[i - 1].end_ns);
  }
  bool hold(const Launch& launch) const {
    const auto after = std::upper_bound(
        ranges_.begin(), ranges_.end(), launch, [](const Launch& wanted, const HostRange& range) {
          return std::pair(wanted.thread, wanted.at_ns) < std::pair(range.thread, range.start_ns);
        });
    if (after == ranges_.begin()) return false;
    const HostRange& last = *std::prev(after);
    return last.thread == launch.thread && launch.at_ns < last.end_ns;
  }

 private:
  std::vector<HostRange> ranges_;
};

// Work of the GPU; `call` indexes the NCCL kernels.
struct Activity {
  std::int64_t start_ns, end_ns, correlation, stream;
  std::size_t call = kNone;
  std::size_t name = 0;  // equal for kernels of one name
  KinetoPhase phase = KinetoPhase::forward;
};

class RankReader {
 public:
  RankReader(const std::filesystem::path& path, std::size_t step, std::optional<std::size_t> iterations,
             ScanEvents scan)
      : step_(step), iterations_(iterations), scan_(scan) {
    rank_.file = path.string();
  }

  KinetoRank run() {
    rank_.facts = scan_(rank_.file, [this](const KinetoEvent& event) { take(event); });
    std::stable_sort(work_.begin(), work_.end(),
                     [](const Activity& a, const Activity& b) { return a.start_ns < b.start_ns; });
    select_step();
    find_phases();
    name_calls();
    find_operations();
    for (KinetoOperation& operation : rank_.operations) {
      operation.start_ns += rank_.facts.base_ns;
      operation.end_ns += rank_.facts.base_ns;
    }
    for (KinetoCall& call : rank_.calls) {
      call.start_ns += rank_.facts.base_ns;
      call.end_ns += rank_.facts.base_ns;
    }
    return std::move(rank_);
  }

 private:
  int thread_of(const std::string& name) {
    return threads_.try_emplace(name, static_cast<int>(threads_.size())).first->second;
  }

  void take(const KinetoEvent& event) {
    const std::int64_t end = event.start_ns + event.duration_ns;
    const bool on_gpu = event.category == "kernel" || event.category == "gpu_memcpy" ||
                        event.category == "gpu_memset" || event.category == "Kernel" ||
                        event.category == "Memcpy" || event.category == "Memset";
    if (on_gpu) {
      Activity made{event.start_ns, end, event.correlation.value_or(-1), event.stream.value_or(-1)};
      if (is_nccl(event.name)) {
        made.call = named_.size();
        named_.push_back(call_of(event));
      } else if (const std::string_view comm = expert_comm_of(event.name); !comm.empty()) {
        made.call = named_.size();
        named_.push_back(call_of(event));
        named_.back().comm = comm;
        named_.back().expert_kernel = true;
        ++rank_.expert_kernels;
      }
      made.name = names_.try_emplace(event.name, names_.size()).first->second;
      work_.push_back(made);
    } else if (event.category == "cuda_runtime" || event.category == "cuda_driver" ||
               event.category == "Runtime") {
      // Other calls of the runtime start nothing on the GPU.
      const bool launches =
          event.name.find("Launch") != std::string::npos || event.name.find("Mem") != std::string::npos;
      if (launches && event.correlation)
        launches_[*event.correlation] = {event.start_ns, thread_of(event.thread)};
    } else if (event.name.starts_with("ProfilerStep#")) {
      // The GPU's copy of the annotation has times of its own.
      if (event.category == "gpu_user_annotation") return;
      steps_.emplace_back(event.start_ns, end);
      main_threads_.insert(thread_of(event.thread));
    } else if (event.name.starts_with("Optimizer.step#")) {
      if (event.category == "gpu_user_annotation") return;
      optimizers_.push_back({thread_of(event.thread), event.start_ns, end});
      main_threads_.insert(thread_of(event.thread));
    } else if (event.name.starts_with("autograd::engine")) {
      autograd_.push_back({thread_of(event.thread), event.start_ns, end});
    } else if (event.name.starts_with("nccl:") && event.category != "gpu_user_annotation") {
      annotated_.push_back({{thread_of(event.thread), event.start_ns, end}, call_of(event)});
    }
  }

  static KinetoCall call_of(const KinetoEvent& event) {
    KinetoCall call;
    call.comm = comm_of(event.collective.empty() ? event.name : event.collective);
    call.dtype = dtype_of(event.dtype);
    call.elements = event.elements;
    if (event.bytes) {
      const auto each = dtype_bytes(call.dtype);
      if (!each || *event.bytes % *each != 0) call.dtype = "torch.uint8";
      call.elements = *event.bytes / (call.dtype == "torch.uint8" ? 1 : *each);
    }
    call.group_size = event.group_size;
    call.group_name = event.group_name;
    call.group_description = event.group_description;
    call.group_ranks = event.group_ranks;
    if (call.comm == "send") call.peer = event.destination_rank;
    if (call.comm == "recv") call.peer = event.source_rank;
    return call;
  }

  // Without marks, a sequence of kernels that fills the main stream several times over is an iteration. It is
  // assumed to begin after the longest pause, on average.
  void find_repetition() {
    std::vector<const Activity*> items;
    const std::int64_t main = main_stream();
    for (const Activity& one : work_)
      if (one.stream == main) items.push_back(&one);
    const std::size_t n = items.size();
    constexpr std::size_t kFewest = 8, kMostTried = 200'000;  // kernels of an iteration, of a trace
    constexpr double kAlike = 0.98;
    std::size_t period = 0;
    const std::size_t most = iterations_ ? n / *iterations_ + 1 : n / 2;
    const std::size_t least = iterations_ ? n / (*iterations_ + 1) : kFewest;
    for (std::size_t p = std::max<std::size_t>(1, least); p <= most && n <= kMostTried && period == 0; ++p) {
      const std::size_t pairs = n - p,
                        allowed = static_cast<std::size_t>((1 - kAlike) * static_cast<double>(pairs));
      std::size_t unlike = 0;
      for (std::size_t i = 0; i < pairs && unlike <= allowed; ++i)
        unlike += items[i]->name != items[i + p]->name;
      if (unlike <= allowed && pairs >= p) period = p;
    }
    if (period == 0) {
      if (iterations_)
        throw InputError(
            SourcePlace{rank_.file},
            fmt::format("no {} repetitions among {} kernels of the main stream", *iterations_, n),
            "--iterations with the number that the trace holds");
      return;
    }
    std::size_t first = 0;
    double longest = -1;
    for (std::size_t o = 0; o < period && o + period <= n; ++o) {
      double sum = 0;
      std::size_t count = 0;
      for (std::size_t i = o == 0 ? period : o; i < n; i += period, ++count)
        sum += static_cast<double>(items[i]->start_ns - items[i - 1]->end_ns);
      if (count > 0 && sum / static_cast<double>(count) > longest)
        longest = sum / static_cast<double>(count), first = o;
    }
    // Bounds are GPU times: launches of one iteration run ahead into another.
    for (std::size_t i = first; i + period <= n; i += period)
      steps_.emplace_back(items[i]->start_ns, i + period < n ? items[i + period]->start_ns
                                                             : std::numeric_limits<std::int64_t>::max());
    rank_.by_repetition = steps_.size() > 1;
    if (steps_.size() < 2) steps_.clear();
  }

  // Work belongs to the step in which the host launched it.
  void select_step() {
    if (steps_.empty() && !work_.empty() && iterations_.value_or(2) > 1) find_repetition();
    std::sort(steps_.begin(), steps_.end());
    rank_.steps = steps_.size();
    const std::size_t there = std::max<std::size_t>(1, steps_.size());
    if (step_ >= there)
      throw InputError(SourcePlace{rank_.file}, fmt::format("{} profiled steps", there),
                       fmt::format("more than {}, to take number {}", step_, step_));
    if (!steps_.empty()) {
      const auto& step = steps_[step_];
      std::erase_if(work_, [&](const Activity& one) {
        const std::int64_t at = rank_.by_repetition ? one.start_ns : launched_at(one);
        return at < step.first || at >= step.second;
      });
    }
    if (work_.empty())
      throw InputError(SourcePlace{rank_.file}, "no kernels or copies of a GPU in the step",
                       "a trace with ProfilerActivity.CUDA");
  }

  std::int64_t launched_at(const Activity& one) const {
    const auto at = launches_.find(one.correlation);
    return at == launches_.end() ? one.start_ns : at->second.at_ns;
  }

  // Backward, gradient hooks included, runs on its own threads; the part on the script's thread lies inside
  // autograd's events.
  void find_phases() {
    std::unordered_set<int> backward_threads;
    for (const HostRange& range : autograd_)
      if (!main_threads_.contains(range.thread)) backward_threads.insert(range.thread);
    const HostRanges backward(std::move(autograd_)), optimizer(std::move(optimizers_));
    KinetoPhase before = KinetoPhase::forward;
    for (Activity& one : work_) {
      const auto at = launches_.find(one.correlation);
      if (at != launches_.end()) {
        const Launch& launch = at->second;
        before = backward_threads.contains(launch.thread) || backward.hold(launch) ? KinetoPhase::backward
                 : optimizer.hold(launch)                                          ? KinetoPhase::optimizer
                                                                                   : KinetoPhase::forward;
      }
      one.phase = before;
      rank_.has_backward = rank_.has_backward || before == KinetoPhase::backward;
    }
  }

  // Kernels of older versions carry no description; the annotation around their launch does.
  void name_calls() {
    std::sort(annotated_.begin(), annotated_.end(), [](const Annotated& a, const Annotated& b) {
      return std::pair(a.range.thread, a.range.start_ns) < std::pair(b.range.thread, b.range.start_ns);
    });
    for (const Activity& one : work_) {
      if (one.call == kNone) continue;
      KinetoCall& call = named_[one.call];
      const auto launch = launches_.find(one.correlation);
      if (launch != launches_.end()) {
        const std::pair key(launch->second.thread, launch->second.at_ns);
        auto after = std::upper_bound(annotated_.begin(), annotated_.end(), key,
                                      [](const auto& wanted, const Annotated& other) {
                                        return wanted < std::pair(other.range.thread, other.range.start_ns);
                                      });
        if (after != annotated_.begin()) {
          const Annotated& around = *--after;
          if (around.range.thread == key.first && key.second < around.range.end_ns) {
            if (call.comm.empty()) call.comm = around.call.comm;
            if (!call.elements) call.elements = around.call.elements;
            if (call.dtype == "None") call.dtype = around.call.dtype;
          }
        }
      }
      call.start_ns = one.start_ns;
      call.end_ns = one.end_ns;
    }
  }

  std::int64_t main_stream() const {
    std::map<std::int64_t, std::int64_t> busy;
    for (const Activity& one : work_)
      if (one.call == kNone) busy[one.stream] += one.end_ns - one.start_ns;
    std::int64_t best = -1, most = -1;
    for (const auto& [stream, ns] : busy)
      if (ns > most) best = stream, most = ns;
    return best;
  }

  // Operations grow along the main stream; a change of phase or a send or receive ends one.
  void find_operations() {
    struct Item {
      std::int64_t start_ns, end_ns;
      KinetoPhase phase;
      std::size_t call;
    };
    const std::int64_t main = main_stream();
    std::vector<Item> items;
    std::vector<const Activity*> computing;
    for (const Activity& one : work_)
      if (one.call == kNone && one.stream == main) {
        computing.push_back(&one);
        items.push_back({one.start_ns, one.end_ns, one.phase, kNone});
      }
    std::vector<const Activity*> communicating;
    for (const Activity& one : work_)
      if (one.call != kNone) communicating.push_back(&one);
    std::stable_sort(communicating.begin(), communicating.end(),
                     [](const Activity* a, const Activity* b) { return a->end_ns < b->end_ns; });
    std::int64_t reached = 0;
    for (const Activity* one : communicating) {
      if (named_[one->call].comm.empty()) {
        ++rank_.unknown;
        continue;
      }
      // The last computing that began before the transfer ended.
      auto after =
          std::upper_bound(computing.begin(), computing.end(), one->end_ns,
                           [](std::int64_t at, const Activity* other) { return at <= other->start_ns; });
      const std::int64_t busy_until = after == computing.begin() ? 0 : (*std::prev(after))->end_ns;
      const std::int64_t from = std::max({one->start_ns, busy_until, reached});
      const std::int64_t waited = std::max<std::int64_t>(0, one->end_ns - from);
      if (waited > 0) reached = one->end_ns;
      KinetoCall& call = named_[one->call];
      call.waited_ns = waited;
      items.push_back({one->end_ns - waited, one->end_ns, one->phase, one->call});
    }
    if (items.empty())
      throw InputError(SourcePlace{rank_.file},
                       fmt::format("only {} unknown collectives in the step", rank_.unknown),
                       "kernels, copies or known collectives of a GPU");
    std::stable_sort(items.begin(), items.end(),
                     [](const Item& a, const Item& b) { return a.start_ns < b.start_ns; });

    std::size_t last_backward = kNone;
    for (std::size_t i = 0; i < items.size(); ++i)
      if (items[i].phase == KinetoPhase::backward && items[i].call == kNone) last_backward = i;
    bool open = false;
    for (std::size_t i = 0; i < items.size(); ++i) {
      const Item& item = items[i];
      KinetoPhase phase = item.phase;
      if (last_backward != kNone && i > last_backward && phase == KinetoPhase::forward)
        phase = KinetoPhase::optimizer;
      const bool is_call = item.call != kNone;
      const bool p2p = is_call && (named_[item.call].comm == "send" || named_[item.call].comm == "recv");
      // A call hidden by computing does not end an operation.
      const bool hidden = is_call && named_[item.call].waited_ns == 0;
      if (p2p || !open || (!hidden && rank_.operations.back().phase != phase)) {
        rank_.operations.push_back({phase, p2p, item.start_ns, item.end_ns});
        open = !p2p;
      }
      KinetoOperation& operation = rank_.operations.back();
      operation.end_ns = std::max(operation.end_ns, item.end_ns);
      if (is_call) {
        named_[item.call].operation = rank_.operations.size() - 1;
        rank_.unsized += !named_[item.call].elements;
        rank_.calls.push_back(std::move(named_[item.call]));
      }
    }
    // A send may begin while the preceding computing still runs on the main stream.
    for (std::size_t k = 1; k < rank_.operations.size(); ++k)
      rank_.operations[k].start_ns = std::max(rank_.operations[k].start_ns, rank_.operations[k - 1].end_ns);
    for (KinetoOperation& operation : rank_.operations)
      operation.end_ns = std::max(operation.start_ns, operation.end_ns);
    std::stable_sort(rank_.calls.begin(), rank_.calls.end(),
                     [](const KinetoCall& a, const KinetoCall& b) { return a.end_ns < b.end_ns; });
  }

  struct Annotated {
    HostRange range;
    KinetoCall call;
  };

  std::size_t step_;
  std::optional<std::size_t> iterations_;
  ScanEvents scan_;
  std::unordered_map<std::string, std::size_t> names_;
  KinetoRank rank_;
  std::map<std::string, int> threads_;
  std::unordered_map<std::int64_t, Launch> launches_;  // by correlation
  std::unordered_set<int> main_threads_;               // threads that run the script
  std::vector<HostRange> autograd_;
  std::vector<std::pair<std::int64_t, std::int64_t>> steps_;
  std::vector<HostRange> optimizers_;
  std::vector<Annotated> annotated_;
  std::vector<Activity> work_;
  std::vector<KinetoCall> named_;
};

}  // namespace

KinetoRank read_kineto_rank(const std::filesystem::path& path, std::size_t step,
                            std::optional<std::size_t> iterations, ScanEvents scan) {
  return RankReader(path, step, iterations, scan).run();
}

}  // namespace moesim::traces
