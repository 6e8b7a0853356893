/* Memory that a peer lends. It is sealed, so that its pages stay, before this process reads it.
 *
 * A thread that touches a page which is being taken out of a file sleeps until that has ended, and
 * cannot be killed meanwhile. A peer can take pages out (punch a hole, MADV_REMOVE) as slowly as it
 * likes. So a region is mapped, then sealed so that no page of it can be taken out any more
 * (F_SEAL_FUTURE_WRITE: mappings that exist stay valid). Then each of its pages has to be there. A
 * peer may work once all that has succeeded.
 *
 * A missing page is not made here. A page is charged to the process whose touch made it: to this
 * process's limits (its memory cgroup), for as long as the peer keeps the file, and again at the
 * peer's next visit.
 *
 * Each of these steps may have to wait while a hole is being punched. A thread that closes files
 * takes them (dpdk_memif_late.c), and no other thread waits for it: a server is woken at the end,
 * and may have forgotten the loan by then. Whether there is a seal already is asked first. If that
 * has to wait, the thread holds nothing else then; and a hole punched after it has little time
 * before the next step.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "dpdk/dpdk_memif.h"

enum { TMPFS = 0x01021994 };

struct rp_memif_loan {
    enum { UNDER_WAY, ENDED, FORGOTTEN } state;
    int file, wake;
    uint64_t size;
    uint8_t *memory;
    const char *why; /* there is no memory; null: it is not the memory that was asked for */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The file cannot shrink, and only the kernel's own file system is behind it: so its pages can be
 * touched without an error. Hugepages cannot, once they have run out. */
static int is_fit(int file, uint64_t size) {
    struct stat about;
    struct statfs system;
    int seals = fcntl(file, F_GET_SEALS); /* refused by files that are no memfd */
    return seals >= 0 && (seals & F_SEAL_SHRINK) && fstatfs(file, &system) == 0
        && (unsigned long)system.f_type == TMPFS && fstat(file, &about) == 0
        && (uint64_t)about.st_size >= size;
}

/* Null, or why its pages do not stay. */
static const char *keep(int file, uint8_t *memory, uint64_t size) {
    if (fcntl(file, F_ADD_SEALS, F_SEAL_FUTURE_WRITE)) {
        return errno == EINVAL ? "The server's kernel cannot keep a region's pages: Linux 5.1 can"
            : "A region takes further seals: lend one without F_SEAL_SEAL";
    }
    off_t hole = lseek(file, 0, SEEK_HOLE);
    if (hole < 0 || (uint64_t)hole < size) {
        return "A region has pages nobody touched: lend it filled (mlockall(MCL_FUTURE) fills it)";
    }
    if (mlock(memory, size)) { /* this process may lock no more: its peer can have pages swapped */
        (void)madvise(memory, size, MADV_POPULATE_READ); /* spares the bursts a fault for each */
    }
    return NULL;
}

static void map(struct rp_memif_loan *loan) {
    if (!is_fit(loan->file, loan->size)) {
        return;
    }
    void *memory = fcntl(loan->file, F_ADD_SEALS, F_SEAL_SHRINK) ? MAP_FAILED
        : mmap(NULL, loan->size, PROT_READ | PROT_WRITE, MAP_SHARED, loan->file, 0);
    if (memory == MAP_FAILED) {
        loan->why = errno == ENOMEM ? "The server has no memory left to map a region"
            : "A region takes further seals, and was lent to nobody before: lend a new one";
        return;
    }
    (void)madvise(memory, loan->size, MADV_DONTFORK); /* a child would keep it, and its pages */
    loan->why = keep(loan->file, memory, loan->size);
    if (loan->why) {
        rp_quiet_unmap(memory, loan->size);
    } else {
        loan->memory = memory;
    }
}

static void end(struct rp_memif_loan *loan) {
    if (loan->memory) {
        rp_quiet_unmap(loan->memory, loan->size);
    }
    free(loan);
}

struct rp_memif_loan *rp_loan_begin(int file, uint64_t size, int wake) {
    struct rp_memif_loan *loan = calloc(1, sizeof *loan);
    if (loan) {
        loan->file = file;
        loan->size = size;
        loan->wake = wake;
    }
    rp_forks_close(file);
    rp_late_lend(file, loan);
    return loan;
}

void rp_loan_fulfil(struct rp_memif_loan *loan) {
    map(loan);
    pthread_mutex_lock(&lock); /* rp_loan_forget's caller closes the eventfd next */
    int is_forgotten = loan->state == FORGOTTEN;
    if (!is_forgotten) {
        loan->state = ENDED;
        (void)eventfd_write(loan->wake, 1);
    }
    pthread_mutex_unlock(&lock);
    if (is_forgotten) {
        end(loan);
    }
}

int rp_loan_take(struct rp_memif_loan *loan, uint8_t **memory, const char **why) {
    pthread_mutex_lock(&lock);
    int has_ended = loan->state == ENDED;
    pthread_mutex_unlock(&lock);
    if (has_ended) {
        *memory = loan->memory;
        *why = loan->why;
        free(loan);
    }
    return has_ended;
}

void rp_loan_forget(struct rp_memif_loan *loan) {
    pthread_mutex_lock(&lock);
    int has_ended = loan->state == ENDED;
    loan->state = FORGOTTEN;
    pthread_mutex_unlock(&lock);
    if (has_ended) {
        end(loan);
    }
}
