/* Loads and stores with a cache hint: plain ones. */
#ifndef QUIRE_TESTS_SIMT_DEVICE_CACHED_H
#define QUIRE_TESTS_SIMT_DEVICE_CACHED_H

#define SIMT_LOAD(name) \
    template <class T> inline T name(const T *p) \
    { \
        return *p; \
    }
#define SIMT_STORE(name) \
    template <class T> inline void name(T *p, T value) \
    { \
        *p = value; \
    }

SIMT_LOAD(__ldg)
SIMT_LOAD(__ldca)
SIMT_LOAD(__ldcg)
SIMT_LOAD(__ldcs)
SIMT_LOAD(__ldlu)
SIMT_LOAD(__ldcv)
SIMT_STORE(__stcg)
SIMT_STORE(__stcs)
SIMT_STORE(__stwb)
SIMT_STORE(__stwt)
#undef SIMT_LOAD
#undef SIMT_STORE

#endif
