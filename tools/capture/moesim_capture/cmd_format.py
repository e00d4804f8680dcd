"""CMD recordings: one line per operation of one rank, one file per rank (docs/formats.md).

Reading and writing are inverse to the byte: times stay the text they were written as. Needs no torch. What is refused,
and with which words, is what moesim's own reader refuses.
"""
import math
import re
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

MAX_RANK = (1 << 24) - 1
MAX_STAGE = 65535
MAX_BATCH = 999999
MAX_COUNT = 1 << 40
MAX_TENSOR_BYTES = 512 << 30
MAX_FILE_BYTES = 8 << 30
_MAX_MANTISSA = (1 << 60) - 1

Shape = Optional[Tuple[int, ...]]  # None is written as None


class FormatError(ValueError):
    """Bad input, said in one line: `file:line:column: found X, expected Y`."""


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
    ("comm_uid", "name"), ("iter", "count"), ("stage_id", "stage"), ("mg_state", "state"), ("group_kind", "group"),
    ("comm_func", "comm"), ("buffer_id", "count"), ("bucket_id", "count"), ("bucket_offset", "count"),
    ("bucket_numel", "count"), ("bucket_numel_unpadded", "count"), ("param_count", "count"),
    ("trigger_cmd_uid", "name"), ("trigger_op", "name"), ("trigger_batch_id", "batch"),
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


def _quoted(text: str, most: int = 32) -> str:
    return '"%s%s"' % (text[:most], "..." if len(text) > most else "")


class _Scanner:
    """One line, read from left to right."""

    _NAME = re.compile(r"[A-Za-z0-9_.\-<>:/]{1,255}")
    _MS = re.compile(r"[0-9.]*")
    _DECIMAL = re.compile(r"(0|[1-9][0-9]*)(\.[0-9]{1,15})?\Z")
    _INTEGER = re.compile(r"0|[1-9][0-9]{0,18}")
    _SHAPE = re.compile(r"None|\[[^\]]*\]")
    _DIMS = re.compile(r"\[(|(0|[1-9][0-9]{0,18})(, (0|[1-9][0-9]{0,18}))*)\]\Z")

    def __init__(self, text: str, file: str, number: int):
        self.text, self.at, self.file, self.number = text, 0, file, number

    def fail(self, expected: str, at: Optional[int] = None, found: Optional[str] = None):
        at = self.at if at is None else at
        if found is None:
            found = _quoted(self.text[at:]) if at < len(self.text) else "the end of the line"
        raise FormatError("%s:%d:%d: found %s, expected %s" % (self.file, self.number, at + 1, found, expected))

    def literal(self, text: str):
        if not self.text.startswith(text, self.at):
            self.fail('"%s"' % text)
        self.at += len(text)

    def optional(self, text: str) -> bool:
        if not self.text.startswith(text, self.at):
            return False
        self.at += len(text)
        return True

    def name(self, what: str) -> str:
        match = self._NAME.match(self.text, self.at)
        if match is None or self._NAME.match(self.text, match.end()):
            self.fail(what)
        self.at = match.end()
        return match.group()

    def word(self, what: str, known: Tuple[str, ...]) -> str:
        start = self.at
        word = self.name(what)
        if word not in known:
            self.fail(what + ", one of " + ", ".join(known), start, '"%s"' % word)
        return word

    def integer(self, what: str, high: int) -> int:
        match = self._INTEGER.match(self.text, self.at)
        if match is None or int(match.group()) > high or self.text[match.end():match.end() + 1].isdigit():
            self.fail("%s from 0 to %d" % (what, high))
        self.at = match.end()
        return int(match.group())

    def ms(self, what: str) -> str:
        text = self._MS.match(self.text, self.at).group()
        if not self._DECIMAL.match(text) or int(text.replace(".", "")) > _MAX_MANTISSA:
            self.fail(what + " in milliseconds like 24.5, from 0 to 10^15")
        self.at += len(text)
        return text

    def optional_ms(self, what: str) -> str:
        return "None" if self.optional("None") else self.ms(what + " or None")

    def shape_and_dtype(self) -> Tuple[Shape, str]:
        self.literal(",input__shape=")
        start = self.at
        match = self._SHAPE.match(self.text, self.at)
        expected = "a shape of at most 2^40 elements like [1024, 1, 4096], or None"
        if match is None or (match.group() != "None" and not self._DIMS.match(match.group())):
            self.fail(expected)
        shape, elements = None, 0
        if match.group() != "None":
            shape = tuple(int(dim) for dim in match.group()[1:-1].split(", ") if dim)
            elements = math.prod(shape)
            if len(shape) > 16 or max(shape, default=0) > MAX_COUNT or elements > MAX_COUNT:
                self.fail(expected)
        self.at = match.end()
        self.literal(",input__dtype=")
        dtype = self.word("a data type", DTYPES)
        if elements * DTYPE_BYTES.get(dtype, 1) > MAX_TENSOR_BYTES:
            self.fail("a tensor of at most 512 GiB", start, "the shape %s of %s" % (match.group(), dtype))
        return shape, dtype

    def subs(self) -> List[SubOperation]:
        self.literal(",sub_operations=[")
        subs: List[SubOperation] = []
        if self.optional("]"):
            return subs
        while True:
            self.literal("'")
            subs.append(self.sub())
            self.literal("'")
            if self.optional("]"):
                return subs
            self.literal(", ")

    def sub(self) -> SubOperation:
        self.literal("trace_src_func=")
        source = self.name("the name of a function")
        self.literal(",duration=")
        duration = self.ms("a duration")
        self.literal(",timestamp=")
        sub = SubOperation(source, duration, self.ms("a time stamp"))
        if self.text.startswith(",input__shape=", self.at):
            sub.has_shape = True
            sub.shape, sub.dtype = self.shape_and_dtype()
        if self.optional(",func_name="):
            sub.func_name = self.name("the name of a function")
        if self.optional(",overlap_op_name="):
            sub.overlap_op_name = self.name("the name of an operation")
        if self.optional(",group="):
            sub.group = self.word("a group", GROUPS)
        if self.optional(",comm_func="):
            sub.comm_func = self.word("a communication function", COMM_FUNCTIONS)
        if not self.text.startswith("'", self.at):
            self.fail("the end of the sub-operation or its next key")
        return sub

    def bucket_value(self, kind: str, key: str) -> str:
        if kind == "name":
            return self.name("a " + key)
        if kind in ("count", "stage", "batch"):
            high = {"count": MAX_COUNT, "stage": MAX_STAGE, "batch": MAX_BATCH}[kind]
            return str(self.integer("a number", high))
        if kind == "ms":
            return self.ms("a time")
        if kind == "optional ms":
            return self.optional_ms("a time")
        if kind == "bool":
            if self.optional("True"):
                return "True"
            if self.optional("False"):
                return "False"
            self.fail("True or False")
        return self.word("a " + key, {"state": STATES, "group": GROUPS, "comm": COMM_FUNCTIONS, "dtype": DTYPES}[kind])


def parse_line(text: str, file: str = "<line>", number: int = 1) -> Line:
    """The operation that a line (without its line break) describes. Raises FormatError."""
    scan = _Scanner(text, file, number)
    scan.literal("rank:")
    rank = scan.integer("a rank", MAX_RANK)
    scan.literal(":")
    name = scan.name("the name of an operation")
    scan.literal("(")
    line: Line
    if name == "ddp_grad_comm":
        values = {}
        for index, (key, kind) in enumerate(BUCKET_FIELDS):
            scan.literal(("," if index else "") + key + "=")
            values[key] = scan.bucket_value(kind, key)
        line = GradientBucket(rank, values)
    else:
        scan.literal("stage_id=")
        stage = scan.integer("a pipeline stage", MAX_STAGE)
        scan.literal(",batch_id=")
        batch = scan.integer("a microbatch", MAX_BATCH)
        scan.literal(",mg_state=")
        state = scan.word("an mg_state", STATES)
        scan.literal(",duration=")
        duration = scan.ms("a duration")
        scan.literal(",description=")
        end = text.find(",group_kind=", scan.at)  # free text: it may hold commas and parentheses
        if end < 0:
            scan.fail("a description followed by ',group_kind='")
        description = text[scan.at:end]
        scan.at = end
        scan.literal(",group_kind=")
        line = Operation(rank, name, stage, batch, state, duration, description, scan.word("a group", GROUPS), None,
                         "None", "0")
        if scan.optional(",cmd_uid="):
            line.cmd_uid = scan.name("a cmd_uid")
            scan.literal(",op_semantics=")
            line.op_semantics = scan.word("an op_semantics", SEMANTICS)
            scan.literal(",finalize_base_duration_ms=")
            line.finalize_base_duration = scan.optional_ms("a duration")
        line.shape, line.dtype = scan.shape_and_dtype()
        scan.literal(",timestamp=")
        line.timestamp = scan.ms("a time stamp")
    line.subs = scan.subs()
    scan.literal(")")
    if scan.at != len(text):
        scan.fail("the end of the line")
    return line


@dataclass
class RankFile:
    header: List[str]  # comment lines without their '#'
    lines: List[Line]


def parse_text(text: str, file: str = "<text>") -> RankFile:
    """A whole rank file. Raises FormatError for anything that moesim would refuse."""
    if not text:
        raise FormatError("%s: found an empty file, expected lines like rank:0:forward_step(...)" % file)
    bad = re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text)
    if bad:
        line = text.count("\n", 0, bad.start()) + 1
        column = bad.start() - text.rfind("\n", 0, bad.start())
        expected = "line breaks without a carriage return" if bad.group() == "\r" else (
            "UTF-8 text without control characters")
        raise FormatError("%s:%d:%d: found the byte 0x%02x, expected %s" % (file, line, column, ord(bad.group()),
                                                                            expected))
    rows = text.split("\n")
    if rows[-1]:
        raise FormatError("%s:%d: found a last line without a line break, %s, expected a line break after every line "
                          "(a file cut short?)" % (file, len(rows), _quoted(rows[-1])))
    out = RankFile([], [])
    for number, row in enumerate(rows[:-1], 1):
        if not out.lines and row.startswith("#"):
            out.header.append(row[1:])
            continue
        line = parse_line(row, file, number)
        if out.lines and line.rank != out.lines[0].rank:
            raise FormatError("%s:%d:6: found rank %d, expected rank %d as on the lines above" % (
                file, number, line.rank, out.lines[0].rank))
        out.lines.append(line)
    if not out.lines:
        raise FormatError("%s:%d: found comments only, expected lines like rank:0:forward_step(...)" % (
            file, len(rows) - 1))
    return out


def format_text(rank_file: RankFile) -> str:
    return "".join(["#%s\n" % row for row in rank_file.header] + [format_line(line) + "\n" for line in rank_file.lines])


def read_rank_file(path) -> RankFile:
    """Raises FormatError for bad content, OSError where the file cannot be read."""
    with open(path, "rb") as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise FormatError("%s: found more than 8 GiB, expected a recording of at most 8 GiB" % path)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[:error.start]
        raise FormatError("%s:%d:%d: found the byte 0x%02x, expected UTF-8 text without control characters" % (
            path, before.count(b"\n") + 1, error.start - before.rfind(b"\n"), data[error.start])) from None
    return parse_text(text, str(path))
