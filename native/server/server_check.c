/* Every invariant of the server, asserted: for tests, the simulator and fuzzers. The words that
 * survive a process are verified as at attach (server_verify.c); here follows what ends with it.
 */
#include <assert.h>
#include <stdio.h>

#include "server/server_state.h"

void rp_server_check(const struct rp_server *server) {
    uint32_t open = 0, left = server->limits.sessions_max;
    assert(server->intent.count == 0 && server->intent.log->committed == 0);
    for (uint32_t i = 0; i < server->limits.sessions_max; i++) {
        if (server->sessions[i].connection != 0) {
            open++;
        } else {
            assert(server->lines[i].credit == 0 && !server->lines[i].granted);
        }
    }
    for (uint32_t i = server->free_first; i != RP_NOBODY; i = server->lines[i].next) {
        assert(server->sessions[i].connection == 0 && left-- > 0);
    }
    assert(left == open);
    assert(open == server->open && server->meters.served_count <= RP_BURST);
    rp_hosts_check(server);
    rp_credit_check(server);
    rp_wait_check(server);
    char error[256] = "";
    if (rp_server_verify(server, error) < 0) {
        fprintf(stderr, "%s\n", error);
        assert(!"the server's words hold together");
    }
    for (uint32_t i = 0; i < server->limits.table_count; i++) {
        rp_table_check(&server->tables[i]);
    }
}
