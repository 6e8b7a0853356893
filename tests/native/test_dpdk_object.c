/* The object that holds the DPDK transport is found where it is said to be, or beside the
 * file the core is in; one that is not there, is none, or is another version's is a sentence. The
 * objects are made here, with cc. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "protocol/status.h"
#include "transport/transport_dpdk.h"

enum { PATH_BYTES = 512, ANSWER = 77 };

static char place[64], error[RP_URL_ERROR_BYTES];

static int sh(const char *format, const char *first, const char *second) {
    char text[3 * PATH_BYTES];
    snprintf(text, sizeof text, format, first, second);
    return system(text);
}

/* PLACE/name.so: its `open` answers ANSWER and says which host and port it was asked for. */
static void make_object(const char *name, const char *symbol, uint32_t layout) {
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s.c", place, name);
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    fprintf(file,
            "#include <stdio.h>\n#include \"transport/transport_dpdk.h\"\n"
            "static int asked(struct rp_port **port, const struct rp_url *url,\n"
            "                 const struct rp_port_options *options, struct rp_peer *server,\n"
            "                 char *bound, char *error)\n"
            "{\n    (void)port; (void)options; (void)server; (void)bound;\n"
            "    snprintf(error, RP_URL_ERROR_BYTES, \"asked %%s %%u\", url->host, url->port);\n"
            "    return -%d;\n}\n"
            "static void learn(void (*hold)(void), void (*allow)(void)) { hold(); allow(); }\n"
            "const struct rp_dpdk_object %s = {.layout = %uu, .open = asked,\n"
            "                                  .learn_forks = learn};\n",
            ANSWER, symbol, layout);
    fclose(file);
    snprintf(path, sizeof path, "%s/%s", place, name);
    CHECK(sh("cc -shared -fPIC -Inative %s.c -o %s.so", path, path) == 0);
}

static int ask(const char *object) {
    char path[2 * PATH_BYTES];
    struct rp_port_options options = {.serve = 1};
    struct rp_port *port = NULL;
    struct rp_peer peer;
    char bound[RP_URL_TEXT_BYTES];
    snprintf(path, sizeof path, "%s/%s", place, object);
    CHECK(setenv("REPLAY_DPDK", object[0] == '/' ? object : object[0] ? path : "", 1) == 0);
    error[0] = 0;
    return rp_port_open(&port, "dpdk://10.0.0.1:7400?vdev=net_ring", &options, &peer, bound, error);
}

/* Given an object that is not there, is text, is another thing, is another version's. Expect what
 * to do about it, never the same thing twice. */
static void check_named(void) {
    static char long_name[5000];
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[0] = '/';
    CHECK(ask("nothing.so") == -RP_NO_TRANSPORT);
    CHECK(strncmp(error, "dpdk://10.0.0.1:7400: built without DPDK: ", 42) == 0, "%s", error);
    CHECK(ask(long_name) == -RP_NO_TRANSPORT && strstr(error, "built without DPDK"), "%s", error);
    CHECK(sh("echo text > %s/text.so%s", place, "") == 0);
    CHECK(ask("text.so") == -RP_NO_TRANSPORT && strstr(error, "libraries are missing"), "%s",
          error);
    CHECK(strstr(error, "text.so"), "the loader's own words: %s", error);
    make_object("other", "another_name", RP_DPDK_LAYOUT);
    CHECK(ask("other.so") == -RP_NO_TRANSPORT && strstr(error, "libraries are missing"), "%s",
          error);
    make_object("old", RP_DPDK_SYMBOL, RP_DPDK_LAYOUT + 1);
    CHECK(ask("old.so") == -RP_NO_TRANSPORT && strstr(error, "another version"), "%s", error);
    check_group("an object that is missing, none, or another version's: a sentence each");
}

/* Given the right one. Expect it to be asked, and to be kept once it was found. */
static void check_found(void) {
    make_object("right", RP_DPDK_SYMBOL, RP_DPDK_LAYOUT);
    for (int time = 0; time < 2; time++) {
        CHECK(ask(time ? "nothing.so" : "right.so") == -ANSWER, "%s", error);
        CHECK(strcmp(error, "asked 10.0.0.1 7400") == 0, "%s", error);
    }
    check_group("the object that is named is asked, and kept");
}

/* Given this program, and the library that holds the core where it is one, copied into a folder
 * with an object, started by its path and found in PATH. Expect the object beside it to be found;
 * none where the folder has none. */
static void check_beside(void) {
    static const char *const commands[] = {
        "cd %s/beside && LD_LIBRARY_PATH=$PWD:$LD_LIBRARY_PATH $PWD/program found%s",
        "cd %s/beside && PATH=$PWD:$PATH LD_LIBRARY_PATH=:$LD_LIBRARY_PATH program found%s",
        "cd %s/beside && rm _dpdk.so && LD_LIBRARY_PATH=$PWD:$LD_LIBRARY_PATH ./program none%s",
    };
    char program[PATH_BYTES] = "";
    Dl_info core;
    CHECK(readlink("/proc/self/exe", program, sizeof program - 1) > 0);
    CHECK(dladdr((void *)(uintptr_t)rp_dpdk_load, &core) != 0);
    CHECK(sh("mkdir %s/beside%s", place, "") == 0);
    CHECK(sh("cp %s/right.so %s/beside/_dpdk.so", place, place) == 0);
    CHECK(sh("cp %s %s/beside/program", program, place) == 0);
    if (strstr(core.dli_fname, ".so")) {
        CHECK(sh("cp %s %s/beside/", core.dli_fname, place) == 0);
    }
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        CHECK(sh(commands[i], place, "") == 0, "%s", commands[i]);
    }
    check_group("the object beside the program is found");
}

int main(int count, char **words) {
    if (count > 1) { /* started by check_beside */
        int status = ask("");
        CHECK(status == (strcmp(words[1], "found") == 0 ? -ANSWER : -RP_NO_TRANSPORT), "%d: %s",
              status, error);
        return 0;
    }
    snprintf(place, sizeof place, "/tmp/test_dpdk_object_XXXXXX");
    CHECK(mkdtemp(place) != NULL);
#ifdef RP_POSIX /* whatever is named: none is loaded */
    make_object("right", RP_DPDK_SYMBOL, RP_DPDK_LAYOUT);
    CHECK(ask("right.so") == -RP_NO_TRANSPORT && strstr(error, "it is Linux's"), "%s", error);
    CHECK(sh("rm -r %s%s", place, "") == 0);
    return check_done("test_dpdk_object");
#endif
    check_named();
    check_found();
    check_beside();
    CHECK(sh("rm -r %s%s", place, "") == 0);
    return check_done("test_dpdk_object");
}
