/* Admission to `agent receive`: the first caller that sends its token.
 *
 * Everything on the board reaches a port on its loopback, so strangers are heard beside the peer:
 * one that says nothing, or slowly, keeps nobody waiting. When too many call, the one that has
 * been here longest has to go; the peer says its token at once.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "receive.h"
#include "util.h"

#define CALLERS 16

struct caller {
    size_t received;
    char digits[TOKEN_DIGITS];
};

struct callers {
    struct caller each[CALLERS];
    /* Of each caller, -1 where there is none (poll passes over it); the listener is the last. */
    struct pollfd waiting[CALLERS + 1];
    int next;
};

bool make_token(char token[TOKEN_DIGITS + 1])
{
    unsigned char random[TOKEN_DIGITS / 2];
    if (getrandom(random, sizeof random, 0) != sizeof random)
        return false;
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(token + 2 * i, 3, "%02x", random[i]);
    return true;
}

static void hang_up(struct pollfd *caller)
{
    if (caller->fd >= 0)
        close(caller->fd);
    caller->fd = -1;
}

static void take_call(struct callers *callers)
{
    int fd = accept4(callers->waiting[CALLERS].fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return;
    struct pollfd *place = &callers->waiting[callers->next];
    hang_up(place);
    *place = (struct pollfd){ .fd = fd, .events = POLLIN };
    callers->each[callers->next].received = 0;
    callers->next = (callers->next + 1) % CALLERS;
}

/* Read from a caller. True when it has sent the token, which is compared in constant time. */
static bool hear(struct caller *caller, struct pollfd *waiting, const char *token)
{
    ssize_t got = recv(waiting->fd, caller->digits + caller->received,
                       TOKEN_DIGITS - caller->received, MSG_DONTWAIT);
    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return false;
    if (got > 0)
        caller->received += (size_t)got;
    if (got > 0 && caller->received < TOKEN_DIGITS)
        return false;
    unsigned char differs = got <= 0;
    for (int i = 0; i < TOKEN_DIGITS && got > 0; i++)
        differs |= (unsigned char)(caller->digits[i] ^ token[i]);
    if (differs)
        hang_up(waiting);
    return !differs;
}

int admit(int listener, const char *token, int ms)
{
    const int64_t end = monotonic_ns() + (int64_t)ms * NS_PER_MS;
    struct callers callers = { .next = 0 };
    int peer = -1;
    for (int i = 0; i < CALLERS; i++)
        callers.waiting[i].fd = -1;
    callers.waiting[CALLERS] = (struct pollfd){ .fd = listener, .events = POLLIN };
    while (peer < 0) {
        int64_t left = (end - monotonic_ns()) / NS_PER_MS;
        int ready = left > 0 ? poll(callers.waiting, CALLERS + 1, (int)left) : 0;
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0)
            break;
        for (int i = 0; i < CALLERS && peer < 0; i++)
            if (callers.waiting[i].revents && hear(&callers.each[i], &callers.waiting[i], token)) {
                peer = callers.waiting[i].fd;
                callers.waiting[i].fd = -1;
            }
        if (peer < 0 && callers.waiting[CALLERS].revents)
            take_call(&callers);
    }
    for (int i = 0; i < CALLERS; i++)
        hang_up(&callers.waiting[i]);
    return peer;
}
