"""Reads nvdisasm's output: instructions, their blocks, the loops, and the pipe of each instruction.

A loop is a natural one: an edge back to a block that dominates the edge's beginning. The hot path of a loop is the
path from its first block round to itself with the most tensor work, then the most bytes from global memory, then the
fewest instructions: the cost of a tile if nothing is masked, ragged or not finite.
"""
import collections
import re

INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:(@!?U?P\w+)\s+)?([A-Z][A-Za-z0-9_.]*)\s*(.*?)\s*;")
LABEL = re.compile(r"^(\.L_x_\d+|\.text\.[\w$.]+):")
TARGET = re.compile(r"`\((\.L_x_\d+)\)")

Instruction = collections.namedtuple("Instruction", "address predicate opcode operands")

# The pipe of an opcode, the part before its first dot. Other opcodes use the ALU; those that begin with U use the
# uniform pipe.
PIPES = {
    "fma": "FADD FMUL FFMA FSWZADD IMAD HADD2 HMUL2 HFMA2 FADD32I FMUL32I FFMA2 FADD2 FMUL2",
    "xu": "MUFU F2I I2F F2F FRND POPC FLO BREV",
    "tensor": "HMMA IMMA BMMA DMMA QMMA OMMA HGMMA IGMMA QGMMA BGMMA UTCHMMA UTCQMMA UTCIMMA",
    "lsu": "LDG STG LDS STS LDSM STSM LDGSTS LDGDEPBAR LDL STL LD ST ATOM ATOMG ATOMS RED REDG SHFL MATCH CCTL "
           "SYNCS ARRIVES LDC UTMALDG UTMASTG UTMAREDG UTMACMDFLUSH UBLKCP UBLKPF UTMAPF LDTM STTM MOVM REDUX REDAS",
    "control": "BRA BRX JMP JMX CALL RET EXIT BSSY BSYNC BREAK BMOV BAR DEPBAR WARPSYNC WARPGROUP NOP YIELD MEMBAR ERRBAR "
               "NANOSLEEP S2R S2UR KILL RPCMOV ENDCOLLECTIVE ELECT PREEXIT ACQBULK CGAERRBAR UCGABAR_ARV UCGABAR_WAIT "
               "WARPGROUPSET USETMAXREG",
}
PIPE_OF = {opcode: pipe for pipe, opcodes in PIPES.items() for opcode in opcodes.split()}
WGMMA = ("HGMMA", "QGMMA", "IGMMA")
ALL_PIPES = ("tensor", "fma", "alu", "xu", "lsu", "uniform", "control")


def pipe(instruction):
    base = instruction.opcode.split(".")[0]
    if base in PIPE_OF:
        return PIPE_OF[base]
    return "uniform" if base[0] == "U" or base == "R2UR" else "alu"


def width(opcode):
    """Bytes that a lane moves."""
    parts = opcode.split(".")
    for bits in ("256", "128", "64"):
        if bits in parts:
            return int(bits) // 8
    return 2 if "U16" in parts or "S16" in parts else 1 if "U8" in parts or "S8" in parts else 4


def shared_bytes(instruction):
    """Bytes that a warp's instruction moves through shared memory's port; SHFL uses the same path."""
    parts = instruction.opcode.split(".")
    if parts[0] in ("LDSM", "STSM"):
        return 128 * int(parts[-1]) if parts[-1] in ("2", "4") else 128
    if parts[0] in ("LDS", "STS", "LDGSTS", "ATOMS"):
        return 32 * width(instruction.opcode)
    return 128 if parts[0] == "SHFL" else 0


def global_bytes(instruction):
    """Bytes of global memory that a warp's instruction reads if all lanes do."""
    parts = instruction.opcode.split(".")
    return 32 * width(instruction.opcode) if parts[0] in ("LDG", "LDGSTS") else 0


def flops(instruction):
    """FLOP of a warp's tensor instruction; a quarter if four warps share one (wgmma)."""
    parts = instruction.opcode.split(".")
    if parts[0] in ("HMMA", "IMMA", "QMMA"):
        shape = next((p for p in parts[1:] if p.isdigit()), "")
        return {"16816": 4096, "1688": 2048, "16832": 8192, "16864": 16384, "884": 512}.get(shape, 0)
    if parts[0] in WGMMA:
        shape = re.match(r"(\d+)x(\d+)x(\d+)", parts[1])
        return 2 * int(shape[1]) * int(shape[2]) * int(shape[3]) // 4 if shape else 0
    return 0


def functions(lines):
    """Yields (name, instructions, labels) of each function in nvdisasm's listing; labels: name to address."""
    name, code, labels, waiting = None, [], {}, []
    for line in lines:
        found = INSTRUCTION.match(line)
        if found:
            address = int(found[1], 16)
            for label in waiting:
                labels[label] = address
            waiting = []
            code.append(Instruction(address, found[2] or "", found[3], found[4]))
            continue
        found = LABEL.match(line)
        if not found:
            continue
        if found[1].startswith(".text."):
            if code:
                yield name, code, labels
            name, code, labels, waiting = found[1][len(".text."):], [], {}, []
        else:
            waiting.append(found[1])
    if code:
        yield name, code, labels


class Block:
    def __init__(self, code):
        self.code, self.next, self.before = code, [], []


def blocks_of(code, labels):
    """The blocks of a function and the edges between them. A call returns; a barrier of convergence falls through."""
    index = {instruction.address: i for i, instruction in enumerate(code)}
    starts, ends = {0}, {}
    for i, instruction in enumerate(code):
        base = instruction.opcode.split(".")[0]
        if base not in ("BRA", "EXIT", "RET", "BRX", "JMP"):
            continue
        label = TARGET.search(instruction.operands)
        to = index.get(labels.get(label[1])) if label and base == "BRA" else None
        # A branch may depend on the guard or on a predicate among its operands.
        is_certain = not instruction.predicate and not re.match(r"!?U?P\d|!?UP\d", instruction.operands)
        ends[i] = ([to] if to is not None else []) + ([] if is_certain else [i + 1])
        starts.add(i + 1)
        if to is not None:
            starts.add(to)
    edges = sorted(s for s in starts if s < len(code))
    where = {s: n for n, s in enumerate(edges)}
    blocks = [Block(code[s:e]) for s, e in zip(edges, edges[1:] + [len(code)])]
    for n, s in enumerate(edges):
        last = (edges[n + 1] if n + 1 < len(edges) else len(code)) - 1
        for to in ends.get(last, [last + 1]):
            if to in where and where[to] not in blocks[n].next:
                blocks[n].next.append(where[to])
                blocks[where[to]].before.append(n)
    return blocks


def dominators(blocks):
    """The immediate dominator of each reachable block."""
    order, seen, stack = [], {0}, [(0, iter(blocks[0].next))]
    while stack:
        n, following = stack[-1]
        to = next((t for t in following if t not in seen), None)
        if to is None:
            order.append(n)
            stack.pop()
        else:
            seen.add(to)
            stack.append((to, iter(blocks[to].next)))
    number = {n: i for i, n in enumerate(order)}
    above = {0: 0}
    changed = True
    while changed:
        changed = False
        for n in reversed(order[:-1]):
            best = None
            for b in blocks[n].before:
                if b not in above:
                    continue
                if best is None:
                    best = b
                    continue
                x = b
                while x != best:
                    while number[x] < number[best]:
                        x = above[x]
                    while number[best] < number[x]:
                        best = above[best]
            if above.get(n) != best:
                above[n], changed = best, True
    return above


class Loop:
    def __init__(self, first):
        self.first, self.body, self.ends = first, {first}, []


def loops_of(blocks):
    """The natural loops, those of one first block joined."""
    above, loops = dominators(blocks), {}
    for n in above:
        for to in blocks[n].next:
            x = n
            while x != to and x != 0:
                x = above[x]
            if x != to:
                continue
            loop = loops.setdefault(to, Loop(to))
            loop.ends.append(n)
            stack = [n]
            while stack:
                b = stack.pop()
                if b not in loop.body:
                    loop.body.add(b)
                    stack.extend(p for p in blocks[b].before if p in above)
    return list(loops.values())


class Counts:
    """The instructions of a warp on one path."""

    def __init__(self):
        self.n = self.flops = self.shared = self.loaded = self.slow_fma = 0
        self.pipes = collections.Counter()
        self.opcodes = collections.Counter()

    def add(self, instruction, times=1):
        kind = pipe(instruction)
        self.n += times
        self.pipes[kind] += times
        self.opcodes[instruction.opcode.split(".")[0]] += times
        self.flops += times * flops(instruction)
        self.shared += times * shared_bytes(instruction)
        self.loaded += times * global_bytes(instruction)
        if kind == "fma" and instruction.opcode.startswith("IMAD"):
            self.slow_fma += times

    def add_all(self, other, times):
        for name in ("n", "flops", "shared", "loaded", "slow_fma"):
            setattr(self, name, getattr(self, name) + times * getattr(other, name))
        for kind, n in other.pipes.items():
            self.pipes[kind] += times * n
        for opcode, n in other.opcodes.items():
            self.opcodes[opcode] += times * n


def counts_of(code):
    counts = Counts()
    for instruction in code:
        counts.add(instruction)
    return counts


def hot_way(blocks, loop, loops, trips):
    """Counts of the hot path once round `loop`. A loop inside counts trips(inner) times and is then one block."""
    inner = [l for l in loops if l is not loop and l.body < loop.body]
    outermost = [l for l in inner if not any(l.body < o.body for o in inner)]
    owner = {b: l for l in outermost for b in l.body}
    own = {}

    def node(b):
        return owner[b].first if b in owner else b

    def cost(b):
        if b not in own:
            if b in owner:
                own[b] = Counts()
                own[b].add_all(hot_way(blocks, owner[b], loops, trips), trips(owner[b]))
            else:
                own[b] = counts_of(blocks[b].code)
        return own[b]

    best = {}

    def value(way):
        return (sum(cost(b).flops for b in way), sum(cost(b).loaded for b in way), -sum(cost(b).n for b in way))

    # Depth first without recursion: kernels have thousands of blocks.
    stack = [(loop.first, False)]
    on_way = set()
    ends = {node(b) for b in loop.ends}
    while stack:
        b, is_done = stack.pop()
        members = owner[b].body if b in owner else (b,)
        following = {node(t) for m in members for t in blocks[m].next
                     if t in loop.body and t != loop.first and node(t) != b}
        if is_done:
            options = [best[t] for t in following if best.get(t)]
            chosen = max(options, key=lambda o: o[0], default=None)
            ways = []
            if chosen:
                ways.append((tuple(x + y for x, y in zip(chosen[0], value((b,)))), (b,) + chosen[1]))
            if b in ends:
                ways.append((value((b,)), (b,)))
            best[b] = max(ways, key=lambda o: o[0], default=None)
            on_way.discard(b)
        elif b not in best and b not in on_way:
            on_way.add(b)
            stack.append((b, True))
            stack.extend((t, False) for t in following)
    total = Counts()
    for b in (best.get(loop.first) or (None, (loop.first,)))[1]:
        total.add_all(cost(b), 1)
    return total


class Function:
    """A kernel's code, and its main loop: the loop with most tensor work, of those without such work in an inner
    loop; without tensor work, the innermost loop that reads the most global memory; otherwise the longest."""

    def __init__(self, name, code, labels):
        self.name, self.code = name, code
        while code and code[-1].opcode == "NOP":
            code.pop()
        if len(code) > 1 and code[-1].opcode == "BRA":  # to itself, behind each kernel
            code.pop()
        self.blocks = blocks_of(code, labels)
        self.loops = loops_of(self.blocks)
        self.all = counts_of(code)

    def inside(self, loop):
        return [l for l in self.loops if l.body < loop.body]

    def way(self, loop, trips=lambda inner: 1):
        return hot_way(self.blocks, loop, self.loops, trips)

    def around(self, loop):
        """The nearest loop that this one is in, or None."""
        return min((l for l in self.loops if loop.body < l.body), key=lambda l: len(l.body), default=None)

    def works(self, loop):
        return any(flops(i) for b in loop.body for i in self.blocks[b].code)

    def hot(self):
        """(loop, counts), or (None, None) where there is no loop."""
        best = None
        for loop in self.loops:
            if self.inside(loop) and (not self.works(loop) or any(self.works(l) for l in self.inside(loop))):
                continue
            counts = self.way(loop)
            rank = (counts.flops, counts.loaded, counts.n)
            if best is None or rank > best[0]:
                best = (rank, loop, counts)
        return best[1:] if best else (None, None)
