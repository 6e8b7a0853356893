/* The server as a process that can die: every store to the region names a site (base/site.h), and
 * at one of them, or where it touches the network, the process is gone: a longjmp, which leaves the
 * region exactly as a SIGKILL there would. Allocation is counted by the linker's --wrap: malloc,
 * calloc and realloc of every object come by here.
 */
#include <setjmp.h>
#include <stddef.h>
#include <stdlib.h>

#include "check.h"
#include "sim.h"
#include "base/site.h"

static struct {
    jmp_buf death;
    uint64_t hits_left; /* 0 = it will not be killed */
    int running;
    int engine,
        port; /* depth of each: allocations inside the engine but outside a port are counted */
    uint64_t allocations;
} process;

extern struct rp_site __start_rp_sites[] __attribute__((weak));
extern struct rp_site __stop_rp_sites[] __attribute__((weak));

static void count_down(struct rp_site *site) {
    if (!process.running || process.hits_left == 0 || --process.hits_left > 0) {
        return;
    }
    if (site) {
        site->kills++;
    }
    process.engine = process.port = 0;
    longjmp(process.death, 1);
}

void rp_site_hit(struct rp_site *site) {
    site->hits++;
    count_down(site);
}

void sim_process_pause(void) {
    count_down(NULL);
}

int sim_process_run(void (*turn)(void *context), void *context, uint64_t hits) {
    process.hits_left = hits;
    process.running = 1;
    if (setjmp(process.death) != 0) {
        process.running = 0;
        return 0;
    }
    sim_process_enter();
    turn(context);
    sim_process_leave();
    process.running = 0;
    return 1;
}

void sim_process_enter(void) {
    process.engine++;
}
void sim_process_leave(void) {
    process.engine--;
}
void sim_process_port(int inside) {
    process.port += inside ? 1 : -1;
}
uint64_t sim_process_allocations(void) {
    return process.allocations;
}

void sim_process_sites(uint32_t *all, uint32_t *hit, uint32_t *killed) {
    *all = *hit = *killed = 0;
    for (struct rp_site *site = __start_rp_sites; site < __stop_rp_sites; site++) {
        *all += 1;
        *hit += site->hits > 0;
        *killed += site->kills > 0;
    }
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);

static void count_allocation(void) {
    process.allocations += process.engine > 0 && process.port == 0;
}

void *__wrap_malloc(size_t size) {
    count_allocation();
    return __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size) {
    count_allocation();
    return __real_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t size) {
    count_allocation();
    return __real_realloc(old, size);
}
