#include "traces/cmd_writer.h"

#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <system_error>
#include <utility>

#include "base/file_io.h"
#include "base/text.h"
#include "traces/cmd_reader.h"

namespace moesim::traces {
namespace {

namespace fs = std::filesystem;

std::string_view text_of(bool value) { return value ? "True" : "False"; }
std::string text_of(const std::optional<Decimal>& value) { return value ? value->str() : "None"; }

void put(std::string& out, std::string_view key, std::string_view value) { out.append(key).append(value); }
void put(std::string& out, std::string_view key, std::int64_t value) { put(out, key, std::to_string(value)); }

void put_shape_and_dtype(std::string& out, Shape shape, Name dtype) {
  put(out, ",input__shape=", shape.present() ? shape.str() : "None");
  put(out, ",input__dtype=", dtype.present() ? dtype.view() : "None");
}

void put_sub_operations(std::string& out, std::span<const SubOperation> subs) {
  out += ",sub_operations=[";
  for (std::size_t i = 0; i < subs.size(); ++i) {
    const SubOperation& sub = subs[i];
    put(out, i == 0 ? "'trace_src_func=" : ", 'trace_src_func=", sub.source.view());
    put(out, ",duration=", sub.duration.str());
    put(out, ",timestamp=", sub.timestamp.str());
    if (sub.shape.present() || sub.dtype.present()) put_shape_and_dtype(out, sub.shape, sub.dtype);
    if (sub.func_name.present()) put(out, ",func_name=", sub.func_name.view());
    if (sub.overlap_op_name.present()) put(out, ",overlap_op_name=", sub.overlap_op_name.view());
    if (sub.group.present()) put(out, ",group=", sub.group.view());
    if (sub.comm_func.present()) put(out, ",comm_func=", sub.comm_func.view());
    out += '\'';
  }
  out += ']';
}

void put_fields(std::string& out, const Operation& op) {
  put(out, "stage_id=", op.stage_id);
  put(out, ",batch_id=", op.batch_id);
  put(out, ",mg_state=", op.state.view());
  put(out, ",duration=", op.duration.str());
  put(out, ",description=", op.description.view());
  put(out, ",group_kind=", op.group_kind.view());
  if (op.form == LineForm::kV2) {
    put(out, ",cmd_uid=", op.cmd_uid.view());
    put(out, ",op_semantics=", op.op_semantics.view());
    put(out, ",finalize_base_duration_ms=", text_of(op.finalize_base_duration));
  }
  put_shape_and_dtype(out, op.shape, op.dtype);
  put(out, ",timestamp=", op.timestamp.str());
}

void put_gradient_bucket(std::string& out, const Operation& op, const GradientBucket& bucket) {
  put(out, "comm_uid=", bucket.comm_uid.view());
  put(out, ",iter=", bucket.iteration);
  put(out, ",stage_id=", op.stage_id);
  put(out, ",mg_state=", op.state.view());
  put(out, ",group_kind=", op.group_kind.view());
  put(out, ",comm_func=", bucket.comm_func.view());
  put(out, ",buffer_id=", bucket.buffer_id);
  put(out, ",bucket_id=", bucket.bucket_id);
  put(out, ",bucket_offset=", bucket.bucket_offset);
  put(out, ",bucket_numel=", bucket.bucket_numel);
  put(out, ",bucket_numel_unpadded=", bucket.bucket_numel_unpadded);
  put(out, ",param_count=", bucket.param_count);
  put(out, ",trigger_cmd_uid=", bucket.trigger_cmd_uid.view());
  put(out, ",trigger_op=", bucket.trigger_op.view());
  put(out, ",trigger_batch_id=", bucket.trigger_batch_id);
  put(out, ",trigger_timestamp_ms=", text_of(bucket.trigger_timestamp));
  put(out, ",launch_timestamp_ms=", text_of(bucket.launch_timestamp));
  put(out, ",launch_source=", bucket.launch_source.view());
  put(out, ",timing_domain=", bucket.timing_domain.view());
  put(out, ",metadata_only=", text_of(bucket.metadata_only));
  put(out, ",status=", bucket.status.view());
  put(out, ",completion_observed_timestamp_ms=", text_of(bucket.completion_timestamp));
  put(out, ",completion_source=", bucket.completion_source.view());
  put(out, ",wait_cmd_uid=", bucket.wait_cmd_uid.view());
  put(out, ",wait_start_timestamp_ms=", text_of(bucket.wait_start));
  put(out, ",wait_end_timestamp_ms=", text_of(bucket.wait_end));
  put(out, ",logical_stream_role=", bucket.logical_stream_role.view());
  put(out, ",grad_dtype=", bucket.grad_dtype.view());
  put(out, ",data_parallel_world_size=", bucket.data_parallel_world_size);
  put(out, ",duration=", op.duration.str());
  put(out, ",timestamp=", op.timestamp.str());
}

std::string file_name(const RankRecording& rank) {
  if (!rank.file.empty()) return fs::path(rank.file).filename().string();
  return "rank" + std::string(rank.rank < 10 ? "0" : "") + std::to_string(rank.rank) + ".txt";
}

}  // namespace

std::string write_cmd_text(const RankRecording& rank) {
  std::string out;
  out.reserve(200 * (rank.operations.size() + rank.sub_operations.size()));
  for (const std::string& line : rank.header) out.append("#").append(line).append("\n");
  for (const Operation& op : rank.operations) {
    out.append("rank:").append(std::to_string(rank.rank)).append(":").append(op.name.view()).append("(");
    if (op.form == LineForm::kGradientBucket) {
      put_gradient_bucket(out, op, rank.gradient_buckets.at(op.bucket));
    } else {
      put_fields(out, op);
    }
    put_sub_operations(out, rank.subs(op));
    out += ")\n";
  }
  return out;
}

namespace {

// `fill` writes files into a folder beside `folder`, which then takes its name in one step.
void write_folder(const fs::path& folder, const std::function<void(const fs::path& staging)>& fill) {
  std::error_code error;
  if (fs::exists(folder, error) && !(fs::is_directory(folder, error) && fs::is_empty(folder, error)))
    throw InputError({folder.string()}, "something there already", "a folder that is new or empty");
  if (fs::equivalent(folder, ".", error))
    throw InputError({folder.string()}, "the folder that this command was started in", "another one");
  const fs::path full =
      fs::is_symlink(folder, error) ? fs::canonical(folder, error) : fs::absolute(folder).lexically_normal();
  const fs::path target = full.has_filename() ? full : full.parent_path();
  fs::path last = target.parent_path();  // the last existing parent folder
  while (!fs::exists(last, error) && last.has_relative_path()) last = last.parent_path();
  std::string staging_name = (target.parent_path() / ("." + target.filename().string() + ".XXXXXX")).string();
  // Removes the folders that were made before a signal ends the process.
  const SignalsHeld held;
  fs::create_directories(target.parent_path(), error);
  if (::mkdtemp(staging_name.data()) == nullptr)
    throw InputError({folder.string()}, std::string("cannot make the folder: ") + std::strerror(errno));
  const fs::path staging = staging_name;
  try {
    // mkdtemp restricts access; an existing folder keeps its own permissions.
    fs::permissions(staging,
                    fs::is_directory(target, error) ? fs::status(target).permissions() : fs::perms(0755));
    fill(staging);
    fs::rename(staging, target, error);
    if (error) throw InputError({folder.string()}, "cannot name the folder: " + error.message());
    sync_folder_of(target);
  } catch (...) {
    fs::remove_all(staging, error);
    for (fs::path made = target.parent_path(); made != last && fs::is_empty(made, error) && !error;
         made = made.parent_path())
      fs::remove(made, error);
    throw;
  }
}

// `folder`: name of the target in messages.
void write_ranks(const Recording& recording, const fs::path& staging, const fs::path& folder) {
  for (const RankRecording& rank : recording.ranks) {
    const std::string text = write_cmd_text(rank);
    Pool pool;
    read_cmd_text(text, (folder / file_name(rank)).string(), pool);
    write_file(staging / file_name(rank), text);
    if (SignalsHeld::one_ends()) throw InputError({folder.string()}, "a signal while it was written");
  }
}

}  // namespace

void write_cmd(const Recording& recording, const fs::path& folder) {
  write_folder(folder, [&](const fs::path& staging) { write_ranks(recording, staging, folder); });
}

void write_cmd_job(const Recording& scaling, const Recording& realistic, const fs::path& folder) {
  write_folder(folder, [&](const fs::path& staging) {
    for (const auto& [name, recording] :
         {std::pair{"scaling", &scaling}, std::pair{"realistic", &realistic}}) {
      fs::create_directory(staging / name);
      write_ranks(*recording, staging / name, folder / name);
    }
  });
}

}  // namespace moesim::traces
