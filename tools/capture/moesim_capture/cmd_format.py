"""CMD recordings: one line per operation of one rank, one file per rank (docs/formats.md).

Reading and writing are inverse to the byte: times stay the text they were written as. Needs no torch. What is wrong with a
line that is refused, and which sizes are too large, says `moesim trace check`.
"""
import math
import re
import uuid
from dataclasses import dataclass, field
from typing import List, Optional, Tuple, Union

STATES = ("None", "warmup", "help", "steady", "cooldown", "finalize")
GROUPS = ("None", "tp", "dp", "pp", "ep", "pep", "exp_dp", "ep_dp", "exp")
COMM_FUNCTIONS = ("allreduce", "broadcast", "allgather", "reduce_scatter", "all_to_all", "alltoall")
SEMANTICS = ("None", "wait_flush_only", "metadata_placeholder")
DTYPE_BYTES = {
    "torch.bfloat16": 2, "torch.float16": 2, "torch.float32": 4, "torch.float64": 8, "torch.int64": 8, "torch.int32": 4,
    "torch.int16": 2, "torch.int8": 1, "torch.uint8": 1, "torch.float8_e4m3fn": 1, "torch.float8_e5m2": 1,
    "torch.bool": 1,
}
DTYPES = ("None",) + tuple(DTYPE_BYTES)

Shape = Optional[Tuple[int, ...]]  # None is written as None


class FormatError(ValueError):
    """Bad input, said in one line: `file:line: found X, expected Y`."""


@dataclass
class SubOperation:
    source: str
    duration: str
    timestamp: str
    has_shape: bool = False  # the two fields below were written
    shape: Shape = None
    dtype: str = "None"
    func_name: Optional[str] = None  # None: not written, of this and the next three
    overlap_op_name: Optional[str] = None
    group: Optional[str] = None
    comm_func: Optional[str] = None


@dataclass
class Operation:
    rank: int
    name: str
    stage_id: int
    batch_id: int
    state: str
    duration: str
    description: str
    group_kind: str
    shape: Shape
    dtype: str
    timestamp: str
    cmd_uid: Optional[str] = None  # None: a v1 line
    op_semantics: str = "None"
    finalize_base_duration: str = "None"
    subs: List[SubOperation] = field(default_factory=list)


# Fields of a ddp_grad_comm line in order, with what they hold.
BUCKET_FIELDS = (
    ("comm_uid", "name"), ("iter", "count"), ("stage_id", "count"), ("mg_state", "state"), ("group_kind", "group"),
    ("comm_func", "comm"), ("buffer_id", "count"), ("bucket_id", "count"), ("bucket_offset", "count"),
    ("bucket_numel", "count"), ("bucket_numel_unpadded", "count"), ("param_count", "count"),
    ("trigger_cmd_uid", "name"), ("trigger_op", "name"), ("trigger_batch_id", "count"),
    ("trigger_timestamp_ms", "optional ms"), ("launch_timestamp_ms", "optional ms"), ("launch_source", "name"),
    ("timing_domain", "name"), ("metadata_only", "bool"), ("status", "name"),
    ("completion_observed_timestamp_ms", "optional ms"), ("completion_source", "name"), ("wait_cmd_uid", "name"),
    ("wait_start_timestamp_ms", "optional ms"), ("wait_end_timestamp_ms", "optional ms"),
    ("logical_stream_role", "name"), ("grad_dtype", "dtype"), ("data_parallel_world_size", "count"),
    ("duration", "ms"), ("timestamp", "ms"),
)


@dataclass
class GradientBucket:
    """A ddp_grad_comm line; `values` holds BUCKET_FIELDS as they are written."""

    rank: int
    values: dict
    subs: List[SubOperation] = field(default_factory=list)
    name = "ddp_grad_comm"


Line = Union[Operation, GradientBucket]


def reduction(rank: int, launch_ms: float, done_ms: Optional[float], source: str, digits: int = 2, **values) -> GradientBucket:
    """A reduction of gradients that ran beside an operation; `done_ms`: None where nobody saw its end."""
    launch, seen = ms(launch_ms, digits), done_ms is not None
    end = done_ms if seen else launch_ms
    return GradientBucket(rank, {
        "comm_uid": "ddpcomm-" + uuid.uuid4().hex[:12], "group_kind": "dp", "comm_func": "allreduce", "buffer_id": 0,
        "trigger_timestamp_ms": launch, "launch_timestamp_ms": launch, "launch_source": "param_hook", "timing_domain": "actual",
        "metadata_only": "False", "status": "completed" if seen else "launch_only",
        "completion_observed_timestamp_ms": ms(done_ms, digits) if seen else "None", "completion_source": source if seen else "None",
        "wait_cmd_uid": "None", "wait_start_timestamp_ms": "None", "wait_end_timestamp_ms": "None", "logical_stream_role": "dp_comm",
        "duration": ms(end - launch_ms, digits), "timestamp": ms(end, digits), **values})


def ms(value: float, digits: int = 2) -> str:
    """Milliseconds as the public recorder prints them: rounded, never negative, "3.0" with one digit."""
    if not math.isfinite(value):
        raise ValueError("a time of %r ms" % value)
    return repr(round(max(0.0, float(value)), digits))


def _shape_text(shape: Shape) -> str:
    return "None" if shape is None else "[" + ", ".join(map(str, shape)) + "]"


def format_sub(sub: SubOperation) -> str:
    parts = ["trace_src_func=" + sub.source, "duration=" + sub.duration, "timestamp=" + sub.timestamp]
    if sub.has_shape:
        parts.append("input__shape=%s,input__dtype=%s" % (_shape_text(sub.shape), sub.dtype))
    for key in ("func_name", "overlap_op_name", "group", "comm_func"):
        value = getattr(sub, key)
        if value is not None:
            parts.append(key + "=" + value)
    return ",".join(parts)


def format_line(line: Line) -> str:
    """The line without its line break."""
    subs = "[" + ", ".join("'" + format_sub(sub) + "'" for sub in line.subs) + "]"
    if isinstance(line, GradientBucket):
        fields = ",".join("%s=%s" % (key, line.values[key]) for key, _ in BUCKET_FIELDS)
        return "rank:%d:ddp_grad_comm(%s,sub_operations=%s)" % (line.rank, fields, subs)
    v2 = ""
    if line.cmd_uid is not None:
        v2 = ",cmd_uid=%s,op_semantics=%s,finalize_base_duration_ms=%s" % (
            line.cmd_uid, line.op_semantics, line.finalize_base_duration)
    return ("rank:%d:%s(stage_id=%d,batch_id=%d,mg_state=%s,duration=%s,description=%s,group_kind=%s%s,"
            "input__shape=%s,input__dtype=%s,timestamp=%s,sub_operations=%s)") % (
                line.rank, line.name, line.stage_id, line.batch_id, line.state, line.duration, line.description,
                line.group_kind, v2, _shape_text(line.shape), line.dtype, line.timestamp, subs)


_INTEGER, _MS = r"(?:0|[1-9][0-9]{0,18})", r"(?:0|[1-9][0-9]*)(?:\.[0-9]{1,15})?"
_KINDS = {"name": r"[A-Za-z0-9_.\-<>:/]{1,255}", "count": _INTEGER, "ms": _MS, "optional ms": "None|" + _MS, "bool": "True|False",
          "shape": r"None|\[(?:%s(?:, %s)*)?\]" % (_INTEGER, _INTEGER), "text": ".*?", "subs": "|'.*'"}
for _kind, _words in (("state", STATES), ("group", GROUPS), ("comm", COMM_FUNCTIONS), ("semantics", SEMANTICS), ("dtype", DTYPES)):
    _KINDS[_kind] = "|".join(map(re.escape, _words))


def _grammar(text: str):
    """The expression of a text in which <kind> stands for a field."""
    return re.compile(re.sub("<([a-z ]+)>", lambda match: "(%s)" % _KINDS[match.group(1)], text))


_SUB = _grammar("trace_src_func=<name>,duration=<ms>,timestamp=<ms>(?:,input__shape=<shape>,input__dtype=<dtype>)?(?:,func_name=<name>)?"
                "(?:,overlap_op_name=<name>)?(?:,group=<group>)?(?:,comm_func=<comm>)?")
_BUCKET = _grammar(r"rank:<count>:ddp_grad_comm\(" + ",".join("%s=<%s>" % field for field in BUCKET_FIELDS) +
                   r",sub_operations=\[<subs>\]\)")
_OPERATION = _grammar(
    r"rank:<count>:(?!ddp_grad_comm\()<name>\(stage_id=<count>,batch_id=<count>,mg_state=<state>,duration=<ms>,description=<text>,"
    r"group_kind=<group>(?:,cmd_uid=<name>,op_semantics=<semantics>,finalize_base_duration_ms=<optional ms>)?,"
    r"input__shape=<shape>,input__dtype=<dtype>,timestamp=<ms>,sub_operations=\[<subs>\]\)")


def _shape(text: str) -> Shape:
    return None if text == "None" else tuple(int(size) for size in text[1:-1].split(", ") if size)


def _subs(text: str) -> Optional[List[SubOperation]]:
    """None where the text is not a list of calls."""
    matches = [_SUB.fullmatch(one) for one in text[1:-1].split("', '")] if text else []
    if None in matches:
        return None
    subs = []
    for source, duration, timestamp, shape, dtype, *rest in (match.groups() for match in matches):
        facts = (False, None, "None") if shape is None else (True, _shape(shape), dtype)
        subs.append(SubOperation(source, duration, timestamp, *facts, *rest))
    return subs


def parse_line(text: str, file: str = "<line>", number: int = 1) -> Line:
    """The operation that a line (without its line break) describes. Raises FormatError."""
    match = _OPERATION.fullmatch(text) or _BUCKET.fullmatch(text)
    subs = None if match is None else _subs(match.groups()[-1])
    if subs is None:
        raise FormatError('%s:%d: found "%s%s", expected an operation as docs/formats.md has it' % (
            file, number, text[:32], "..." if len(text) > 32 else ""))
    rank, *values = match.groups()[:-1]
    if match.re is _BUCKET:
        return GradientBucket(int(rank), dict(zip((key for key, _ in BUCKET_FIELDS), values)), subs)
    name, stage, batch, state, duration, description, group, uid, semantics, base, shape, dtype, timestamp = values
    line = Operation(int(rank), name, int(stage), int(batch), state, duration, description, group, _shape(shape), dtype, timestamp,
                     subs=subs)
    if uid is not None:
        line.cmd_uid, line.op_semantics, line.finalize_base_duration = uid, semantics, base
    return line


@dataclass
class RankFile:
    header: List[str]  # comment lines without their '#'
    lines: List[Line]


def parse_text(text: str, file: str = "<text>") -> RankFile:
    """A whole rank file. Raises FormatError."""
    *rows, last = text.split("\n")
    if last:
        raise FormatError("%s:%d: found a last line without a line break (a file cut short?)" % (file, len(rows) + 1))
    out = RankFile([], [])
    for number, row in enumerate(rows, 1):
        if not out.lines and row.startswith("#"):
            out.header.append(row[1:])
            continue
        line = parse_line(row, file, number)
        if out.lines and line.rank != out.lines[0].rank:
            raise FormatError("%s:%d: found rank %d, expected rank %d as on the lines above" % (
                file, number, line.rank, out.lines[0].rank))
        out.lines.append(line)
    if not out.lines:
        raise FormatError("%s: found no operation, expected lines like rank:0:forward_step(...)" % file)
    return out


def format_text(rank_file: RankFile) -> str:
    return "".join(["#%s\n" % row for row in rank_file.header] + [format_line(line) + "\n" for line in rank_file.lines])


def read_rank_file(path) -> RankFile:
    """Raises FormatError for bad content, OSError where the file cannot be read."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return parse_text(file.read(), str(path))
    except UnicodeDecodeError as error:
        raise FormatError("%s: found the byte 0x%02x, expected UTF-8 text" % (path, error.object[error.start])) from None
