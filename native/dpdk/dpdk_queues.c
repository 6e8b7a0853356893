/* How a card with several queues spreads the frames that come. Where it takes rules on the
 * destination port these are used, which is exact. Else its hash is used, whose key and table are
 * read back, so that an answer can name a port that lands on the right queue. Else the way is not
 * known.
 *
 * Frames come to every queue of an open card, also before its shard is served and after. Left
 * there they would be lost: half of the other shard's clients, and ARP. So the first shard that is
 * served polls the queues of those that are not. Its sleeps look there when they end, as the file
 * it sleeps on is its own queue's. It answers by its own queue, from which no other thread sends.
 */
#include <arpa/inet.h>
#include <rte_flow.h>
#include <string.h>

#include "dpdk/dpdk_parts.h"

void rp_queues_ask(struct rte_eth_conf *conf, const struct rte_eth_dev_info *info) {
    uint64_t types = info->flow_type_rss_offloads & RTE_ETH_RSS_NONFRAG_IPV4_UDP;
    if (types) {
        conf->rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
        conf->rx_adv_conf.rss_conf.rss_hf = types;
    }
}

static struct rte_flow *make_rule(uint16_t device, uint16_t port, uint16_t queue) {
    struct rte_flow_attr way = {.ingress = 1};
    struct rte_flow_item_udp to = {.hdr.dst_port = htons(port)};
    struct rte_flow_item_udp all = {.hdr.dst_port = 0xffff};
    struct rte_flow_item pattern[] = {
        {.type = RTE_FLOW_ITEM_TYPE_ETH}, {.type = RTE_FLOW_ITEM_TYPE_IPV4},
        {.type = RTE_FLOW_ITEM_TYPE_UDP, .spec = &to, .mask = &all},
        {.type = RTE_FLOW_ITEM_TYPE_END}};
    struct rte_flow_action_queue there = {.index = queue};
    struct rte_flow_action actions[] = {{.type = RTE_FLOW_ACTION_TYPE_QUEUE, .conf = &there},
                                        {.type = RTE_FLOW_ACTION_TYPE_END}};
    struct rte_flow_error error;
    return rte_flow_create(device, &way, pattern, actions, &error);
}

static int set_rules(const struct rp_queues *queues, uint16_t device) {
    struct rte_flow_error error;
    for (uint16_t queue = 0; queue < queues->count; queue++) {
        if (!make_rule(device, (uint16_t)(queues->first_port + queue), queue)) {
            (void)rte_flow_flush(device, &error);
            return 0;
        }
    }
    return 1;
}

static int read_hash(struct rp_steer *steer, uint16_t device, const struct rte_eth_dev_info *info) {
    struct rte_eth_rss_reta_entry64 entries[RP_STEER_TABLE / RTE_ETH_RETA_GROUP_SIZE];
    uint8_t key[RP_STEER_KEY_MAX] = {0};
    struct rte_eth_rss_conf hash = {.rss_key = key, .rss_key_len = sizeof key};
    uint32_t size = info->reta_size;
    if (!size || size > RP_STEER_TABLE || (size & (size - 1))
        || info->hash_key_size < RP_STEER_KEY || info->hash_key_size > sizeof key
        || rte_eth_dev_rss_hash_conf_get(device, &hash)
        || !(hash.rss_hf & RTE_ETH_RSS_NONFRAG_IPV4_UDP)) {
        return 0;
    }
    memset(entries, 0, sizeof entries);
    for (uint32_t i = 0; i < size; i++) {
        entries[i / RTE_ETH_RETA_GROUP_SIZE].mask |= 1ull << i % RTE_ETH_RETA_GROUP_SIZE;
    }
    if (rte_eth_dev_rss_reta_query(device, entries, (uint16_t)size)) {
        return 0;
    }
    for (uint32_t i = 0; i < size; i++) {
        steer->table[i] =
            entries[i / RTE_ETH_RETA_GROUP_SIZE].reta[i % RTE_ETH_RETA_GROUP_SIZE];
    }
    memcpy(steer->key, key, sizeof steer->key);
    steer->table_size = size;
    return 1;
}

void rp_queues_settle(struct rp_queues *queues, uint16_t device,
                      const struct rte_eth_dev_info *info) {
    queues->how = set_rules(queues, device) ? RP_QUEUES_RULES
        : read_hash(&queues->steer, device, info) ? RP_QUEUES_HASH : RP_QUEUES_UNKNOWN;
}

/* Two threads must not poll one queue: nobody does while it changes hands. */
void rp_queues_share_out(struct rp_queues *queues, uint32_t served) {
    uint32_t first = served ? (uint32_t)__builtin_ctz(served) + 1 : 0, pollers[RP_DPDK_LANES];
    uint32_t before, taken_away = 0;
    for (uint32_t queue = 0; queue < queues->count; queue++) {
        pollers[queue] = served >> queue & 1 ? queue + 1 : first;
        before = atomic_load(&queues->pollers[queue]);
        if (before && before != pollers[queue]) {
            atomic_store(&queues->pollers[queue], 0);
            taken_away = 1;
        }
    }
    if (taken_away) {
        rp_bursts_await();
    }
    for (uint32_t queue = 0; queue < queues->count; queue++) {
        atomic_store(&queues->pollers[queue], pollers[queue]);
    }
}

uint16_t rp_queues_port(const struct rp_queues *queues, const struct rp_frame_view *view,
                        const uint8_t *ip, uint32_t attempt) {
    struct rp_steer_flow flow = {.from_port = view->from.port, .to_port = view->to_port};
    if (queues->how != RP_QUEUES_HASH) {
        return 0;
    }
    memcpy(flow.from, view->from.ip, sizeof flow.from);
    memcpy(flow.to, ip, sizeof flow.to);
    return rp_steer_port(&queues->steer, &flow, (uint16_t)(view->to_port - queues->first_port),
                         attempt);
}
