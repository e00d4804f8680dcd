// Speed and memory of reading and writing a large CMD recording.
#include <benchmark/benchmark.h>
#include <malloc.h>

#include <string>

#include "traces/cmd_reader.h"
#include "traces/cmd_writer.h"

namespace moesim::traces {
namespace {

// A rank file of about `bytes` bytes like those of public MoE recordings: a forward and a backward step of
// four layers per microbatch, three and two expert collectives per layer, times and row counts that change
// from line to line.
std::string make_rank_file(std::size_t bytes) {
  std::string text;
  text.reserve(bytes + 4096);
  const auto sub = [&](const char* head, std::uint64_t hundredths, std::int64_t rows, const char* tail) {
    text.append(head).append(Decimal(hundredths % 400, 2).str());
    text.append(",timestamp=").append(Decimal(337474540825u + hundredths, 2).str());
    text.append(",input__shape=[").append(std::to_string(rows)).append(tail);
  };
  std::uint64_t clock = 0;
  for (int batch = 0; text.size() < bytes; batch = (batch + 1) % 1'000'000) {
    for (const bool forward : {true, false}) {
      text.append("rank:0:")
          .append(forward ? "forward_step" : "backward_step")
          .append("(stage_id=0,batch_id=");
      text.append(std::to_string(batch))
          .append(",mg_state=steady,duration=25.72,description=None,group_kind=None,");
      text.append("input__shape=None,input__dtype=None,timestamp=")
          .append(Decimal(337474540825u + clock, 2).str());
      text.append(",sub_operations=[");
      for (int layer = 0; layer < 4; ++layer) {
        if (layer > 0) text.append(", ");
        clock += 97;
        if (forward) {
          sub("'trace_src_func=_gather_along_first_dim_expert_parallel,duration=", clock, 8,
              "],input__dtype=torch.int64,func_name=gather_along_first_dim_expert_parallel,group=exp,"
              "comm_func=allgather', ");
        }
        for (const bool dispatch : {true, false}) {
          clock += 61;
          sub("'trace_src_func=_profiled_all_to_all_single,duration=", clock,
              dispatch ? 2048 : static_cast<std::int64_t>(2000 + clock % 700),
              ", 4096],input__dtype=torch.bfloat16,group=exp,comm_func=all_to_all'");
          if (dispatch) text.append(", ");
        }
      }
      text.append("])\n");
    }
  }
  return text;
}

std::size_t heap_in_use() {
  const struct mallinfo2 info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
}

// bytes_per_second is the speed; "kept_per_byte" is what the recording holds after reading, per byte of the
// file. While it is read the text itself (1.0) comes on top.
void read_cmd(benchmark::State& state) {
  const std::string text = make_rank_file(static_cast<std::size_t>(state.range(0)) << 20);
  std::size_t kept = 0;
  for (auto _ : state) {
    const std::size_t before = heap_in_use();
    Pool pool;
    const RankRecording rank = read_cmd_text(text, "bench.txt", pool);
    benchmark::DoNotOptimize(rank.operations.data());
    kept = heap_in_use() - before;
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(text.size()) * state.iterations());
  state.counters["kept_per_byte"] = static_cast<double>(kept) / static_cast<double>(text.size());
}
BENCHMARK(read_cmd)->Name("read/cmd_MiB")->Arg(1)->Arg(16)->Arg(128)->Unit(benchmark::kMillisecond);

void write_cmd_bench(benchmark::State& state) {
  const std::string text = make_rank_file(16 << 20);
  Pool pool;
  const RankRecording rank = read_cmd_text(text, "bench.txt", pool);
  for (auto _ : state) benchmark::DoNotOptimize(write_cmd_text(rank));
  state.SetBytesProcessed(static_cast<std::int64_t>(text.size()) * state.iterations());
}
BENCHMARK(write_cmd_bench)->Name("write/cmd_16_MiB")->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace moesim::traces
