"""Every constant of the policies matters: changes one at a time in a copy of the sources, and some test must fail.

    python3 tests/scheduler/mutants.py [NAME...]     all take about ten minutes; not part of the suite

A changed constant makes the scheduler behave otherwise, and not wrongly, so only tests of limits find it.
"""
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parents[2]
FAIR = ("policy_fair_test", "sched_pressure_test")
FIT = ("cost_fitter_test",)
EDF = ("policy_edf_test", "sched_pressure_test")
SJF = ("policy_sjf_test",)
BATCHES = ("batches_test",)
BUDGET = ("budget_test",)
MUTANTS = {  # name: file, text, its replacement, tests of which one must fail
    "quantum-steps": ("cost.c", "QUANTUM_STEPS 8", "QUANTUM_STEPS 80", ("cost_test", *FAIR)),
    "quantum-least": ("cost.c", "MIN_QUANTUM_US 1000", "MIN_QUANTUM_US 100000", ("cost_test", *FAIR)),
    "quantum-tokens": ("policies/fair.c", "TOKEN_QUANTUM 1024u", "TOKEN_QUANTUM 2048u", FAIR),
    "output-price": ("policies/fair.c", "DEFAULT_OUTPUT_PRICE 2u", "DEFAULT_OUTPUT_PRICE 3u", FAIR),
    "output-price-of-time": ("policies/fair.c", "fair->output_price = 1;", "fair->output_price = 2;", FAIR),
    "unit-of-time": ("policies/fair.c", "UNITS_PER_US 16", "UNITS_PER_US 1", FAIR),
    "patience": ("policies/fair.c", "    units *= fair->prompt_price;", "    units *= fair->prompt_price * 100;", FAIR),
    "patience-chunk": ("policies/fair.c", "PATIENCE_CHUNK 512u", "PATIENCE_CHUNK 16u", FAIR),
    "seat-lead": ("policies/fair.c", "flow_lead(state, running->tenant, waiting->tenant) > 1", "flow_lead(state, running->tenant, waiting->tenant) > 20", FAIR),
    "tokens-to-time": ("policies/fair.c", "double factor = (double)quantum / (double)fair->quantum;", "double factor = 1;", FAIR),
    "ahead": ("order.c", "return sum / n + 0.5;", "return sum / n + 50;", FAIR),
    "ahead-of-siblings": ("order.c", "flow_lead(f->state, flow, sibling) > 1", "flow_lead(f->state, flow, sibling) > 100", FAIR),
    "rest-of-a-step": ("running.c", "until_us = 2 * p->time->rest_us", "until_us = 200 * p->time->rest_us", FAIR),
    "prompt-share": ("state/scheduler_state.h", "SCHED_PROMPT_SHARE 25", "SCHED_PROMPT_SHARE 50", FAIR),
    "least-chunk": ("state/scheduler_state.h", "SCHED_MIN_CHUNK 16", "SCHED_MIN_CHUNK 4", (*FAIR, "sched_test")),
    "seat-steps": ("state/scheduler_state.h", "SCHED_SEAT_STEPS 8", "SCHED_SEAT_STEPS 1", FAIR),
    "seat-steps-long": ("state/scheduler_state.h", "SCHED_SEAT_STEPS 8", "SCHED_SEAT_STEPS 80", FAIR),
    "background-part": ("state/scheduler_state.h", "SCHED_BACKGROUND_PART 16", "SCHED_BACKGROUND_PART 4", ("sched_background_test",)),
    "pace-near": ("state/pace.h", "PACE_NEAR_US 30000000", "PACE_NEAR_US 30", ("sched_background_test",)),
    "pace-tokens": ("plan.c", "return pace_tokens(s->pace, now_us, part < SCHED_MIN_CHUNK ? SCHED_MIN_CHUNK : part);", "(void)now_us;\n    return part < SCHED_MIN_CHUNK ? SCHED_MIN_CHUNK : part;", ("sched_background_test",)),
    "blocks-enough": ("seats.c", "    p->takes_blocks = enough;\n    if (enough)", "    p->takes_blocks = enough;\n    if (last != QUEUE_NONE)", FAIR),
    "blocks-pay": ("seats.c", "> 1 + PAYS * us", "> 1 + 0 * us", FAIR),
    "blocks-pass": ("seats.c", "p->takes_blocks = enough;", "p->takes_blocks = false;", FAIR),
    "deadline-doubt": ("policies/edf.c", "DOUBT 2", "DOUBT 4", EDF),
    "deadline-half": ("policies/edf.c", "(double)(deadline - waiting->arrival_us) / 2)", "(double)(deadline - waiting->arrival_us) / 3)", EDF),
    "deadline-too-late": ("policies/edf.c", "needed > left_us ||", "", EDF),
    "deadline-rank": ("policies/edf.c", "sched_later(c->lost_seat_us, 1, e->ageing_us) : 0", "1 : 0", EDF),
    "deadline-ageing": ("policies/edf.c", "DEFAULT_AGEING_US 10000000u", "DEFAULT_AGEING_US 1000000u", EDF),
    "priority-ageing": ("policies/priority.c", "DEFAULT_AGEING_US 30000000u", "DEFAULT_AGEING_US 3000000u", ("policy_priority_test",)),
    "priority-head-start": ("policies/priority.c", "HEAD_START 1024u", "HEAD_START 8192u", ("policy_priority_test", "sched_pressure_test")),
    "lpm-ageing": ("policies/lpm.c", "DEFAULT_AGEING_US 1000000u", "DEFAULT_AGEING_US 100000u", ("policy_lpm_test",)),
    "sjf-ageing": ("policies/sjf.c", "DEFAULT_AGEING_US 300000000u", "DEFAULT_AGEING_US 300000u", SJF),
    "sjf-memory": ("policies/sjf.c", "MEMORY 128", "MEMORY 2", SJF),
    "sjf-least": ("policies/sjf.c", "LEAST 4", "LEAST 400", SJF),
    "sjf-prompts": ("policies/sjf.c", "PROMPT_PER_OUTPUT 8u", "PROMPT_PER_OUTPUT 800u", SJF),
    "sjf-seat-early": ("policies/sjf.c", "SEAT_QUANTA 4", "SEAT_QUANTA 1", FAIR),
    "sjf-seat-late": ("policies/sjf.c", "SEAT_QUANTA 4", "SEAT_QUANTA 40", FAIR),
    "batches-queue": ("state/batches.h", "BATCHES_LONG_QUEUE 1.5", "BATCHES_LONG_QUEUE 6", BATCHES),
    "batches-wait": ("state/batches.h", "BATCHES_LEAST_WAIT 0.0625", "BATCHES_LEAST_WAIT 0.5", BATCHES),
    "batches-idle": ("state/batches.h", "BATCHES_IDLE 0.5", "BATCHES_IDLE 0.99", BATCHES),
    "batches-size": ("state/batches.h", "BATCHES_MOST_SIZE 4.0", "BATCHES_MOST_SIZE 16.0", BATCHES),
    "budget-least": ("budget.h", "BUDGET_MIN_RATIO 0.25", "BUDGET_MIN_RATIO 0.01", BUDGET),
    "budget-most": ("budget.h", "BUDGET_MAX_RATIO 4.0", "BUDGET_MAX_RATIO 40.0", BUDGET),
    "budget-band": ("budget.h", "BUDGET_DEAD_BAND 0.1", "BUDGET_DEAD_BAND 0.001", BUDGET),
    "fit-every": ("fit/cost_fitter.c", "f->n_new < COST_FITTER_EVERY", "f->n_new < COST_FITTER_EVERY / 8", FIT),
    "fit-forgets": ("fit/cost_fitter.h", "COST_FITTER_MEMORY 128.0", "COST_FITTER_MEMORY 4.0", FIT),
    "fit-remembers": ("fit/cost_fitter.h", "COST_FITTER_MEMORY 128.0", "COST_FITTER_MEMORY 1e6", FIT),
    "fit-one-memory": ("fit/cost_fitter.c", "    m->n = m->n * KEEP + 1;", """    m->n = m->n * KEEP + 1;
    for (uint32_t i = 0; i < N_SIZES; i++)
        for (uint32_t a = 0; a < N_TERMS && &f->sizes[i] != m; a++) {
            f->sizes[i].right[a] *= KEEP;
            for (uint32_t b = 0; b <= a; b++)
                f->sizes[i].gram[a][b] *= KEEP;
        }""", FIT),
    "fit-least": ("fit/cost_fitter.c", ">= COST_FITTER_LEAST", ">= 1", FIT),
    "fit-range": ("fit/cost_fitter.h", "COST_FITTER_RANGE 3u", "COST_FITTER_RANGE 1u", FIT),
    "fit-band-none": ("fit/cost_fitter.h", "COST_FITTER_DEAD_BAND 0.1", "COST_FITTER_DEAD_BAND 0.001", FIT),
    "fit-band-wide": ("fit/cost_fitter.h", "COST_FITTER_DEAD_BAND 0.1", "COST_FITTER_DEAD_BAND 1.0", FIT),
    "fit-outliers": ("fit/cost_fitter.c", "    terms[0] = 1 / us;", "    us = 1;\n    terms[0] = 1 / us;", FIT),
    "change-in-flight": ("scheduler.c", "    if (s->step != s->committed)\n        return quire_fail(err, QUIRE_INVALID, \"cost model", "    if (false)\n        return quire_fail(err, QUIRE_INVALID, \"cost model", ("driver_test",)),
}


def run(*command, cwd):
    return subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def found(tree, tests):
    """The first test that fails; None if all pass."""
    built = run("cmake", "--build", "--preset", "core", "-j2", "--target", *tests, cwd=tree)
    if built.returncode != 0:
        sys.exit(built.stdout[-2000:])
    for test in tests:
        if run(f"build-core/tests/scheduler/{test}", cwd=tree).returncode != 0:
            return test
    return None


def main():
    names = sys.argv[1:] or list(MUTANTS)
    survivors = []
    with tempfile.TemporaryDirectory() as name:
        tree = pathlib.Path(name)
        subprocess.run("git ls-files -z -c -o --exclude-standard | xargs -0 cp -a --parents -t " + name, shell=True, cwd=ROOT, check=True)
        subprocess.run(("cmake", "--preset", "core"), cwd=tree, check=True, stdout=subprocess.DEVNULL)
        every = sorted({test for name in names for test in MUTANTS[name][3]})
        assert found(tree, every) is None, "a test fails without a change"
        for name in names:
            file, text, replacement, tests = MUTANTS[name]
            path = tree / "scheduler" / file
            before = path.read_text()
            assert before.count(text) == 1, f"{name}: {file} has the text {before.count(text)} times"
            path.write_text(before.replace(text, replacement))
            test = found(tree, tests)
            path.write_text(before)
            print(f"{name}: {'found by ' + test if test else 'NOT FOUND by ' + ', '.join(tests)}", flush=True)
            survivors += [] if test else [name]
    print(f"{len(names) - len(survivors)} of {len(names)} mutants are found")
    sys.exit(bool(survivors))


main()
