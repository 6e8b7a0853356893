/* Stores to the region, as places a simulator can kill at.
 *
 * Every store that must survive a crash goes through intent.h or rp_region_copy; each such place
 * names itself with RP_SITE(). In the product the macro is empty. Built with -DRP_SIMULATE it calls
 * rp_site_hit, which the simulator provides: it counts, and now and then does not return (longjmp),
 * as if the process had died just there.
 */
#ifndef RP_SITE_H
#define RP_SITE_H

struct rp_site {
    const char *file;
    int line;
    unsigned hits;
    unsigned kills;
};

#ifdef RP_SIMULATE
void rp_site_hit(struct rp_site *site);
/* All sites lie between __start_rp_sites and __stop_rp_sites (the linker's names for the section),
 * back to back. The alignment is given, since a compiler may else raise it for speed and leave
 * gaps. */
#define RP_SITE() \
    do { \
        static struct rp_site rp_this_site \
            __attribute__((section("rp_sites"), used, aligned(8))) = {__FILE__, __LINE__, 0, 0}; \
        rp_site_hit(&rp_this_site); \
    } while (0)
#else
#define RP_SITE() \
    do { \
    } while (0)
#endif

#endif
