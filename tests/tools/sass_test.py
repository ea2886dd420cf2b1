"""Tests of tools/sass: the reading of a listing, the counts that CI holds, and the model's arithmetic."""
import pathlib
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tools"))
from sass import counts, listing, model  # noqa: E402


def sample():
    lines = (HERE / "sass_sample.txt").read_text().splitlines()
    return {name: listing.Function(name, code, labels) for name, code, labels in listing.functions(lines)}


class Listing(unittest.TestCase):
    def test_functions_without_what_is_behind_them(self):
        found = sample()
        self.assertEqual(list(found), ["outer", "straight"])
        self.assertEqual([found["outer"].all.n, found["straight"].all.n], [23, 4])

    def test_loops_are_natural_ones(self):
        # The slow path also branches backwards, but is not a loop.
        outer = sample()["outer"]
        self.assertEqual(sorted(outer.blocks[l.first].code[0].address for l in outer.loops), [0x40, 0x60])

    def test_the_hot_loop_has_the_products_and_the_short_way(self):
        loop, hot = sample()["outer"].hot()
        self.assertEqual(hot.flops, 2 * 4096)
        self.assertEqual(hot.n, 13)
        self.assertEqual(hot.pipes["fma"], 1)  # not the two of the slow path
        self.assertEqual(hot.slow_fma, 1)
        self.assertEqual(dict(hot.pipes), {"uniform": 1, "control": 4, "lsu": 2, "alu": 2, "tensor": 2, "xu": 1, "fma": 1})
        self.assertEqual(hot.loaded, 512)
        self.assertEqual(hot.shared, 512 + 512)

    def test_a_loop_inside_counts_as_often_as_it_is_said_to(self):
        outer = sample()["outer"]
        loop, once = outer.hot()
        self.assertEqual(outer.way(loop, lambda inner: 4).n, once.n + 3 * 3)

    def test_wgmma_is_four_warps_work(self):
        self.assertEqual(sample()["straight"].all.flops, 2 * 64 * 256 * 16 // 4)
        self.assertEqual(sample()["straight"].hot(), (None, None))

    def test_bytes(self):
        def bytes_of(opcode):
            i = listing.Instruction(0, "", opcode, "")
            return listing.shared_bytes(i), listing.global_bytes(i)
        self.assertEqual(bytes_of("LDS.U16"), (64, 0))
        self.assertEqual(bytes_of("STS.64"), (256, 0))
        self.assertEqual(bytes_of("LDSM.16.MT88.2"), (256, 0))
        self.assertEqual(bytes_of("LDG.E.128.CONSTANT"), (0, 512))
        self.assertEqual(bytes_of("STG.E"), (0, 0))


class Counts(unittest.TestCase):
    KNOWN = {("sm_90a", "a"): (100, 1024, 0, 0, 12800, 400), ("sm_80", "a"): (90, 0, 0, 0, 12800, 400)}

    def off(self, **changes):
        row = dict(zip(counts.COLUMNS, self.KNOWN["sm_90a", "a"]), **changes)
        return list(counts.differences(self.KNOWN, {("sm_90a", "a"): tuple(row.values())}))

    def test_within_three_percent(self):
        self.assertEqual(self.off(), [])
        self.assertEqual(self.off(registers=103, code=13184, inner=388), [])
        self.assertEqual(self.off(inner=413), ["a on sm_90a: inner 400 -> 413"])
        self.assertEqual(self.off(inner=387), ["a on sm_90a: inner 400 -> 387"])
        self.assertEqual(self.off(spills=1), ["a on sm_90a: spills 0 -> 1"])
        self.assertEqual(self.off(stack=8), ["a on sm_90a: stack 0 -> 8"])

    def test_new_and_gone(self):
        self.assertEqual(list(counts.differences(self.KNOWN, {("sm_90a", "b"): (1,) * 6})),
                         ["a on sm_90a is no longer there", "b on sm_90a is new"])

    def test_the_table_reads_back(self):
        text = counts.text_of("13.0", self.KNOWN)
        self.assertEqual(counts.read(text.splitlines()), ("13.0", self.KNOWN))


class Model(unittest.TestCase):
    def test_limits_and_their_sum(self):
        c = listing.Counts()
        c.n, c.flops, c.shared, c.slow_fma = 400, 8192, 2560, 10
        c.pipes.update(alu=100, fma=50, xu=20)
        terms = model.limits(model.H100, c, 8, hbm_bytes=4096, async_bytes=1280)
        self.assertEqual([terms[k] for k in ("issue", "alu", "fma", "xu", "shared")], [800, 400, 120, 320, 170])
        self.assertAlmostEqual(terms["tensor"], 8 * 8192 / (0.62 * 4096))
        self.assertAlmostEqual(terms["memory"], 4096 / (0.92 * 3350 / 132 / 1.755))
        self.assertAlmostEqual(model.clocks({"a": 3, "b": 4}), 5)

    def test_blocks_of_an_sm(self):
        self.assertEqual(model.occupancy(model.H100, 252, 128, 83000), 2)  # both limits
        self.assertEqual(model.occupancy(model.H100, 168, 128, 73000), 3)
        self.assertEqual(model.occupancy(model.H100, 32, 1024, 0), 2)
        self.assertEqual(model.occupancy(model.H100, 255, 256, 98304), 1)
        self.assertEqual(model.occupancy(model.machine_of("sm_86"), 40, 512, 0), 3)

    def test_waves(self):
        self.assertEqual(model.waves(132, 132), 1)
        self.assertEqual(model.waves(198, 132), 0.75)


if __name__ == "__main__":
    unittest.main()
