/* A launch: runs its blocks, in rising order, on a pool of OS threads. */
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "tests/simt/peer/peer.h"
#include "tests/simt/state.h"

namespace simt
{

namespace
{

/* The launching OS thread works too. The others sleep between launches; a launch of one block does not wake them. */
class Pool
{
  public:
    explicit Pool(unsigned n_threads) : n_helpers_(n_threads - 1)
    {
        for (unsigned i = 0; i < n_helpers_; i++)
            std::thread([this] { help(); }).detach();
    }

    void run(const Launch &launch, uint32_t first_run)
    {
        unsigned n_blocks = launch.grid.x * launch.grid.y * launch.grid.z;
        if (n_blocks == 1 || !n_helpers_)
            return work_alone(launch, n_blocks, first_run);
        {
            std::lock_guard<std::mutex> lock(mutex_);
            launch_ = &launch;
            n_blocks_ = n_blocks;
            first_run_ = first_run;
            next_ = 0;
            n_busy_ = 0;
            n_wanted_ = n_blocks - 1 < n_helpers_ ? n_blocks - 1 : n_helpers_;
        }
        for (unsigned i = 0; i < n_blocks - 1 && i < n_helpers_; i++)
            wake_.notify_one();
        work();
        std::unique_lock<std::mutex> lock(mutex_);
        n_wanted_ = 0; /* threads that arrive later find no work */
        done_.wait(lock, [this] { return !n_busy_; });
    }

  private:
    static void work_alone(const Launch &launch, unsigned n_blocks, uint32_t first_run)
    {
        for (unsigned i = 0; i < n_blocks; i++)
            run_block(launch, i, first_run);
    }

    void work()
    {
        for (unsigned i; (i = next_++) < n_blocks_;)
            run_block(*launch_, i, first_run_);
    }

    void help()
    {
        std::unique_lock<std::mutex> lock(mutex_);
        for (;;) {
            wake_.wait(lock, [this] { return n_wanted_ > 0; });
            n_wanted_--;
            n_busy_++;
            lock.unlock();
            work();
            lock.lock();
            if (!--n_busy_)
                done_.notify_one();
        }
    }

    const unsigned n_helpers_;
    std::mutex mutex_;
    std::condition_variable wake_, done_;
    const Launch *launch_ = nullptr;
    unsigned n_blocks_ = 0, n_wanted_ = 0, n_busy_ = 0;
    uint32_t first_run_ = 0;
    std::atomic<unsigned> next_{0};
};

} // namespace

void launch(const Launch &launch)
{
    unsigned n_threads = launch.block.x * launch.block.y * launch.block.z;
    unsigned n_blocks = launch.grid.x * launch.grid.y * launch.grid.z;
    if (!n_threads || n_threads > max_threads || launch.smem > max_shared_bytes || !n_blocks) {
        fault("BAD_LAUNCH", false, nullptr, "%u blocks of %u threads and %zu bytes of shared memory", n_blocks,
              n_threads, launch.smem);
        return;
    }
    static std::mutex one_at_a_time;
    static uint32_t next_run = 1; /* 0 is in cells without accesses */
    std::lock_guard<std::mutex> lock(one_at_a_time);
    /* Never deleted: its OS threads end with the process. */
    static Pool *pool = new Pool(os_threads > 0 ? (unsigned)os_threads
                                                : std::max(1u, std::thread::hardware_concurrency()));
    static std::vector<std::atomic<uint64_t>> of_blocks;
    if (of_blocks.size() < n_blocks)
        of_blocks = std::vector<std::atomic<uint64_t>>(n_blocks);
    for (unsigned i = 0; i < n_blocks; i++)
        of_blocks[i] = 0;
    releases = of_blocks.data();
    peer_launch_begins(n_blocks);
    uint32_t first_run = next_run;
    next_run += n_blocks;
    pool->run(launch, first_run);
}

} // namespace simt
