/* Sessions of agents: a client that sends a turn, waits for the answer, runs a tool and sends the next turn, whose prompt
 * is the last one, its answer and what the tool said. Lengths are in tokens.
 *
 *   ratio   the prompts of a session have 131 tokens for each token of its answers
 *   gaps    from an answer to the next turn: 86.5 % within 1 s, 8.6 % from 1 to 10 s, the rest from 10 to 300 s, uniform
 *           in each of the three
 *
 * The draws use only + - * / and square roots, so that they are the same on every machine. No global state; any thread.
 */
#ifndef QUIRE_TOOLS_SIM_SESSIONS_H
#define QUIRE_TOOLS_SIM_SESSIONS_H

#include "tools/sim/workload.h"

#define SIM_SESSION_RATIO 131
#define SIM_MAX_TURNS 1000u

/* Seconds from an answer to the next turn. */
double sim_session_gap(uint64_t *state);

/* turns[n] are a session; the first prompt and all answers have their lengths. Sets the other prompts' lengths such that
 * the ratio holds, by results of tools of random lengths, at least one token each: a session whose first prompt alone
 * exceeds the ratio keeps it. */
void sim_session_grow(struct sim_request *turns, uint32_t n, uint64_t *state);

#endif
