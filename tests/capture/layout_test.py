"""Ranks, groups and their names, against the worked tables of the public recordings' format."""
import unittest

import torch.distributed as dist  # noqa: F401  members_of needs it

from moesim_capture.layout import Coordinates, GroupNames, Layout, file_name, folder_name, source_of


class Group:
    def __init__(self, *ranks):
        self.ranks = ranks


class Ranks(unittest.TestCase):
    def test_worked_table(self):
        layout = Layout(world=16, ep=4, pp=2)
        self.assertEqual(layout.of(13), Coordinates(0, 1, 1, 1))
        self.assertEqual(layout.group("exp", 13), [12, 13, 14, 15])
        self.assertEqual(layout.group("exp_dp", 13), [9, 13])
        self.assertEqual(layout.group("dp", 13), list(range(8, 16)))
        self.assertEqual(layout.group("pp", 13), [5, 13])
        layout = Layout(world=16, tp=2, ep=2, pp=2)
        self.assertEqual([layout.group(label, 0) for label in ("tp", "exp", "exp_dp", "dp", "tp_exp", "pp")],
                         [[0, 1], [0, 2], [0, 4], [0, 2, 4, 6], [0, 1, 2, 3], [0, 8]])

    def test_rank_and_coordinates_are_inverse(self):
        for layout in (Layout(24, tp=2, ep=3, pp=2), Layout(8), Layout(8, ep=8), Layout(6, pp=3)):
            for rank in range(layout.world):
                self.assertEqual(layout.rank(layout.of(rank)), rank)
            for label in ("tp", "exp", "exp_dp", "dp", "pp", "tp_exp"):
                members = [rank for group in layout.groups(label) for rank in group]
                self.assertEqual(sorted(members), list(range(layout.world)))

    def test_sizes_that_do_not_fit(self):
        for sizes in ({"world": 6, "ep": 4}, {"world": 0}, {"world": 4, "pp": 0}):
            with self.assertRaises(ValueError):
                Layout(**sizes)

    def test_groups_are_named_by_their_members(self):
        names = GroupNames(Layout(world=16, tp=2, ep=2, pp=2))
        self.assertEqual(names.label(Group(0, 1), "allreduce"), "tp")
        self.assertEqual(names.label(Group(2, 0), "all_to_all"), "exp")
        self.assertEqual(names.label(Group(0, 1, 2, 3), "allgather"), "tp_exp")
        self.assertEqual(names.label(Group(0, 2, 4, 6), "allreduce"), "dp")
        self.assertEqual(names.label(Group(0, 4), "allreduce"), "exp_dp")
        self.assertEqual(names.label(Group(3, 4), "allreduce"), "None")
        self.assertEqual(names.label(Group(5), "allreduce"), "None")

    def test_equal_members_are_told_apart_by_the_call(self):
        names = GroupNames(Layout(world=4, ep=4))
        group = Group(0, 1, 2, 3)
        self.assertEqual([names.label(group, comm) for comm in ("allreduce", "all_to_all", "allgather", "broadcast")],
                         ["dp", "exp", "exp", "dp"])
        names.name(group, "exp_dp")
        self.assertEqual(names.label(group, "all_to_all"), "exp_dp")
        with self.assertRaises(ValueError):
            names.name(group, "ep")

    def test_names_of_the_public_recorder(self):
        self.assertEqual(source_of("all_gather", "allgather", "exp", 1, "torch.int64").function,
                         "_gather_along_first_dim_expert_parallel")
        moe = source_of("all_gather", "allgather", "tp_exp", 2, "torch.bfloat16")
        self.assertEqual((moe.function, moe.group), ("_gather_along_first_dim_moe", "exp"))
        # Reductions of any group are called what the public recorder calls them.
        self.assertEqual(source_of("all_reduce", "allreduce", "tp", 2, "torch.float32").function, "allreduce")
        combine = source_of("all_reduce", "allreduce", "exp", 2, "torch.float32")
        self.assertEqual((combine.function, combine.group), ("_reduce_along_first_dim_moe", "exp"))

    def test_one_dimensional_integers_are_counts(self):
        self.assertEqual(source_of("all_to_all_single", "all_to_all", "exp", 1, "torch.int64").function, "all_to_all_single")
        for dims, dtype in ((2, "torch.int64"), (1, "torch.float32"), (2, "torch.bfloat16")):
            self.assertEqual(source_of("all_to_all_single", "all_to_all", "exp", dims, dtype).function,
                             "_profiled_all_to_all_single")

    def test_a_group_may_be_preferred_for_all_but_reductions(self):
        names, world = GroupNames(Layout(world=4, ep=4)), Group(0, 1, 2, 3)
        names.prefer(world, "exp")
        self.assertEqual([names.label(world, comm) for comm in ("all_to_all", "allgather", "allreduce")], ["exp", "exp", "dp"])

    def test_file_names(self):
        layout = Layout(world=16, ep=4, pp=2)
        self.assertEqual(folder_name(layout, 16, 8, 4096, 1024), "pp2_tp1_exp4_expn16_dp8_nl8_hs4096_sl1024")
        self.assertEqual(file_name(layout, 16, 8, 1, 3, "20250818063302"),
                         "wd16_tp1_pp2_exp4_expNum16_l8_bs1_rank3_20250818063302.txt")
        # Unknown sizes are not named.
        self.assertEqual(folder_name(layout, hidden=64), "pp2_tp1_exp4_dp8_hs64")
        self.assertEqual(file_name(layout, None, None, None, 3), "wd16_tp1_pp2_exp4_rank3.txt")
