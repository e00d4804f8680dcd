"""Reading and writing CMD lines in Python, against the public recordings and against moesim's own reader."""
import glob
import os
import random
import unittest

from moesim_capture.__main__ import main
from moesim_capture.cmd_format import (FormatError, Operation, SubOperation, format_line, format_text, ms, parse_line,
                                       parse_text, read_rank_file)
from support import DATA, SOURCE, ScratchTest

LINE = ("rank:3:forward_step(stage_id=1,batch_id=2,mg_state=steady,duration=24.05,description=simulation: loss_func, "
        "calculate (and DP),group_kind=None,input__shape=[1024, 1, 4096],input__dtype=torch.bfloat16,timestamp=3370621267.7,"
        "sub_operations=['trace_src_func=_profiled_all_to_all_single,duration=0.28,timestamp=3370621248.38,"
        "input__shape=[2048, 4096],input__dtype=torch.bfloat16,group=exp,comm_func=all_to_all'])")
V2 = LINE.replace("group_kind=None,", "group_kind=None,cmd_uid=cmd-31b045c3edaf,op_semantics=wait_flush_only,"
                  "finalize_base_duration_ms=131.33,")
BUCKET = ("rank:0:ddp_grad_comm(comm_uid=ddpcomm-095f230264a8,iter=3,stage_id=0,mg_state=cooldown,group_kind=dp,"
          "comm_func=allreduce,buffer_id=1,bucket_id=2,bucket_offset=94371840,bucket_numel=18874368,"
          "bucket_numel_unpadded=18874368,param_count=2,trigger_cmd_uid=cmd-31b045c3edaf,trigger_op=backward_step,"
          "trigger_batch_id=0,trigger_timestamp_ms=7284879241.59,launch_timestamp_ms=7284879241.73,"
          "launch_source=param_hook,timing_domain=metadata_only,metadata_only=True,status=launch_only,"
          "completion_observed_timestamp_ms=None,completion_source=None,wait_cmd_uid=None,wait_start_timestamp_ms=None,"
          "wait_end_timestamp_ms=None,logical_stream_role=dp_comm,grad_dtype=torch.float32,data_parallel_world_size=1,"
          "duration=0.0,timestamp=7284879241.73,sub_operations=[])")


class Lines(unittest.TestCase):
    def test_fields(self):
        line = parse_line(LINE)
        self.assertEqual((line.rank, line.name, line.stage_id, line.batch_id, line.state), (3, "forward_step", 1, 2,
                                                                                            "steady"))
        self.assertEqual(line.description, "simulation: loss_func, calculate (and DP)")
        self.assertEqual(line.shape, (1024, 1, 4096))
        self.assertIsNone(line.cmd_uid)
        self.assertEqual(line.subs[0].comm_func, "all_to_all")
        self.assertEqual(parse_line(V2).finalize_base_duration, "131.33")
        self.assertEqual(parse_line(BUCKET).values["bucket_numel"], "18874368")

    def test_written_as_read(self):
        for line in (LINE, V2, BUCKET):
            self.assertEqual(format_line(parse_line(line)), line)

    def test_milliseconds(self):
        self.assertEqual([ms(0.1), ms(3), ms(3370621267.704), ms(-0.01), ms(0.004), ms(1.23456, 4)],
                         ["0.1", "3.0", "3370621267.7", "0.0", "0.0", "1.2346"])
        with self.assertRaises(ValueError):
            ms(float("nan"))

    def test_any_operation_survives(self):
        draw = random.Random(5)
        for _ in range(300):
            subs = [SubOperation("f", ms(draw.uniform(0, 9)), ms(draw.uniform(0, 1e9)), draw.random() < 0.5,
                                 draw.choice([None, (), (7,), (3, 4)]), "torch.int64", draw.choice([None, "<lambda>"]),
                                 draw.choice([None, "x"]), draw.choice([None, "exp"]), draw.choice([None, "allgather"]))
                    for _ in range(draw.randrange(4))]
            for sub in subs:
                if not sub.has_shape:
                    sub.shape, sub.dtype = None, "None"
            line = Operation(draw.randrange(1 << 24), "forward_step", draw.randrange(9), draw.randrange(9), "None",
                             draw.choice(["0", ms(draw.uniform(0, 1e4))]), draw.choice(["", "a, (b)=c"]), "None",
                             draw.choice([None, (), (5, 0)]), "torch.float32", "0", subs=subs)
            if draw.random() < 0.5:
                line.cmd_uid = "cmd-0"
            self.assertEqual(parse_line(format_line(line)), line)


class Files(ScratchTest):
    def test_recordings(self):
        """The public ones, where they are, and our samples."""
        files = glob.glob(os.path.join(SOURCE, "traces", "samples", "**", "*rank*.txt"), recursive=True)
        self.assertTrue(files)
        for path in files + glob.glob(os.path.join(DATA, "echo", "*", "*", "*rank*.txt")):
            with open(path, encoding="utf-8", newline="") as file:
                text = file.read()
            self.assertEqual(format_text(parse_text(text, path)), text, path)

    BAD = {
        "empty": b"",
        "comments only": b"# nothing\n",
        "cut short": LINE.encode()[:200] + b"\n",
        "no line break": LINE.encode(),
        "carriage return": LINE.encode() + b"\r\n",
        "not UTF-8": LINE.encode().replace(b"simulation", b"simu\xffation") + b"\n",
        "another rank": (LINE + "\n" + LINE.replace("rank:3", "rank:4") + "\n").encode(),
        "unknown state": LINE.replace("steady", "stedy").encode() + b"\n",
        "negative duration": LINE.replace("duration=24.05", "duration=-1").encode() + b"\n",
        "exponent": LINE.replace("duration=24.05", "duration=1e3").encode() + b"\n",
        "leading zero": LINE.replace("batch_id=2", "batch_id=02").encode() + b"\n",
        "shape without space": LINE.replace("[2048, 4096]", "[2048,4096]").encode() + b"\n",
        "unknown dtype": LINE.replace("torch.bfloat16,group", "torch.bfloat,group").encode() + b"\n",
        "unfinished list": LINE.replace("'])", "'").encode() + b"\n",
        "text behind": LINE.encode() + b" \n",
        "unknown comm": LINE.replace("comm_func=all_to_all", "comm_func=all2all").encode() + b"\n",
        "bucket with a hole": BUCKET.replace("iter=3,", "").encode() + b"\n",
        "comment behind lines": (LINE + "\n# late\n").encode(),
    }

    def test_bad_files_are_refused_in_the_line_in_which_moesim_refuses_them(self):
        for name, content in self.BAD.items():
            with self.subTest(name):
                path = self.write("rank3.txt", content)
                with self.assertRaises(FormatError) as caught:
                    read_rank_file(path)
                message = str(caught.exception)
                self.assertNotIn("\n", message)
                self.assertEqual(main(["check", path]), 2)
                done = self.moesim("trace", "check", path)
                self.assertEqual(done.returncode, 2, done.stdout)
                self.assertIn(message.split(": found ")[0] + ":", done.stderr)

    def test_check_reads_folders(self):
        self.write("rank3.txt", (LINE + "\n").encode())
        self.assertEqual(main(["check", self.scratch]), 0)
        self.assertEqual(main(["check", self.path("nowhere")]), 2)
        os.mkdir(self.path("empty"))
        self.assertEqual(main(["check", self.path("empty")]), 2)
