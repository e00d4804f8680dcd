#include "base/files_read.h"

#include <sys/stat.h>

#include <functional>
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

// Records a file where a list is live; `hash` is asked where contents are hashed.
void add(const std::filesystem::path& path, const struct stat& info,
         const std::function<std::string()>& hash) {
  Noted& all = noted();
  std::unique_lock lock(all.mutex);
  if (!all.live) return;
  all.files.emplace(info.st_dev, info.st_ino);
  if (!all.hashed) return;
  lock.unlock();  // a large file takes time
  const std::string is = hash();
  lock.lock();
  const auto [at, added] = all.hashes.emplace(path.string(), is);
  if (!added && at->second != is)
    throw InputError(SourcePlace{path.string()}, "a file that changed while this command ran",
                     "one that stays as it was first read");
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
  add(path, info, [&] { return sha256_hex(content); });
}

void FilesRead::note_file(const std::filesystem::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0) add(path, info, [&] { return sha256_hex_of_file(path); });
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
