#include "calibration/rows/devices.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/lower_case.h"
#include "base/text.h"
#include "models/hardware/gpu_family.h"
#include "models/hardware/network.h"

namespace moesim::calibration {
namespace {

using models::DType;

constexpr double kGB = 1e9, kGiB = 1024.0 * 1024 * 1024, kTF = 1e12, kUs = 1e-6;

// The usual host of a GPU, from data sheets: its link to the GPU and the share of its memory's bandwidth per
// GPU, GB/s.
struct Host {
  double link = 0, memory = 0;
  double launch = 4e-6;  // seconds per kernel launch
};
constexpr Host kRome{31.5, 51.2};          // PCIe 4 x16; 2 x 8 channels of DDR4-3200 for 8 GPUs
constexpr Host kSapphireRapids{63, 76.8};  // PCIe 5 x16; 2 x 8 channels of DDR5-4800
constexpr Host kPcie4Card{31.5, 76.8};     // the same host, whose cards have PCIe 4 x16
constexpr Host kEmeraldRapids{63, 89.6};   // DDR5-5600
// Hosts of B300 nodes launch faster: host-bound steps of Qwen3 took 1.27 times the forecast with 4 us per
// launch on p6-b300 and 2.1 times on p5 (H100), with the same software (awslabs/awsome-distributed-ai
// @95b939c).
constexpr Host kGraniteRapids{63, 102.4, 2.4e-6};  // DDR5-6400
constexpr Host kGrace{225, 256};                   // NVLink-C2C, 900 GB/s both ways for two GPUs; LPDDR5X
constexpr Host kGenoa{63, 115.2};                  // 2 x 12 channels of DDR5-4800

// Capabilities of a generation's GPUs, and the slowdown from the power limit in a training step: the latter
// was fitted to the DeepSeek-V3 rows of published steps (docs/validation.md), and scored on the others.
struct Generation {
  std::vector<std::string> precisions;
  double power_slowdown = 1, exponentials_elsewhere = 0;
  double kernel_floor = 2.5e-6;  // seconds of the smallest kernel
};
const Generation kAmpere{{"bf16"}};
const Generation kHopper{{"bf16", "fp8", "fp8_block"}};
// FlashAttention-4 and cuDNN 9 compute a share of the exponentials on the ordinary units.
const Generation kBlackwell{{"bf16", "fp8", "fp8_block", "mxfp8", "nvfp4"}, 1.3, 0.25, 1.8e-6};
// Equal peak at 1,400 W where B200, GB200 and B300 have 1,000 to 1,200 W.
const Generation kBlackwell1400W{kBlackwell.precisions, 1.2, 0.25, 1.8e-6};
// Scales of blocks (DeepGEMM) want Hopper, and Transformer Engine has no MXFP8 for the Blackwell of graphics
// cards (compute capability 12).
const Generation kAda{{"bf16", "fp8"}};
const Generation kBlackwellRtx{{"bf16", "fp8"}, 1, 0, 1.8e-6};
const Generation kCdna3{{"bf16", "fp8", "fp8_block"}};
const Generation kCdna4{{"bf16", "fp8", "fp8_block", "mxfp8"}, 1, 0, 1.8e-6};

struct Sheet {
  int sms;
  // Memory as CUDA and HIP report it: the total capacity in torch.OutOfMemoryError in public reports.
  double memory_gib, l2_mb, hbm_gbps, hbm_measured_gbps;
  // At which the peaks are reached. The sheets of A100 and MI300X give it; of others it is the bf16 peak over
  // SMs and FLOPs of an SM per clock (1,024 to 8,192).
  double boost_ghz;
  double bf16, fp8, fp32, fp64;  // dense TFLOP/s
  double link_gbps;              // scale-up, per GPU and direction
  int domain, gpus_per_node;
  double nic_gbps;  // bytes
  Host host;
};

// The best dense products found on a GPU, TFLOP/s: stas00/ml-engineering, maximum achievable matmul FLOPS;
// fp8 of MI300X: Azure's guide of ND MI300X v5 (hipBLASLt). Grouped products of Primus-Turbo are slower than
// dense ones by `grouped`: MaxText's steps of DeepSeek-V3 on 64 MI355X (ROCm/rocm-blogs) grow with their
// batch by 2.25 s per sequence, of which attention, exchanges and permutations take 0.75.
struct BestProduct {
  std::string_view profile;
  double bf16, fp8, grouped = 1;
};
constexpr double kPrimusTurbo = 0.35;
constexpr BestProduct kBestProducts[] = {
    {"a100-sxm", 271.2, 0},
    {"h100-sxm", 794.5, 1402.6},
    {"h200-sxm", 794.5, 1453.4},
    {"b200-sxm", 1745, 3432.5},
    {"b300-sxm", 1769, 3353.3},
    {"gb200", 1822, 3615.6},
    {"mi300x", 668.4, 1159, kPrimusTurbo},
    {"mi355x", 1565, 0, kPrimusTurbo},
    {"mi325x", 784.9, 0, kPrimusTurbo},
    {"mi350x", 0, 0, kPrimusTurbo},
    {"h100-pcie", 495.9, 0},
    {"h800-pcie", 503.8, 0},
    {"l40s", 269.2, 0},
    {"rtx-4090", 164.8, 0},
    {"rtx-5090", 240.1, 0},
    {"rtx-pro-6000", 417.3, 0},
};

Device device(std::string_view profile, std::string_view gpu, const Generation& generation, const Sheet& s,
              std::string_view source) {
  Device d;
  d.profile = profile;
  d.gpu = gpu;
  if (const models::GpuFamily* family = models::gpu_family(profile)) d.relative = family->relative;
  d.source = source;
  models::DeviceLimits& l = d.limits;
  l.sms = s.sms;
  l.memory_bytes = std::round(s.memory_gib * kGiB / 1e6) * 1e6;
  l.l2_bytes = s.l2_mb * 1e6;
  l.boost_clock = 1e9 * s.boost_ghz;
  l.hbm_bandwidth = s.hbm_gbps * kGB;
  l.hbm_efficiency = s.hbm_measured_gbps / s.hbm_gbps;
  const auto peak = [&](DType dtype, double tflops) {
    l.peak_flops[static_cast<std::size_t>(dtype)] = tflops * kTF;
  };
  peak(DType::kBf16, s.bf16);
  peak(DType::kFp16, s.bf16);
  peak(DType::kTf32, s.bf16 / 2);
  peak(DType::kFp8, s.fp8);
  const auto& have = generation.precisions;
  for (const DType scaled : {DType::kFp8Block, DType::kMxFp8})
    if (std::find(have.begin(), have.end(), models::name_of(scaled)) != have.end()) peak(scaled, s.fp8);
  l.precisions = have;
  l.power_slowdown = generation.power_slowdown;
  l.exponentials_elsewhere = generation.exponentials_elsewhere;
  peak(DType::kFp32, s.fp32);
  peak(DType::kFp64, s.fp64);
  // Sustained matrix rate over the short-burst one: 794 of 956 TFLOP/s on H100 (data set README, gemm_dense).
  l.sustained_clock = 0.83;
  for (const BestProduct& best : kBestProducts)
    if (best.profile == profile)
      d.best_bf16 = best.bf16 * kTF, d.best_fp8 = best.fp8 * kTF, d.grouped_share = best.grouped;
  l.scaleup_bandwidth = s.link_gbps * kGB;
  l.scaleup_domain = s.domain;
  l.gpus_per_node = s.gpus_per_node;
  l.nic_bandwidth = s.nic_gbps * kGB;
  l.host_link = s.host.link * kGB;
  l.host_memory = s.host.memory * kGB;
  // Eager launch 4 us host-bound per kernel when the queue is full; smallest kernel 2.5 us (1.8 on
  // Blackwell); a blocking copy of a few bytes costs about 15 us until the next kernel runs. The first and
  // last are common knowledge, not in the data set: the profiles list them in their gaps.
  d.launch = {s.host.launch, generation.kernel_floor, 15 * kUs, 8 * kUs};
  return d;
}

const std::vector<Device>& table() {
  static const std::vector<Device> devices = {
      device("a100-sxm", "A100-SXM4-80GB", kAmpere,
             {108, 79.15, 40, 2039, 1750, 1.41, 312, 0, 19.5, 19.5, 300, 8, 8, 25, kRome},
             "NVIDIA A100 80 GB data sheet; HBM measured: Azure ND A100 v4 (BabelStream)"),
      device("a800-sxm", "A800-SXM4-80GB", kAmpere,
             {108, 79.15, 40, 2039, 1750, 1.41, 312, 0, 19.5, 9.7, 200, 8, 8, 25, kRome},
             "A100 silicon with NVLink at 200 GB/s (widely stated, no vendor sheet found)"),
      device("h100-sxm", "H100-SXM5-80GB", kHopper,
             {132, 79.18, 50, 3350, 3180, 1.83, 989, 1979, 67, 67, 450, 8, 8, 50, kSapphireRapids},
             "NVIDIA H100 data sheet; HBM measured: Azure ND H100 v5"),
      device("h200-sxm", "H200-SXM5-141GB", kHopper,
             {132, 139.8, 50, 4800, 4480, 1.83, 989, 1979, 67, 67, 450, 8, 8, 50, kSapphireRapids},
             "NVIDIA H200 data sheet; HBM measured: Azure guide"),
      device("h800-sxm", "H800-SXM5-80GB", kHopper,
             {132, 79.18, 50, 3350, 3180, 1.83, 989, 1979, 67, 1, 200, 8, 8, 50, kSapphireRapids},
             "H100 silicon with NVLink at 200 GB/s (arXiv 2505.11432 Table 4; DeepEP issue 16)"),
      device("h20-sxm", "H20-SXM5-96GB", kHopper,
             {78, 95.58, 60, 4000, 3800, 1.85, 148, 296, 44, 1, 450, 8, 8, 50, kSapphireRapids},
             "arXiv 2505.11432 Table 4 (148 TFLOP/s, 96 GB, 4.0 TB/s, NVLink as H100); SMs and L2 from "
             "community "
             "code; share of the HBM's rate as H100 reaches it"),
      device("b200-sxm", "B200-SXM6-180GB", kBlackwell,
             {148, 178.35, 126, 8000, 6980, 1.855, 2250, 4500, 75, 37, 900, 8, 8, 50, kEmeraldRapids},
             "NVIDIA B200 data sheet (stas00/ml-engineering); HBM measured there"),
      device("b300-sxm", "B300-SXM6", kBlackwell,
             {148, 267.69, 126, 8000, 6980, 1.855, 2250, 4500, 75, 1.3, 900, 8, 8, 100, kGraniteRapids},
             "NVIDIA B300 data sheet (stas00/ml-engineering)"),
      device("gb200", "GB200", kBlackwell,
             {152, 184.31, 126, 8000, 7270, 2.0, 2500, 5000, 80, 40, 900, 72, 4, 50, kGrace},
             "NVIDIA GB200 NVL72 data sheet; SM count from community code"),
      device("gb300", "GB300", kBlackwell1400W,
             {152, 276.5, 126, 8000, 7270, 2.0, 2500, 5000, 80, 1.4, 900, 72, 4, 100, kGrace},
             "NVIDIA GB300 NVL72 data sheet; SM count from community code"),
      device("mi300x", "MI300X", kCdna3,
             {304, 191.98, 256, 5300, 4260, 2.1, 1307, 2615, 163, 163, 448, 8, 8, 50, kGenoa},
             "AMD MI300X data sheet; HBM measured: Azure guide"),
      device("mi355x", "MI355X", kCdna4,
             {256, 287.98, 256, 8000, 6400, 2.2, 2300, 5000, 157, 79, 536, 8, 8, 50, kGenoa},
             "AMD MI355X data sheet; HBM share taken from MI300X"),
      device("mi325x", "MI325X", kCdna3,
             {304, 255.98, 256, 6000, 4820, 2.1, 1307, 2615, 163, 163, 448, 8, 8, 50, kGenoa},
             "AMD MI325X data sheet; HBM share and what HIP keeps of the memory taken from MI300X"),
      device("mi350x", "MI350X", kCdna4,
             {256, 287.98, 256, 8000, 6400, 2.2, 2307, 4614, 144, 72, 536, 8, 8, 50, kGenoa},
             "AMD MI350X data sheet; HBM share taken from MI300X"),
      // Cards that reach each other by PCIe: their links are those to the host.
      device(
          "h100-pcie", "H100-PCIe-80GB", kHopper,
          {114, 79.18, 50, 2000, 1898, 1.62, 756, 1513, 51, 51, kSapphireRapids.link, 8, 8, 25,
           kSapphireRapids},
          "NVIDIA H100 white paper, PCIe; HBM share and what CUDA keeps of the memory taken from H100 SXM"),
      device("h100-nvl", "H100-NVL-94GB", kHopper,
             {132, 93, 50, 3938, 3738, 1.545, 835, 1671, 60, 60, kSapphireRapids.link, 8, 8, 25,
              kSapphireRapids},
             "NVIDIA H100 NVL product brief; memory as CUDA reports it: ali-vilab/VACE issue 56; HBM share "
             "taken from H100 SXM"),
      device("h800-pcie", "H800-PCIe-80GB", kHopper,
             {114, 79.18, 50, 2000, 1898, 1.62, 756, 1513, 51, 0.8, kSapphireRapids.link, 8, 8, 25,
              kSapphireRapids},
             "NVIDIA H800 PCIe product guide: H100 PCIe with less fp64 and slower bridges"),
      // GDDR reaches the share of its rate that the local copies of p2pBandwidthLatencyTest show: 920 of
      // 1,008 GB/s on RTX 4090 (NVIDIA/nccl issue 814), 1,430 of 1,792 on RTX PRO 6000 and RTX 5090
      // (rtx6kpro).
      device("l40s", "L40S", kAda,
             {142, 44.42, 96, 864, 789, 2.49, 362, 733, 91.6, 1.4, kPcie4Card.link, 8, 8, 25, kPcie4Card},
             "NVIDIA L40S data sheet; memory as CUDA reports it: stepfun-ai/Step-Video-T2V issue 8"),
      device(
          "rtx-4090", "RTX-4090-24GB", kAda,
          {128, 23.64, 72, 1008, 920, 2.52, 165.2, 330.3, 82.6, 1.3, kPcie4Card.link, 8, 8, 25, kPcie4Card},
          "NVIDIA Ada white paper, rates with fp32 accumulation; memory as CUDA reports it: "
          "3DTopia/Phidias-Diffusion issue 8"),
      device("rtx-5090", "RTX-5090-32GB", kBlackwellRtx,
             {170, 31.37, 96, 1792, 1430, 2.41, 209.5, 419, 104.8, 1.6, kSapphireRapids.link, 8, 8, 25,
              kSapphireRapids},
             "NVIDIA RTX Blackwell white paper, rates with fp32 accumulation; memory as CUDA reports it: "
             "Wan-Video/Wan2.1 issue 465"),
      device(
          "rtx-pro-6000", "RTX-PRO-6000-96GB", kBlackwellRtx,
          {188, 94.97, 128, 1597, 1274, 2.49, 480, 960, 120, 1.9, kSapphireRapids.link, 8, 8, 25,
           kSapphireRapids},
          "NVIDIA RTX PRO 6000 Blackwell Server Edition data sheet, matrix rates at its clock from the RTX "
          "Blackwell white paper; memory as CUDA reports it: antirez/ds4 issue 431"),
  };
  return devices;
}

// A machine without a GPU, measured by moesim-bench-host. Not from a data sheet: bounds beyond any host core,
// so that everything relevant is fitted. It has no built-in profile.
const Device& host() {
  static const Device one = [] {
    Device d = device("host", "HOST", {}, {1, 16, 32, 200, 200, 0, 0, 0, 0.5, 0.25, 100, 1024, 1024, 10, {}},
                      "moesim-bench-host");
    d.launch = {};
    return d;
  }();
  return one;
}

// The GPU's text takes precedence over the source, which may have measured several machines.
constexpr Machine kMachines[] = {
    {"aws-p5", "", "(p5,", 8, 32, 12.5 * kGB, "efa-p5"},
    {"aws-p5en", "", "(p5en", 8, 16, 25 * kGB, "efa-p5en"},
    {"aws-p6-b200", "", "(p6-b200", 8, 8, 50 * kGB, "efa-p6-b200"},
    {"aws-p6-b300", "", "(p6-b300", 8, 16, 50 * kGB, "efa-p6-b300"},
    // User reports of unnamed or individually tuned fabrics, which belong to no network's law.
    {"user-report", "", "(8x400G)", 8, 8, 50 * kGB, models::kLineRate},
    {"user-report", "", "RoCE", 8, 8, 50 * kGB, models::kLineRate},
    {"xxrjun", "xxrjun/nccl-tests-cluster", "H100", 8, 8, 50 * kGB, "infiniband-ndr"},
    {"together", "together-nccl-tests", "", 8, 8, 50 * kGB, "infiniband-ndr"},
    {"gke-a3-mega", "GKE A3 Mega", "H100", 8, 8, 25 * kGB, "tcpxo-a3-mega"},
    {"aws-p5", "aws-samples", "H100", 8, 32, 12.5 * kGB, "efa-p5"},
    {"aws-p5", "KeitaW", "H100", 8, 32, 12.5 * kGB, "efa-p5"},
    {"aws-p4d", "aws-samples", "A100", 8, 4, 12.5 * kGB, "efa-p4d"},
    {"aws-p5", "", "(p5.48xlarge)", 8, 32, 12.5 * kGB, "efa-p5"},
    // Slingshot 11 with A100, like Polaris, with twice its ports.
    {"perlmutter", "ccl-bench", "Perlmutter", 4, 4, 25 * kGB, "slingshot-polaris"},
    {"polaris", "results_polaris", "A100", 4, 2, 25 * kGB, "slingshot-polaris"},
    {"sophia", "results_sophia", "A100", 8, 8, 25 * kGB, "infiniband-hdr"},
    {"alps", "alps", "GH200", 4, 4, 25 * kGB, "slingshot-alps"},
    {"pollara", "prasad-nair-amd", "MI355X", 8, 8, 50 * kGB, "roce-pollara"},
    {"alps", "uccl-project", "GH200", 4, 4, 25 * kGB, "slingshot-alps"},
    {"pollara", "uccl-project", "MI355X", 8, 8, 50 * kGB, "roce-pollara"},
    {"pollara", "Pollara", "MI355X", 8, 8, 50 * kGB, "roce-pollara"},
    {"pollara", "mori", "MI355X", 8, 8, 50 * kGB, "roce-pollara"},
    {"mori", "mori", "MI300X", 8, 8, 50 * kGB, "infiniband-ndr"},
    {"echo", "moe_mg", "H800", 8, 7, 50 * kGB, "echo-h800"},
    // Kernels of expert-parallel libraries, with the network that their authors name; aiconfigurator names
    // none, but its H100 nodes have 400 Gb/s InfiniBand by their times of two nodes.
    {"deepep", "deepseek-ai/DeepEP", "", 8, 8, 50 * kGB, "infiniband-ndr"},
    {"aiconfigurator", "ai-dynamo/aiconfigurator", "H100", 8, 8, 50 * kGB, "infiniband-ndr"},
    {"nccl-ep", "NVIDIA/nccl", "H100", 8, 8, 50 * kGB, "infiniband-ndr"},
    {"aws-p6-b200", "uccl-project", "B200", 8, 8, 50 * kGB, "efa-p6-b200"},
    {"aws-p5en", "uccl-project", "H200", 8, 16, 25 * kGB, "efa-p5en"},
    {"uccl", "uccl-project", "MI300X", 8, 8, 50 * kGB, "infiniband-ndr"},
};

// Excludes echo-h800: its laws are of one machine, independent of other networks' rows.
constexpr NetworkFacts kNetworks[] = {
    {"infiniband-ndr", "infiniband", 8, 8, 50 * kGB, true, ""},
    {"infiniband-hdr", "infiniband", 8, 8, 25 * kGB, false, "two nodes only"},
    {"infiniband-xdr", "infiniband", 8, 8, 100 * kGB, true, "no rows: priced from its line rate"},
    {"efa-p4d", "efa", 8, 4, 12.5 * kGB, false, "two nodes only"},
    {"efa-p5", "efa", 8, 32, 12.5 * kGB, false, ""},
    {"efa-p5en", "efa", 8, 16, 25 * kGB, false, "no collectives: only kernels of expert-parallel libraries"},
    {"efa-p6-b200", "efa", 8, 8, 50 * kGB, false,
     "no collectives: only kernels of expert-parallel libraries"},
    {"efa-p6-b300", "efa", 8, 16, 50 * kGB, false, "all-to-all at one size and its best rate, and kernels"},
    {"tcpxo-a3-mega", "tcpx", 8, 8, 25 * kGB, true, "all-gather on two nodes only"},
    {"slingshot-polaris", "slingshot", 4, 2, 25 * kGB, false, "eight nodes only"},
    {"slingshot-alps", "slingshot", 4, 4, 25 * kGB, false, "all-reduce and UCCL's kernels only"},
    {"roce-pollara", "roce", 8, 8, 50 * kGB, false, "all-reduce on two nodes, and kernels"},
};

// "H100" of "H100-SXM5-80GB".
std::string_view short_name(const Device& device) { return device.gpu.substr(0, device.gpu.find('-')); }

std::string_view first_word(std::string_view name) { return name.substr(0, name.find_first_of("- ")); }

// "H100 80GB HBM3" of "NVIDIA H100 80GB HBM3", as drivers name GPUs.
std::string_view without_maker(std::string_view name) {
  for (const std::string_view maker : {"NVIDIA ", "AMD Instinct ", "AMD "})
    if (name.starts_with(maker)) return name.substr(maker.size());
  return name;
}

}  // namespace

std::span<const Device> devices() { return table(); }

const Device* find_device(std::string_view profile) {
  if (profile == "host") return &host();
  for (const Device& device : table())
    if (device.profile == profile) return &device;
  return nullptr;
}

const Device* device_of_gpu(std::string_view gpu) {
  const std::string_view plain = gpu.substr(0, gpu.find(" ("));
  for (const Device& device : table())
    if (device.gpu == plain || device.profile == plain) return &device;
  if (plain == "HOST" || plain == "host") return &host();
  if (const models::GpuFamily* family = models::gpu_named(plain)) return find_device(family->profile);
  // Other memory sizes, forms and short names match up to the first dash or blank. Cards for a PCIe slot and
  // slices of a GPU are different: their short name is that of another GPU ("H100-PCIe-80GB").
  for (const std::string_view other : {"PCI", "NVL", "-or-", " or ", "MIG"})
    if (plain.find(other) != std::string_view::npos) return nullptr;
  const std::string_view family = first_word(without_maker(plain));
  for (const models::GpuFamily& known : models::gpu_families())
    if (std::ranges::find(known.also, family) != known.also.end()) return find_device(known.profile);
  for (const Device& device : table())
    if (family == short_name(device) && !models::by_pcie(device.profile)) return &device;
  return nullptr;
}

std::string table_name(std::string_view driver_name) {
  const std::string_view plain = without_maker(trim(driver_name));
  const Device* device = device_of_gpu(plain);
  if (!device) return std::string(trim(driver_name));
  const bool exact = models::gpu_named(plain) != nullptr;
  // A machine with this GPU has rows of its own name ("GH200 480GB").
  if (!exact && first_word(plain) != short_name(*device)) return std::string(first_word(plain));
  // Another size of memory stays said ("A100-SXM4-40GB").
  const std::size_t size = plain.find("GB");
  if (!exact && size != std::string_view::npos && size > 0) {
    const std::size_t digits = plain.find_last_not_of("0123456789", size - 1) + 1;
    if (device->gpu.find(plain.substr(digits, size - digits)) == std::string_view::npos)
      return std::string(plain);
  }
  return std::string(device->gpu);
}

void use_table_names(Measurements& rows) {
  rows.each_list([](auto& list) {
    for (auto& row : list)
      if (without_maker(row.origin.gpu) != row.origin.gpu) row.origin.gpu = table_name(row.origin.gpu);
  });
}

void take_gpu(Measurements& rows, const std::string& said) {
  if (said.empty()) return;
  const Device* wanted = device_of_gpu(said);
  rows.each_list([&](auto& list) {
    for (auto& row : list) {
      const Device* own = device_of_gpu(row.origin.gpu);
      if (own && own != wanted)
        throw InputError(row.origin.place, "a row of " + in_quotes(row.origin.gpu),
                         in_quotes(said) + ", as --gpu says");
      if (!own) row.origin.gpu = said;
    }
  });
}

const Device* device_of_path(const std::filesystem::path& path) {
  std::vector<std::string> names;
  for (const std::filesystem::path& part : path) names.push_back(lower(part.string()));
  for (auto name = names.rbegin(); name != names.rend(); ++name)
    for (const bool cards : {true, false})
      for (const Device& device : table()) {
        if (models::by_pcie(device.profile) != cards) continue;
        std::string folder(cards ? device.profile : short_name(device));
        std::ranges::replace(folder, '-', '_');
        if (name->starts_with(lower(folder) + "_")) return &device;
      }
  return nullptr;
}

std::span<const NetworkFacts> networks() { return kNetworks; }

const Machine* machine_of(std::string_view source, std::string_view gpu) {
  for (const Machine& machine : kMachines)
    if (source.find(machine.source_part) != std::string_view::npos &&
        gpu.find(machine.gpu_part) != std::string_view::npos)
      return &machine;
  return nullptr;
}

Machine machine_on(std::string_view name, const models::NetworkProfile& network) {
  return {name, "", "", network.gpus_per_node, network.ports_per_node, network.line_rate, name};
}

const Machine* machine_of(const Origin& origin) {
  if (origin.network.empty()) return machine_of(origin.source, origin.gpu);
  static const std::map<std::string, Machine, std::less<>> machines = [] {
    std::map<std::string, Machine, std::less<>> result;
    for (const std::string& name : models::NetworkProfile::names())
      result[name] = machine_on(name, models::NetworkProfile::load(name));
    return result;
  }();
  return &machines.at(origin.network);
}

models::Cluster cluster_of(const models::Profile& profile, const Machine* machine, int nodes,
                           int gpus_per_node) {
  models::Cluster cluster;
  cluster.name = machine ? std::string(machine->name) : profile.name();
  cluster.profile = profile;
  cluster.nodes = nodes;
  cluster.gpus_per_node = gpus_per_node;
  cluster.nvlink.bandwidth = profile.device().scaleup_bandwidth;
  cluster.nvlink.domain = std::max(profile.device().scaleup_domain, gpus_per_node);
  if (profile.device().scaleup_domain <= profile.device().gpus_per_node)
    cluster.nvlink.domain = gpus_per_node;
  cluster.nic.ports_per_node = machine ? machine->ports_per_node : profile.device().gpus_per_node;
  cluster.nic.bandwidth = machine ? machine->port_bandwidth : profile.device().nic_bandwidth;
  models::use_network(cluster, models::NetworkProfile::load(machine ? std::string(machine->network)
                                                                    : models::usual_network(profile)));
  for (const auto& [key, set] : profile.sets())
    if (key.ends_with(models::kNetworkLaw)) cluster.profile.set(key, set);
  return cluster;
}

}  // namespace moesim::calibration
