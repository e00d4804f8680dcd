#include "base/files_read.h"

#include <sys/stat.h>

#include <mutex>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/input_error.h"
#include "base/sha256.h"

namespace moesim {

namespace {

struct Noted {
  std::mutex mutex;
  bool live = false, hashed = false;
  std::map<std::string, std::string> hashes;
  std::set<std::pair<dev_t, ino_t>> files;
};

thread_local Noted* own = nullptr;

Noted& noted() {
  static Noted all;
  return own ? *own : all;
}

void add(const std::filesystem::path& path, const struct stat& info, const std::string& hash) {
  Noted& all = noted();
  const std::lock_guard lock(all.mutex);
  all.files.emplace(info.st_dev, info.st_ino);
  if (hash.empty()) return;
  const auto [at, added] = all.hashes.emplace(path.string(), hash);
  if (!added && at->second != hash)
    throw InputError(SourcePlace{path.string()}, "a file that changed while this command ran",
                     "one that stays as it was first read");
}

// Returns whether to record, and whether to hash.
std::pair<bool, bool> asked() {
  Noted& all = noted();
  const std::lock_guard lock(all.mutex);
  return {all.live, all.hashed};
}

}  // namespace

FilesRead::FilesRead(Contents contents, Of of) {
  if (of == Of::kThread) {
    check(own == nullptr, "one list of files read of a thread at a time");
    own = new Noted;
  }
  Noted& all = noted();
  const std::lock_guard lock(all.mutex);
  check(!all.live, "one list of files read at a time");
  all.live = true;
  all.hashed = contents == Contents::kHashed;
}

FilesRead::~FilesRead() {
  if (own) {
    delete std::exchange(own, nullptr);
    return;
  }
  Noted& all = noted();
  const std::lock_guard lock(all.mutex);
  all.live = all.hashed = false;
  all.hashes.clear();
  all.files.clear();
}

void FilesRead::note(const std::filesystem::path& path, const struct stat& info, std::string_view content) {
  if (const auto [live, hashed] = asked(); live) add(path, info, hashed ? sha256_hex(content) : "");
}

void FilesRead::note_file(const std::filesystem::path& path) {
  const auto [live, hashed] = asked();
  struct stat info {};
  if (live && ::stat(path.c_str(), &info) == 0) add(path, info, hashed ? sha256_hex_of_file(path) : "");
}

std::map<std::string, std::string> FilesRead::hashes() {
  Noted& all = noted();
  const std::lock_guard lock(all.mutex);
  return all.hashes;
}

bool FilesRead::has(const struct stat& info) {
  Noted& all = noted();
  const std::lock_guard lock(all.mutex);
  return all.files.contains({info.st_dev, info.st_ino});
}

}  // namespace moesim
