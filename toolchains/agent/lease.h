/* Who may use the board: the controller with the greatest epoch in the lease file. */
#ifndef LABCTL_LEASE_H
#define LABCTL_LEASE_H

#include <stdint.h>

enum lease {
    LEASE_HELD,       /* nobody with a greater epoch has come; also when there is no file */
    LEASE_STALE,      /* *current: the greater epoch */
    LEASE_UNREADABLE, /* there is a file, but no epoch can be read from it: errno, or 0 */
};

enum lease lease_check(const char *path, uint64_t epoch, uint64_t *current);

#endif
