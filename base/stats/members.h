/* The members that a row of rows.h or tenant_rows.h becomes in a module's struct. Macros only, for every module. */
#ifndef QUIRE_BASE_STATS_MEMBERS_H
#define QUIRE_BASE_STATS_MEMBERS_H

#include <stdbool.h>
#include <stdint.h>

#define STATS_C_U32 uint32_t
#define STATS_C_U64 uint64_t
#define STATS_C_F64 double
#define STATS_C_BOOL bool

/* STATS_WHEN(STATS_IS_SCHED_##from)(text): the text, for the rows that struct sched_stats has; the others likewise. */
#define STATS_WHEN(condition) STATS_PASTE(STATS_WHEN_, condition)
#define STATS_PASTE(a, b) STATS_PASTE_NOW(a, b)
#define STATS_PASTE_NOW(a, b) a##b
#define STATS_WHEN_0(...)
#define STATS_WHEN_1(...) __VA_ARGS__
#define STATS_IS_SCHED_SCHED 1
#define STATS_IS_SCHED_KV(member) 0
#define STATS_IS_SCHED_ENGINE 0
#define STATS_IS_SCHED_DAEMON 0
#define STATS_IS_KV_SCHED 0
#define STATS_IS_KV_KV(member) 1
#define STATS_IS_KV_ENGINE 0
#define STATS_IS_KV_DAEMON 0
#define STATS_IS_ENGINE_SCHED 1
#define STATS_IS_ENGINE_KV(member) 1
#define STATS_IS_ENGINE_ENGINE 1
#define STATS_IS_ENGINE_DAEMON 0
#define STATS_OF_KV_KV(member) member

#define STATS_SCHED_MEMBER(member, type, tag, from, ...) STATS_WHEN(STATS_IS_SCHED_##from)(STATS_C_##type member;)
#define STATS_ENGINE_MEMBER(member, type, tag, from, ...) STATS_WHEN(STATS_IS_ENGINE_##from)(STATS_C_##type member;)
#define STATS_WIRE_MEMBER(member, type, ...) STATS_C_##type member;
#define STATS_TENANT_MEMBER(member, type, ...) STATS_C_##type member;

#endif
