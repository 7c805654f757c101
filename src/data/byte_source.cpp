#include "data/byte_source.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <zlib.h>
#include <zstd.h>

#include "core/error.h"

namespace nsa {
namespace {

constexpr std::int64_t kChunk = std::int64_t{1} << 20;

class PlainFile final : public ByteSource {
 public:
  explicit PlainFile(std::string path) : path_(std::move(path)) {
    // Without O_NONBLOCK a pipe that nobody writes to would be waited for.
    fd_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd_ < 0) {
      fail_data(path_ + ": cannot be opened: " + std::strerror(errno) +
                "; name a file that can be read");
    }
    // A device may have no end, and the bytes that told the kind cannot be given back to a pipe.
    struct stat status = {};
    if (::fstat(fd_, &status) != 0 || !S_ISREG(status.st_mode)) {
      ::close(fd_);
      fail_data(path_ +
                ": is not a regular file; write the text to a file (.gz and .zst will do) and name "
                "that");
    }
  }
  PlainFile(const PlainFile&) = delete;
  PlainFile& operator=(const PlainFile&) = delete;
  ~PlainFile() override { ::close(fd_); }

  std::int64_t read(char* out, std::int64_t bytes) override {
    while (true) {
      const ssize_t got = ::read(fd_, out, static_cast<std::size_t>(bytes));
      if (got >= 0) return got;
      if (errno != EINTR)
        fail_data(path_ + ": cannot be read: " + std::strerror(errno) +
                  "; check the disk, or name a copy");
    }
  }
  const std::string& path() const { return path_; }
  void rewind() { ::lseek(fd_, 0, SEEK_SET); }

 private:
  std::string path_;
  int fd_ = -1;
};

/// One or more gzip members, one after the other.
class GzipFile final : public ByteSource {
 public:
  explicit GzipFile(std::unique_ptr<PlainFile> file) : file_(std::move(file)), input_(kChunk) {
    constexpr int kGzipWindow = 15 + 16;  // the largest window, gzip framing
    if (inflateInit2(&stream_, kGzipWindow) != Z_OK) fail_runtime("zlib: out of memory");
  }
  GzipFile(const GzipFile&) = delete;
  GzipFile& operator=(const GzipFile&) = delete;
  ~GzipFile() override { inflateEnd(&stream_); }

  std::int64_t read(char* out, std::int64_t bytes) override {
    stream_.next_out = reinterpret_cast<Bytef*>(out);
    stream_.avail_out = static_cast<uInt>(bytes);
    while (stream_.avail_out == static_cast<uInt>(bytes)) {
      if (stream_.avail_in == 0) refill();
      if (stream_.avail_in == 0) {
        if (!between_members_)
          fail_data(file_->path() + ": is gzip data that is cut off; copy or pack it again");
        break;
      }
      if (between_members_) inflateReset(&stream_);
      const int status = inflate(&stream_, Z_NO_FLUSH);
      if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR) {
        fail_data(file_->path() + ": is damaged gzip data (" +
                  (stream_.msg == nullptr ? "no detail" : stream_.msg) +
                  "); copy or pack it again");
      }
      between_members_ = status == Z_STREAM_END;
    }
    return bytes - static_cast<std::int64_t>(stream_.avail_out);
  }

 private:
  void refill() {
    stream_.next_in = reinterpret_cast<Bytef*>(input_.data());
    stream_.avail_in = static_cast<uInt>(file_->read(input_.data(), kChunk));
  }

  std::unique_ptr<PlainFile> file_;
  std::vector<char> input_;
  z_stream stream_{};
  bool between_members_ = false;
};

/// One or more zstd frames, one after the other.
class ZstdFile final : public ByteSource {
 public:
  explicit ZstdFile(std::unique_ptr<PlainFile> file)
      : file_(std::move(file)), input_(kChunk), stream_(ZSTD_createDStream()) {
    if (stream_ == nullptr) fail_runtime("zstd: out of memory");
  }
  ZstdFile(const ZstdFile&) = delete;
  ZstdFile& operator=(const ZstdFile&) = delete;
  ~ZstdFile() override { ZSTD_freeDStream(stream_); }

  std::int64_t read(char* out, std::int64_t bytes) override {
    ZSTD_outBuffer output{out, static_cast<std::size_t>(bytes), 0};
    while (output.pos == 0) {
      if (at_.pos == at_.size) {
        at_ = {input_.data(), static_cast<std::size_t>(file_->read(input_.data(), kChunk)), 0};
        if (at_.size == 0) {
          if (wanted_ != 0)
            fail_data(file_->path() + ": is zstd data that is cut off; copy or pack it again");
          break;
        }
      }
      wanted_ = ZSTD_decompressStream(stream_, &output, &at_);
      if (ZSTD_isError(wanted_) != 0) {
        fail_data(file_->path() + ": is damaged zstd data (" + ZSTD_getErrorName(wanted_) +
                  "); copy or pack it again");
      }
    }
    return static_cast<std::int64_t>(output.pos);
  }

 private:
  std::unique_ptr<PlainFile> file_;
  std::vector<char> input_;
  ZSTD_DStream* stream_;
  ZSTD_inBuffer at_{nullptr, 0, 0};
  std::size_t wanted_ = 0;  ///< 0: at the end of a frame
};

}  // namespace

std::unique_ptr<ByteSource> open_bytes(const std::string& path) {
  auto file = std::make_unique<PlainFile>(path);
  std::array<char, 4> start{};
  std::int64_t got = 0;
  while (got < static_cast<std::int64_t>(start.size())) {
    const std::int64_t more = file->read(start.data() + got, 4 - got);
    if (more == 0) break;
    got += more;
  }
  file->rewind();
  const std::string_view magic(start.data(), static_cast<std::size_t>(got));
  if (magic.starts_with("\x1f\x8b")) return std::make_unique<GzipFile>(std::move(file));
  if (magic == "\x28\xb5\x2f\xfd") return std::make_unique<ZstdFile>(std::move(file));
  return file;
}

LineReader::LineReader(std::unique_ptr<ByteSource> source) : source_(std::move(source)) {}

bool LineReader::next(std::string& line) {
  line.clear();
  bool any = false;
  while (true) {
    if (at_ == buffer_.size()) {
      buffer_.resize(static_cast<std::size_t>(kChunk));
      buffer_.resize(static_cast<std::size_t>(source_->read(buffer_.data(), kChunk)));
      at_ = 0;
      if (buffer_.empty()) return any;
    }
    any = true;
    const std::size_t end = buffer_.find('\n', at_);
    line.append(buffer_, at_, end - at_);  // to the end of the buffer when there is no newline
    if (end != std::string::npos) {
      at_ = end + 1;
      return true;
    }
    at_ = buffer_.size();
  }
}

}  // namespace nsa
