/* Finding and opening the object that holds the DPDK transport. Without it, or with one that does
 * not fit, a dpdk:// URL is a typed error that says what to install; nothing else changes. */
#include "transport/transport_dpdk.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "os/forks.h"
#include "os/posix.h"
#include "protocol/status.h"

enum { PATH_BYTES = 4096 };

#ifndef RP_POSIX

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const struct rp_dpdk_object *loaded;

/* Beside the file this function is in, a library or a program. 0 where that cannot be said. */
static int find_object(char *path, size_t capacity) {
    const char *named = getenv("REPLAY_DPDK");
    char program[PATH_BYTES] = "";
    Dl_info here;
    if (named && *named) {
        return snprintf(path, capacity, "%s", named) < (int)capacity;
    }
    if (!dladdr(&loaded, &here) || !here.dli_fname) {
        return 0;
    }
    const char *slash = strrchr(here.dli_fname, '/');
    if (!slash) { /* a program found in PATH: dladdr gives its name alone */
        ssize_t size = readlink("/proc/self/exe", program, sizeof program - 1);
        here.dli_fname = program;
        slash = size > 0 ? strrchr(program, '/') : NULL;
    }
    int folder = slash ? (int)(slash + 1 - here.dli_fname) : 0;
    return folder && snprintf(path, capacity, "%.*s" RP_DPDK_OBJECT, folder, here.dli_fname)
                     < (int)capacity;
}

static const struct rp_dpdk_object *load(char *error) {
    char path[PATH_BYTES];
    if (!find_object(path, sizeof path) || access(path, R_OK) != 0) {
        snprintf(error, RP_URL_ERROR_BYTES,
                 "built without DPDK: apt-get install libdpdk-dev, then make dpdk in a checkout, "
                 "or use udp://");
        return NULL;
    }
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const struct rp_dpdk_object *object = handle ? dlsym(handle, RP_DPDK_SYMBOL) : NULL;
    if (!object) {
        const char *said = dlerror();
        snprintf(error, RP_URL_ERROR_BYTES,
                 "DPDK's libraries are missing here (%.100s): apt-get install libdpdk-dev, or use "
                 "udp://", said ? said : "no reason was given");
        return NULL;
    }
    if (object->layout != RP_DPDK_LAYOUT) {
        snprintf(error, RP_URL_ERROR_BYTES,
                 "the DPDK transport was built from another version of this program: make dpdk "
                 "builds it anew, or use udp://");
        return NULL;
    }
    object->learn_forks(rp_forks_hold, rp_forks_allow);
    return object;
}

/* A child forked within would have the lock taken, by a thread that it has not: no fork begins. It
 * waits for a dlopen once, some 10 ms. */
const struct rp_dpdk_object *rp_dpdk_load(char *error) {
    rp_forks_hold();
    pthread_mutex_lock(&lock);
    const struct rp_dpdk_object *object = loaded = loaded ? loaded : load(error);
    pthread_mutex_unlock(&lock);
    rp_forks_allow();
    return object;
}

#else

const struct rp_dpdk_object *rp_dpdk_load(char *error) {
    snprintf(error, RP_URL_ERROR_BYTES,
             "built without DPDK: it is Linux's, and this is the build for other systems: use "
             "udp://");
    return NULL;
}

#endif

int rp_dpdk_open(struct rp_port **port, const struct rp_url *url,
                 const struct rp_port_options *options, struct rp_peer *server, char *bound,
                 char *error) {
    char why[RP_URL_ERROR_BYTES];
    const struct rp_dpdk_object *object = rp_dpdk_load(why);
    if (!object) {
        snprintf(error, RP_URL_ERROR_BYTES, "dpdk://%.60s:%u: %.170s", url->host, url->port, why);
        return -RP_NO_TRANSPORT;
    }
    return object->open(port, url, options, server, bound, error);
}
