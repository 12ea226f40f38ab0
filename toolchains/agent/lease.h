/* Who may use the board: the controller with the greatest epoch in the lease file.
 *
 * Whoever changes something on the board holds a shared lock meanwhile, and has looked at the lease
 * under it; a new lease is written under the exclusive one. So once a new epoch is in the file, no
 * change of an older one is under way, and none begins. The kernel gives a lock back when the last
 * process is gone that has it: an agent that is killed leaves none, and what its children still do,
 * they do under its lock. A power cut leaves no lock and no process; the file was durable before
 * the new epoch was believed.
 *
 * The lock is that of the directory that holds the lease: the file itself is replaced. A controller
 * that writes the file without an agent (labctl before agent 5) locks nothing; all the same the
 * next look sees its epoch.
 */
#ifndef LABCTL_LEASE_H
#define LABCTL_LEASE_H

#include <stdbool.h>
#include <stdint.h>

enum lease {
    LEASE_HELD,       /* nobody with a greater epoch has come; also when there is no file */
    LEASE_STALE,      /* *current: the greater epoch */
    LEASE_UNREADABLE, /* there is something, but no epoch can be read from it: errno, or 0 */
};

/* *current is 0 when there is no file. Only a regular file of its own, of less than 4 KiB, is a
 * lease: no symbolic link, and nothing that a reader has to wait for. */
enum lease lease_check(const char *path, uint64_t epoch, uint64_t *current);

/* A command's lease; path NULL: none was asked for, and everything is allowed. */
struct lease_hold {
    const char *path;
    uint64_t epoch;
    int lock; /* -1: none */
};

/* Lock, then look. 0, or a message was printed and this is the exit status. A program that is
 * executed keeps the lock if `inherited`. */
int lease_enter(struct lease_hold *hold, bool inherited);
void lease_leave(struct lease_hold *hold);
/* As lease_enter, without a word: 0, or an errno (ESTALE: another controller has the board). */
int lease_begin(struct lease_hold *hold);

#endif
