// TensorBoard's event files: scalars of a training job, as lines with a JSON object each.
#pragma once

#include <string>
#include <string_view>

namespace moesim::tools {

// Whether bytes begin as an event file does: with a record of its version.
bool is_event_file(std::string_view bytes);

struct EventLines {
  std::string text;  // {"step":12,"iteration-time":1.5}, a line for each scalar
  bool cut = false;  // ends inside a record, as the file of a running job does
};

// Reads the scalars of an event file: records of TFRecord (tensorflow.org/tutorials/load_data/tfrecord), each an
// `Event` of tensorflow/core/util/event.proto. Throws InputError for a record that is no Event.
EventLines lines_of_events(std::string_view bytes, const std::string& file);

}  // namespace moesim::tools
