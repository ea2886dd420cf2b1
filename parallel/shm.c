#include "parallel/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
#define PAGE 4096u

static size_t up_to_page(size_t n)
{
    return (n + PAGE - 1) / PAGE * PAGE;
}

static bool can_be_ranks(uint32_t n)
{
    return n >= 1 && n <= COLLECTIVE_MAX_RANKS;
}

/* The only valid head of a group with this many ranks. */
static struct shm_head head_of(uint32_t n_ranks)
{
    struct shm_head head = {.magic = SHM_MAGIC, .version = SHM_VERSION, .n_ranks = n_ranks};
    head.slot_bytes = SHM_SLOT_BYTES;
    head.rank_bytes = up_to_page(sizeof(struct shm_rank)) + 2 * head.slot_bytes;
    head.total_bytes = up_to_page(sizeof head) + n_ranks * head.rank_bytes;
    return head;
}

size_t shm_bytes(uint32_t rank, uint32_t n_groups)
{
    const size_t heads = rank == 0 ? SHM_GROUPS * up_to_page(sizeof(struct shm_head)) : 0;
    return heads + n_groups * head_of(1).rank_bytes;
}

static int fill(int fd, uint32_t n_ranks, struct quire_error *err)
{
    const struct shm_head head = head_of(n_ranks);
    bool is_written = ftruncate(fd, (off_t)(SHM_GROUPS * head.total_bytes)) == 0;
    for (uint32_t g = 0; g < SHM_GROUPS && is_written; g++)
        is_written = pwrite(fd, &head, sizeof head, (off_t)(g * head.total_bytes)) == (ssize_t)sizeof head;
    if (!is_written || fcntl(fd, F_ADD_SEALS, SEALS) != 0)
        return quire_fail(err, QUIRE_IO, "shared memory of %llu bytes for %u ranks: %s",
                          (unsigned long long)(SHM_GROUPS * head.total_bytes), n_ranks, strerror(errno));
    return QUIRE_OK;
}

int shm_create(uint32_t n_ranks, int *fd, struct quire_error *err)
{
    if (!can_be_ranks(n_ranks))
        return quire_fail(err, QUIRE_INVALID, "%u ranks: a group has 1 to %u ranks", n_ranks, COLLECTIVE_MAX_RANKS);
    int made = memfd_create("quire-group", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (made < 0)
        return quire_fail(err, QUIRE_IO, "shared memory: %s", strerror(errno));
    int status = fill(made, n_ranks, err);
    if (status != QUIRE_OK) {
        close(made);
        return status;
    }
    *fd = made;
    return QUIRE_OK;
}

/* Checked before mapping: a file that can still be truncated could end its readers by SIGBUS. */
static int check(int fd, struct shm_head *head, struct quire_error *err)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &st) != 0)
        return quire_fail(err, QUIRE_INVALID, "descriptor %d is not the shared memory of a group", fd);
    if (pread(fd, head, sizeof *head, 0) != (ssize_t)sizeof *head || head->magic != SHM_MAGIC)
        return quire_fail(err, QUIRE_INVALID, "the shared memory of descriptor %d is not a group's", fd);
    if (head->version != SHM_VERSION)
        return quire_fail(err, QUIRE_INVALID,
                          "the group's memory has version %u, but this program has version %u: use one build for all "
                          "ranks",
                          head->version, SHM_VERSION);
    if (!can_be_ranks(head->n_ranks))
        return quire_fail(err, QUIRE_INVALID, "the group's memory has an invalid number of ranks: %u", head->n_ranks);
    const struct shm_head want = head_of(head->n_ranks);
    if (head->slot_bytes != want.slot_bytes || head->rank_bytes != want.rank_bytes ||
        head->total_bytes != want.total_bytes || st.st_size != (off_t)(SHM_GROUPS * want.total_bytes))
        return quire_fail(err, QUIRE_INVALID,
                          "the group's memory has %lld bytes, but its header says %llu for %u "
                          "ranks",
                          (long long)st.st_size, (unsigned long long)head->total_bytes, head->n_ranks);
    return QUIRE_OK;
}

int shm_map(int fd, uint32_t group, uint32_t n_ranks, struct shm *out, struct quire_error *err)
{
    struct shm_head head;
    int status = check(fd, &head, err);
    if (status != QUIRE_OK)
        return status;
    if (n_ranks > head.n_ranks)
        return quire_fail(err, QUIRE_INVALID, "a part of %u ranks does not fit into a group of %u", n_ranks,
                          head.n_ranks);
    unsigned char *at = mmap(NULL, head.total_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                             (off_t)(group * head.total_bytes));
    if (at == MAP_FAILED)
        return quire_fail(err, QUIRE_IO, "mapping the group's memory: %s", strerror(errno));
    *out = (struct shm){.head = (struct shm_head *)(void *)at, .n_ranks = n_ranks ? n_ranks : head.n_ranks};
    out->slot_bytes = head.slot_bytes;
    out->total_bytes = head.total_bytes;
    at += up_to_page(sizeof head);
    for (uint32_t r = 0; r < out->n_ranks; r++, at += head.rank_bytes) {
        out->ranks[r] = (struct shm_rank *)(void *)at;
        out->slots[r][0] = at + up_to_page(sizeof(struct shm_rank));
        out->slots[r][1] = out->slots[r][0] + head.slot_bytes;
    }
    return QUIRE_OK;
}

void shm_unmap(struct shm *s)
{
    munmap(s->head, s->total_bytes);
}
